//! Entry points for the fuzz target of piggybacked SM contexts and shared records.
//!
//! A fuzz target outside the crate cannot reach the parsers of SM contexts from AMFs, and of record
//! parts from AMFs and UPFs, in another way.

use super::addresses::Addresses;
use super::session::{self, Session, SmEvent, TransactionEnv};
use super::sessions::Sessions;
use super::storage::SessionStorage;
use super::supi_seid;
use super::wire::{self, CreateRequest};
use rand::SeedableRng;
use rand::rngs::StdRng;
use vireo_core::amf::context::{self, UeContext};
use vireo_core::config::CoreConfig;
use vireo_core::sba::PiggybackedSmContext;
use vireo_core::subscription::DnnSubscription;
use vireo_ops::sbi::translate::with_piggyback;
use vireo_ops::shared_record::{self, DelegatedCommit};
use vireo_ops::ue_record::{UeRecord, stored_part};
use vireo_sbi::smf::{Operation, SM_CONTEXTS, SmContextUpdateData, UpCnxState};
use vireo_sbi::{IncomingRequest, Message, ReplyTo};
use vireo_store::records::Format;
use vireo_types::{Duration, Instant, Ltmsi, Supi};
use vireo_wire::pfcp;

/// PDU Session Establishment Request: PSI 5, PTI 1, full integrity rate, IPv4.
const REQUEST: [u8; 7] = [0x2e, 5, 1, 0xc1, 0xff, 0xff, 0x91];

/// Returns a piggybacked SM context made with this configuration; empty if the configuration allows
/// none.
pub fn piggybacked_sm_context(config: CoreConfig) -> Vec<u8> {
    let addresses = Addresses::new(&config);
    let Ok(supi) = Supi::from_digits("999700000000001") else { return Vec::new() };
    let network = config.dnns.first().map(|dnn| dnn.name.clone());
    let (Some(dnn), Some(slice)) = (network, config.slices.first()) else { return Vec::new() };
    let asked = CreateRequest {
        supi,
        psi: 5,
        snssai: slice.snssai,
        dnn,
        n1: REQUEST.to_vec(),
        status_uri: "http://amf/0".into(),
        piggyback: Some(0),
        record: None,
        implied: None,
    };
    let rng = StdRng::seed_from_u64(1);
    let mut env = TransactionEnv {
        config,
        root: "http://smf".into(),
        addresses,
        rng,
        stored: true,
        piggybacks: true,
        with_upf: false,
    };
    let turn = SmEvent::Create(Box::new((asked, DnnSubscription::default())));
    let number = supi_seid::seid(supi, 0).ltmsi();
    let outcome = session::carry_out(None, &turn, (number, None), Instant(0), &mut env);
    outcome.session.and_then(|session| session.encode_for_piggyback()).unwrap_or_default()
}

/// Returns an AMF part for a commit by the SMF, with the context of a new UE.
pub fn delegated_commit() -> Vec<u8> {
    let ue = UeContext::new(Ltmsi::from_raw(7));
    let context = context::encode(&ue, Vec::new()).unwrap_or_default();
    let stored = UeRecord { owner: 1, step: 2, context, ..UeRecord::default() };
    DelegatedCommit { record: 1, part: stored.encode().ok() }.encode()
}

/// Parses the input as an AMF part and as a UPF part to commit.
fn decode_commit(octets: &[u8]) {
    let commit = DelegatedCommit::decode(octets).or_else(|| DelegatedCommit::decode(&[&[0; 8], octets].concat()));
    if let Some(part) = commit.and_then(|commit| commit.part) {
        let _ = shared_record::AmfPartHeader::decode(&part);
        for format in [Format::Binary, Format::Json, Format::Protobuf] {
            let Some(stored) = stored_part(format, &part) else { continue };
            assert!(format.decode::<shared_record::AmfPartHeader>(&stored).is_ok(), "what was put is not read");
        }
    }
    let mut message = octets.to_vec();
    let _ = (
        shared_record::part_name(&message),
        shared_record::with_part(&mut message, octets),
        shared_record::part(&message),
    );
    let mut answer = Vec::new();
    let kind = pfcp::MessageType::SESSION_MODIFICATION_RESPONSE;
    if pfcp::Builder::new(&mut answer, kind, Some(1), 7).finish().is_ok()
        && shared_record::with_part(&mut answer, octets)
    {
        let _ = shared_record::part(&answer).and_then(shared_record::UpfPartHeader::decode);
    }
}

/// Processes the input as a piggybacked SM context: AMF requests, a UPF report, and deadlines.
pub fn take(config: CoreConfig, octets: &[u8]) {
    decode_commit(octets);
    let Some((upf, seid)) = Session::decode(octets).map(|session| (session.sm.pfcp.upf, session.sm.pfcp.cp_seid))
    else {
        return;
    };
    let timeout = Duration::from_secs(4);
    let mut sessions =
        Sessions::new(config, "http://smf".into(), StdRng::seed_from_u64(1), SessionStorage::Amf(timeout));
    let mut now = Instant(1_000_000_000);
    let carried = PiggybackedSmContext { version: 1, octets: octets.to_vec() };
    let path = format!("{SM_CONTEXTS}/{}", wire::reference(seid));
    let states = [UpCnxState::Deactivated, UpCnxState::Activating].map(Some);
    let updates = states
        .map(|up_cnx_state| Message::new(&SmContextUpdateData { up_cnx_state, ..SmContextUpdateData::default() }));
    let releases = std::iter::once((Operation::Release, Message::default()));
    for (operation, message) in updates.map(|update| (Operation::Modify, update)).into_iter().chain(releases) {
        let message = with_piggyback(message, Some(&carried));
        let call = IncomingRequest {
            path: operation.uri(&path),
            message,
            key: None,
            repeated: false,
            reply: ReplyTo::disconnected(),
        };
        sessions.call(call, now, &mut |_| Ok(None));
        let mut report = Vec::new();
        let mut builder = pfcp::Builder::new(&mut report, pfcp::MessageType::SESSION_REPORT_REQUEST, Some(seid.0), 7);
        builder.put(&pfcp::ReportType::DLDR);
        if builder.finish().is_ok() {
            sessions.pfcp((upf, seid), &report, now);
        }
        now = now + Duration::from_secs(1000);
        sessions.on_time(now);
        sessions.pfcp_timeout(seid, now);
        sessions.take_actions();
    }
}
