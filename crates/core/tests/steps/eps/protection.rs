//! EMM and ESM messages that are accepted in each state with each protection (TS 24.301 4.4.4.3,
//! 4.4.5).

use super::network::{Network, emm};
use crate::protection::{Contexts, Row, Walked, walk};
use vireo_core::amf::context::{Connection, Procedure, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::amf::engine::emm_protection::{Message, TABLE};
use vireo_core::amf::engine::protection::Rule;
use vireo_core::amf::procedures::common::security_setup::AwaitedResponse;
use vireo_core::step::StepOutput;
use vireo_wire::nas_eps::{AttachType, NasEpsAttachType, NasEpsMessage};

/// Requirements of TS 24.301 4.4.4.3 and 4.4.5, independent of the code. ATTACH REQUEST and
/// TRACKING AREA UPDATE REQUEST are never ciphered (4.4.5). The header of SERVICE REQUEST is the
/// whole message.
const WANTED: [Row<Message>; 19] = [
    //                                     no context  context  established
    (Message::AttachRequest, ["++-..", "..++.", "..++."]),
    (Message::AttachComplete, ["..-..", ".....", "...+."]),
    (Message::DetachRequest, ["++-..", "..++.", "...+."]),
    (Message::DetachAccept, ["..-..", "..++.", "...+."]),
    (Message::UpdateRequest, ["ff-..", "..++.", "..++."]),
    (Message::UpdateComplete, ["..-..", ".....", "...+."]),
    (Message::ServiceRequest, ["-f---", "-.+--", "-.+--"]),
    (Message::ExtendedServiceRequest, ["ff-..", "..++.", "...+."]),
    (Message::ControlPlaneServiceRequest, ["ff-..", "..++.", "...+."]),
    (Message::GutiReallocationComplete, ["..-..", ".....", "...+."]),
    (Message::AuthenticationResponse, ["cc-..", "cc++.", "...+."]),
    (Message::AuthenticationFailure, ["cc-..", "cc++.", "...+."]),
    (Message::IdentityResponse, ["ii-..", "ii++.", "...+."]),
    (Message::SecurityModeComplete, ["..-.s", "....s", "....s"]),
    (Message::SecurityModeReject, ["ss-..", "ss++.", "...+."]),
    (Message::EmmStatus, ["..-..", ".....", "...+."]),
    (Message::Transport, ["..-..", ".....", "...+."]),
    (Message::Esm, ["..-..", ".....", "...+."]),
    (Message::Unknown, ["..-..", ".....", "...+."]),
];

const GUTI: [u8; 12] = [11, 0xf6, 0x99, 0xf9, 0x07, 0x02, 0x00, 0x43, 0xde, 0xad, 0xbe, 0xef];

/// The 4G network that receives the messages.
struct Eps(Network);

impl Walked for Eps {
    type Message = Message;
    const TABLE: &'static [Rule<Message>] = TABLE;

    fn samples(message: Message) -> Vec<Vec<u8>> {
        let samples = octets(message);
        for plain in &samples {
            let sound = NasEpsMessage::decode(plain).is_ok();
            assert!(sound || message == Message::Unknown, "{plain:02x?}");
        }
        samples
    }

    fn read(plain: &[u8]) -> Option<Message> {
        Message::from_octets(plain)
    }

    fn uplink(connection: &Connection, nas: &[u8]) -> Vec<u8> {
        super::network::uplink_nas(connection.amf_id.mme(), connection.ran_id.0, nas)
    }

    fn try_step(&mut self, ue: &mut UeContext, event: Event<'_>) -> StepOutput {
        self.0.try_step(ue, event)
    }
}

fn octets(message: Message) -> Vec<Vec<u8>> {
    let of = |rest: &[u8]| vec![[&[0x07], rest].concat()];
    match message {
        // It differs from the request of the attach in progress.
        Message::AttachRequest => {
            let mut request = Network::new().attach_request();
            request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::CombinedEpsImsiAttach);
            vec![emm(request).encode().expect("it encodes")]
        }
        Message::AttachComplete => of(&[0x43, 0, 3, 0x52, 0, 0xc2]),
        Message::DetachRequest => [1, 2, 3].map(|kind| [&[0x07, 0x45, kind], &GUTI[..]].concat()).to_vec(),
        Message::DetachAccept => of(&[0x46]),
        Message::UpdateRequest => [0, 3, 8].map(|kind| [&[0x07, 0x48, kind], &GUTI[..]].concat()).to_vec(),
        Message::UpdateComplete => of(&[0x4a]),
        Message::ServiceRequest => vec![vec![0xc7, 0x00, 0xde, 0xad]],
        // For packet services and for CS fallback.
        Message::ExtendedServiceRequest => {
            [8, 0].map(|kind| vec![0x07, 0x4c, kind, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef]).to_vec()
        }
        Message::ControlPlaneServiceRequest => of(&[0x4d, 0]),
        Message::GutiReallocationComplete => of(&[0x51]),
        Message::AuthenticationResponse => of(&[0x53, 8, 7, 7, 7, 7, 7, 7, 7, 7]),
        Message::AuthenticationFailure => of(&[0x5c, 20]),
        Message::IdentityResponse => of(&[0x56, 8, 0x99, 0x99, 0x07, 0, 0, 0, 0, 0x10]),
        Message::SecurityModeComplete => of(&[0x5e]),
        Message::SecurityModeReject => of(&[0x5f, 24]),
        Message::EmmStatus => of(&[0x60, 0x61]),
        Message::Transport => vec![vec![0x07, 0x63, 3, 1, 2, 3], vec![0x07, 0x69, 1, 0, 2, 1, 2]],
        Message::Esm => esm(),
        Message::Unknown => [&[0x3f][..], &[0x42], &[0x52], &[0x7f]].map(|rest| [&[0x07], rest].concat()).to_vec(),
    }
}

