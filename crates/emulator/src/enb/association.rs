//! Associations of an eNB with the MMEs of a pool (S1-Flex, TS 23.401 4.3.8.3, TS 36.412 clause 7).
//!
//! S1 is set up on each. The connection of a UE belongs to one MME, and ends with its association.

use super::{ConnectionId, Enb, Outbox, S1State};
use crate::ran::{Fault, PduRoute, SendError, ue_stream};
use vireo_types::Guti;
use vireo_wire::s1ap::extract_s1ap_ies;
use vireo_wire::s1ap::*;

/// State of one association.
#[derive(Clone, Debug)]
pub(super) struct Association {
    pub(super) state: S1State,
    streams: u16,
    /// MME Codes that the MME serves.
    codes: Vec<u8>,
    /// Relative MME Capacity (TS 36.413 9.2.3.17).
    capacity: u8,
}

impl Association {
    const DOWN: Association = Association { state: S1State::Down, streams: 2, codes: Vec::new(), capacity: 0 };
}

/// Returns the MME Code of a GUTI (TS 23.003 2.10.2.1).
pub(super) fn mme_code(guti: Guti) -> u8 {
    guti.guami.mme().1
}

impl Enb {
    pub(super) fn association(&mut self, by: u8) -> &mut Association {
        let at = usize::from(by);
        if self.associations.len() <= at {
            self.associations.resize(at + 1, Association::DOWN);
        }
        &mut self.associations[at]
    }

    /// Returns the state of one association.
    pub fn association_state(&self, by: u8) -> S1State {
        self.associations.get(usize::from(by)).map_or(S1State::Down, |association| association.state)
    }

    /// Returns the number of associations that carry UEs.
    pub fn associations_up(&self) -> usize {
        self.up().count()
    }

    fn up(&self) -> impl Iterator<Item = (u8, &Association)> {
        (0u8..).zip(&self.associations).filter(|(_, association)| association.state == S1State::Up)
    }

    /// Returns association `by`, or one that is up if `by` is not.
    pub(crate) fn pick_live(&self, by: u8) -> u8 {
        if self.association_state(by) == S1State::Up { by } else { self.up().next().map_or(by, |(by, _)| by) }
    }

    /// Selects the MME of a new connection: that of the UE's GUTI, or one by the relative
    /// capacities (TS 36.413 9.2.3.17). It mixes the owner number, since the UE numbers of one eNB
    /// may have a common pattern.
    pub(super) fn choose(&self, owner: u32, guti: Option<Guti>) -> u8 {
        let code = guti.map(mme_code);
        let serves = |association: &Association| code.is_some_and(|code| association.codes.contains(&code));
        if let Some((by, _)) = self.up().find(|(_, association)| serves(association)) {
            return by;
        }
        let total: u32 = self.up().map(|(_, association)| u32::from(association.capacity)).sum();
        let mut draw = (owner.wrapping_mul(0x9e37_79b9) >> 16).checked_rem(total).unwrap_or(0);
        for (by, association) in self.up() {
            match draw.checked_sub(u32::from(association.capacity)) {
                Some(rest) => draw = rest,
                None => return by,
            }
        }
        self.pick_live(0)
    }

    /// Returns the route of messages that are not about a UE: the association of the last received
    /// message, stream 0 (TS 36.412 clause 7).
    pub(super) fn common(&self) -> PduRoute {
        PduRoute { by: self.current, stream: 0 }
    }

    /// Returns the route of a UE's messages.
    pub(super) fn stream(&self, id: ConnectionId) -> PduRoute {
        let (owner, by) = self.connections.get(id).map_or((0, self.current), |c| (c.owner, c.by));
        let streams = self.associations.get(usize::from(by)).map_or(2, |association| association.streams);
        PduRoute { by, stream: ue_stream(owner, streams) }
    }

    /// Sends S1 SETUP REQUEST on an association that is up with this number of outbound streams.
    pub fn attach(&mut self, by: u8, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        self.detach(by);
        *self.association(by) = Association { state: S1State::SettingUp, streams, ..Association::DOWN };
        self.current = by;
        self.request_set_up(out)
    }

    /// Handles the loss of an association. Returns the UEs whose connections have ended with it.
    pub fn detach(&mut self, by: u8) -> Vec<u32> {
        *self.association(by) = Association::DOWN;
        self.connections.remove_by(by)
    }

