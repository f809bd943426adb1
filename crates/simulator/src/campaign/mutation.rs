//! Injectable faults, which the campaign must detect.

/// Fault injected into the hosts or the balancer, for the campaign to detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Effects are sent before copies are acknowledged.
    EffectsBeforeAcknowledgement,
    /// A host outside the map continues, and the others accept its messages.
    FenceIgnored,
    /// A commit omits the downlink COUNTs that it used.
    CountNotReserved,
    /// A commit omits the uplink COUNT that it accepted.
    UplinkNotCounted,
    /// A commit omits the NH that it sent.
    NextHopNotTaken,
    /// Effects that a dead host has sent are sent again.
    RepeatsSent,
    /// The new owner does not enter the replica entries.
    CopiesForgotten,
    /// Hosts continue UEs of unknown RAN nodes as if these nodes were gone, and own UEs before they
    /// know any node.
    NodesNotAwaited,
}

impl Mutation {
    /// All injectable faults.
    pub const ALL: [Mutation; 8] = [
        Mutation::EffectsBeforeAcknowledgement,
        Mutation::FenceIgnored,
        Mutation::CountNotReserved,
        Mutation::UplinkNotCounted,
        Mutation::NextHopNotTaken,
        Mutation::RepeatsSent,
        Mutation::CopiesForgotten,
        Mutation::NodesNotAwaited,
    ];
}
