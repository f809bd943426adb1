//! State of an unreachable balancer: its associations, and messages that it may not have sent.

use std::collections::BTreeSet;
use std::net::IpAddr;
use vireo_types::{AssocId, Ltmsi};

/// Message about a UE that may not have been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnackedMessage {
    /// Association that the message was for.
    pub assoc: AssocId,
    pub ue: Ltmsi,
    /// Key of the effect.
    pub key: u64,
    pub pdu: Vec<u8>,
}

/// State of an unreachable balancer that other balancers continue.
#[derive(Debug)]
pub struct UnreachableBalancer {
    pub associations: BTreeSet<AssocId>,
    /// AMF addresses of the associations.
    pub endpoints: Vec<IpAddr>,
    /// Messages that the balancer may not have sent.
    pub unsent: Vec<UnackedMessage>,
}
