//! Reads and actions of a simulated host's machine.

use super::super::message::Message;
use super::super::mutation::Mutation;
use super::super::network::{ConnectionEnd, Network};
use super::super::oracle::Violation;
use super::super::ues::{EffectRoute, Outbox, Pending, UeEvent, UeKey};
use super::{Host, UeMail, encoded};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vireo_core::amf::context::{EncodedContext, UeContext};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host::{
    AckSchedule, AddressNumber, HostIo, ReplicaTransport, StepOutbox, StoredUe, UeNotice,
};
use vireo_core::placement::message::{ClusterOutput, HostNotice, ToOwner, ToReplica};
use vireo_core::placement::replica::{EffectAssociations, Proposal, ReplicaAcks, ResentCommit, TakeoverSet};
use vireo_core::step::Effect;
use vireo_core::subscription::AuthenticationRequest;
use vireo_types::{AssocId, Bucket, Instant, Ltmsi, Supi, Tmsi};

/// Encoded message to a replica, with its receiver and number.
type CopyMessage = (HostId, u64, Rc<[u8]>);

/// Messages to replicas that are not sent yet, and acknowledged copy numbers.
#[derive(Debug, Default)]
pub(in super::super) struct Replicas {
    unsent: RefCell<Vec<CopyMessage>>,
    acknowledged: BTreeMap<HostId, u64>,
    /// Acknowledgements to the owners at these connections.
    pub(super) acks: BTreeMap<ConnectionEnd, AckSchedule>,
}

impl Replicas {
    /// Removes and returns the messages that are not sent yet.
    pub(super) fn unsent(&self) -> Vec<CopyMessage> {
        self.unsent.take()
    }

    /// Adds a message behind all earlier ones.
    pub(in super::super) fn push(&self, to: HostId, number: u64, message: &ToReplica<'_>) {
        self.unsent.borrow_mut().push((to, number, encoded(message)));
    }

    /// Records that a host has acknowledged all copies up to a number. After a reconnection it
    /// first acknowledges repeats.
    pub(super) fn acknowledge(&mut self, host: HostId, number: u64) {
        let last = self.acknowledged.entry(host).or_default();
        *last = number.max(*last);
    }
}

impl ReplicaAcks for Replicas {
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.acknowledged.get(&host).copied().unwrap_or_default()
    }
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
        Some(self.input).filter(|input| self.connects && *input != 0)
    }

    fn retain_requests(&mut self) {
        self.effects.retain(|effect| matches!(effect, Effect::Authenticate(_)));
    }
}

/// A host on the network.
#[derive(Debug)]
pub(in super::super) struct Io<'a> {
    pub(super) host: &'a mut Host,
    pub(super) network: &'a mut Network,
}

impl ReplicaAcks for Io<'_> {
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.host.replicas.acked_up_to(host)
    }
}

impl ReplicaTransport for Io<'_> {
    fn send_to_replica(&self, to: HostId, number: u64, message: &ToReplica<'_>) {
        self.host.replicas.push(to, number, message);
    }
}

