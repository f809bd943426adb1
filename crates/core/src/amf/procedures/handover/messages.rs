//! Messages of a handover in the dialect of a RAN node.

use super::{eps, nr};
use crate::amf::context::{Connection, NextHop, S1_TO_N1_OCTETS, UeContext, UeSecurityCapability};
use crate::amf::n2::{Cause, HandoverRequired, SessionItems, UeInformation};
use crate::smf::{self, HandoverRefusal};
use crate::subscription::Ambr;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Guami, RanUeNgapId, Snssai};

/// Contents of the acknowledgement of a path switch.
#[derive(Debug)]
pub struct PathSwitchAnswer<'a> {
    /// UE security capabilities, if those of the RAN differ.
    pub capability: Option<UeSecurityCapability>,
    pub next_hop: NextHop,
    /// True if the next hop is the KgNB of NAS keys that the gNB has no key of yet.
    pub is_renewed: bool,
    /// Switched sessions with the answers of the SMF.
    pub switched: SessionItems,
    /// Sessions that the RAN node must release, with the answers of the SMF.
    pub released: SessionItems,
    pub ambr: Ambr,
    pub allowed: &'a [Snssai],
    /// Algorithms of NR, for an eNB whose ones differ.
    pub nr_algorithms: Option<(u16, u16)>,
    pub information: UeInformation,
}

/// Session that the target is requested to set up.
#[derive(Debug)]
pub struct RequestedSession {
    /// PDU session identity, 1 to 15, or EPS bearer identity.
    pub psi: u8,
    pub snssai: Snssai,
    /// Set-up request of the SMF.
    pub transfer: Vec<u8>,
    /// True if the source can forward packets to the target.
    pub forwards: bool,
}

/// Contents of HANDOVER REQUEST.
#[derive(Debug)]
pub struct Request<'a> {
    pub guami: Guami,
    /// Cause of the HANDOVER REQUIRED.
    pub cause: Cause,
    pub ambr: Ambr,
    pub capability: UeSecurityCapability,
    pub next_hop: NextHop,
    pub sessions: Vec<RequestedSession>,
    pub allowed: &'a [Snssai],
    /// Source to Target Transparent Container.
    pub container: &'a [u8],
    /// Algorithms of NR for EN-DC, for an eNB.
    pub nr_algorithms: Option<(u16, u16)>,
    pub information: UeInformation,
    /// Contents for a source in the other system.
    pub mapped: Option<MappedRequest>,
}

/// Contents of HANDOVER REQUEST for a source in the other system.
#[derive(Clone, Copy, Debug)]
pub struct MappedRequest {
    /// Value of the S1 mode to N1 mode NAS transparent container, for a target of 5GS.
    pub container: Option<[u8; S1_TO_N1_OCTETS]>,
}

/// Contents of HANDOVER COMMAND for a target in the other system.
#[derive(Clone, Copy, Debug)]
pub struct MappedCommand {
    /// Value of the N1 mode to S1 mode NAS transparent container, for a source of 5GS.
    pub container: u8,
}

/// Returns the sessions that a HANDOVER REQUIRED concerns. S1AP names none: all of the UE's.
pub(super) fn required_sessions(dialect: Dialect, ue: &UeContext, request: &HandoverRequired) -> SessionItems {
    match dialect {
        Dialect::Nr => request.sessions.clone(),
        Dialect::Eps => {
            let required = smf::erab_to_move(request.is_direct);
            ue.sessions.iter().map(|session| (session.id(), required.clone())).collect()
        }
    }
}

/// Returns ciphering and integrity algorithms of a UE as a path switch has them, without the null
/// algorithms.
pub(super) fn algorithms(dialect: Dialect, capability: UeSecurityCapability) -> (u8, u8) {
    match dialect {
        Dialect::Nr => (capability.ea() << 1, capability.ia() << 1),
        Dialect::Eps => (capability.eea() << 1, capability.eia() << 1),
    }
}

/// Returns the refusal of a session. EPS has none: the message has a cause for each E-RAB.
pub(super) fn refusal(dialect: Dialect, refusal: HandoverRefusal) -> Vec<u8> {
    match dialect {
        Dialect::Nr => smf::refusal(refusal),
        Dialect::Eps => Vec::new(),
    }
}

/// Encodes the acknowledgement of a path switch.
pub(super) fn path_switch_acknowledge(connection: &Connection, answer: PathSwitchAnswer<'_>) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => nr::path_switch_acknowledge(connection, answer),
        Dialect::Eps => eps::path_switch_acknowledge(connection, answer),
    }
}

/// Encodes the failure of a path switch. NGAP has refused sessions, S1AP a cause.
pub(super) fn path_switch_failure(
    dialect: Dialect,
    (amf_id, ran_id): (AmfUeNgapId, RanUeNgapId),
    sessions: SessionItems,
    cause: &Cause,
) -> Vec<u8> {
    match dialect {
        Dialect::Nr => nr::path_switch_failure(amf_id, ran_id, sessions),
        Dialect::Eps => eps::path_switch_failure(amf_id, ran_id, cause),
    }
}

/// Encodes the request to the target.
pub(super) fn handover_request(target: AssocId, amf_id: AmfUeNgapId, request: Request<'_>) -> Vec<u8> {
    match target.dialect() {
        Dialect::Nr => nr::handover_request(amf_id, request),
        Dialect::Eps => eps::handover_request(amf_id, request),
    }
}

/// Encodes the command to the source, with the sessions that are handed over and those that are
/// lost. `mapped` is set if the target is in the other system.
pub(super) fn handover_command(
    connection: &Connection,
    (sessions, lost): (SessionItems, SessionItems),
    container: &[u8],
    mapped: Option<MappedCommand>,
) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => nr::handover_command(connection, (sessions, lost), container, mapped),
        Dialect::Eps => eps::handover_command(connection, (&sessions, &lost), container, mapped.is_some()),
    }
}

/// Encodes the failure of a preparation, for the source.
pub(super) fn preparation_failure(connection: &Connection, cause: Cause) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => nr::preparation_failure(connection, cause),
        Dialect::Eps => eps::preparation_failure(connection, &cause),
    }
}

/// Encodes the acknowledgement of a cancellation, for the source.
pub(super) fn cancel_acknowledge(connection: &Connection) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => nr::cancel_acknowledge(connection),
        Dialect::Eps => eps::cancel_acknowledge(connection),
    }
}

/// Encodes the status transfer to the target, with the container of the source's.
pub(super) fn status_transfer(target: AssocId, amf_id: AmfUeNgapId, ran_id: RanUeNgapId, container: &[u8]) -> Vec<u8> {
    match target.dialect() {
        Dialect::Nr => nr::downlink_status_transfer(amf_id, ran_id, container),
        Dialect::Eps => eps::mme_status_transfer(amf_id, ran_id, container),
    }
}

/// Encodes the release of resources prepared at a target: with both IDs, or only that of the core
/// while the other is unknown.
pub(super) fn release_target(
    target: AssocId,
    amf_id: AmfUeNgapId,
    ran_id: Option<RanUeNgapId>,
    cause: Cause,
) -> Vec<u8> {
    match target.dialect() {
        Dialect::Nr => nr::release_target(amf_id, ran_id, cause),
        Dialect::Eps => eps::release_target(amf_id, ran_id, &cause),
    }
}
