//! Reads and actions of a host machine: stored UEs, RAN nodes, replicas and balancers.

use super::addresses::AddressNumber;
use crate::amf::context::UeContext;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{ClusterOutput, ToReplica};
use crate::placement::replica::{EffectAssociations, Proposal, ReplicaAcks, ResentCommit, SlotKey, TakeoverSet};
use crate::step::Effect;
use crate::subscription::AuthenticationRequest;
use vireo_types::{AssocId, Bucket, Instant, Ltmsi, Supi, Tmsi};

/// Messages to replicas, and their acknowledgements.
pub trait ReplicaTransport: ReplicaAcks {
    /// Sends a message with its number in the sequence of copies, behind all earlier ones.
    fn send_to_replica(&self, to: HostId, number: u64, message: &ToReplica<'_>);
}

/// Outbox of a commit, as far as the machine reads it.
pub trait StepOutbox: Sized {
    /// Decodes a stored outbox; `None` if it is invalid.
    fn decode(octets: &[u8]) -> Option<Self>;

    /// Returns the time of the step.
    fn at(&self) -> Instant;

    /// Returns the effects of the step.
    fn effects(&self) -> &[Effect];

    /// Returns the balancer's input by which the step has connected the UE, if it has.
    fn connecting_input(&self) -> Option<u64>;

    /// Drops all effects except requests to the subscriber service.
    fn retain_requests(&mut self);

    /// Returns the time of the subscriber's claim by the step, if it made one.
    fn claimed_at(&self) -> Option<Instant> {
        self.effects().iter().filter_map(|effect| effect.claims_subscriber(self.at())).map(|(_, at)| at).max()
    }

    /// Returns true if the step sent a request to the subscriber service.
    fn has_request(&self) -> bool {
        self.effects().iter().any(|effect| matches!(effect, Effect::Authenticate(_)))
    }
}

/// Stored state of a UE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredUe {
    /// LTMSI of the last commit. The slot has the previous one while effects wait.
    pub ltmsi: Ltmsi,
    pub context: Vec<u8>,
    /// Encoded outbox of the last commit.
    pub outbox: Vec<u8>,
    /// False if the last commit was not passed to [`super::HostMachine::commit`] yet.
    pub is_passed: bool,
}

/// Event that the machine causes for a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UeNotice {
    /// Another context of the subscriber is valid.
    Superseded,
    /// The RAN node of a connection does not exist.
    ConnectionLost { node: AssocId },
}

/// Stored UEs of a host, its connections, and the actions that the machine decides. Actions take
/// effect in the order of the calls.
pub trait HostIo: ReplicaTransport {
    /// Key of a UE at this host.
    type Slot: SlotKey;
    /// Commit whose effects wait for acknowledgements.
    type Record;
    /// Event for a UE.
    type Event;
    /// Outbox of a commit.
    type Outbox: StepOutbox;

    /// Returns the UE with this LTMSI, current or former.
    fn slot_of(&self, ltmsi: Ltmsi) -> Option<Self::Slot>;

    /// Returns the current LTMSI of a UE.
    fn ltmsi_of(&self, slot: Self::Slot) -> Option<Ltmsi>;

    /// Returns the UE that has the valid context of a subscriber.
    fn slot_of_subscriber(&self, supi: Supi) -> Option<Self::Slot>;

    /// Returns the stored UEs among `count` slots from number `from` on, with their numbers.
    fn slots_from(&self, from: u32, count: u32) -> Vec<(u32, Self::Slot)>;

    /// Returns all UEs, stored or not.
    fn slots(&self) -> Vec<Self::Slot>;

    /// Returns the upper bound (exclusive) of the slot numbers in use.
    fn slot_bound(&self) -> u32;

    /// Reads the stored state of a UE; `None` if there is none.
    fn read(&self, slot: Self::Slot) -> Option<StoredUe>;

    /// Returns the commit of a record, to be copied again.
    fn read_record(&self, record: &Self::Record) -> Option<ResentCommit<Self::Slot>>;

    /// Returns true if a UE has no event in progress and all its effects were sent.
    fn is_at_rest(&self, slot: Self::Slot) -> bool;

    /// Returns true if a UE has no event that waits or is in progress.
    fn is_idle(&self, slot: Self::Slot) -> bool;