impl HostIo for Io<'_> {
    type Slot = u32;
    type Record = Pending;
    type Event = UeMail;
    type Outbox = Outbox;

    fn slot_of(&self, ltmsi: Ltmsi) -> Option<u32> {
        self.host.ues.slot_of(ltmsi)
    }

    fn ltmsi_of(&self, slot: u32) -> Option<Ltmsi> {
        self.host.ues.get(slot).map(|ue| ue.ltmsi)
    }

    fn slot_of_subscriber(&self, supi: Supi) -> Option<u32> {
        self.host.ues.subscriber(supi)
    }

    fn slots_from(&self, from: u32, count: u32) -> Vec<(u32, u32)> {
        let ues = self.host.ues.from(from, count).filter(|(_, ue)| ue.has_context());
        ues.map(|(slot, _)| (slot, slot)).collect()
    }

    fn slots(&self) -> Vec<u32> {
        self.host.ues.all().map(|(slot, _)| slot).collect()
    }

    fn slot_bound(&self) -> u32 {
        self.host.ues.slots()
    }

    fn read(&self, slot: u32) -> Option<StoredUe> {
        let ue = self.host.ues.get(slot).filter(|ue| ue.has_context())?;
        let (context, outbox) = (ue.context.clone(), ue.outbox.clone());
        Some(StoredUe { ltmsi: ue.newest, context, outbox, is_passed: true })
    }

    fn read_record(&self, pending: &Pending) -> Option<ResentCommit<u32>> {
        let Pending { slot, outbox, context, octets, associations, .. } = pending;
        let (ltmsi, input) = (outbox.ltmsi, outbox.input);
        let (context, outbox) = (context.clone(), octets.clone());
        let before = self.ltmsi_of(*slot).filter(|before| *before != ltmsi);
        Some(ResentCommit { slot: *slot, ltmsi, before, input, context, outbox, associations: *associations })
    }

    fn is_at_rest(&self, slot: u32) -> bool {
        self.host.ues.is_done(slot)
    }

    fn is_idle(&self, slot: u32) -> bool {
        self.host.ues.is_idle(slot)
    }

    fn is_free_tmsi(&self, tmsi: Tmsi) -> bool {
        self.host.ues.named(tmsi).is_none()
    }

    fn is_servable(&self, ltmsi: Ltmsi) -> bool {
        self.host.store.as_ref().is_some_and(|store| store.is_servable(ltmsi))
    }

    fn send_proposal(&mut self, proposal: Proposal) {
        let now = self.network.time(self.host.process);
        let owner = self.host.store.as_mut().and_then(|store| store.propose(proposal.clone(), now));
        // Without a connection it is sent on the next one.
        let at = self.host.incoming.iter().find(|(_, (host, _))| Some(*host) == owner).map(|(at, _)| *at);
        if let Some(at) = at {
            self.network.send(at, Message::ToOwner(ToOwner::Proposal(Box::new(proposal))));
        }
    }

    fn has_node(&self, node: AssocId) -> bool {
        self.host.ues.nodes.get(node).is_some()
    }

    fn record_connecting_input(&mut self, slot: u32, input: u64) {
        self.host.ues.nodes.on_connected(UeKey::Own(slot), input);
    }

    fn knows_association(&self, node: AssocId, by: AssocId) -> bool {
        self.host.ues.nodes.knows_association(node, by)
    }

    fn insert(&mut self, ltmsi: Ltmsi, ue: &UeContext, context: &[u8]) -> Option<u32> {
        let process = self.host.process;
        Some(self.host.ues.enter(self.network, (process, ltmsi), context.to_vec(), ue))
    }

    fn remove(&mut self, slot: u32) -> Option<Vec<u8>> {
        self.host.ues.remove(slot).filter(|ue| ue.has_context()).map(|ue| ue.context)
    }

    // Addresses do not migrate in the simulation: no host lends any.

    fn partitions_of(&self, _: &UeContext) -> Vec<u16> {
        Vec::new()
    }

    fn uses_partition(&self, _: u16) -> bool {
        false
    }

    fn borrowed_addresses(&self, _: u16) -> Vec<(u8, Vec<u32>)> {
        Vec::new()
    }

    fn lends_addresses(&self) -> bool {
        false
    }

    fn free_lent(&mut self, _: &dyn Fn(AddressNumber) -> bool) {}

    fn bind_subscriber(&mut self, slot: u32, supi: Supi) {
        self.host.ues.bind_subscriber(slot, supi);
    }

    fn unbind_subscriber(&mut self, slot: u32, supi: Supi) {
        self.host.ues.unbind_subscriber(slot, supi);
    }

    fn node_of_ue_known(&mut self, slot: u32, node: AssocId) {
        self.host.ues.nodes.update_connections(UeKey::Own(slot), [None; 2], [Some(node), None]);
    }

    fn event(&mut self, slot: u32, notice: UeNotice) -> UeMail {
        let event = match notice {
            UeNotice::Superseded => UeEvent::Superseded,
            UeNotice::ConnectionLost { node } => UeEvent::ConnectionLost { assoc: node },
        };
        UeMail { slot, input: 0, event }
    }

    fn post(&mut self, event: UeMail) {
        self.host.enqueue(self.network, event);
    }

    fn authenticate(&mut self, slot: u32, _: Ltmsi, request: AuthenticationRequest) {
        self.host.authenticate(self.network, slot, request);
    }

    fn execute_again(&mut self, slot: Option<u32>, outbox: Outbox, associations: EffectAssociations) {
        slot.into_iter().for_each(|slot| self.host.restore_associations(associations, slot));
        self.host.send_effects(self.network, EffectRoute { slot, served_by: None, associations }, &outbox);
    }

    fn apply_map(&mut self, map: &ClusterMap) -> TakeoverSet {
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let kept = self.host.end_injected_proposals(self.network, map);
        let store = self.host.store.as_mut();
        let mut set = store.map(|store| store.adopt(&map.buckets, &hosts)).unwrap_or_default();
        kept.iter().for_each(|ltmsi| self.host.keep_proposed(*ltmsi));
        self.host.connect_peers(self.network, map);
        if self.network.is(Mutation::CopiesForgotten) {
            set.ues.clear();
        }
        set
    }

    fn handed_off(&mut self) -> TakeoverSet {
        self.host.store.as_mut().map(|store| store.take_handed_off()).unwrap_or_default()
    }

    fn store_own_entries(&mut self, ues: &[(Ltmsi, Vec<u8>)]) {
        let Some(store) = self.host.store.as_mut() else { return };
        for (ltmsi, context) in ues {
            if let Ok(parts) = EncodedContext::new(context) {
                store.insert_own(*ltmsi, &parts);
            }
        }
    }

    /// Does nothing: new UEs consult the machine.
    fn publish_buckets(&mut self, _: &dyn Fn(Bucket) -> bool) {}

    fn on_entered(&mut self, taken_over: usize, migrated: usize) {
        self.network.taken_over += taken_over as u64;
        self.network.migrated += migrated as u64;
    }

    fn on_invalid_entry(&mut self, _: Ltmsi) {
        self.network.oracle.record_violation(Violation::Baseless);
    }

    fn send(&mut self, output: ClusterOutput) {
        let Io { host, network } = self;
        match output {
            ClusterOutput::Epoch { .. } => host.send_map(network),
            ClusterOutput::Barrier { number } => host.links.send_barrier(network, number),
            ClusterOutput::Introduce { number } if network.is(Mutation::NodesNotAwaited) => host.unawaited.push(number),
            ClusterOutput::Introduce { number } => host.links.introduce(network, number),
            ClusterOutput::Notice(notice) => match notice {
                HostNotice::ReturnInput { number } => {
                    host.links.send_about_input(network, number, Message::Back(number));
                }
                HostNotice::ReturnServedInput { number } => {
                    host.links.send_about_input(network, number, Message::BackServed(number));
                }
                HostNotice::Done { number } => {
                    host.ues.dropped = Some(number);
                    host.links.send_about_input(network, number, Message::Done(number));
                }
                HostNotice::Claim(claim) => _ = host.links.send_to_holder(network, Message::Claim(claim)),
                HostNotice::ReturnAddress { .. } | HostNotice::RanNode(_) => {}
            },
            ClusterOutput::CaughtUp { epoch, host: replica } => {
                host.caught_up.push((epoch, replica));
                network.send(host.controller, Message::CaughtUp { epoch, host: replica });
            }
            ClusterOutput::PoolPartitions { .. }
            | ClusterOutput::Report { .. }
            | ClusterOutput::UnreachablePeers(_)
            | ClusterOutput::Leave => {}
        }
    }
}
