//! A host machine over UEs in memory.

mod serving;

use super::*;
use crate::amf::context::{self, Connection, RanContext, UeContext};
use crate::placement::balance::map::{BucketMap, SliceBuckets};
use crate::placement::balance::ring::WeightedHost;
use crate::placement::balance::{BalancerId, HostId};
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{ClusterOutput, HostNotice, ToReplica};
use crate::placement::replica::{
    Ack, BucketOwner, Claim, Claims, Commit, EffectAssociations, Mode, Proposal, ReplicaAcks, ReplicaStore,
    ReplicaUpdate, ReplicationConfig, ResentCommit, TakeoverSet,
};
use crate::step::Effect;
use crate::subscription::AuthenticationRequest;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use vireo_types::{AmfUeNgapId, AssocId, Bucket, Instant, Ltmsi, NrCgi, Plmn, RanUeNgapId, Supi, Tac, Tai, Tmsi};

const NOW: Instant = Instant(1_000_000);
const OTHER: HostId = HostId(0);
const OWN: HostId = HostId(1);

type Machine = HostMachine<u32, u32, u64, (u32, UeNotice)>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outbox {
    at: Instant,
    connecting_input: Option<u64>,
    effects: Vec<Effect>,
}

impl StepOutbox for Outbox {
    fn decode(octets: &[u8]) -> Option<Self> {
        postcard::from_bytes(octets).ok()
    }

    fn at(&self) -> Instant {
        self.at
    }

    fn effects(&self) -> &[Effect] {
        &self.effects
    }

    fn connecting_input(&self) -> Option<u64> {
        self.connecting_input
    }

    fn retain_requests(&mut self) {
        self.effects.retain(|effect| matches!(effect, Effect::Authenticate(_)));
    }
}

/// UEs of a host, and what its machine did.
struct Io {
    store: ReplicaStore,
    ues: BTreeMap<u32, (Ltmsi, Vec<u8>)>,
    subscribers: BTreeMap<u64, u32>,
    nodes: BTreeSet<AssocId>,
    sent: Vec<ClusterOutput>,
    copies: RefCell<Vec<(HostId, Vec<u8>)>>,
    posted: Vec<(u32, UeNotice)>,
    repeated: Vec<(Option<u32>, Outbox)>,
    stored_entries: Vec<Ltmsi>,
    servable: Vec<Ltmsi>,
    proposals: Vec<Proposal>,
    connected: Vec<(u32, u64)>,
    is_busy: bool,
}

impl Io {
    fn new() -> Self {
        Io {
            store: ReplicaStore::new(OWN),
            ues: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            nodes: BTreeSet::new(),
            sent: Vec::new(),
            copies: RefCell::default(),
            posted: Vec::new(),
            repeated: Vec::new(),
            stored_entries: Vec::new(),
            servable: Vec::new(),
            proposals: Vec::new(),
            connected: Vec::new(),
            is_busy: false,
        }
    }

    fn barriers(&mut self) -> Vec<u64> {
        let barriers = std::mem::take(&mut self.sent).into_iter().filter_map(|output| match output {
            ClusterOutput::Barrier { number } | ClusterOutput::Introduce { number } => Some(number),
            _ => None,
        });
        barriers.collect()
    }

    /// Removes and returns whether each message to a replica is a handoff.
    fn handoffs(&self) -> Vec<bool> {
        let is_handoff = |octets: &[u8]| matches!(postcard::from_bytes(octets), Ok(ToReplica::BucketHandoff { .. }));
        self.copies.take().iter().map(|(_, octets)| is_handoff(octets)).collect()
    }
}

impl ReplicaAcks for Io {
    fn acked_up_to(&self, _: HostId) -> u64 {
        u64::MAX
    }
}

impl ReplicaTransport for Io {
    fn send_to_replica(&self, to: HostId, _: u64, message: &ToReplica<'_>) {
        self.copies.borrow_mut().push((to, postcard::to_allocvec(message).unwrap()));
    }
}

impl HostIo for Io {
    type Slot = u32;
    type Record = u32;
    type Event = (u32, UeNotice);
    type Outbox = Outbox;

    fn slot_of(&self, ltmsi: Ltmsi) -> Option<u32> {
        self.ues.iter().find(|(_, (of, _))| *of == ltmsi).map(|(slot, _)| *slot)
    }