    /// Returns true if no UE has this 5G-TMSI.
    fn is_free_tmsi(&self, tmsi: Tmsi) -> bool;

    /// Returns true if this host may serve the procedures of another host's UE
    /// ([`ReplicaStore::is_servable`](crate::placement::replica::ReplicaStore::is_servable)).
    fn is_servable(&self, ltmsi: Ltmsi) -> bool;

    /// Stores a proposal until its answer, and sends it to the owner of the UE.
    fn send_proposal(&mut self, proposal: Proposal);

    /// Records the balancer's input that has connected a UE.
    fn record_connecting_input(&mut self, slot: Self::Slot, input: u64);

    /// Returns true if a RAN node is set up, as far as this host knows.
    fn has_node(&self, node: AssocId) -> bool;

    /// Returns true if an association is one of a RAN node, or was one until the connection to its
    /// balancer was lost, as far as this host knows.
    fn knows_association(&self, node: AssocId, by: AssocId) -> bool;

    /// Stores a UE of another host with this encoded context and enters its identifiers, except the
    /// subscriber. Returns `None` if that is impossible.
    fn insert(&mut self, ltmsi: Ltmsi, ue: &UeContext, context: &[u8]) -> Option<Self::Slot>;

    /// Removes a UE that belongs to another host. Returns its encoded context, if it has one.
    fn remove(&mut self, slot: Self::Slot) -> Option<Vec<u8>>;

    /// Returns the pool partitions of a UE's addresses.
    fn partitions_of(&self, ue: &UeContext) -> Vec<u16>;

    /// Returns true if UEs of this host use addresses of a pool partition.
    fn uses_partition(&self, partition: u16) -> bool;

    /// Returns the addresses of another host's pool partition that UEs of this host use: numbers by
    /// table, in pieces of a message each.
    fn borrowed_addresses(&self, partition: u16) -> Vec<(u8, Vec<u32>)>;

    /// Returns true if UEs have taken addresses of this host's pool partition to other hosts.
    fn lends_addresses(&self) -> bool;

    /// Frees the lent addresses except those in use at other hosts.
    fn free_lent(&mut self, is_in_use: &dyn Fn(AddressNumber) -> bool);

    /// Makes a UE the one with the valid context of a subscriber.
    fn bind_subscriber(&mut self, slot: Self::Slot, supi: Supi);

    /// Undoes [`HostIo::bind_subscriber`].
    fn unbind_subscriber(&mut self, slot: Self::Slot, supi: Supi);

    /// Handles that the RAN node of an entered UE became known.
    fn node_of_ue_known(&mut self, slot: Self::Slot, node: AssocId);

    /// Creates an event for a UE.
    fn event(&mut self, slot: Self::Slot, notice: UeNotice) -> Self::Event;

    /// Delivers an event to its UE, if the UE is still there.
    fn post(&mut self, event: Self::Event);

    /// Sends a request of a UE to the subscriber service.
    fn authenticate(&mut self, slot: Self::Slot, ltmsi: Ltmsi, request: AuthenticationRequest);

    /// Executes the messages and requests of a commit of another host, under the same keys.
    fn execute_again(&mut self, slot: Option<Self::Slot>, outbox: Self::Outbox, paths: EffectAssociations);

    /// Applies a map to the replica store and to the connections of other hosts. Returns what this
    /// host takes over.
    fn apply_map(&mut self, map: &ClusterMap) -> TakeoverSet;

    /// Returns the buckets handed off to this host since the last call.
    fn handed_off(&mut self) -> TakeoverSet;

    /// Stores replica entries of UEs that this host hands off.
    fn store_own_entries(&mut self, ues: &[(Ltmsi, Vec<u8>)]);

    /// Publishes the buckets in which new UEs of this host may get their LTMSIs.
    fn publish_buckets(&mut self, may_allocate: &dyn Fn(Bucket) -> bool);

    /// Handles that UEs were taken over from dead hosts, and that UEs were received from live ones.
    fn on_entered(&mut self, taken_over: usize, migrated: usize);

    /// Handles that a replica entry is invalid: its UE is lost.
    fn on_invalid_entry(&mut self, ltmsi: Ltmsi);

    /// Sends an output to balancers or controller.
    fn send(&mut self, output: ClusterOutput);
}
