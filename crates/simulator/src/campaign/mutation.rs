//! Injectable faults, which the campaign must detect.

use vireo_core::placement::balancer::Serve;

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
    /// Hosts continue UEs of unknown RAN nodes as if these nodes did not exist, and own UEs before
    /// they know any node.
    NodesNotAwaited,
    /// The controller does not know the machines of hosts.
    LabelsIgnored,
    /// The owner commits a proposal on whatever state the UE has.
    BaseNotChecked,
    /// A host commits a proposal of another epoch, in which it was the owner or becomes it.
    EpochNotChecked,
    /// The effects of a proposal leave before the first replica has the commit.
    FirstReplicaNotAwaited,
    /// The new owner forgets its unanswered proposals to the dead owner.
    ProposalForgotten,
    /// A host keeps an unanswered proposal as its copy of the UE, although another host is the new
    /// owner.
    ProposalKept,
    /// A serving host executes later inputs on the state that the owner has refused.
    RefusalIgnored,
    /// A serving host takes the answer to a proposal for its commit, as an acknowledgement of all
    /// messages up to a number would say.
    RefusalLost,
    /// The owner executes a recalled input whose proposal it has committed.
    InputRepeated,
    /// The balancer sends the later inputs of a connection to its serving host, which is dead.
    HintKept,
    /// A serving host executes the deadlines of the UE.
    DeadlineAtReplica,
    /// A serving host sends the effects of its step.
    ServingHostSends,
    /// The owner keeps the identifiers of a refused proposal. These are 5G-TMSIs: a step that needs
    /// an address of a pool is left to the owner.
    IdentifierKept,
    /// A serving host executes the first message of a connection although a map has ended its role.
    RoleNotChecked,
    /// Hosts forget the messages that a dead balancer has not sent.
    UnsentForgotten,
    /// Hosts do not repeat PFCP requests to the next balancer that holds N4.
    RequestsForgotten,
}

impl Mutation {
    /// All injectable faults.
    pub const ALL: [Mutation; 24] = [
        Mutation::EffectsBeforeAcknowledgement,
        Mutation::FenceIgnored,
        Mutation::CountNotReserved,
        Mutation::UplinkNotCounted,
        Mutation::NextHopNotTaken,
        Mutation::RepeatsSent,
        Mutation::CopiesForgotten,
        Mutation::NodesNotAwaited,
        Mutation::LabelsIgnored,
        Mutation::BaseNotChecked,
        Mutation::EpochNotChecked,
        Mutation::FirstReplicaNotAwaited,
        Mutation::ProposalForgotten,
        Mutation::ProposalKept,
        Mutation::RefusalIgnored,
        Mutation::RefusalLost,
        Mutation::InputRepeated,
        Mutation::HintKept,
        Mutation::DeadlineAtReplica,
        Mutation::ServingHostSends,
        Mutation::IdentifierKept,
        Mutation::RoleNotChecked,
        Mutation::UnsentForgotten,
        Mutation::RequestsForgotten,
    ];

    /// Returns true if the simulations with this fault have two balancers.
    pub(super) const fn needs_several_balancers(self) -> bool {
        matches!(self, Mutation::UnsentForgotten | Mutation::RequestsForgotten)
    }

    /// Returns true if copies leave late, so that few of them arrive before the fault of a host.
    pub(super) const fn delays_copies(self) -> bool {
        matches!(
            self,
            Mutation::EffectsBeforeAcknowledgement
                | Mutation::FirstReplicaNotAwaited
                | Mutation::ProposalForgotten
                | Mutation::ProposalKept
        )
    }

    /// Returns the hosts that serve procedures in simulations with this fault.
    pub const fn serve(self) -> Serve {
        match self {
            Mutation::EffectsBeforeAcknowledgement
            | Mutation::FenceIgnored
            | Mutation::CountNotReserved
            | Mutation::UplinkNotCounted
            | Mutation::NextHopNotTaken
            | Mutation::RepeatsSent
            | Mutation::CopiesForgotten
            | Mutation::NodesNotAwaited
            | Mutation::LabelsIgnored => Serve::Owner,
            Mutation::BaseNotChecked
            | Mutation::EpochNotChecked
            | Mutation::FirstReplicaNotAwaited
            | Mutation::ProposalForgotten
            | Mutation::ProposalKept
            | Mutation::RefusalIgnored
            | Mutation::RefusalLost
            | Mutation::InputRepeated
            | Mutation::HintKept
            | Mutation::DeadlineAtReplica
            | Mutation::ServingHostSends
            | Mutation::IdentifierKept
            | Mutation::RoleNotChecked
            | Mutation::UnsentForgotten
            | Mutation::RequestsForgotten => Serve::Procedure,
        }
    }
}