    fn ltmsi_of(&self, slot: u32) -> Option<Ltmsi> {
        self.ues.get(&slot).map(|(ltmsi, _)| *ltmsi)
    }

    fn slot_of_subscriber(&self, supi: Supi) -> Option<u32> {
        self.subscribers.get(&supi.as_u64()).copied()
    }

    fn slots_from(&self, from: u32, count: u32) -> Vec<(u32, u32)> {
        self.ues.range(from..from + count).map(|(slot, _)| (*slot, *slot)).collect()
    }

    fn slots(&self) -> Vec<u32> {
        self.ues.keys().copied().collect()
    }

    fn slot_bound(&self) -> u32 {
        self.ues.keys().last().map_or(0, |last| last + 1)
    }

    fn read(&self, slot: u32) -> Option<StoredUe> {
        let (ltmsi, context) = self.ues.get(&slot)?.clone();
        Some(StoredUe { ltmsi, context, outbox: Vec::new(), is_passed: true })
    }

    fn read_record(&self, _: &u32) -> Option<ResentCommit<u32>> {
        None
    }

    fn is_at_rest(&self, _: u32) -> bool {
        !self.is_busy
    }

    fn is_idle(&self, _: u32) -> bool {
        !self.is_busy
    }

    fn is_free_tmsi(&self, _: Tmsi) -> bool {
        true
    }

    fn is_servable(&self, ltmsi: Ltmsi) -> bool {
        self.servable.contains(&ltmsi)
    }

    fn send_proposal(&mut self, proposal: Proposal) {
        self.proposals.push(proposal);
    }

    fn has_node(&self, node: AssocId) -> bool {
        self.nodes.contains(&node)
    }

    fn record_connecting_input(&mut self, slot: u32, input: u64) {
        self.connected.push((slot, input));
    }

    fn knows_association(&self, node: AssocId, by: AssocId) -> bool {
        self.nodes.contains(&node) && self.nodes.contains(&by)
    }

    fn insert(&mut self, ltmsi: Ltmsi, _: &UeContext, context: &[u8]) -> Option<u32> {
        let slot = self.slot_bound();
        self.ues.insert(slot, (ltmsi, context.to_vec()));
        Some(slot)
    }

    fn remove(&mut self, slot: u32) -> Option<Vec<u8>> {
        self.ues.remove(&slot).map(|(_, context)| context)
    }

    fn partitions_of(&self, _: &UeContext) -> Vec<u16> {
        vec![0]
    }

    fn uses_partition(&self, partition: u16) -> bool {
        partition == 0 && !self.ues.is_empty()
    }

    fn borrowed_addresses(&self, _: u16) -> Vec<(u8, Vec<u32>)> {
        Vec::new()
    }

    fn lends_addresses(&self) -> bool {
        false
    }

    fn free_lent(&mut self, _: &dyn Fn(AddressNumber) -> bool) {}

    fn bind_subscriber(&mut self, slot: u32, supi: Supi) {
        self.subscribers.insert(supi.as_u64(), slot);
    }

    fn unbind_subscriber(&mut self, slot: u32, supi: Supi) {
        self.subscribers.retain(|of, bound| (*of, *bound) != (supi.as_u64(), slot));
    }

    fn node_of_ue_known(&mut self, _: u32, _: AssocId) {}

    fn event(&mut self, slot: u32, notice: UeNotice) -> (u32, UeNotice) {
        (slot, notice)
    }

    fn post(&mut self, event: (u32, UeNotice)) {
        self.posted.push(event);
    }

    fn authenticate(&mut self, _: u32, _: Ltmsi, _: AuthenticationRequest) {}

    fn execute_again(&mut self, slot: Option<u32>, outbox: Outbox, _: EffectAssociations) {
        self.repeated.push((slot, outbox));
    }

    fn apply_map(&mut self, map: &ClusterMap) -> TakeoverSet {
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        self.store.adopt(&map.buckets, &hosts)
    }

    fn handed_off(&mut self) -> TakeoverSet {
        self.store.take_handed_off()
    }

    fn store_own_entries(&mut self, ues: &[(Ltmsi, Vec<u8>)]) {
        self.stored_entries.extend(ues.iter().map(|(ltmsi, _)| *ltmsi));
    }

    fn publish_buckets(&mut self, _: &dyn Fn(Bucket) -> bool) {}

