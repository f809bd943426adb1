//! Kinds of procedure of NFs, and the procedure in progress of a UE.
//!
//! [`crate::amf::n2::peek`] determines the kind of a *message* without decoding it;
//! [`procedure_in_progress`] determines that of a *context*. The former selects the NF of a new
//! procedure; the latter keeps the UE at that NF until the procedure ends.

use crate::amf::context::{Procedure, RanContext, UeContext};
use crate::smf::{N4State, RanState, SmContext, Stage};
use serde::{Deserialize, Serialize};

/// Kind of procedure that an NF runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NfKind {
    /// Initial and emergency registration.
    Registration,
    /// Service request of an idle UE.
    ServiceRequest,
    /// Deregistration by the UE.
    Deregistration,
    /// Xn and N2 handover.
    Handover,
    /// Mobility and periodic registration updating.
    Mobility,
    /// PDU sessions of a connected UE, and all ciphered messages.
    Session,
    /// Reports of the UPF, for which idle UEs are paged.
    Paging,
    /// Releases, deadlines, operator commands, and everything else.
    StateManagement,
}

impl NfKind {
    /// All kinds, in the order of [`NfKind::index`].
    pub const ALL: [NfKind; 8] = [
        NfKind::Registration,
        NfKind::ServiceRequest,
        NfKind::Deregistration,
        NfKind::Handover,
        NfKind::Mobility,
        NfKind::Session,
        NfKind::Paging,
        NfKind::StateManagement,
    ];

    /// Returns the index in [`NfKind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name in the configuration, in metrics and in `vireo top`.
    pub const fn name(self) -> &'static str {
        match self {
            NfKind::Registration => "registration",
            NfKind::ServiceRequest => "service-request",
            NfKind::Deregistration => "deregistration",
            NfKind::Handover => "handover",
            NfKind::Mobility => "mobility",
            NfKind::Session => "session",
            NfKind::Paging => "paging",
            NfKind::StateManagement => "state-management",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        NfKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the kind of procedure that a 5GMM message starts or continues, from its cleartext
    /// header (TS 24.501 9.7). Returns `None` for a ciphered message.
    pub fn from_nas(nas: &[u8]) -> Option<Self> {
        Some(match clear(nas)? {
            [REGISTRATION_REQUEST, kind, ..] if matches!(kind & 0x07, MOBILITY | PERIODIC) => NfKind::Mobility,
            [REGISTRATION_REQUEST..=REGISTRATION_REJECT, ..] => NfKind::Registration,
            [DEREGISTRATION_REQUEST_BY_UE..=DEREGISTRATION_ACCEPT_BY_UE, ..] => NfKind::Deregistration,
            [SERVICE_REQUEST | CONTROL_PLANE_SERVICE_REQUEST, ..] => NfKind::ServiceRequest,
            // Authentication, identification and security mode control belong to a registration.
            [0x56..=0x5f, ..] => NfKind::Registration,
            [UL_NAS_TRANSPORT, ..] => NfKind::Session,
            _ => NfKind::StateManagement,
        })
    }

    /// Returns the kind of procedure that an EMM message starts or continues, from its cleartext
    /// header (TS 24.301 9.8). Returns `None` for a ciphered message.
    pub fn from_emm(nas: &[u8]) -> Option<Self> {
        if emm::is_service_request(nas) {
            return Some(NfKind::ServiceRequest);
        }
        Some(match emm::clear(nas)? {
            [emm::ATTACH_REQUEST..=emm::ATTACH_REJECT, ..] => NfKind::Registration,
            [emm::DETACH_REQUEST | emm::DETACH_ACCEPT, ..] => NfKind::Deregistration,
            [emm::UPDATE_REQUEST..=emm::UPDATE_REJECT, ..] => NfKind::Mobility,
            [emm::EXTENDED_SERVICE_REQUEST | emm::CONTROL_PLANE_SERVICE_REQUEST, ..] => NfKind::ServiceRequest,
            // Authentication, identification and security mode control belong to an attach.
            [0x52..=0x5f, ..] => NfKind::Registration,
            _ => NfKind::StateManagement,
        })
    }

    /// Returns the kind of a UPF's PFCP message: a report pages the UE, responses belong to its
    /// session (TS 29.244 7.3).
    pub fn from_pfcp(message: &[u8]) -> Self {
        if message.get(1) == Some(&SESSION_REPORT_REQUEST) { NfKind::Paging } else { NfKind::Session }
    }
}

impl std::fmt::Display for NfKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

// Message types (TS 24.501 table 9.7.1).
pub(crate) const REGISTRATION_REQUEST: u8 = 0x41;
const REGISTRATION_REJECT: u8 = 0x44;
pub(crate) const DEREGISTRATION_REQUEST_BY_UE: u8 = 0x45;
const DEREGISTRATION_ACCEPT_BY_UE: u8 = 0x48;
pub(crate) const SERVICE_REQUEST: u8 = 0x4c;
const CONTROL_PLANE_SERVICE_REQUEST: u8 = 0x4f;
const UL_NAS_TRANSPORT: u8 = 0x67;
// 5GS registration types (TS 24.501 9.11.3.7); undefined ones count as initial registration.
const MOBILITY: u8 = 2;
const PERIODIC: u8 = 3;
// TS 29.244 table 7.3-1.
const SESSION_REPORT_REQUEST: u8 = 56;

/// Returns a 5GMM message from its message type on, if it is plain or only integrity protected (TS
/// 24.501 9.1.1). The first message under new keys is always reported as Security Mode Complete,
/// whose contents are ciphered.
pub(crate) fn clear(nas: &[u8]) -> Option<&[u8]> {
    match nas {
        [0x7e, 0x00, rest @ ..] => Some(rest),
        [0x7e, 0x01 | 0x03, _, _, _, _, _, 0x7e, 0x00, rest @ ..] => Some(rest),
        [0x7e, 0x04, ..] => Some(&[0x5e]),
        _ => None,
    }
}

/// Cleartext header of EMM messages (TS 24.301 9.2, 9.3.1, table 9.8.1).
pub(crate) mod emm {
    pub(crate) const ATTACH_REQUEST: u8 = 0x41;
    pub(super) const ATTACH_REJECT: u8 = 0x44;
    pub(crate) const DETACH_REQUEST: u8 = 0x45;
    pub(super) const DETACH_ACCEPT: u8 = 0x46;
    pub(crate) const UPDATE_REQUEST: u8 = 0x48;
    pub(super) const UPDATE_REJECT: u8 = 0x4b;
    pub(super) const EXTENDED_SERVICE_REQUEST: u8 = 0x4c;
    pub(crate) const CONTROL_PLANE_SERVICE_REQUEST: u8 = 0x4d;

