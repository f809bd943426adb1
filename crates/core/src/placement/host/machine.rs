//! State of a host machine, and its handling of inputs.

use super::addresses::LentAddresses;
use super::committed::{CommittedInputs, ExecutedBy};
use super::io::{HostIo, UeNotice};
use super::replica_side::AddressAuditMessage;
use super::routing::InputTarget;
use super::served::ServedUes;
use crate::placement::balance::map::BucketMap;
use crate::placement::balance::{BalancerId, HostId};
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{ClusterOutput, HostNotice, ToReplica};
use crate::placement::replica::{
    BarrierResult, BucketOwner, Claim, Claims, Commit, InputDisposition, ReplicaAcks, ReplicaUpdate, SlotKey,
    WatermarkUpdate,
};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use vireo_types::{AssocId, Bucket, Instant, Ltmsi};

/// Limits of a host machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Number of partitions of the address pools in the cluster.
    pub pool_partitions: u16,
    /// Number of inputs that wait for their UEs. Further ones return to the balancer, which sends
    /// them again.
    pub waiting_inputs: usize,
    /// Slots scanned per [`Input::Poll`] for a host that needs copies.
    pub scanned_slots: u32,
}

/// Input of a host machine.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The cluster map of a new epoch. The caller passes every epoch, in order
    /// ([`HostMachine::is_next`]).
    Map {
        map: &'a ClusterMap,
        /// Newly owned buckets whose UEs the host loads from a database.
        loading: &'a FxHashSet<Bucket>,
    },
    /// Other hosts have handed off buckets.
    Handoff,
    /// A subscriber registered at another host.
    Claimed(Claim),
    /// All balancers have answered a barrier.
    BarrierReply {
        number: u64,
        /// True if no recent message can have been lost.
        is_whole: bool,
    },
    /// A replica's answer to a reconcile request.
    ReconcileReply { from: HostId, number: u64, ues: &'a [Ltmsi] },
    /// A message of another host's address audit.
    AddressAudit { from: HostId, message: &'a AddressAuditMessage },
    /// All UEs of this host are handed off: it may leave the cluster.
    LeaveGranted,
    /// The interval between two reports to the controller is over.
    ReportDue,
    /// The interval between two effect watermarks is over.
    WatermarkDue,
    /// Periodic work, after each batch of other inputs.
    Poll,
}

/// UE that was entered while one of its RAN nodes was unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnsureUe<S> {
    pub(super) slot: S,
    pub(super) ltmsi: Ltmsi,
    pub(super) node: AssocId,
}

