//! RAN node and UE of either dialect, behind one interface.
//!
//! What the dialects share is in [`crate::ran`] and in the events of [`crate::ue`].

mod device;
mod node;
pub(crate) mod protocol;

pub(crate) use device::{Device, guti_octets, nas_head};
pub(crate) use node::{Cause, Inbox, Node};
pub(crate) use protocol::{Element, Protocol, UeIds};

/// Reason of a UE for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Establishment {
    Signalling,
    Data,
    /// The answer to a page.
    Paged,
}

/// Reason of a node for the release of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReason {
    Inactivity,
    RadioLinkLost,
}

/// Target that HANDOVER REQUIRED names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetBehaviour {
    Admits,
    Refuses,
    /// No node has its identifier.
    Unknown,
}
