//! Events of RAN nodes, of either dialect. `C` is the dialect's Cause.

use super::{ConnectionId, ForwardingEnd, Violation};
use std::net::IpAddr;
use vireo_types::Tmsi;

/// State of the NG or S1 interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    /// No association, or the SETUP REQUEST was not sent yet.
    Down,
    /// NG or S1 SETUP REQUEST was sent.
    SettingUp,
    /// NG or S1 SETUP RESPONSE was received.
    Up,
}

/// Event for the caller of a gNB or eNB. A session is a PDU session or an E-RAB.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<C> {
    /// NG or S1 SETUP RESPONSE: the interface is up.
    Ready,
    SetupFailed(C),
    /// NAS message for a UE.
    Nas {
        owner: u32,
        range: std::ops::Range<usize>,
    },
    /// INITIAL CONTEXT SETUP REQUEST, or UE CONTEXT MODIFICATION REQUEST with another security key.
    /// Its NAS follows as [`Event::Nas`].
    ContextSetup {
        owner: u32,
        key: [u8; 32],
    },
    /// The tunnel of a session is set up.
    TunnelUp {
        owner: u32,
        psi: u8,
    },
    /// The tunnel of a session is released.
    TunnelDown {
        owner: u32,
        psi: u8,
    },
    /// The tunnel of a session has another end at the UPF.
    TunnelModified {
        owner: u32,
        psi: u8,
    },
    /// The session has other QoS.
    QosModified {
        owner: u32,
        psi: u8,
    },
    /// The UE's connection is released.
    Released {
        owner: u32,
        cause: C,
    },
    /// PATH SWITCH REQUEST ACKNOWLEDGE with NH and its chaining counter.
    PathSwitched {
        owner: u32,
        /// Next Hop key (NH).
        key: [u8; 32],
        /// NH chaining counter (NCC).
        chaining: u8,
        /// True if the key is the K_gNB of other NAS keys, not an NH (TS 33.501 6.9.2.3.2).
        renewed: bool,
    },
    /// PDU SESSION RESOURCE MODIFY CONFIRM.
    ModificationConfirmed {
        owner: u32,
        /// Number of sessions that are not modified.
        failed: usize,
    },
    /// DOWNLINK RAN CONFIGURATION TRANSFER with the answer of another node.
    ConfigurationReceived,
    /// The core has returned the UE radio capability that the node had reported.
    CapabilityReturned {
        owner: u32,
    },
    /// LOCATION REPORTING CONTROL, which the node has answered by LOCATION REPORT.
    LocationRequested {
        owner: u32,
    },
    /// PATH SWITCH REQUEST FAILURE: this node loses the UE.
    PathSwitchFailed {
        owner: u32,
    },
    /// HANDOVER REQUEST was accepted: NH and its chaining counter.
    HandoverPrepared {
        owner: u32,
        /// UE's connection at the source.
        source: ConnectionId,
        target: ConnectionId,
        /// Next Hop key (NH).
        key: [u8; 32],
        /// NH chaining counter (NCC).
        chaining: u8,
        /// True if the source is in the other system.
        mapped: bool,
    },
    /// HANDOVER COMMAND: the UE moves to the target.
    HandoverCommand {
        owner: u32,
        /// UE's connection at the target.
        target: ConnectionId,
        /// Value of the NAS transparent container for a UE that moves to the other system (TS
        /// 24.501 9.11.2.7, 9.11.2.9).
        nas: Vec<u8>,
        /// Sessions whose packets the source forwards.
        forwarding: Vec<ForwardingEnd>,
    },
    HandoverRefused {
        owner: u32,
        cause: C,
    },
    HandoverCancelled {
        owner: u32,
    },
    /// DOWNLINK RAN or MME STATUS TRANSFER was received.
    StatusTransfer {
        owner: u32,
    },
    /// Paging of the UE with this 5G-TMSI or M-TMSI.
    Paging(Tmsi),
    /// Paging in a window of extended DRX, whose parameters are those of NAS (TS 24.008 10.5.5.32).
    ExtendedPaging(Tmsi, u8),
    /// Acknowledgement of the node's own RESET.
    ResetDone,
    /// RAN or ENB CONFIGURATION UPDATE ACKNOWLEDGE (true) or FAILURE (false).
    ConfigurationUpdated(bool),
    /// AMF CONFIGURATION UPDATE: the AMF requests an association with each of these addresses. The
    /// caller answers with [`crate::gnb::Gnb::acknowledge_associations`].
    AssociationsWanted(Vec<IpAddr>),
    /// AMF CONFIGURATION UPDATE: the AMF has removed these addresses; the caller closes
    /// associations with them.
    AssociationsRemoved(Vec<IpAddr>),
    /// ERROR INDICATION of the core.
    ErrorIndication(ErrorReport<C>),
    /// OVERLOAD START (true) or STOP (false).
    Overload(bool),
    /// The core deviated from the specification.
    Violation(Violation),
}

