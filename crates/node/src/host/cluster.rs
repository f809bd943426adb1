//! Host as cluster member: bucket ownership, replication and takeover.
//!
//! The effects of a commit are sent in commit order, when the required replicas acknowledge the
//! copy. If one replica is required, it is the first in takeover order. At the end of a procedure
//! all replicas are required (DESIGN decision 5).
//!
//! A new owner continues from its replica entries:
//!
//! - It executes the effects of the last commit of a UE again; the balancer drops repeats.
//! - It receives the inputs that the dead host did not complete; it drops those whose result is in
//!   a copy.

use super::address_audit::{AddressAudit, GoneParts};
use super::database_takeover::{LoadingBuckets, newly_owned_buckets};
use super::entry::Unsure;
use super::nodes::select_association;
use super::{DeferredEvent, Host, Input};
use crate::balancer::Command;
use crate::cluster::config::ReplicationConfig;
use crate::cluster::replicator::Replicator;
use crate::worker::outbox::{Outbox, Summary};
use crate::worker::references;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use vireo_core::amf::context::UeContext;
use vireo_core::placement::balance::load_table::MovingAverage;
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, partition_of};
use vireo_core::placement::message::{PoolLoad, Welcome};
use vireo_core::placement::replica::{
    self, ASKED_EVERY, BucketOwner, Commit, EffectAssociations, Origin, ReplicaEntry, ResentCommit, TakeoverSet,
    UnsentOutbox,
};
use vireo_core::schedule::kind::NfKind;
use vireo_core::step::Effect;
use vireo_ops::clock::clock;
use vireo_ops::config::NF_KINDS;
use vireo_ops::metrics::{Flow, process};
use vireo_ops::supervisor::quota;
use vireo_store::region::{Buffer, CommitRecord, Key, Slot, Snapshot};
use vireo_types::{Bucket, Duration, Instant, Ltmsi};

/// Number of records with deferred effects at which the host stops reading the workers' rings.
const AWAITING: usize = 16_384;
/// Slots scanned per call for a host that needs copies.
const COPIED_AT_ONCE: u32 = 64;
/// Time for which completed inputs of a dead host are remembered: longer than their redelivery.
const CARRIED: Duration = Duration::from_secs(10);

/// Configuration and connections of a cluster member.
#[derive(Debug)]
pub(crate) struct Membership {
    /// Reply of the controller to the join.
    pub(crate) welcome: Welcome,
    /// Selects the commits that are copied, and the acknowledgements that effects wait for.
    pub(crate) replication: ReplicationConfig,
    /// Number of replicas by slice; the first one is for UEs of unknown slice.
    pub(crate) replicas: Vec<usize>,
    /// Connections to other hosts, and the copies of their UEs.
    pub(crate) replicator: Replicator,
}

/// A commit record whose effects wait for acknowledgements.
#[derive(Debug)]
pub(super) struct Pending {
    slot: Slot,
    buffer: Buffer,
    outbox: Outbox,
    /// Associations that the effects use.
    ways: EffectAssociations,
}

/// Cluster state of a host.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) member: Membership,
    /// Acknowledgements of the replicas, and buckets that migrate.
    pub(super) primary: BucketOwner<Slot, Pending>,
    awaited: FxHashSet<u64>,
    /// Local events for UEs in quiesced buckets, which migrate to other hosts.
    pub(super) late: Vec<DeferredEvent>,
    /// Inputs for UEs whose previous owner has to hand them off first.
    pub(super) waiting: VecDeque<Input>,
    /// Number of the last barrier to all balancers. This host exits when it is answered.
    pub(super) last_sync: Option<u64>,
    /// True if the last barrier was answered.
    pub(super) has_left: bool,
    /// UEs that were entered while one of their RAN nodes was unknown.
    pub(super) unsure: Vec<Unsure>,
    /// Buckets whose UEs are loaded from a database.
    pub(super) loading: LoadingBuckets,
    /// Inputs that a dead host completed.
    carried: FxHashSet<u64>,
    carried_until: Instant,
    /// The balancer that forwards claims of subscribers.
    holder: Option<BalancerId>,
    /// Audit of addresses that UEs have taken to other hosts.
    pub(super) census: AddressAudit,
    balancers: Vec<BalancerId>,
    /// Number of host IDs assigned so far.
    joined: u16,
    pub(super) parts: GoneParts,
    /// True if the controller has a report of unreachable replicas.
    complained: bool,
    reported: Instant,
    /// Time of the last barrier to the balancers.
    asked: Instant,
    /// CPU time of this host's processes in microseconds, and the number of processors that cgroups
    /// leave them.
    used_us: u64,
    quota: Option<f64>,
    cpu: MovingAverage,
    /// Inputs of balancers since the last report, and their rate per second.
    pub(super) inputs: u32,
    rate: MovingAverage,
    backlogs: Vec<MovingAverage>,
}