/// Decisions of a host. `S` is the key of a UE, `P` a commit whose effects wait, `I` an input that
/// is held back, and `E` an event for a UE.
#[derive(Debug)]
pub struct HostMachine<S, P, I, E> {
    /// Ownership and replication; `None`: the host is in no cluster, and owns all UEs.
    pub(super) owner: Option<BucketOwner<S, P>>,
    pub(super) limits: HostLimits,
    /// Most recent claims of subscribers.
    pub(super) claims: Claims,
    /// Balancer that forwards claims to the other hosts.
    claim_relay: Option<BalancerId>,
    /// Local events for UEs in quiesced buckets, which migrate to other hosts.
    pub(super) deferred: Vec<(Ltmsi, E)>,
    /// Inputs for UEs that are not here yet.
    waiting: VecDeque<I>,
    /// True if waiting inputs may be admitted now.
    is_releasing: bool,
    /// Addresses that UEs have taken to other hosts.
    pub(super) addresses: LentAddresses,
    /// UEs whose RAN nodes are unknown.
    pub(super) unsure: Vec<UnsureUe<S>>,
    /// Buckets whose UEs are being loaded from a database.
    pub(super) loading: FxHashSet<Bucket>,
    /// Inputs that other hosts executed and whose results this host has.
    pub(super) committed: CommittedInputs,
    /// UEs of other hosts whose procedures this host serves.
    pub(super) served: ServedUes<I>,
    /// Number of the last barrier of a host that leaves its cluster.
    last_barrier: Option<u64>,
    /// True if the last barrier was answered.
    has_left: bool,
}

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Creates the machine of a host without UEs. `owner` is present if the host is a cluster
    /// member.
    pub fn new(owner: Option<BucketOwner<S, P>>, claims: Claims, limits: HostLimits) -> Self {
        HostMachine {
            owner,
            limits,
            claims,
            claim_relay: None,
            deferred: Vec::new(),
            waiting: VecDeque::new(),
            is_releasing: false,
            addresses: LentAddresses::new(limits.pool_partitions),
            unsure: Vec::new(),
            loading: FxHashSet::default(),
            committed: CommittedInputs::default(),
            served: ServedUes::default(),
            last_barrier: None,
            has_left: false,
        }
    }

    /// Returns the owner side of replication, in a cluster.
    pub fn owner(&self) -> Option<&BucketOwner<S, P>> {
        self.owner.as_ref()
    }

    /// Returns the same, to number messages to other hosts.
    pub fn owner_mut(&mut self) -> Option<&mut BucketOwner<S, P>> {
        self.owner.as_mut()
    }

    /// Returns the known claims of subscribers.
    pub fn claims_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }

    /// Returns true if a map is the next one that this host may adopt.
    pub fn is_next(&self, map: &ClusterMap) -> bool {
        let current = self.owner.as_ref().and_then(BucketOwner::map);
        map.buckets.is_complete() && current.is_none_or(|current| current.epoch() < map.buckets.epoch())
    }

    /// Returns the number of the last barrier of a host that leaves its cluster.
    pub fn last_barrier(&self) -> Option<u64> {
        self.last_barrier
    }

    /// Returns true if the host has left its cluster: other hosts have all its state.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Returns true if buckets are being loaded from a database.
    pub fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    /// Handles an input.
    pub fn on<O>(&mut self, input: Input<'_>, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        match input {
            Input::Map { map, loading } => self.adopt((map, loading), now, io),
            Input::Handoff => {
                let set = io.handed_off();
                self.take_over(set, now, io);
            }
            Input::Claimed(claim) => self.on_claim(claim, now, io),
            Input::BarrierReply { number, is_whole } => self.on_barrier_reply((number, is_whole), now, io),
            Input::ReconcileReply { from, number, ues } => self.on_reconcile_reply((from, number), ues, io),
            Input::AddressAudit { from, message } => self.on_address_audit(from, message, io),
            Input::ReportDue => self.report_partitions(io),
            Input::LeaveGranted => self.last_barrier = self.barrier(io),
            Input::WatermarkDue => {
                let number = self.owner.as_mut().and_then(BucketOwner::request_watermark);
                number.into_iter().for_each(|number| io.send(ClusterOutput::Barrier { number }));
            }
            Input::Poll => self.poll(now, io),
        }
    }

    /// Runs the periodic work.
    fn poll<O>(&mut self, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        self.committed.forget(now);
        self.served.forget_returned(now);
        self.copy_missing(io);
        self.end_migration(io);
        self.audit_addresses(io);
        let Some(owner) = &mut self.owner else { return };
        if let Some(number) = owner.request_nodes() {
            io.send(ClusterOutput::Introduce { number });
        }
        let epoch = owner.map().map_or(0, BucketMap::epoch);
        for host in owner.caught_up(&*io) {
            io.send(ClusterOutput::CaughtUp { epoch, host });
        }
    }

    /// Sends a barrier to the balancers. Returns its number.
    fn barrier<O>(&mut self, io: &mut O) -> Option<u64>
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let number = self.owner.as_mut()?.next_barrier();
        io.send(ClusterOutput::Barrier { number });
        Some(number)
    }

    /// Returns an input that can be processed now. Otherwise:
    ///
    /// - An input for a UE that is still to arrive waits.
    /// - A message of a RAN node or UPF about itself waits while such UEs exist, with all later
    ///   inputs. The introduction of existing RAN nodes to a joining host does not wait.
    /// - An input for a UE of another host returns to the balancer.
    /// - An input whose result another host has committed or proposed is done.
    pub fn admit<O>(&mut self, input: I, (number, target): (u64, InputTarget), io: &mut O) -> Option<I>
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let has_room = self.has_room();
        let Some(owner) = &mut self.owner else { return Some(input) };
        let numbered = number != 0;
        let disposition = match target {
            InputTarget::Bucket(bucket) => owner.classify_input(Some(bucket), false, numbered, has_room),
            InputTarget::Node => owner.classify_input(None, true, numbered, has_room),
            InputTarget::Introduction => owner.classify_input(None, false, false, has_room),
            InputTarget::Other => owner.classify_input(None, false, numbered, has_room),
        };
        match disposition {
            InputDisposition::HoldBack => self.waiting.push_back(input),
            InputDisposition::Return => io.send(HostNotice::ReturnInput { number }.into()),
            InputDisposition::Process if numbered && self.committed.is_executed(number) => {
                io.send(HostNotice::Done { number }.into());
            }
            InputDisposition::Process => return Some(input),
        }
        None
    }

    /// Records that this host executes an input that a serving host may still propose.
    pub fn note_recalled(&mut self, number: u64, now: Instant) {
        self.committed.add([number], ExecutedBy::ThisHost, now);
    }

    /// Returns true if more inputs may wait.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < self.limits.waiting_inputs
    }

    /// Stores an input until UEs arrive.
    pub fn hold_back(&mut self, input: I) {
        self.waiting.push_back(input);
    }

    /// Returns the waiting inputs if UEs have arrived since the last call. The caller processes
    /// them in order, and calls [`HostMachine::disconnect_unsure`] afterwards.
    pub fn released_inputs(&mut self) -> Option<VecDeque<I>> {
        if !std::mem::take(&mut self.is_releasing) {
            return None;
        }
        self.owner.iter_mut().for_each(BucketOwner::restart_classification);
        Some(std::mem::take(&mut self.waiting))
    }

    /// Returns the waiting inputs, of which the caller may process some before UEs arrive.
    pub fn waiting_mut(&mut self) -> &mut VecDeque<I> {
        &mut self.waiting
    }

    /// Marks the waiting inputs for another admission.
    pub(super) fn release_inputs(&mut self) {
        self.is_releasing = true;
    }

    /// Records inputs that a dead host committed. The balancers may redeliver them for a while.
    pub fn note_committed(&mut self, inputs: impl IntoIterator<Item = u64>, now: Instant) {
        self.committed.add(inputs, ExecutedBy::Owner, now);
    }

    /// Copies a commit to the replicas of its UE; `ended`: it ends a procedure. Returns the record
    /// if its effects may leave immediately. Else the effects wait
    /// ([`HostMachine::next_released`]).
    pub fn commit(
        &mut self,
        (commit, ended): (&Commit<'_, S>, bool),
        record: P,
        acknowledged: &impl ReplicaAcks,
        send: &mut impl FnMut(HostId, u64, &ToReplica<'_>),
    ) -> Option<P> {
        let Some(owner) = &mut self.owner else { return Some(record) };
        let mut send = |to, copy: ReplicaUpdate<'_>| send(to, copy.number, &ToReplica::Copy(copy));
        owner.on_commit((commit, ended), acknowledged, record, &mut send)
    }

    /// Returns the next commit whose effects may leave.
    pub fn next_released(&mut self, acknowledged: &impl ReplicaAcks) -> Option<P> {
        self.owner.as_mut()?.next_released(acknowledged)
    }

    /// Returns true if the bucket of a UE is quiesced: its events are deferred.
    pub fn is_quiesced(&self, ltmsi: Ltmsi) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.is_quiesced(ltmsi.bucket()))
    }

    /// Defers an event of a UE in a quiesced bucket until the owner of the UE is known.
    pub fn defer(&mut self, ltmsi: Ltmsi, event: E) {
        self.deferred.push((ltmsi, event));
    }

    /// Notifies a UE, at once or when its migration is over.
    pub(super) fn notify<O>(&mut self, slot: S, notice: UeNotice, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(ltmsi) = io.ltmsi_of(slot) else { return };
        let event = io.event(slot, notice);
        self.post(ltmsi, event, io);
    }

    fn post<O>(&mut self, ltmsi: Ltmsi, event: E, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        match self.is_quiesced(ltmsi) {
            true => self.defer(ltmsi, event),
            false => io.post(event),
        }
    }

    fn adopt<O>(&mut self, (map, loading): (&ClusterMap, &FxHashSet<Bucket>), now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if !self.is_next(map) {
            return;
        }
        let Some(owner) = &mut self.owner else { return };
        io.send(ClusterOutput::Epoch { epoch: map.buckets.epoch() });
        // After this call copies of a dead host are refused, and its UEs belong to this host.
        let set = io.apply_map(map);
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        self.addresses.adopt(map, owner.hosts());
        let barrier = owner.adopt(map.buckets.clone(), hosts);
        let relay = std::mem::replace(&mut self.claim_relay, map.holder());
        if relay.is_some() && relay != self.claim_relay {
            // The previous relay may have died with unsent claims.
            self.repeat_claims(now, io);
        }
        barrier.into_iter().for_each(|number| io.send(ClusterOutput::Barrier { number }));
        for (ltmsi, event) in std::mem::take(&mut self.deferred) {
            self.post(ltmsi, event, io);
        }
        if let Some(owner) = &mut self.owner {
            let mut send = |to, copy: ReplicaUpdate<'_>| io.send_to_replica(to, copy.number, &ToReplica::Copy(copy));
            owner.reassign_acks(|record| io.read_record(record), &mut send);
        }
        self.loading.extend(loading);
        self.take_over(set, now, io);
        self.end_serving(io);
    }

    fn on_barrier_reply<O>(&mut self, (number, is_whole): (u64, bool), now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        self.has_left |= self.last_barrier == Some(number);
        self.on_nodes_known(number, now, io);
        let Some(owner) = &mut self.owner else { return };
        for WatermarkUpdate { to, number, watermark } in owner.on_watermark_barrier(number, is_whole) {
            io.send_to_replica(to, number, &ToReplica::EffectWatermark { number, watermark });
        }
        match owner.on_barrier(number) {
            // New UEs get no LTMSIs in the migrating buckets.
            BarrierResult::EndProcedures => self.publish_buckets(io),
            BarrierResult::HandOff => self.hand_off(io),
            BarrierResult::Nothing => {}
        }
    }

    /// Publishes the buckets in which new UEs may get their LTMSIs.
    pub(super) fn publish_buckets<O>(&self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if let Some(owner) = &self.owner {
            io.publish_buckets(&|bucket| owner.accepts_inputs(bucket));
        }
    }
}
