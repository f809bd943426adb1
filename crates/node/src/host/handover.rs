//! Buckets on their way between hosts that live: out of this one, and into it.
//!
//! A host that another one is to follow goes on as the owner until the balancer has said that all that it gives it from now on
//! is by the new map. Then it ends what it has begun, waits until all copies are kept and all effects are with the balancer,
//! keeps copies of its own, and tells the next owner that the UEs are its. That one has kept back what came for them
//! meanwhile. Nothing is done twice, and nothing overtakes anything. If the old owner dies on the way, the next one goes on
//! as from a dead host; if the next one dies, the old one goes on, with what it has or with its copies.

use super::{Follow, Host, Input};
use crate::balancer::Command;
use crate::clock::clock;
use crate::cluster::config::Mode;
use crate::cluster::shadows::Shadow;
use crate::fabric::message::{ToReplica, Ways};
use crate::metrics::Flow;
use crate::nf::outbox::{Outbox, Summary};
use crate::nf::plan;
use rustc_hash::{FxHashMap, FxHashSet};
use vireo_core::balance::HostId;
use vireo_core::balance::map::{BucketMap, Owners};
use vireo_core::context::{self, Record as Parts};
use vireo_core::n2::{Route, View};
use vireo_core::turn::Effect;
use vireo_store::region::{Slot, Snapshot, next_version};
use vireo_types::{Bucket, Instant, Ltmsi};

/// Inputs that wait until their UEs are here; what is beyond goes back to the balancer, and comes again.
const WAITING: usize = 16_384;

/// Buckets that go to other hosts.
#[derive(Debug)]
pub(super) struct Leaving {
    /// Their hosts until now.
    pub(super) owners: FxHashMap<Bucket, Owners>,
    /// The epoch by which they go.
    epoch: u64,
    stage: Stage,
    /// Events of this host itself for their UEs, that came when nothing was to be begun any more.
    late: Vec<Follow>,
}

/// How far that is.
#[derive(Debug)]
enum Stage {
    /// The balancer may have given inputs by the last map until it answers this question.
    Asked(u64),
    /// These have something under way.
    Ending(Vec<Slot>),
    /// Nothing is under way, and nothing is begun. The balancer has all that was wanted sent when it answers.
    Asleep(u64),
}

impl super::cluster::Cluster {
    /// Whether nothing is begun for a bucket's UEs any more, which go to another host.
    pub(super) fn is_asleep(&self, bucket: Bucket) -> bool {
        let asleep = |leaving: &&Leaving| matches!(leaving.stage, Stage::Asleep(_));
        self.leaving.as_ref().filter(asleep).is_some_and(|leaving| leaving.owners.contains_key(&bucket))
    }

    /// Whether inputs for a bucket's UEs are carried out here.
    fn takes(&self, bucket: Bucket) -> bool {
        let asked = |leaving: &Leaving| matches!(leaving.stage, Stage::Asked(_));
        let leaves = self.leaving.as_ref().is_some_and(|l| !asked(l) && l.owners.contains_key(&bucket));
        self.works_for(bucket) && !leaves
    }

    fn next_owner(&self, bucket: Bucket) -> Option<HostId> {
        self.map.as_ref()?.owners(bucket).primary()
    }

    /// What to do with an input for a bucket's UE (`None`: for nobody in particular): to deal with it, to keep it back, or to
    /// give it back.
    fn sort(&self, bucket: Option<Bucket>, of_node: bool, numbered: bool) -> Sorted {
        let waits = bucket.is_some_and(|bucket| self.coming.contains(&bucket));
        if self.stalled || waits || of_node && !self.coming.is_empty() {
            // What all hosts hear is not given again to all of them.
            return if of_node || !numbered || self.waiting.len() < WAITING { Sorted::Waits } else { Sorted::Back };
        }
        match bucket {
            Some(bucket) if numbered && !self.takes(bucket) => Sorted::Back,
            _ => Sorted::Here,
        }
    }
}

/// What to do with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sorted {
    Here,
    Waits,
    Back,
}