    /// Returns an EMM message from its message type on, if it is plain, only integrity protected or
    /// partially ciphered.
    /// The first message under new keys is always reported as Security Mode Complete, whose
    /// contents are ciphered.
    pub(crate) fn clear(nas: &[u8]) -> Option<&[u8]> {
        match nas {
            [0x07, rest @ ..] => Some(rest),
            [0x17 | 0x37 | 0x57, _, _, _, _, _, 0x07, rest @ ..] => Some(rest),
            [0x47, ..] => Some(&[0x5e]),
            _ => None,
        }
    }

    /// Returns true for a SERVICE REQUEST, whose header has no message type (security header types
    /// 12 to 15, TS 24.301 8.2.25).
    pub(crate) fn is_service_request(nas: &[u8]) -> bool {
        matches!(nas, [0xc7 | 0xd7 | 0xe7 | 0xf7, ..])
    }
}

/// Returns the procedure in progress of a context; `None` if there is none. The UE stays at its NF
/// during a procedure.
pub fn procedure_in_progress(ue: &UeContext) -> Option<NfKind> {
    if ue.is_in_handover() || ue.source.is_some() {
        return Some(NfKind::Handover);
    }
    match &ue.procedure {
        Some(Procedure::Registration(registering)) => {
            let is_update = registering.kind().is_update();
            return Some(if is_update { NfKind::Mobility } else { NfKind::Registration });
        }
        Some(Procedure::ServiceRequest(_)) => return Some(NfKind::ServiceRequest),
        Some(Procedure::Deregistration(_)) => return Some(NfKind::Deregistration),
        Some(Procedure::Paging(_)) => return Some(NfKind::Paging),
        Some(Procedure::ConfigurationUpdate(_)) => return Some(NfKind::StateManagement),
        Some(Procedure::Authentication(authenticating)) => {
            let has_service = authenticating.has_service();
            return Some(if has_service { NfKind::ServiceRequest } else { NfKind::Registration });
        }
        None => {}
    }
    match ue.connection.map(|c| c.ran) {
        Some(RanContext::SettingUp { .. } | RanContext::Rekeying { .. }) => return Some(NfKind::ServiceRequest),
        Some(RanContext::Releasing { .. }) => return Some(NfKind::StateManagement),
        Some(RanContext::None | RanContext::Secured | RanContext::SetUp) | None => {}
    }
    (ue.sessions.iter().any(is_unsettled) || ue.remote_sessions.has_pending_response()).then_some(NfKind::Session)
}

/// Returns true if a message of UE, RAN or UPF about the session is pending.
fn is_unsettled(sm: &SmContext) -> bool {
    let towards_ue = sm.stage != Stage::Established;
    let towards_ran = matches!(sm.ran, RanState::AwaitingUpf | RanState::SettingUp | RanState::Releasing { .. });
    let is_commanded = sm.terms.change.is_some_and(|change| change.deadline().is_some());
    towards_ue
        || is_commanded
        || towards_ran
        || sm.n4 != N4State::Synced
        || sm.relocation.is_some()
        || sm.handover.forwarding.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_and_a_place_of_its_own() {
        for (n, kind) in NfKind::ALL.into_iter().enumerate() {
            assert_eq!((kind.index(), NfKind::from_name(kind.name())), (n, Some(kind)));
        }
        assert_eq!(NfKind::from_name("registrations"), None);
    }

    #[test]
    fn emm_kind_is_known_where_readable() {
        let cases: [(&[u8], Option<NfKind>); 11] = [
            (&[0x07, 0x41, 0x71], Some(NfKind::Registration)),
            (&[0x17, 1, 2, 3, 4, 5, 0x07, 0x41, 0x01], Some(NfKind::Registration)),
            (&[0x17, 1, 2, 3, 4, 5, 0x07, 0x48, 0x0b], Some(NfKind::Mobility)),
            (&[0x17, 1, 2, 3, 4, 5, 0x07, 0x45, 0x09], Some(NfKind::Deregistration)),
            (&[0xc7, 0x05, 1, 2], Some(NfKind::ServiceRequest)),
            (&[0x17, 1, 2, 3, 4, 5, 0x07, 0x4c, 0x01], Some(NfKind::ServiceRequest)),
            (&[0x57, 1, 2, 3, 4, 5, 0x07, 0x4d, 0x00], Some(NfKind::ServiceRequest)),
            (&[0x07, 0x53, 8], Some(NfKind::Registration)),
            (&[0x47, 1, 2, 3, 4, 5, 9, 9], Some(NfKind::Registration)),
            (&[0x27, 1, 2, 3, 4, 5, 9, 9], None),
            (&[], None),
        ];
        for (nas, kind) in cases {
            assert_eq!(NfKind::from_emm(nas), kind, "{nas:x?}");
        }
    }

    #[test]
    fn nas_kind_is_known_where_readable() {
        let cases: [(&[u8], Option<NfKind>); 14] = [
            (&[0x7e, 0, 0x41, 0x79], Some(NfKind::Registration)),
            (&[0x7e, 0, 0x41, 0x7c], Some(NfKind::Registration)),
            (&[0x7e, 0, 0x41], Some(NfKind::Registration)),
            (&[0x7e, 1, 1, 2, 3, 4, 5, 0x7e, 0, 0x41, 0x0a], Some(NfKind::Mobility)),
            (&[0x7e, 1, 1, 2, 3, 4, 5, 0x7e, 0, 0x41, 0x03], Some(NfKind::Mobility)),
            (&[0x7e, 1, 1, 2, 3, 4, 5, 0x7e, 0, 0x4c, 0x10], Some(NfKind::ServiceRequest)),
            (&[0x7e, 1, 1, 2, 3, 4, 5, 0x7e, 0, 0x45, 0x01], Some(NfKind::Deregistration)),
            (&[0x7e, 0, 0x57, 0x2d], Some(NfKind::Registration)),
            (&[0x7e, 4, 1, 2, 3, 4, 5, 9, 9, 9], Some(NfKind::Registration)),
            (&[0x7e, 0, 0x67, 1], Some(NfKind::Session)),
            (&[0x7e, 2, 1, 2, 3, 4, 5, 9, 9, 9], None),
            (&[0x7e, 1, 1, 2, 3, 4, 5, 0x7e], None),
            (&[0x2e, 1, 1, 0xc1], None),
            (&[], None),
        ];
        for (nas, kind) in cases {
            assert_eq!(NfKind::from_nas(nas), kind, "{nas:x?}");
        }
    }
}