    fn on_entered(&mut self, _: usize, _: usize) {}

    fn on_invalid_entry(&mut self, ltmsi: Ltmsi) {
        panic!("the entry of {ltmsi:?} is valid");
    }

    fn send(&mut self, output: ClusterOutput) {
        self.sent.push(output);
    }
}

fn slices(hosts: &[(HostId, f64)]) -> Vec<SliceBuckets> {
    let hosts = hosts.iter().map(|(host, weight)| WeightedHost::new(*host, *weight));
    vec![SliceBuckets { weight: 1.0, replicas: 1, hosts: hosts.collect() }]
}

fn map(buckets: BucketMap, hosts: &[HostId]) -> ClusterMap {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    ClusterMap {
        hosts: hosts.iter().map(|host| (*host, address)).collect(),
        buckets,
        balancers: vec![(BalancerId(0), address)],
        joined: 2,
        lost: vec![],
        leaving: vec![],
    }
}

/// Returns a bucket of a host.
fn bucket_of(map: &BucketMap, host: HostId) -> Bucket {
    (0..Bucket::COUNT).map(Bucket::new).find(|bucket| map.owners(*bucket).owner() == Some(host)).unwrap()
}

/// Returns the machine of a host with the first map of two hosts, whose RAN nodes are known.
fn member(io: &mut Io) -> (Machine, BucketMap) {
    let replication = ReplicationConfig { mode: Mode::Hot, replicas: 1, ack: Ack::One };
    let owner = BucketOwner::new(OWN, replication, replication.replicas_by_slice([1]));
    let limits = HostLimits { pool_partitions: 2, waiting_inputs: 2, scanned_slots: 8 };
    let mut machine = Machine::new(Some(owner), Claims::default(), limits);
    let first = BucketMap::first(&slices(&[(OTHER, 1.0), (OWN, 1.0)]));
    adopt(&mut machine, io, map(first.clone(), &[OTHER, OWN]));
    machine.on(Input::Poll, NOW, io);
    reply(&mut machine, io);
    (machine, first)
}

fn adopt(machine: &mut Machine, io: &mut Io, map: ClusterMap) {
    assert!(machine.is_next(&map));
    machine.on(Input::Map { map: &map, loading: &FxHashSet::default() }, NOW, io);
    assert!(!machine.is_next(&map));
}

/// Answers all barriers.
fn reply(machine: &mut Machine, io: &mut Io) {
    for number in io.barriers() {
        machine.on(Input::BarrierReply { number, is_whole: true }, NOW, io);
    }
}

fn ue(ltmsi: Ltmsi, node: Option<AssocId>) -> UeContext {
    let mut ue = UeContext::new(ltmsi);
    ue.identity.supi = "999700000000001".parse().ok();
    let plmn: Plmn = "99970".parse().unwrap();
    ue.connection = node.map(|assoc| Connection {
        assoc,
        ran_id: RanUeNgapId(1),
        amf_id: AmfUeNgapId::new(ltmsi, 0),
        tai: Tai { plmn, tac: Tac(1) },
        cell: NrCgi { plmn, cell: 1 },
        ran: RanContext::SetUp,
    });
    ue
}

/// Applies a copy of the other host.
fn copy(io: &mut Io, number: u64, ue: &UeContext, outbox: &Outbox) {
    let octets = context::encode(ue, Vec::new()).unwrap();
    let parts = context::EncodedContext::new(&octets).unwrap();
    let outbox = postcard::to_allocvec(outbox).unwrap();
    let update = ReplicaUpdate {
        number,
        ltmsi: ue.ltmsi,
        before: None,
        input: 70 + number,
        layout: parts.versions.layout,
        perpetual_version: parts.versions.perpetual,
        ephemeral_version: parts.versions.ephemeral,
        perpetual: Some(parts.perpetual),
        ephemeral: parts.ephemeral,
        outbox: &outbox,
        associations: EffectAssociations::default(),
    };
    receive(&mut io.store, (OTHER, 1), ToReplica::Copy(update), NOW).unwrap();
}