impl Host {
    /// An input that is to be dealt with now. One for a UE that is not here yet is kept back, and so is what RAN nodes and
    /// UPFs say of themselves while there are such UEs, with all that follows it; one for a UE of another host goes back.
    pub(super) fn sorted(&mut self, input: Input) -> Option<Input> {
        let Some(cluster) = self.cluster.as_mut() else { return Some(input) };
        let (number, bucket, of_node) = match &input {
            Input::Ngap { number, view: Ok(View { route: Route::Ue(id), .. }), .. } => {
                (*number, Some(id.ltmsi().bucket()), false)
            }
            Input::Ngap { number, view: Ok(View { route: Route::Initial { .. }, .. }), bucket, .. } => {
                (*number, *bucket, false)
            }
            Input::Ngap { number, view, .. } => (*number, None, view.is_ok()),
            Input::Pfcp { number, seid, .. } | Input::PfcpTimeout { number, seid } => {
                (*number, Some(seid.ltmsi().bucket()), false)
            }
            Input::Up { .. }
            | Input::Node(_)
            | Input::Down { .. }
            | Input::BalancerGone(_)
            | Input::Unsent(_)
            | Input::UpfLost { .. } => (0, None, true),
            _ => return Some(input),
        };
        match cluster.sort(bucket, of_node, number != 0) {
            Sorted::Here => Some(input),
            Sorted::Waits => {
                cluster.stalled |= of_node;
                cluster.waiting.push_back(input);
                None
            }
            Sorted::Back => {
                self.egress.send(Command::Back { number });
                None
            }
        }
    }

    /// What was kept back is dealt with, as far as its UEs are here now.
    pub(super) fn release_waiting(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.stalled = false;
        for input in std::mem::take(&mut cluster.waiting) {
            self.input(input);
        }
        (self.arrived, self.input) = (clock(), 0);
    }

    /// Lets workers see of which buckets UEs get numbers here.
    pub(super) fn tell_own(&self) {
        if let Some(cluster) = &self.cluster {
            plan::set_own(&self.region, |bucket| cluster.takes(bucket));
        }
    }