    /// Handles S1 SETUP RESPONSE (TS 36.413 9.1.8.5).
    pub(super) fn on_setup_response(&mut self, pdu: &S1APPDU<'_>) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, S1SetupResponse,
            req served: ServedGUMMEIs = ServedGUMMEIs(list) => list,
            req capacity: u8 = RelativeMMECapacity(capacity) => capacity.0,
        );
        let codes = served.0.iter().flat_map(|item| item.served_mmecs.0.iter().map(|MMECode([code])| *code)).collect();
        let by = self.current;
        let association = self.association(by);
        (association.state, association.codes, association.capacity) = (S1State::Up, codes, capacity);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EnbConfig, Event, Inbox, Violation};
    use super::*;
    use vireo_types::{Guami, Tac, Tai, Tmsi};
    use vireo_wire::s1ap::build_s1ap;

    const OWNER: u32 = 7;

    fn enb() -> Enb {
        let tai = Tai { plmn: "99970".parse().expect("a PLMN"), tac: Tac(1) };
        Enb::new(EnbConfig { id: 1, name: "enb".into(), tai, s1u: [127, 0, 0, 1].into() })
    }

    fn up(enb: &mut Enb, by: u8, code: u8, capacity: u8) {
        enb.attach(by, 4, &mut Outbox::default()).expect("it encodes");
        let plmn = PLMNidentity(TBCDSTRING(enb.config().tai.plmn.ngap()));
        let served = ServedGUMMEIsItem::new(
            ServedPLMNs(vec![plmn]),
            ServedGroupIDs(vec![MMEGroupID([2, 0])]),
            ServedMMECs(vec![MMECode([code])]),
            None,
        );
        let response = build_s1ap!(
            SuccessfulOutcome,
            S1Setup,
            S1SetupResponse,
            ServedGUMMEIs(ServedGUMMEIs(vec![served])),
            RelativeMMECapacity(RelativeMMECapacity(capacity)),
        );
        let response = response.and_then(|pdu| pdu.encode()).expect("it encodes");
        enb.receive_by(by, &response, &mut Inbox::default(), &mut Outbox::default()).expect("it is taken");
    }

    fn guti(code: u8) -> Option<Guti> {
        let plmn = "99970".parse().expect("a PLMN");
        Some(Guti { guami: Guami { plmn, region: 2, set: 1, pointer: code & 0x3f }, tmsi: Tmsi(1) })
    }

    #[test]
    fn ue_goes_to_mme_of_its_guti() {
        let mut enb = enb();
        up(&mut enb, 0, 0x40, 255);
        up(&mut enb, 1, 0x41, 255);
        assert_eq!((enb.choose(OWNER, guti(0x40)), enb.choose(OWNER, guti(0x41))), (0, 1));
        enb.detach(1);
        assert_eq!((enb.choose(OWNER, guti(0x41)), enb.associations_up()), (0, 1));
    }

    #[test]
    fn new_ues_follow_relative_capacity() {
        let mut enb = enb();
        up(&mut enb, 0, 0x40, 192);
        up(&mut enb, 1, 0x41, 64);
        let first = (0..1000).filter(|owner| enb.choose(*owner, None) == 0).count();
        assert!((700..800).contains(&first), "{first} of 1000 at the larger MME");
        up(&mut enb, 0, 0x40, 0);
        assert!((0..100).all(|owner| enb.choose(owner, None) == 1), "capacity 0 takes no new UE");
    }

    /// TS 36.413 10.6. A core without the connection answers each of two late messages.
    #[test]
    fn second_release_is_answered_by_error() {
        let mut enb = enb();
        up(&mut enb, 0, 0x40, 255);
        let cause = RRCEstablishmentCause::mo_Signalling;
        let id = enb.initial_ue(OWNER, &[7], None, cause, &mut Outbox::default()).expect("it encodes");
        let mut release = |mme: u32| {
            let pair = UES1APIDPair::new(MMEUES1APID(mme), ENBUES1APID(id.0), None);
            let command = build_s1ap!(
                InitiatingMessage,
                UEContextRelease,
                UEContextReleaseCommand,
                UE_S1AP_IDs(UES1APIDs::uE_S1AP_ID_pair(pair)),
                Cause(Cause::nas(CauseNas::normal_release)),
            );
            let command = command.and_then(|pdu| pdu.encode()).expect("it encodes");
            let (mut inbox, mut out) = (Inbox::default(), Outbox::default());
            enb.receive(&command, &mut inbox, &mut out).expect("it is taken");
            let kinds = out.pdus().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU").kind());
            (inbox.events, kinds.collect::<Vec<_>>())
        };
        let (events, answers) = release(5);
        assert!(matches!(events[..], [Event::Released { owner: OWNER, .. }]), "{events:?}");
        assert_eq!(answers, [S1apPduKind::Successful_UEContextRelease]);
        assert_eq!(release(5), (Vec::new(), vec![S1apPduKind::Initiating_ErrorIndication]));
        let (events, _) = release(6);
        assert_eq!(events, [Event::Violation(Violation::UnknownUe)], "another connection");
    }

    #[test]
    fn lost_association_ends_its_connections_only() {
        let mut enb = enb();
        up(&mut enb, 0, 0x40, 255);
        up(&mut enb, 1, 0x41, 255);
        let mut out = Outbox::default();
        let cause = RRCEstablishmentCause::mo_Signalling;
        let one = enb.initial_ue(1, &[7], guti(0x40), cause, &mut out).expect("it encodes");
        let two = enb.initial_ue(2, &[7], guti(0x41), cause, &mut out).expect("it encodes");
        assert_eq!(out.routes().map(|(way, _)| way.by).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(enb.detach(0), [1]);
        assert_eq!((enb.owner(one), enb.owner(two), enb.state()), (None, Some(2), S1State::Up));
        assert_eq!(enb.detach(1), [2]);
        assert_eq!((enb.connected(), enb.state()), (0, S1State::Down));
    }
}