#[test]
fn takeover_repeats_effects_and_drops_inputs() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let supi: Supi = "999700000000001".parse().unwrap();
    let ltmsi = Ltmsi::new(bucket_of(&first, OTHER), 3);
    let outbox = Outbox { at: NOW, connecting_input: None, effects: vec![Effect::BindSupi(supi)] };
    copy(&mut io, 1, &ue(ltmsi, None), &outbox);
    let target = (71, InputTarget::Bucket(ltmsi.bucket()));
    assert_eq!(machine.admit(71, target, &mut io), None);
    assert_eq!(io.sent.pop(), Some(HostNotice::ReturnInput { number: 71 }.into()));
    adopt(&mut machine, &mut io, map(first.next(&slices(&[(OWN, 1.0)])), &[OWN]));
    let slot = io.slot_of(ltmsi).unwrap();
    assert_eq!(io.repeated, [(Some(slot), outbox)]);
    assert_eq!(io.slot_of_subscriber(supi), Some(slot));
    assert!(io.sent.contains(&HostNotice::Claim(Claim { supi, ue: ltmsi, at: NOW }).into()));
    assert!(machine.released_inputs().is_some_and(|inputs| inputs.is_empty()) && machine.released_inputs().is_none());
    assert_eq!(machine.admit(71, target, &mut io), None);
    assert_eq!(io.sent.pop(), Some(HostNotice::Done { number: 71 }.into()));
    let later = (79, InputTarget::Bucket(ltmsi.bucket()));
    assert_eq!(machine.admit(79, later, &mut io), Some(79));
    machine.on(Input::ReportDue, NOW, &mut io);
    assert_eq!(io.sent.pop(), Some(ClusterOutput::PoolPartitions { epoch: 2, partitions: vec![0] }));
}

#[test]
fn ue_of_unknown_node_waits_and_becomes_idle() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let ltmsi = Ltmsi::new(bucket_of(&first, OTHER), 3);
    let outbox = Outbox { at: NOW, connecting_input: Some(7), effects: Vec::new() };
    copy(&mut io, 1, &ue(ltmsi, Some(AssocId(5))), &outbox);
    adopt(&mut machine, &mut io, map(first.next(&slices(&[(OWN, 1.0)])), &[OWN]));
    assert_eq!(io.slot_of(ltmsi), None);
    assert!(machine.released_inputs().is_some());
    let target = |number| (number, InputTarget::Bucket(ltmsi.bucket()));
    assert_eq!([8, 9].map(|number| machine.admit(number, target(number), &mut io)), [None; 2]);
    assert_eq!(machine.admit(10, target(10), &mut io), None, "there is no room for a third one");
    assert_eq!(io.sent.pop(), Some(HostNotice::ReturnInput { number: 10 }.into()));
    machine.on(Input::Poll, NOW, &mut io);
    reply(&mut machine, &mut io);
    let slot = io.slot_of(ltmsi).unwrap();
    assert_eq!(machine.released_inputs().unwrap(), [8, 9]);
    machine.disconnect_unsure(&mut io);
    assert_eq!(io.posted, [(slot, UeNotice::ConnectionLost { node: AssocId(5) })]);
    // A reset by the RAN node that comes before input 7 ends an older connection.
    assert_eq!(io.connected, [(slot, 7)]);
}

/// Regression test for seed 3598 of the fault campaign. The handoff of a UE overtakes the claim
/// that its previous owner has made for it.
#[test]
fn superseded_ue_awaits_claims_in_transit() {
    let supi: Supi = "999700000000001".parse().unwrap();
    for is_claimed in [true, false] {
        let mut io = Io::new();
        let (mut machine, first) = member(&mut io);
        let bucket = bucket_of(&first, OTHER);
        let [old, ltmsi] = [2, 3].map(|number| Ltmsi::new(bucket, number));
        copy(&mut io, 1, &ue(ltmsi, None), &Outbox { at: NOW, connecting_input: Some(7), effects: Vec::new() });
        machine.on(Input::Claimed(Claim { supi, ue: old, at: Instant(1) }), NOW, &mut io);
        let second = first.switch(&slices(&[(OTHER, 0.0), (OWN, 1.0)]), 4096).expect("this host has copies");
        adopt(&mut machine, &mut io, map(second, &[OTHER, OWN]));
        let handoff = ToReplica::BucketHandoff { number: 2, epoch: 2 };
        assert!(receive(&mut io.store, (OTHER, 2), handoff, NOW).unwrap().is_handoff);
        machine.on(Input::Handoff, NOW, &mut io);
        assert_eq!(io.slot_of(ltmsi), None);
        assert!(machine.owner().unwrap().incoming().contains(&bucket), "its inputs wait");
        machine.on(Input::Poll, NOW, &mut io);
        if is_claimed {
            machine.on(Input::Claimed(Claim { supi, ue: ltmsi, at: Instant(2) }), NOW, &mut io);
        }
        reply(&mut machine, &mut io);
        let slot = io.slot_of(ltmsi).unwrap();
        assert_eq!(io.slot_of_subscriber(supi), is_claimed.then_some(slot));
        assert_eq!(io.posted.contains(&(slot, UeNotice::Superseded)), !is_claimed);
    }
}