    /// By the new map some buckets go to other hosts, or stay after all because those have died. `before` is the map that
    /// held until now.
    pub(super) fn part(&mut self, before: Option<BucketMap>) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let (Some(before), Some(map)) = (before, &cluster.map) else { return };
        let own = cluster.own();
        let mut leaving = cluster.leaving.take();
        let late = leaving.as_mut().map_or_else(Vec::new, |leaving| {
            leaving.owners.retain(|bucket, _| map.owners(*bucket).primary() != Some(own));
            std::mem::take(&mut leaving.late)
        });
        let goes = |bucket: &Bucket| {
            let had = before.owners(*bucket).primary() == Some(own) && !cluster.coming.contains(bucket);
            had && map.owners(*bucket).primary().is_some_and(|next| next != own)
        };
        let more: Vec<Bucket> = (0..Bucket::COUNT).map(Bucket::new).filter(goes).collect();
        let epoch = map.epoch();
        let mut question = None;
        if !more.is_empty() {
            let (asks, number) = cluster.ask();
            question = Some(asks);
            let stage = Stage::Asked(number);
            let next = leaving.get_or_insert_with(|| Leaving {
                owners: FxHashMap::default(),
                epoch,
                stage: Stage::Asked(number),
                late: Vec::new(),
            });
            (next.epoch, next.stage) = (epoch, stage);
            next.owners.extend(more.into_iter().map(|bucket| (bucket, before.owners(bucket))));
        }
        cluster.leaving = leaving.filter(|leaving| !leaving.owners.is_empty());
        question.into_iter().for_each(|asks| self.egress.send(asks));
        for held in late {
            self.hold(held);
        }
    }

    /// An event that waits for its turn: where nothing is begun, until it is known who will deal with the UE.
    fn hold(&mut self, held: Follow) {
        let asleep = self.cluster.as_mut().filter(|cluster| cluster.is_asleep(held.ltmsi.bucket()));
        match asleep.and_then(|cluster| cluster.leaving.as_mut()) {
            Some(leaving) => leaving.late.push(held),
            None => {
                *self.held.entry(held.slot).or_default() += 1;
                self.follow.push_back(held);
            }
        }
    }

    /// Keeps an event of this host itself back if nothing is begun for its UE any more. Whether it was.
    pub(super) fn comes_late(&mut self, held: impl FnOnce() -> Follow, ltmsi: Option<Ltmsi>) -> bool {
        let asleep = |cluster: &&mut Box<super::Cluster>| ltmsi.is_some_and(|ltmsi| cluster.is_asleep(ltmsi.bucket()));
        let Some(cluster) = self.cluster.as_mut().filter(asleep) else { return false };
        if let Some(leaving) = &mut cluster.leaving {
            leaving.late.push(held());
        }
        true
    }

    /// This host has nothing any more that others have not: it ends when all that it has said is done.
    pub(super) fn leave(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let (asks, number) = cluster.ask();
        cluster.last_sync = Some(number);
        self.egress.send(asks);
    }

    /// The balancer has done all that was said before a question.
    pub(super) fn synced(&mut self, number: u64) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        if cluster.last_sync == Some(number) {
            cluster.has_left = true;
            cluster.member.replicator.tell_left();
        }
        let Some(leaving) = &mut cluster.leaving else { return };
        match leaving.stage {
            Stage::Asked(asked) if asked == number => {
                leaving.stage = Stage::Ending(Vec::new());
                // Nobody gets a number there any more.
                self.tell_own();
            }
            Stage::Asleep(asked) if asked == number => self.hand_over(),
            _ => {}
        }
    }

    /// The slots of UEs of buckets that go to other hosts, or that are to be.
    fn leaving_slots(&self) -> Vec<Slot> {
        let Some(leaving) = self.cluster.as_ref().and_then(|cluster| cluster.leaving.as_ref()) else { return vec![] };
        let slots = (0..self.slots).filter_map(|number| self.region.slot_at(number));
        let leaves = |ltmsi: Ltmsi| leaving.owners.contains_key(&ltmsi.bucket());
        slots.filter(|slot| self.region.ltmsi_of(*slot).is_some_and(leaves)).collect()
    }

    /// Whether nothing is under way of a UE, and all that it has wanted done has been let go.
    fn is_done(&self, slot: Slot, record: &mut Snapshot) -> bool {
        let waits = self.held.contains_key(&slot) || !self.region.is_at_rest(slot);
        !waits && (!self.region.read(slot, record) || record.sent)
    }

    /// Looks whether all has ended of the UEs that go to other hosts. If so nothing is begun, and the balancer is asked.
    pub(super) fn end_leaving(&mut self) {
        let leaving = self.cluster.as_mut().and_then(|cluster| cluster.leaving.as_mut());
        let Some(Leaving { stage: Stage::Ending(busy), .. }) = leaving else { return };
        let (mut busy, mut record) = (std::mem::take(busy), Snapshot::default());
        busy.retain(|slot| !self.is_done(*slot, &mut record));
        if busy.is_empty() {
            // One that was done may have been given something since.
            busy = self.leaving_slots();
            busy.retain(|slot| !self.is_done(*slot, &mut record));
        }
        let stage = if busy.is_empty() && self.send_last() {
            let Some(cluster) = self.cluster.as_mut() else { return };
            let (asks, number) = cluster.ask();
            self.egress.send(asks);
            Stage::Asleep(number)
        } else {
            Stage::Ending(busy)
        };
        if let Some(leaving) = self.cluster.as_mut().and_then(|cluster| cluster.leaving.as_mut()) {
            leaving.stage = stage;
        }
    }

    /// Sends the next owners of UEs what they have not: UEs that are not copied at each commit, and those that wait for an
    /// answer of the subscriber service, which the next owner has to ask for again. Not if they are far behind.
    fn send_last(&mut self) -> bool {
        let slots = self.leaving_slots();
        let Some(cluster) = self.cluster.as_mut() else { return false };
        let next: FxHashSet<HostId> = cluster
            .leaving
            .iter()
            .flat_map(|leaving| leaving.owners.keys())
            .filter_map(|bucket| cluster.next_owner(*bucket))
            .collect();
        if next.iter().any(|host| cluster.is_far_behind(*host)) {
            return false;
        }
        let hot = cluster.member.replication.mode == Mode::Hot;
        let mut record = Snapshot::default();
        for slot in slots {
            let Some(ltmsi) = self.region.ltmsi_of(slot).filter(|_| self.region.read(slot, &mut record)) else {
                continue;
            };
            let Some(to) = cluster.next_owner(ltmsi.bucket()) else { continue };
            let asks = |effect: &Effect| matches!(effect, Effect::Authenticate(_));
            let asks = Outbox::decode(&record.outbox).is_some_and(|outbox| outbox.effects.iter().any(asks));
            let known = cluster.known.get(&to).is_some_and(|known| known.contains_key(&slot));
            let each = hot && cluster.is_copied(ltmsi.bucket());
            if asks || !each || !known {
                let outbox = if asks { &record.outbox[..] } else { &[] };
                cluster.send_now(to, slot, (ltmsi, None), 0, &record.context, (outbox, Ways::default()));
            }
        }
        true
    }

    /// All has been done that this host's UEs have wanted done which go to other hosts: they are theirs now.
    fn hand_over(&mut self) {
        let slots = self.leaving_slots();
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Some(leaving) = cluster.leaving.take() else { return };
        let Some(map) = cluster.map.clone() else { return };
        let own = cluster.own();
        let (mut kept, mut record, mut count) = (Vec::new(), Snapshot::default(), 0);
        for slot in slots {
            let Some(ltmsi) = self.region.ltmsi_of(slot) else { continue };
            self.inputs.turn();
            if self.region.read(slot, &mut record) {
                self.let_ue_go(slot, &record);
                count += 1;
                if map.owners(ltmsi.bucket()).has(own) {
                    kept.push((ltmsi, std::mem::take(&mut record.context)));
                }
            } else {
                self.own.abandon(slot);
            }
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        // Before the next owner begins, and sends what it changes.
        let parts = kept.iter().filter_map(|(ltmsi, octets)| Some((*ltmsi, Parts::new(octets).ok()?)));
        cluster.member.replicator.keep_own(parts);
        let next: FxHashSet<HostId> =
            leaving.owners.keys().filter_map(|bucket| map.owners(*bucket).primary()).filter(|h| *h != own).collect();
        for to in &next {
            let number = cluster.number(*to);
            if let Ok(octets) = postcard::to_stdvec(&ToReplica::Yours { number, epoch: leaving.epoch }) {
                cluster.member.replicator.send(*to, number, octets);
            }
        }
        cluster.member.replicator.flush();
        self.tell_own();
        tracing::info!(ues = count, to = ?next, epoch = leaving.epoch, "UEs were handed over");
    }

    /// Takes a UE out that is another host's now.
    fn let_ue_go(&mut self, slot: Slot, record: &Snapshot) {
        match context::decode(&record.context) {
            Ok(ue) => {
                let summary = Summary::of(&ue);
                self.totals.change(Some(summary), None);
                self.moved(slot, Some(summary), None);
                for session in &ue.sessions {
                    self.ids.lend(slot, &session.dnn, &session.address);
                }
            }
            Err(error) => tracing::error!(%error, "a stored context does not decode: please report it"),
        }
        match self.own.remove(slot, record) {
            Ok(()) => *self.order.last(slot) = next_version(record.version()),
            Err(error) => tracing::error!(%error, "a UE that is another host's is still here"),
        }
        for known in self.cluster.iter_mut().flat_map(|cluster| cluster.known.values_mut()) {
            known.remove(&slot);
        }
    }

    /// Takes what other hosts have handed over.
    pub(super) fn take_handed(&mut self) {
        let Some(cluster) = self.cluster.as_ref().filter(|cluster| cluster.member.replicator.has_handed()) else {
            return;
        };
        let taken = cluster.member.replicator.take_handed();
        self.enter_taken(taken);
    }

    /// Goes on with UEs that hosts which live have handed over, who have a copy of each as it is now.
    pub(super) fn go_on(&mut self, handed: Vec<(HostId, Ltmsi, Shadow)>, now: Instant) {
        let began = std::time::Instant::now();
        let count = handed.len();
        for (from, ltmsi, shadow) in handed.into_iter().filter(|(.., shadow)| !shadow.ephemeral.is_empty()) {
            self.inputs.turn();
            let Some(ue) = shadow.decode() else {
                tracing::error!(%ltmsi, "the copy of a UE does not decode: the UE is lost; please report it");
                continue;
            };
            let Some(slot) = self.take_over_context(ltmsi, ue, &shadow, (false, now)) else { continue };
            if let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.keeps_copies(from, ltmsi.bucket())) {
                cluster.known.entry(from).or_default().insert(slot, (ltmsi, shadow.perpetual_version()));
            }
            // All was done but what the other host would be answered.
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