/// Returns an ESM message of each type that a UE sends (TS 24.301 table 9.8.2).
fn esm() -> Vec<Vec<u8>> {
    [
        &[0x02, 1, 0xd0, 0x11][..],
        &[0x02, 1, 0xd2, 5],
        &[0x02, 1, 0xd4, 5, 1, 0, 1, 9],
        &[0x02, 1, 0xd6, 5, 1, 0],
        &[0x02, 1, 0xda],
        &[0x52, 0, 0xc2],
        &[0x52, 0, 0xc3, 26],
        &[0x62, 0, 0xc6],
        &[0x62, 0, 0xc7, 26],
        &[0x52, 0, 0xca],
        &[0x52, 0, 0xcb, 26],
        &[0x52, 0, 0xce],
        &[0x52, 0, 0xe8, 43],
        &[0x52, 0, 0xeb, 0, 1, 0xff],
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

/// Returns the context of a UE that attaches and receives at most this many messages.
fn attaching(guti: Option<&[u8]>, received: usize) -> Network {
    let mut network = Network::new();
    network.ue.remaining = Some(received);
    network.ue.guti = guti.map(|guti| vireo_wire::nas_eps::NasEpsMobileIdentity::new(guti[1..].to_vec()));
    network.attach();
    network
}

fn contexts() -> (Eps, Contexts) {
    let [identified, challenged, commanded] = [attaching(Some(&GUTI), 0), attaching(None, 0), attaching(None, 1)];
    let context = |network: &Network| network.context().expect("a context");
    let procedure = |network: &Network| -> Procedure { context(network).procedure.expect("an attach") };
    let waiting = [
        (AwaitedResponse::Identity, procedure(&identified)),
        (AwaitedResponse::Challenge, procedure(&challenged)),
        (AwaitedResponse::SecurityMode, procedure(&commanded)),
    ];
    let mut other = Network::new();
    // Another vector, and therefore other keys.
    other.ue.sqn = 0x10_0000;
    other.attach();
    assert!(context(&other).is_registered(), "{:?}", other.notes);
    let initial = challenged.initial.clone().expect("a first message");
    let (new, registered) = (context(&challenged), context(&other));
    (Eps(challenged), Contexts { initial, new, registered, waiting })
}

#[test]
fn whole_table_through_engine() {
    let (mut network, contexts) = contexts();
    let (cells, accepted) = walk(&mut network, &contexts, &WANTED);
    let samples: usize = WANTED.iter().map(|(message, _)| octets(*message).len()).sum();
    assert_eq!(cells, (samples - 1) * (4 * 5 + 5 * 5 + 5 * 4) + (5 + 2 * 5 + 2 * 4));
    assert!(accepted > 250, "{accepted} of {cells}");
}

#[test]
fn table_names_every_message_and_clause() {
    crate::protection::assert_complete(&Message::ALL, &WANTED, TABLE);
}