impl Cluster {
    pub(super) fn new(member: Membership) -> Self {
        Cluster {
            primary: BucketOwner::new(member.welcome.host, member.replication, member.replicas.clone()),
            member,
            awaited: FxHashSet::default(),
            late: Vec::new(),
            waiting: VecDeque::new(),
            last_sync: None,
            has_left: false,
            unsure: Vec::new(),
            loading: LoadingBuckets::default(),
            carried: FxHashSet::default(),
            carried_until: Instant::default(),
            holder: None,
            census: AddressAudit::default(),
            balancers: Vec::new(),
            joined: 0,
            parts: GoneParts::default(),
            complained: false,
            reported: clock(),
            asked: clock(),
            used_us: process::cpu_us(),
            quota: quota(),
            cpu: MovingAverage::default(),
            inputs: 0,
            rate: MovingAverage::default(),
            backlogs: Vec::new(),
        }
    }

    /// Records inputs that a dead host completed and that the balancers may redeliver for a while.
    pub(super) fn were_carried_out(&mut self, inputs: impl IntoIterator<Item = u64>, now: Instant) {
        self.carried.extend(inputs);
        self.carried_until = now + CARRIED;
    }

    /// Returns true if this host sends the messages to RAN nodes that concern all hosts.
    pub(super) fn speaks(&self) -> bool {
        self.primary.hosts().iter().min() == Some(&self.primary.own())
    }

    /// Returns true if the effects of a record wait for acknowledgements.
    pub(super) fn awaits(&self, buffer: Buffer) -> bool {
        self.awaited.contains(&buffer.to_item())
    }

    /// Returns true if too many records wait for the host to read more.
    pub(super) fn is_full(&self) -> bool {
        self.primary.waiting() >= AWAITING
    }

    /// Returns true if an acknowledgement can release effects, or a handoff has arrived.
    pub(super) fn is_news(&self) -> bool {
        let said = self.member.replicator.has_handed() || self.member.replicator.has_said();
        said || self.primary.has_released_effects(&self.member.replicator)
    }

    /// Returns true if a migration or catch-up needs further calls.
    pub(super) fn is_moving(&self) -> bool {
        self.primary.is_moving(&self.member.replicator)
    }

    /// Returns the pool partition of a host.
    pub(super) fn part_of(&self, host: HostId) -> u16 {
        partition_of(host, self.member.welcome.part.1)
    }

    /// Returns the pool partitions of former hosts that no host of the map has.
    pub(super) fn gone_parts(&self) -> impl Iterator<Item = u16> {
        let had = 0..self.member.welcome.part.1.min(self.joined);
        had.filter(|part| self.lender(*part).is_none())
    }

    /// Returns the host that has a pool partition, if any.
    pub(super) fn lender(&self, part: u16) -> Option<HostId> {
        self.primary.hosts().iter().copied().find(|host| self.part_of(*host) == part)
    }

    /// Returns a barrier: each balancer replies when it has completed all commands sent before.
    pub(super) fn question(&self, number: u64) -> Command {
        Command::Barrier { host: self.primary.own(), number }
    }
}