impl<C> Event<C> {
    /// Returns the event with its cause converted.
    pub(crate) fn map<D>(self, cause_of: impl FnOnce(C) -> D) -> Event<D> {
        match self {
            Event::Ready => Event::Ready,
            Event::SetupFailed(cause) => Event::SetupFailed(cause_of(cause)),
            Event::Nas { owner, range } => Event::Nas { owner, range },
            Event::ContextSetup { owner, key } => Event::ContextSetup { owner, key },
            Event::TunnelUp { owner, psi } => Event::TunnelUp { owner, psi },
            Event::TunnelDown { owner, psi } => Event::TunnelDown { owner, psi },
            Event::TunnelModified { owner, psi } => Event::TunnelModified { owner, psi },
            Event::QosModified { owner, psi } => Event::QosModified { owner, psi },
            Event::Released { owner, cause } => Event::Released { owner, cause: cause_of(cause) },
            Event::PathSwitched { owner, key, chaining, renewed } => {
                Event::PathSwitched { owner, key, chaining, renewed }
            }
            Event::PathSwitchFailed { owner } => Event::PathSwitchFailed { owner },
            Event::ModificationConfirmed { owner, failed } => Event::ModificationConfirmed { owner, failed },
            Event::ConfigurationReceived => Event::ConfigurationReceived,
            Event::CapabilityReturned { owner } => Event::CapabilityReturned { owner },
            Event::LocationRequested { owner } => Event::LocationRequested { owner },
            Event::HandoverPrepared { owner, source, target, key, chaining, mapped } => {
                Event::HandoverPrepared { owner, source, target, key, chaining, mapped }
            }
            Event::HandoverCommand { owner, target, nas, forwarding } => {
                Event::HandoverCommand { owner, target, nas, forwarding }
            }
            Event::HandoverRefused { owner, cause } => Event::HandoverRefused { owner, cause: cause_of(cause) },
            Event::HandoverCancelled { owner } => Event::HandoverCancelled { owner },
            Event::StatusTransfer { owner } => Event::StatusTransfer { owner },
            Event::Paging(tmsi) => Event::Paging(tmsi),
            Event::ExtendedPaging(tmsi, drx) => Event::ExtendedPaging(tmsi, drx),
            Event::ResetDone => Event::ResetDone,
            Event::ConfigurationUpdated(taken) => Event::ConfigurationUpdated(taken),
            Event::AssociationsWanted(addresses) => Event::AssociationsWanted(addresses),
            Event::AssociationsRemoved(addresses) => Event::AssociationsRemoved(addresses),
            Event::ErrorIndication(ErrorReport { core_id, ran_id, cause, diagnostics }) => {
                Event::ErrorIndication(ErrorReport { core_id, ran_id, cause: cause.map(cause_of), diagnostics })
            }
            Event::Overload(started) => Event::Overload(started),
            Event::Violation(violation) => Event::Violation(violation),
        }
    }

    /// Returns the UE that the event concerns, if any.
    pub fn owner(&self) -> Option<u32> {
        match self {
            Event::Nas { owner, .. }
            | Event::ContextSetup { owner, .. }
            | Event::TunnelUp { owner, .. }
            | Event::TunnelDown { owner, .. }
            | Event::TunnelModified { owner, .. }
            | Event::QosModified { owner, .. }
            | Event::Released { owner, .. }
            | Event::PathSwitched { owner, .. }
            | Event::PathSwitchFailed { owner }
            | Event::CapabilityReturned { owner }
            | Event::LocationRequested { owner }
            | Event::ModificationConfirmed { owner, .. }
            | Event::HandoverPrepared { owner, .. }
            | Event::HandoverCommand { owner, .. }
            | Event::HandoverRefused { owner, .. }
            | Event::HandoverCancelled { owner }
            | Event::StatusTransfer { owner } => Some(*owner),
            _ => None,
        }
    }
}

/// Content of an ERROR INDICATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport<C> {
    /// AMF-UE-NGAP-ID or MME-UE-S1AP-ID, if the message concerns a UE.
    pub core_id: Option<u64>,
    /// RAN-UE-NGAP-ID or eNB-UE-S1AP-ID, if the message concerns a UE.
    pub ran_id: Option<u32>,
    /// Cause IE, if present.
    pub cause: Option<C>,
    /// True if Criticality Diagnostics are present.
    pub diagnostics: bool,
}

/// Result of a received PDU. Reused, so that steps do not allocate.
#[derive(Debug)]
pub struct Inbox<C> {
    /// Octets that [`Event::Nas`] refers to.
    pub nas: Vec<u8>,
    pub events: Vec<Event<C>>,
}

impl<C> Default for Inbox<C> {
    fn default() -> Self {
        Inbox { nas: Vec::new(), events: Vec::new() }
    }
}

impl<C> Inbox<C> {
    /// Removes the content and keeps the memory.
    pub fn clear(&mut self) {
        self.nas.clear();
        self.events.clear();
    }

    pub(crate) fn deliver(&mut self, owner: u32, nas: &[u8]) {
        let start = self.nas.len();
        self.nas.extend_from_slice(nas);
        self.events.push(Event::Nas { owner, range: start..self.nas.len() });
    }
}
