//! Migration of buckets between live hosts, as `core::placement::replica` decides.

use super::cluster::{Cluster, Membership, as_it_is};
use super::database_takeover::introduces;
use super::{DeferredEvent, Host, Input};
use crate::balancer::Command;
use crate::worker::outbox::{Outbox, Summary};
use crate::worker::region_layout;
use vireo_core::amf::context::{self, EncodedContext as Parts};
use vireo_core::amf::n2::{Route, ShallowView};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::message::ToReplica;
use vireo_core::placement::replica::{
    BarrierResult, InputDisposition, MigratedBuckets, Origin, ReplicaEntry, WatermarkUpdate,
};
use vireo_core::step::Effect;
use vireo_ops::clock::clock;
use vireo_ops::metrics::Flow;
use vireo_store::region::{Slot, Snapshot, next_version};
use vireo_types::{Instant, Ltmsi};

/// Number of inputs that wait for their UEs. Further ones return to the balancer, which sends them
/// again.
const WAITING: usize = 16_384;

impl Host {
    /// Returns an input that can be processed now. Otherwise:
    ///
    /// - An input for a UE that is still to arrive waits.
    /// - A message of a RAN node or UPF about itself waits while such UEs exist, with all later
    ///   inputs. The introduction of existing RAN nodes to a joining host does not wait.
    /// - An input for a UE of another host returns to the balancer.
    pub(super) fn admit_input(&mut self, input: Input) -> Option<Input> {
        if let Input::Transfer { supi, .. } | Input::SmContextReleased { supi, .. } = &input
            && self.is_to_come(*supi)
            && let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.waiting.len() < WAITING)
        {
            cluster.waiting.push_back(input);
            return None;
        }
        let Some(cluster) = self.cluster.as_mut() else { return Some(input) };
        let (number, bucket, of_node) = match &input {
            // Arriving UEs become idle if their RAN node is unknown.
            input if introduces(input) => (0, None, false),
            Input::Ngap { number, view: Ok(ShallowView { route: Route::Ue(id), .. }), .. } => {
                (*number, Some(id.ltmsi().bucket()), false)
            }
            Input::Ngap { number, view: Ok(ShallowView { route: Route::Initial { .. }, .. }), bucket, .. } => {
                (*number, *bucket, false)
            }
            Input::Ngap { number, view, .. } => (*number, None, view.is_ok()),
            Input::Pfcp { number, seid, .. } | Input::PfcpTimeout { number, seid } => {
                (*number, Some(seid.ltmsi().bucket()), false)
            }
            Input::Down { .. } | Input::BalancerGone(_) | Input::Unsent(_) | Input::UpfLost { .. } => (0, None, true),
            _ => return Some(input),
        };
        match cluster.primary.classify_input(bucket, of_node, number != 0, cluster.waiting.len() < WAITING) {
            InputDisposition::Process => Some(input),
            InputDisposition::HoldBack => {
                cluster.waiting.push_back(input);
                None
            }
            InputDisposition::Return => {
                self.egress.send(Command::ReturnInput { number });
                None
            }
        }
    }

    /// Processes waiting inputs, as far as their UEs are here.
    pub(super) fn release_waiting(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.primary.sorts_again();
        for input in std::mem::take(&mut cluster.waiting) {
            self.input(input);
        }
        (self.arrived, self.input) = (clock(), 0);
        self.disconnect_unsure();
    }

    /// Publishes to the workers the buckets in which they may allocate LTMSIs.
    pub(super) fn tell_own(&self) {
        if let Some(cluster) = &self.cluster {
            region_layout::set_own(&self.region, |bucket| cluster.primary.takes(bucket));
        }
    }

    /// Defers an event. In a quiesced bucket it waits until the owner of the UE is known.
    pub(super) fn hold(&mut self, held: DeferredEvent) {
        let asleep = self.cluster.as_mut().filter(|cluster| cluster.primary.is_quiesced(held.ltmsi.bucket()));
        match asleep {
            Some(cluster) => cluster.late.push(held),
            None => {
                *self.held.entry(held.slot).or_default() += 1;
                self.follow.push_back(held);
            }
        }
    }

    /// Defers a local event if the bucket of its UE is quiesced. Returns true if it did.
    pub(super) fn defer_if_quiesced(&mut self, held: impl FnOnce() -> DeferredEvent, ltmsi: Option<Ltmsi>) -> bool {
        let asleep =
            |cluster: &&mut Box<Cluster>| ltmsi.is_some_and(|ltmsi| cluster.primary.is_quiesced(ltmsi.bucket()));
        let Some(cluster) = self.cluster.as_mut().filter(asleep) else { return false };
        cluster.late.push(held());
        true
    }

    /// Ends this host: all its UEs are handed off. It exits when its last barrier is answered.
    pub(super) fn leave(&mut self) {
        self.return_newcomers();
        let Some(cluster) = self.cluster.as_mut() else { return };
        let number = cluster.primary.ask();
        cluster.last_sync = Some(number);
        let asks = cluster.question(number);
        self.egress.send(asks);
    }

    /// Handles the reply of the balancers to a barrier.
    pub(super) fn synced(&mut self, number: u64, whole: bool) {
        self.introduced(number);
        self.knows_nodes(number);
        let Some(cluster) = self.cluster.as_mut() else { return };
        for WatermarkUpdate { to, number, until } in cluster.primary.left(number, whole) {
            cluster.member.replicator.send(to, number, &ToReplica::EffectWatermark { number, watermark: until });
        }
        if cluster.last_sync == Some(number) {
            cluster.has_left = true;
            cluster.member.replicator.tell_left();
        }
        match cluster.primary.on_barrier(number) {
            // New UEs get no LTMSIs in the migrating buckets.
            BarrierResult::Ends => self.tell_own(),
            BarrierResult::HandsOver => self.hand_over(),
            BarrierResult::Nothing => {}
        }
    }

    /// Returns the slots of UEs in buckets that migrate, or are about to.
    fn leaving_slots(&self) -> Vec<Slot> {
        let leaving = self.cluster.as_ref().map(|cluster| &cluster.primary).filter(|primary| primary.leaving() > 0);
        let Some(primary) = leaving else { return vec![] };
        let slots = (0..self.slots).filter_map(|number| self.region.slot_at(number));
        let leaves = |ltmsi: Ltmsi| primary.leaves(ltmsi.bucket());
        slots.filter(|slot| self.region.ltmsi_of(*slot).is_some_and(leaves)).collect()
    }

    /// Returns true if a UE has no event in progress and all its effects were sent.
    fn is_done(&self, slot: Slot, record: &mut Snapshot) -> bool {
        let waits = self.held.contains_key(&slot) || !self.region.is_idle_and_empty(slot);
        !waits && (!self.region.read(slot, record) || record.sent)
    }

    /// Checks whether all migrating UEs are at rest. If so, quiesces their buckets and sends a
    /// barrier.
    pub(super) fn end_leaving(&mut self) {
        let ending = self.cluster.as_mut().and_then(|cluster| cluster.primary.take_ending());
        let Some(mut busy) = ending else { return };
        let mut record = Snapshot::default();
        busy.retain(|slot| !self.is_done(*slot, &mut record));
        if busy.is_empty() {
            // A UE that was at rest may have received an event since.
            busy = self.leaving_slots();
            busy.retain(|slot| !self.is_done(*slot, &mut record));
        }
        let sleeps = busy.is_empty() && self.send_last();
        let Some(cluster) = self.cluster.as_mut() else { return };
        if sleeps {
            let number = cluster.primary.quiesce();
            let asks = cluster.question(number);
            self.egress.send(asks);
        } else {
            cluster.primary.still_ends(busy);
        }
    }

    /// Sends to the next owners the UEs that they lack: those that are not copied at each commit,
    /// and those that wait for the subscriber service, whose request the next owner repeats.
    /// Returns false if a next owner is far behind.
    fn send_last(&mut self) -> bool {
        let slots = self.leaving_slots();
        let Some(cluster) = self.cluster.as_mut() else { return false };
        let Cluster { primary, member: Membership { replicator, .. }, .. } = &mut **cluster;
        if primary.is_next_far_behind(&*replicator) {
            return false;
        }
        let mut record = Snapshot::default();
        for slot in slots {
            let Some(ltmsi) = self.region.ltmsi_of(slot).filter(|_| self.region.read(slot, &mut record)) else {
                continue;
            };
            let asks = |effect: &Effect| matches!(effect, Effect::Authenticate(_));
            let asks = Outbox::decode(&record.outbox).is_some_and(|outbox| outbox.effects.iter().any(asks));
            if let Some(to) = primary.last_copy(slot, ltmsi, asks) {
                let outbox = if asks { &record.outbox[..] } else { &[] };
                let commit = as_it_is(slot, ltmsi, &record.context, outbox);
                primary.send_now(to, &commit, &mut |to, copy| _ = replicator.send_copy(to, copy));
            }
        }
        true
    }

    /// Hands the migrating UEs off to their next owners: all effects were sent.
    fn hand_over(&mut self) {
        let slots = self.leaving_slots();
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Some(MigratedBuckets { epoch, to }) = cluster.primary.finish_migration() else { return };
        let Some(map) = cluster.primary.map().cloned() else { return };
        // These events concern UEs that belong to other hosts.
        cluster.late.clear();
        let own = cluster.primary.own();
        let (mut kept, mut record, mut count) = (Vec::new(), Snapshot::default(), 0);
        for slot in slots {
            let Some(ltmsi) = self.region.ltmsi_of(slot) else { continue };
            self.inputs.turn();
            if self.region.read(slot, &mut record) {
                self.release_ue(slot, &record);
                count += 1;
                if map.owners(ltmsi.bucket()).has(own) {
                    kept.push((ltmsi, std::mem::take(&mut record.context)));
                }
            } else if self.own.abandon(slot) {
                self.half_open.leave(slot);
            }
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        // Before the next owner starts and sends its changes.
        let parts = kept.iter().filter_map(|(ltmsi, octets)| Some((*ltmsi, Parts::new(octets).ok()?)));
        cluster.member.replicator.keep_own(parts);
        for host in &to {
            let number = cluster.primary.number(*host);
            cluster.member.replicator.send(*host, number, &ToReplica::BucketHandoff { number, epoch });
        }
        cluster.member.replicator.flush();
        self.tell_own();
        tracing::info!(ues = count, ?to, epoch, "UEs were handed over");
    }

    /// Removes a UE that belongs to another host.
    fn release_ue(&mut self, slot: Slot, record: &Snapshot) {
        match context::decode(&record.context) {
            Ok(ue) => {
                let summary = Summary::of(&ue);
                self.totals.change(Some(summary), None);
                self.moved(slot, Some(summary), None);
                for session in &ue.sessions {
                    self.ids.lend(slot, &session.terms.dnn, &session.address);
                }
            }
            Err(error) => tracing::error!(%error, "a stored context does not decode: please report it"),
        }
        match self.own.remove(slot, record) {
            Ok(()) => *self.order.last(slot) = next_version(record.version()),
            Err(error) => tracing::error!(%error, "a UE that is another host's is still here"),
        }
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.primary.forget(slot);
        }
    }

    /// Receives UEs that other hosts have handed off.
    pub(super) fn take_handed(&mut self) {
        let Some(cluster) = self.cluster.as_ref().filter(|cluster| cluster.member.replicator.has_handed()) else {
            return;
        };
        let taken = cluster.member.replicator.take_handed();
        self.enter_taken(taken);
    }

    /// Enters UEs that live hosts have handed off. The previous owner keeps a replica entry if it
    /// is a replica.
    pub(super) fn go_on(&mut self, handed: Vec<(Option<HostId>, Ltmsi, ReplicaEntry)>, sure: bool, now: Instant) {
        let began = std::time::Instant::now();
        let mut count = handed.len();
        for (from, ltmsi, shadow) in handed.into_iter().filter(|(.., shadow)| !shadow.ephemeral.is_empty()) {
            self.inputs.turn();
            let Some(ue) = shadow.decode() else {
                tracing::error!(%ltmsi, "the copy of a UE does not decode: the UE is lost; please report it");
                continue;
            };
            if !sure && self.is_of_unknown_node(&ue) {
                count -= 1;
                self.keep_back(ltmsi, shadow, Origin::Handed(from));
                continue;
            }
            let Some(slot) = self.take_over_context(ltmsi, ue, &shadow, (false, now)) else { continue };
            let primary = self.cluster.as_mut().map(|cluster| &mut cluster.primary);
            if let Some((from, primary)) = from.zip(primary).filter(|(from, p)| p.keeps_copies(*from, ltmsi.bucket())) {
                primary.knows(from, slot, ltmsi, shadow.perpetual_version());
            }
            // All effects were executed except requests whose answer the previous owner would
            // receive.
            let effects = shadow.last_outbox().and_then(Outbox::decode).map(|outbox| outbox.effects);
            for effect in effects.into_iter().flatten() {
                if let Effect::Authenticate(request) = effect {
                    self.authenticate(slot, ltmsi, request);
                }
            }
        }
        if count > 0 {
            self.account.metrics.messages(Flow::TakenOn, count as u64);
            tracing::info!(ues = count, took = ?began.elapsed(), "UEs of other hosts are this one's now");
        }
    }
}