impl Host {
    /// Copies a commit to its replicas. Its effects are emitted when the required replicas
    /// acknowledge.
    pub(super) fn copy(&mut self, slot: Slot, buffer: Buffer, outbox: Outbox, snapshot: &Snapshot) {
        let Some(cluster) = self.cluster.as_mut() else {
            return self.emit_effects(slot, buffer, outbox, EffectAssociations::default());
        };
        // Fixed at the commit: a new owner that executes the effects again uses the same
        // associations.
        let ways = self.nodes.ways(slot, &outbox.effects);
        // A record of an unfinished procedure has a pin.
        let ended = snapshot.pin == 0 || outbox.forgets();
        let (ltmsi, input) = (outbox.ltmsi, outbox.input);
        let before = self.region.ltmsi_of(slot).filter(|before| *before != ltmsi);
        let (context, effects) = (&snapshot.context[..], &snapshot.outbox[..]);
        let commit = Commit { slot, ltmsi, before, input, context, outbox: effects, ways };
        let Cluster { primary, member: Membership { replicator, .. }, awaited, .. } = &mut **cluster;
        let (mut copies, mut octets) = (0, 0);
        let mut send = |to, copy: replica::ReplicaUpdate<'_>| {
            (copies, octets) = (copies + 1, octets + replicator.send_copy(to, copy) as u64);
        };
        let record = Pending { slot, buffer, outbox, ways };
        let released = primary.on_commit((&commit, ended), &*replicator, record, &mut send);
        if copies > 0 {
            self.account.metrics.messages(Flow::CopiesOut, copies);
            self.account.metrics.messages(Flow::CopyOctetsOut, octets);
        }
        match released {
            Some(Pending { outbox, .. }) => self.emit_effects(slot, buffer, outbox, ways),
            None => drop(awaited.insert(buffer.to_item())),
        }
    }

    /// Runs the periodic cluster tasks of a host.
    pub(super) fn replicate(&mut self, now: Instant) {
        while let Some(cluster) = self.cluster.as_mut()
            && let Some(pending) = cluster.primary.next_released(&cluster.member.replicator)
        {
            let Pending { slot, buffer, outbox, ways } = pending;
            cluster.awaited.remove(&buffer.to_item());
            self.emit_effects(slot, buffer, outbox, ways);
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        if !cluster.carried.is_empty() && now > cluster.carried_until {
            cluster.carried = FxHashSet::default();
        }
        let every = Duration::from_millis(cluster.member.welcome.report.into());
        let (since, due) = (now.since(cluster.reported), now.since(cluster.reported) >= every);
        if now.since(cluster.asked) >= ASKED_EVERY {
            cluster.asked = now;
            let question = cluster.primary.request_watermark().map(|number| cluster.question(number));
            question.into_iter().for_each(|asks| self.egress.send(asks));
        }
        self.catch_up();
        self.take_handed();
        self.ask_for_nodes();
        self.end_leaving();
        self.count_addresses();
        if due {
            self.report(now, since);
            self.tell_parts();
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        for host in cluster.primary.caught_up(&cluster.member.replicator) {
            let epoch = cluster.primary.map().map_or(0, BucketMap::epoch);
            self.egress.send(Command::CaughtUp { epoch, host });
        }
        cluster.member.replicator.flush();
    }

    /// Sends some UEs to replicas that lack their copies.
    fn catch_up(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Some((to, from)) = cluster.primary.next_lagging_replica(&cluster.member.replicator) else { return };
        let mut record = Snapshot::default();
        let slots: Vec<Slot> = self.region.slots_from(from, COPIED_AT_ONCE).map(|(slot, _)| slot).collect();
        let mut next = from + COPIED_AT_ONCE;
        for slot in slots {
            let Some(ltmsi) = self.region.ltmsi_of(slot) else { continue };
            let lacks = self.cluster.as_ref().is_some_and(|cluster| cluster.primary.lacks(to, slot, ltmsi));
            if lacks && self.region.read(slot, &mut record) && !self.send_ue(to, slot, ltmsi, &record) {
                next = slot.number();
                break;
            }
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        let whole = cluster.primary.looked(to, (next < self.slots).then_some(next));
        cluster.ask_for_others(to, whole);
    }

    /// Reports load and unreachable replicas to the balancers and the controller.
    fn report(&mut self, now: Instant, since: Duration) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.reported = now;
        let unreached = |host: &HostId| cluster.member.replicator.is_unreached(*host);
        let unreached: Vec<HostId> = cluster.primary.hosts().iter().copied().filter(unreached).collect();
        if !unreached.is_empty() || cluster.complained {
            cluster.complained = !unreached.is_empty();
            self.egress.send(Command::UnreachablePeers(unreached));
        }
        let used =
            process::cpu_us() + self.rings.iter().filter_map(|worker| process::cpu_us_of(worker.pid)).sum::<u64>();
        // The CPU time of an exited worker is missing from the sum.
        let worked = used.saturating_sub(std::mem::replace(&mut cluster.used_us, used));
        let processors = cluster.quota.unwrap_or(f64::INFINITY).min(self.pools.processors() as f64);
        cluster.cpu.take((worked as f64 / (since.as_micros() as f64 * processors).max(1.0)).min(1.0));
        let inputs = std::mem::take(&mut cluster.inputs);
        cluster.rate.take(f64::from(inputs) * 1e6 / (since.as_micros() as f64).max(1.0));
        let mut pools = Vec::new();
        let slices = self.config.slices.len();
        cluster.backlogs.resize((slices + 1) * NF_KINDS, MovingAverage::default());
        for slice in 0..=slices {
            for kind in NfKind::ALL {
                let purpose = self.pools.purpose(slice, kind);
                let active = |nf: &&super::pools::Nf| nf.purpose == purpose && nf.state == super::pools::State::Active;
                let of = || self.pools.iter().filter(active);
                let backlogs = of().map(|nf| f64::from(nf.queue.len() as u32) / nf.share.max(1e-3));
                let average = &mut cluster.backlogs[slice * NF_KINDS + kind.index()];
                average.take(backlogs.fold(f64::INFINITY, f64::min).min(1e9));
                pools.push(PoolLoad {
                    backlog: average.get() as f32,
                    share: of().map(|nf| nf.share).sum::<f64>() as f32,
                    time_us: self.pools.time(purpose).nanos() as f32 / 1000.0,
                });
            }
        }
        let (cpu, rate) = (cluster.cpu.get() as f32, cluster.rate.get() as f32);
        self.egress.send(Command::Report { cpu, rate, pools });
    }

    /// Acknowledges the current input: it has no further consequences.
    pub(super) fn done(&mut self) {
        let number = std::mem::take(&mut self.input);
        if number != 0 {
            self.egress.send(Command::Done { number });
        }
    }

    /// Returns true if a dead host completed the current input: a copy that was taken over contains
    /// its result.
    pub(super) fn was_carried_out(&mut self) -> bool {
        let carried = self.cluster.as_ref().is_some_and(|cluster| cluster.carried.contains(&self.input));
        if carried {
            self.done();
        }
        carried
    }

    /// Applies the cluster map of a new epoch.
    pub(super) fn adopt(&mut self, map: ClusterMap) {
        let loads = self.loads();
        let Some(cluster) = self.cluster.as_mut() else { return };
        if !map.buckets.is_complete() || cluster.primary.map().is_some_and(|old| old.epoch() >= map.buckets.epoch()) {
            return tracing::error!(epoch = map.buckets.epoch(), "a map that is not the next was refused");
        }
        let own = cluster.primary.own();
        let epoch = map.buckets.epoch();
        // All later commands belong to this epoch.
        self.egress.send(Command::Epoch { epoch });
        // After this call copies of a dead host are refused, and its UEs belong to this host.
        let taken = cluster.member.replicator.adopt(&map);
        let begins = cluster.primary.map().is_none();
        let gained = if loads { newly_owned_buckets(cluster, &map.buckets) } else { FxHashSet::default() };
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let balancers: Vec<BalancerId> = map.balancers.iter().map(|(balancer, _)| *balancer).collect();
        let gone = cluster.primary.hosts().iter().any(|host| !hosts.contains(host))
            || cluster.balancers.iter().any(|balancer| !balancers.contains(balancer));
        cluster.census.adopt(gone);
        (cluster.balancers, cluster.joined) = (balancers, map.joined);
        let holder = std::mem::replace(&mut cluster.holder, map.holder());
        let passes_on = holder.is_none() || holder == cluster.holder;
        let count = hosts.len();
        let question = cluster.primary.adopt(map.buckets, hosts);
        let question = question.map(|number| cluster.question(number));
        let late = std::mem::take(&mut cluster.late);
        if !passes_on {
            // The previous forwarder may have died with unsent claims.
            self.say_claims_again();
        }
        question.into_iter().for_each(|asks| self.egress.send(asks));
        late.into_iter().for_each(|held| self.hold(held));
        self.wait_for_others();
        self.load(gained, begins);
        let (ues, handed) = (taken.ues.len(), taken.handed.len());
        self.enter_taken(taken);
        let Some(primary) = self.cluster.as_ref().map(|cluster| &cluster.primary) else { return };
        let Some(map) = primary.map() else { return };
        let owned = (0..Bucket::COUNT).filter(|b| map.owners(Bucket::new(*b)).owner() == Some(own)).count();
        tracing::info!(
            epoch,
            hosts = count,
            buckets = owned,
            coming = primary.coming().len(),
            leaving = primary.leaving(),
            taken_over = ues,
            handed,
            "a new epoch"
        );
    }

    /// Enters UEs that this host owns since this epoch.
    pub(super) fn enter_taken(&mut self, mut taken: TakeoverSet) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let mut awaited = std::mem::take(&mut taken.awaited);
        awaited.extend(&cluster.loading.buckets);
        cluster.primary.entered(awaited);
        self.take_over_ues(taken, false);
        // Workers allocate numbers in these buckets only after all numbers in use are known.
        self.tell_own();
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.primary.rescan();
        }
        self.release_waiting();
    }

    /// Makes records that wait for a lost replica wait for its successor.
    fn wait_for_others(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Cluster { primary, member: Membership { replicator, .. }, .. } = &mut **cluster;
        let region = &self.region;
        let read = |pending: &Pending| {
            let mut record = Snapshot::default();
            let Pending { slot, outbox: Outbox { ltmsi, input, .. }, ways, .. } = *pending;
            let found = region.read_record(pending.buffer, &mut record, true);
            let before = region.ltmsi_of(slot).filter(|before| *before != ltmsi);
            found.then_some(ResentCommit {
                slot,
                ltmsi,
                before,
                input,
                context: record.context,
                outbox: record.outbox,
                ways,
            })
        };
        primary.reassign_acks(read, &mut |to, copy| _ = replicator.send_copy(to, copy));
    }

    /// Takes over the UEs of a dead host and those that other hosts handed off. Unless `sure`, it
    /// defers UEs whose RAN nodes are unknown.
    pub(super) fn take_over_ues(&mut self, taken: TakeoverSet, sure: bool) {
        let began = std::time::Instant::now();
        let now = clock();
        if let Some(cluster) = self.cluster.as_mut().filter(|_| !taken.inputs.is_empty()) {
            cluster.were_carried_out(taken.inputs.iter().copied(), now);
        }
        let lags = self.cluster.as_ref().is_some_and(|cluster| cluster.member.replication.may_lag());
        let mut count = 0;
        for (ltmsi, shadow) in taken.ues {
            self.inputs.turn();
            count += 1;
            if shadow.ephemeral.is_empty() {
                self.do_again(None, &shadow, now);
                continue;
            }
            match shadow.decode() {
                Some(ue) if !sure && self.is_of_unknown_node(&ue) => {
                    count -= 1;
                    self.keep_back(ltmsi, shadow, Origin::Dead);
                }
                Some(ue) => {
                    let slot = self.take_over_context(ltmsi, ue, &shadow, (lags, now));
                    slot.into_iter().for_each(|slot| self.do_again(Some(slot), &shadow, now));
                }
                None => tracing::error!(%ltmsi, "the copy of a UE does not decode: the UE is lost; please report it"),
            }
        }
        self.go_on(taken.handed, sure, now);
        if count > 0 {
            self.account.metrics.messages(Flow::Promoted, count);
            tracing::warn!(ues = count, took = ?began.elapsed(), "UEs of a dead host were taken over");
        }
    }

    /// Enters a UE of another host from a copy that may lag behind its sent messages. Returns its
    /// slot.
    pub(super) fn take_over_context(
        &mut self,
        ltmsi: Ltmsi,
        mut ue: UeContext,
        shadow: &ReplicaEntry,
        (lags, now): (bool, Instant),
    ) -> Option<Slot> {
        if lags {
            replica::skip(&mut ue);
        }
        let Some(octets) = (if lags { shadow.next_version(&ue) } else { shadow.record() }) else {
            tracing::error!(%ltmsi, "a UE was not taken over: its copy has no encoding; please report it");
            return None;
        };
        self.enter_context(ltmsi, &ue, &octets, || claimed(shadow, now), now)
    }

    /// Enters a UE of another host with this encoded context. Returns its slot.
    pub(super) fn enter_context(
        &mut self,
        ltmsi: Ltmsi,
        ue: &UeContext,
        octets: &[u8],
        claimed: impl Fn() -> Option<Instant>,
        now: Instant,
    ) -> Option<Slot> {
        if self.region.slot_of(ltmsi).is_some() {
            // Inserting the UE would displace the other one.
            tracing::error!(%ltmsi, "a UE was not taken over: another one here has its number; please report it");
            return None;
        }
        let Ok(slot) = self.own.insert(ltmsi) else {
            tracing::error!(%ltmsi, "a UE was not taken over: the state region is full (state.ues)");
            return None;
        };
        self.used(slot);
        for old in references(ue) {
            if let Err(error) = self.region.alias(slot, old) {
                tracing::debug!(%error, %ltmsi, "an earlier number of a UE does not lead to it");
            }
        }
        for session in &ue.sessions {
            self.ids.adopt(slot, &session.terms.dnn, &session.address);
            if let Some(cluster) = self.cluster.as_mut() {
                cluster.parts.come(self.ids.parts_of(&session.terms.dnn, &session.address));
            }
        }
        let mut seen = Snapshot::default();
        self.region.read(slot, &mut seen);
        let record = CommitRecord {
            consumed: self.sequence,
            deadline: ue.deadline(),
            context: octets,
            ..CommitRecord::default()
        };
        let committed = match self.own.commit(slot, &seen, &record) {
            Ok(committed) => committed,
            Err(error) => {
                tracing::error!(%error, %ltmsi, "a UE was not taken over");
                return None;
            }
        };
        *self.order.last(slot) = committed.version;
        for tmsi in [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten() {
            self.bind(slot, Key::Tmsi, u64::from(tmsi.0));
        }
        self.enter_supi(slot, ue, claimed);
        let summary = Summary::of(ue);
        self.totals.change(None, Some(summary));
        self.has_entered(slot, ltmsi, summary);
        if let Some(deadline) = ue.deadline() {
            self.timers.schedule(slot, deadline, now);
        }
        Some(slot)
    }

    /// Executes effects of a UE's last commits again, with the same keys, unless they are known to
    /// be sent.
    fn do_again(&mut self, slot: Option<Slot>, shadow: &ReplicaEntry, now: Instant) {
        for UnsentOutbox { outbox, ways, sent } in shadow.unsent_outboxes(now) {
            match Outbox::decode(outbox) {
                Some(mut outbox) => {
                    if sent {
                        outbox.effects.retain(|effect| matches!(effect, Effect::Authenticate(_)));
                    }
                    self.do_one_again(slot, outbox, ways);
                }
                None => tracing::error!("what a copy wants done does not decode: please report it"),
            }
        }
    }

    pub(super) fn do_one_again(&mut self, slot: Option<Slot>, outbox: Outbox, ways: EffectAssociations) {
        let Outbox { at, ltmsi, key, seids, effects, .. } = outbox;
        if let Some(slot) = slot {
            // Later messages to the UE use the same association.
            ways.into_iter().flatten().for_each(|(node, by)| self.nodes.goes_by(node, by, slot));
        }
        let mut seids = seids.into_iter();
        for (n, effect) in effects.into_iter().enumerate() {
            let key = key | n as u64 & 0xf;
            match effect {
                Effect::Ngap { assoc: node, pdu } => {
                    self.send_about((slot, ltmsi), (node, select_association(ways, node)), key, pdu);
                }
                Effect::Pfcp { upf, message, .. } => {
                    let seid = seids.next().flatten();
                    self.egress.send(Command::Pfcp { upf, key, seid, message });
                }
                Effect::Authenticate(request) => {
                    if let Some(slot) = slot {
                        self.authenticate(slot, ltmsi, request);
                    }
                }
                binds @ (Effect::BindSupi(_) | Effect::BindSupiSince(..)) => {
                    for (slot, (supi, at)) in slot.into_iter().zip(binds.claims_subscriber(at)) {
                        self.claim_again(slot, supi, at);
                    }
                }
                // The other effects are part of the context or of the tables derived from it.
                _ => {}
            }
        }
    }
}

/// Returns the time at which a copy's last commits claimed its subscriber, if they did.
fn claimed(shadow: &ReplicaEntry, now: Instant) -> Option<Instant> {
    shadow.unsent_outboxes(now).filter_map(|undone| Outbox::decode(undone.outbox)?.claims()).max()
}

/// Returns the commit that copies a UE at rest, or nearly so, to a replica that lacks it.
pub(super) fn as_it_is<'a>(slot: Slot, ltmsi: Ltmsi, context: &'a [u8], outbox: &'a [u8]) -> Commit<'a, Slot> {
    Commit { slot, ltmsi, before: None, input: 0, context, outbox, ways: EffectAssociations::default() }
}