#[test]
fn migrating_bucket_defers_events_until_handoff() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let ltmsi = Ltmsi::new(bucket_of(&first, OWN), 3);
    let octets = context::encode(&ue(ltmsi, None), Vec::new()).unwrap();
    let slot = io.insert(ltmsi, &ue(ltmsi, None), &octets).unwrap();
    let associations = EffectAssociations::default();
    let commit =
        Commit { slot, ltmsi, before: None, input: 0, context: &octets, outbox: b"", associations, proposer: None };
    let mut copies = 0;
    let released = machine.commit((&commit, true), 1, &io, &mut |_, _, _| copies += 1);
    assert_eq!((released, copies, machine.next_released(&io)), (None, 1, Some(1)));
    let weights = slices(&[(OTHER, 1.0), (OWN, 0.0)]);
    let second = first.switch(&weights, 4096).expect("the other host has copies");
    adopt(&mut machine, &mut io, map(second, &[OTHER, OWN]));
    assert!(machine.owner().unwrap().is_outgoing(ltmsi.bucket()));
    machine.on(Input::Poll, NOW, &mut io);
    reply(&mut machine, &mut io);
    io.is_busy = true;
    machine.on(Input::Poll, NOW, &mut io);
    assert!(!machine.is_quiesced(ltmsi), "a procedure is in progress");
    io.is_busy = false;
    machine.on(Input::Poll, NOW, &mut io);
    assert!(machine.is_quiesced(ltmsi));
    machine.defer(ltmsi, (slot, UeNotice::Superseded));
    io.copies.take();
    reply(&mut machine, &mut io);
    assert_eq!(io.handoffs().last(), Some(&true));
    assert_eq!((io.ues.len(), &io.stored_entries[..]), (0, &[ltmsi][..]), "this host is a replica");
    let third = machine.owner().unwrap().map().unwrap().next(&weights);
    adopt(&mut machine, &mut io, map(third, &[OTHER, OWN]));
    assert_eq!(io.posted, [], "the UE is another host's");
}

#[test]
fn later_remote_claim_supersedes_context() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let supi: Supi = "999700000000001".parse().unwrap();
    let ltmsi = Ltmsi::new(bucket_of(&first, OWN), 3);
    let slot = io.insert(ltmsi, &ue(ltmsi, None), b"context").unwrap();
    machine.bind_subscriber((slot, supi), NOW, NOW, &mut io);
    let claim = |at| Claim { supi, ue: Ltmsi::new(bucket_of(&first, OTHER), 4), at };
    machine.on(Input::Claimed(claim(Instant(1))), NOW, &mut io);
    assert_eq!((io.slot_of_subscriber(supi), io.posted.len()), (Some(slot), 0));
    machine.on(Input::Claimed(claim(Instant(NOW.0 + 1))), NOW, &mut io);
    assert_eq!(io.slot_of_subscriber(supi), None);
    assert_eq!(io.posted, [(slot, UeNotice::Superseded)]);
    machine.bind_subscriber_since((slot, supi), NOW, NOW, &mut io);
    assert_eq!(io.posted.len(), 2, "the other registration is later");
}

#[test]
fn leaving_host_is_done_after_its_last_barrier() {
    let mut io = Io::new();
    let (mut machine, _) = member(&mut io);
    machine.on(Input::LeaveGranted, NOW, &mut io);
    let number = machine.last_barrier().unwrap();
    assert_eq!(io.sent.pop(), Some(ClusterOutput::Barrier { number }));
    machine.on(Input::BarrierReply { number: number - 1, is_whole: true }, NOW, &mut io);
    assert!(!machine.has_left());
    machine.on(Input::BarrierReply { number, is_whole: true }, NOW, &mut io);
    assert!(machine.has_left());
}
