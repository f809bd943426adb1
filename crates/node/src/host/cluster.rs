//! A host among others: which buckets are its own, copies of its UEs' contexts at other hosts, and the UEs of a host that
//! is dead.
//!
//! The effects of a commit leave when the hosts that they wait for have the copy, in the order of the commits: where one host is
//! waited for, that is the one that takes over first, and at the end of a procedure all of them (DESIGN decision 5). Who takes
//! over goes on from the copies: it does what the last commit of a UE wanted done once more (the balancer drops what was
//! sent), and gets the inputs that the dead host was not done with again (it drops those that a copy is the result of).

use super::census::Census;
use super::claims::Claims;
use super::handover::Leaving;
use super::nodes::way_to;
use super::{Host, Input};
use crate::balancer::Command;
use crate::clock::clock;
use crate::cluster::config::{Mode, ReplicationConfig};
use crate::cluster::replicator::Replicator;
use crate::cluster::shadows::{Shadow, Taken};
use crate::config::NF_KINDS;
use crate::crew::quota;
use crate::fabric::message::{Copy, Map, PoolLoad, ToReplica, Ways, Welcome};
use crate::metrics::{Flow, process};
use crate::nf::outbox::{Outbox, Summary};
use crate::nf::references;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;
use vireo_core::balance::board::Average;
use vireo_core::balance::map::{BucketMap, Owners};
use vireo_core::balance::{BalancerId, HostId};
use vireo_core::cluster::part_of;
use vireo_core::context::{self, Record as Parts, UeContext};
use vireo_core::schedule::kind::NfKind;
use vireo_core::turn::Effect;
use vireo_store::region::{Buffer, Key, Record, Region, Slot, Snapshot};
use vireo_types::{Bucket, Duration, Instant, Ltmsi};

/// Records whose effects wait, before nothing more is taken from workers.
const AWAITING: usize = 16_384;
/// Copies that a host may be behind by before it gets no more, but all UEs as they are then.
const BEHIND: u64 = 65_536;
/// And by how many it may be for more UEs to be sent to it that it has no copy of.
const CATCHES_UP: u64 = 4096;
/// Slots that are looked through in one go for a host that is to have copies.
const COPIED_AT_ONCE: u32 = 64;
/// Steps that it may have done beyond that: what it has had sent has their names.
const SKIPPED_STEPS: u64 = 1 << 12;
/// How long inputs of a dead host are known to have been carried out: longer than they are given again.
const CARRIED: Duration = Duration::from_secs(10);
/// COUNTs that a dead host may have used beyond its last copy, where copies may lag (DESIGN decision 5).
const SKIPPED_COUNTS: u32 = 32;

/// What a host is in its cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    /// What the balancer has said.
    pub(crate) welcome: Welcome,
    /// Which commits are copied, and what waits for that.
    pub(crate) replication: ReplicationConfig,
    /// Of UEs whose slice is not known and of each slice: how many hosts keep copies besides the owner.
    pub(crate) replicas: Vec<usize>,
    /// The connections to other hosts, and their UEs' copies.
    pub(crate) replicator: Replicator,
}

/// A record whose effects wait for copies.
#[derive(Debug)]
struct Pending {
    slot: Slot,
    buffer: Buffer,
    outbox: Outbox,
    /// By which associations its effects go.
    ways: Ways,
    /// It ends a procedure.
    ended: bool,
    /// Hosts that have to have this copy, or a later one.
    needs: Needs,
}

/// Hosts that are waited for, and the number of the copy that each has to have.
type Needs = SmallVec<[(HostId, u64); 2]>;

/// A host's part in its cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) member: Membership,
    pub(super) map: Option<BucketMap>,
    /// The hosts that there are.
    hosts: Vec<HostId>,
    /// The number of the last copy to each host.
    numbers: FxHashMap<HostId, u64>,
    awaiting: VecDeque<Pending>,
    awaited: FxHashSet<u64>,
    /// Of each host that has copies: the UE and the version of the perpetual part that it has of each slot.
    pub(super) known: FxHashMap<HostId, FxHashMap<Slot, (Ltmsi, u32)>>,
    /// Hosts that are to have copies of all UEs of some buckets, and how far they have.
    behind: VecDeque<(HostId, u32)>,
    /// Hosts of which the balancer was not told that they have all copies: the number of the copy with which each has, once
    /// all were sent.
    uncaught: Vec<(HostId, Option<u64>)>,
    /// Buckets that go to hosts that live.
    pub(super) leaving: Option<Leaving>,
    /// Buckets that are this host's as soon as who had them hands them over.
    pub(super) coming: FxHashSet<Bucket>,
    /// Inputs that wait for that.
    pub(super) waiting: VecDeque<Input>,
    /// Whether all others wait behind them.
    pub(super) stalled: bool,
    /// The number of the last question whether the balancer has done all.
    pub(super) syncs: u64,
    /// That of the last one of all: this host ends when it is answered.
    pub(super) last_sync: Option<u64>,
    /// Whether it was.
    pub(super) has_left: bool,
    /// Inputs that a dead host has carried out.
    carried: FxHashSet<u64>,
    carried_until: Instant,
    /// The last claims of subscribers, and the balancer that passes them on.
    pub(super) claims: Claims,
    holder: Option<BalancerId>,
    /// Addresses that UEs have taken along to other hosts.
    pub(super) census: Census,
    balancers: Vec<BalancerId>,
    /// How many numbers hosts were given; parts whose hosts are gone of which no UE here has an address, and those of which the
    /// controller was told, of an epoch, that some have.
    joined: u16,
    pub(super) unused: FxHashSet<u16>,
    pub(super) parts_told: Option<(u64, Vec<u16>)>,
    /// Whether the controller was told that hosts do not take copies.
    complained: bool,
    reported: Instant,
    /// CPU time of this host's processes, in microseconds, and the processors that cgroups leave them.
    used_us: u64,
    quota: Option<f64>,
    cpu: Average,
    /// Messages of balancers since the last report, and a second.
    pub(super) inputs: u32,
    rate: Average,
    backlogs: Vec<Average>,
}

impl Cluster {
    pub(super) fn new(member: Membership) -> Self {
        Cluster {
            member,
            map: None,
            hosts: Vec::new(),
            numbers: FxHashMap::default(),
            awaiting: VecDeque::new(),
            awaited: FxHashSet::default(),
            known: FxHashMap::default(),
            behind: VecDeque::new(),
            uncaught: Vec::new(),
            leaving: None,
            coming: FxHashSet::default(),
            waiting: VecDeque::new(),
            stalled: false,
            syncs: 0,
            last_sync: None,
            has_left: false,
            carried: FxHashSet::default(),
            carried_until: Instant::default(),
            claims: Claims::default(),
            holder: None,
            census: Census::default(),
            balancers: Vec::new(),
            joined: 0,
            unused: FxHashSet::default(),
            parts_told: None,
            complained: false,
            reported: clock(),
            used_us: process::cpu_us(),
            quota: quota(),
            cpu: Average::default(),
            inputs: 0,
            rate: Average::default(),
            backlogs: Vec::new(),
        }
    }

    /// Whether it is this host that tells RAN nodes what concerns all hosts.
    pub(super) fn speaks(&self) -> bool {
        self.hosts.iter().min() == Some(&self.own())
    }

    /// Whether commits are copied.
    pub(super) fn copies(&self) -> bool {
        self.member.replicas.iter().any(|replicas| *replicas > 0)
    }

    /// Whether those of a bucket's UEs are: buckets are dealt to slice 0 and the slices in turn.
    pub(super) fn is_copied(&self, bucket: Bucket) -> bool {
        let slices = self.member.replicas.len().max(1);
        self.member.replicas.get(usize::from(bucket.get()) % slices).is_some_and(|replicas| *replicas > 0)
    }

    /// Whether a record's effects wait for copies.
    pub(super) fn awaits(&self, buffer: Buffer) -> bool {
        self.awaited.contains(&buffer.to_item())
    }

    /// Whether no more records are to be taken.
    pub(super) fn is_full(&self) -> bool {
        self.awaiting.len() >= AWAITING
    }

    /// Whether hosts have said that they have copies, and something waits for that; or one has handed something over.
    pub(super) fn is_news(&self) -> bool {
        let caught_up = || self.coming.is_empty() && self.uncaught.iter().any(|uncaught| self.has_caught_up(uncaught));
        let said = self.member.replicator.has_handed() || self.member.replicator.has_said();
        said || self.is_next_there() || caught_up()
    }

    /// Whether there is more to do of what is done a little at a time, or is looked at again and again.
    pub(super) fn is_moving(&self) -> bool {
        self.leaving.is_some() || self.behind.front().is_some_and(|(to, _)| !self.is_far_behind(*to))
    }

    fn has_caught_up(&self, (host, until): &(HostId, Option<u64>)) -> bool {
        until.is_some_and(|until| self.member.replicator.kept(*host) >= until)
    }

    fn is_next_there(&self) -> bool {
        self.awaiting.front().is_some_and(|first| self.is_there(first))
    }

    /// The hosts that there are.
    pub(super) fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// Which part of the pools of addresses is a host's.
    pub(super) fn part_of(&self, host: HostId) -> u16 {
        part_of(host, self.member.welcome.part.1)
    }

    /// Parts that hosts have had, and none of the map has.
    pub(super) fn gone_parts(&self) -> impl Iterator<Item = u16> {
        let had = 0..self.member.welcome.part.1.min(self.joined);
        had.filter(|part| self.lender(*part).is_none())
    }

    /// The host whose part it is, if there is one.
    pub(super) fn lender(&self, part: u16) -> Option<HostId> {
        self.hosts.iter().copied().find(|host| self.part_of(*host) == part)
    }

    /// Its number.
    pub(super) fn own(&self) -> HostId {
        self.member.welcome.host
    }

    fn is_there(&self, pending: &Pending) -> bool {
        pending.needs.iter().all(|(host, number)| self.member.replicator.kept(*host) >= *number)
    }

    /// How many copies a host has not said to have.
    fn lag(&self, host: HostId) -> u64 {
        let sent = self.numbers.get(&host).copied().unwrap_or_default();
        sent.saturating_sub(self.member.replicator.kept(host))
    }

    /// The hosts of a bucket, by the map by which this host works for it.
    fn owners(&self, bucket: Bucket) -> Owners {
        let before = self.leaving.as_ref().and_then(|leaving| leaving.owners.get(&bucket)).copied();
        before.or_else(|| Some(self.map.as_ref()?.owners(bucket))).unwrap_or_default()
    }

    /// The hosts that keep copies of a bucket's UEs, and whether each is waited for where one is.
    fn replicas(&self, bucket: Bucket) -> SmallVec<[(HostId, bool); 4]> {
        let owners = self.owners(bucket);
        let there = owners.replicas().filter(|host| self.is_copied(bucket) && self.hosts.contains(host));
        there.map(|host| (host, owners.first().any(|first| first == host))).collect()
    }

    /// Whether this host carries out the steps of a bucket's UEs.
    pub(super) fn works_for(&self, bucket: Bucket) -> bool {
        self.owners(bucket).primary() == Some(self.own()) && !self.coming.contains(&bucket)
    }

    /// Whether a host has copies of a bucket's UEs at each commit.
    pub(super) fn keeps_copies(&self, host: HostId, bucket: Bucket) -> bool {
        self.replicas(bucket).iter().any(|(to, _)| *to == host)
    }

    /// All that other hosts are to have of this one's UEs is looked through, for what they have not.
    pub(super) fn look_again(&mut self) {
        let Some(map) = &self.map else { return };
        let own = self.own();
        let replicas: FxHashSet<HostId> = map.pairs().filter(|(of, _)| *of == own).map(|(_, host)| host).collect();
        let mut replicas: Vec<HostId> = replicas.into_iter().collect();
        replicas.sort_unstable();
        // Without copies, all that another host is to have it gets when a bucket is handed over.
        let (copies, hosts) = (self.copies(), &self.hosts);
        self.uncaught = replicas.iter().map(|host| (*host, (!copies || *host == own).then_some(0))).collect();
        let to = hosts.iter().filter(|host| copies && (**host != own));
        self.behind = to.map(|host| (*host, 0)).collect();
    }

    /// Hosts that have all copies since this was asked last.
    fn caught_up(&mut self) -> SmallVec<[HostId; 2]> {
        if !self.coming.is_empty() || self.uncaught.is_empty() {
            return SmallVec::new();
        }
        let (have, have_not) = self.uncaught.iter().partition(|uncaught| self.has_caught_up(uncaught));
        let have: Vec<(HostId, Option<u64>)> = have;
        self.uncaught = have_not;
        have.into_iter().map(|(host, _)| host).collect()
    }

    /// The number of something that is sent to a host in its order among the copies.
    pub(super) fn number(&mut self, to: HostId) -> u64 {
        let last = self.numbers.entry(to).or_default();
        *last += 1;
        *last
    }

    /// Whether a host is so far behind that it is not sent more than it must be.
    pub(super) fn is_far_behind(&self, host: HostId) -> bool {
        self.lag(host) > CATCHES_UP
    }

    /// Asks the balancer to say when all is done that was said so far; the number of the question.
    pub(super) fn ask(&mut self) -> (Command, u64) {
        self.syncs += 1;
        (Command::Sync { host: self.own(), number: self.syncs }, self.syncs)
    }

    /// Sends a UE as a commit has left it to all who keep copies of it. Who is waited for, how many copies that were, and how
    /// many octets.
    fn spread(
        &mut self,
        slot: Slot,
        (ltmsi, before): (Ltmsi, Option<Ltmsi>),
        input: u64,
        context: &[u8],
        effects: (&[u8], Ways),
        ended: bool,
    ) -> (Needs, u64, u64) {
        let (mut needs, mut copies, mut octets) = (Needs::new(), 0, 0);
        for (to, first) in self.replicas(ltmsi.bucket()) {
            let waits = self.member.replication.ack.waits(first, ended);
            let names = (ltmsi, before);
            let sent = match waits {
                true => self.send_now(to, slot, names, input, context, effects),
                false => self.send(to, slot, names, input, context, effects),
            };
            let Some((number, length)) = sent else { continue };
            (copies, octets) = (copies + 1, octets + length as u64);
            if waits {
                needs.push((to, number));
            }
        }
        if let Some(before) = before {
            octets += self.withdraw(slot, before, ltmsi.bucket());
        }
        (needs, copies, octets)
    }

    /// Records that wait for a host that is gone wait for the one that takes over in its place.
    fn wait_for_others(&mut self, hosts: &[HostId], region: &Region) {
        let ack = self.member.replication.ack;
        let mut awaiting = std::mem::take(&mut self.awaiting);
        let mut record = Snapshot::default();
        for pending in &mut awaiting {
            let before = pending.needs.len();
            pending.needs.retain(|(host, _)| hosts.contains(host));
            if before == pending.needs.len() || !region.read_record(pending.buffer, &mut record, true) {
                continue;
            }
            for (to, first) in self.replicas(pending.outbox.ltmsi.bucket()) {
                if !ack.waits(first, pending.ended) || pending.needs.iter().any(|(host, _)| *host == to) {
                    continue;
                }
                let names = (pending.outbox.ltmsi, None);
                let (input, effects) = (pending.outbox.input, (&record.outbox[..], pending.ways));
                let sent = self.send_now(to, pending.slot, names, input, &record.context, effects);
                pending.needs.extend(sent.map(|(number, _)| (to, number)));
            }
        }
        self.awaiting = awaiting;
    }

    /// A UE has got another number, of a slice that may have fewer copies: hosts that had copies and are to have none any more
    /// are told that it is gone. How many octets that took.
    fn withdraw(&mut self, slot: Slot, before: Ltmsi, next: Bucket) -> u64 {
        let stays = self.replicas(next);
        let had = |host: &HostId| self.known.get(host).is_some_and(|known| known.contains_key(&slot));
        let hosts = self.replicas(before.bucket()).into_iter().map(|(host, _)| host);
        let gone = hosts.filter(|host| had(host) && !stays.iter().any(|(to, _)| to == host));
        let mut octets = 0;
        for to in gone.collect::<SmallVec<[HostId; 4]>>() {
            let sent = self.send_now(to, slot, (before, None), 0, &[], (&[], Ways::default()));
            octets += sent.map_or(0, |(_, length)| length as u64);
        }
        octets
    }

    /// Sends a UE as a record has it to a host; the number of the copy, and its octets.
    fn send(
        &mut self,
        to: HostId,
        slot: Slot,
        (ltmsi, before): (Ltmsi, Option<Ltmsi>),
        input: u64,
        context: &[u8],
        effects: (&[u8], Ways),
    ) -> Option<(u64, usize)> {
        if self.lag(to) > BEHIND && self.awaiting.is_empty() {
            // Nothing waits for it, or nothing more than this would be sent.
            self.known.entry(to).or_default().clear();
            if !self.behind.iter().any(|(host, _)| *host == to) {
                self.behind.push_back((to, 0));
            }
            self.uncaught.iter_mut().filter(|(host, _)| *host == to).for_each(|(_, until)| *until = None);
            return None;
        }
        self.send_now(to, slot, (ltmsi, before), input, context, effects)
    }

    /// The same, however many it has not said to have.
    pub(super) fn send_now(
        &mut self,
        to: HostId,
        slot: Slot,
        (ltmsi, before): (Ltmsi, Option<Ltmsi>),
        input: u64,
        context: &[u8],
        (outbox, ways): (&[u8], Ways),
    ) -> Option<(u64, usize)> {
        let known = self.known.entry(to).or_default();
        let gone = Parts { versions: context::Versions::default(), perpetual: &[], ephemeral: &[] };
        let parts = if context.is_empty() { gone } else { Parts::new(context).ok()? };
        let version = parts.versions.perpetual;
        let had = if context.is_empty() { known.remove(&slot) } else { known.insert(slot, (ltmsi, version)) };
        let number = self.number(to);
        let copy = Copy {
            number,
            ltmsi,
            before,
            input,
            perpetual_version: version,
            ephemeral_version: parts.versions.ephemeral,
            perpetual: (had != Some((ltmsi, version))).then_some(parts.perpetual),
            ephemeral: parts.ephemeral,
            outbox,
            ways,
        };
        // It has an encoding: its parts have known lengths.
        let octets = postcard::to_stdvec(&ToReplica::Copy(copy)).ok()?;
        let length = octets.len();
        self.member.replicator.send(to, number, octets);
        Some((number, length))
    }
}

impl Host {
    /// A record whose effects leave when those who are to have a copy have it.
    pub(super) fn copy(&mut self, slot: Slot, buffer: Buffer, outbox: Outbox, snapshot: &Snapshot) {
        let Some(cluster) = self.cluster.as_mut() else {
            return self.let_go(slot, buffer, outbox, Ways::default());
        };
        let mode = cluster.member.replication.mode;
        // Fixed now: whoever does it again after this host's death does it by the same.
        let ways = self.nodes.ways(slot, &outbox.effects);
        // One that goes on has a pin.
        let ended = snapshot.pin == 0 || outbox.forgets();
        let mut needs = Needs::new();
        if mode == Mode::Hot || ended {
            let before = self.region.ltmsi_of(slot).filter(|before| *before != outbox.ltmsi);
            let names = (outbox.ltmsi, before);
            let effects = (&snapshot.outbox[..], ways);
            let (copies, octets);
            (needs, copies, octets) = cluster.spread(slot, names, outbox.input, &snapshot.context, effects, ended);
            if octets > 0 {
                self.account.metrics.messages(Flow::CopiesOut, copies);
                self.account.metrics.messages(Flow::CopyOctetsOut, octets);
            }
        }
        // What follows a record that waits waits too: a UE's effects leave in the order of its commits.
        if needs.is_empty() && cluster.awaiting.is_empty() {
            return self.let_go(slot, buffer, outbox, ways);
        }
        cluster.awaited.insert(buffer.to_item());
        cluster.awaiting.push_back(Pending { slot, buffer, outbox, ways, ended, needs });
    }

    /// What a host does for its cluster from time to time.
    pub(super) fn replicate(&mut self, now: Instant) {
        while let Some(cluster) = self.cluster.as_mut()
            && cluster.is_next_there()
            && let Some(Pending { slot, buffer, outbox, ways, .. }) = cluster.awaiting.pop_front()
        {
            cluster.awaited.remove(&buffer.to_item());
            self.let_go(slot, buffer, outbox, ways);
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        if !cluster.carried.is_empty() && now > cluster.carried_until {
            cluster.carried = FxHashSet::default();
        }
        let every = Duration::from_millis(cluster.member.welcome.report.into());
        let (since, due) = (now.since(cluster.reported), now.since(cluster.reported) >= every);
        self.catch_up();
        self.take_handed();
        self.end_leaving();
        self.count_addresses();
        if due {
            self.report(now, since);
            self.tell_parts();
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        for host in cluster.caught_up() {
            let epoch = cluster.map.as_ref().map_or(0, BucketMap::epoch);
            self.egress.send(Command::CaughtUp { epoch, host });
        }
        cluster.member.replicator.flush();
    }

    /// Sends some UEs to hosts that are to have copies from now on.
    fn catch_up(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Some((to, from)) = cluster.behind.pop_front() else { return };
        if cluster.lag(to) > CATCHES_UP {
            return cluster.behind.push_back((to, from));
        }
        let mut record = Snapshot::default();
        let slots: Vec<Slot> = self.region.slots_from(from, COPIED_AT_ONCE).map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(ltmsi) = self.region.ltmsi_of(slot) else { continue };
            let has = || cluster.known.get(&to).is_some_and(|known| known.contains_key(&slot));
            let to_have = || cluster.keeps_copies(to, ltmsi.bucket());
            if to_have() && !has() && self.region.read(slot, &mut record) {
                // The number of the context: that of the slot is the one before as long as effects wait.
                let ltmsi = Outbox::decode(&record.outbox).map_or(ltmsi, |outbox| outbox.ltmsi);
                cluster.send(to, slot, (ltmsi, None), 0, &record.context, (&[], Ways::default()));
            }
        }
        if from + COPIED_AT_ONCE < self.slots {
            cluster.behind.push_front((to, from + COPIED_AT_ONCE));
        } else {
            let sent = cluster.numbers.get(&to).copied().unwrap_or_default();
            let of = cluster.uncaught.iter_mut().find(|(host, _)| *host == to);
            of.into_iter().for_each(|(_, until)| *until = Some(sent));
        }
    }

    /// Tells the balancer how loaded this host is.
    fn report(&mut self, now: Instant, since: Duration) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.reported = now;
        let unreached = |host: &HostId| cluster.member.replicator.is_unreached(*host);
        let unreached: Vec<HostId> = cluster.hosts.iter().copied().filter(unreached).collect();
        if !unreached.is_empty() || cluster.complained {
            cluster.complained = !unreached.is_empty();
            self.egress.send(Command::Unreached(unreached));
        }
        let used =
            process::cpu_us() + self.rings.iter().filter_map(|worker| process::cpu_us_of(worker.pid)).sum::<u64>();
        // A worker that is gone takes its time along.
        let worked = used.saturating_sub(std::mem::replace(&mut cluster.used_us, used));
        let processors = cluster.quota.unwrap_or(f64::INFINITY).min(self.pools.processors() as f64);
        cluster.cpu.take((worked as f64 / (since.as_micros() as f64 * processors).max(1.0)).min(1.0));
        let inputs = std::mem::take(&mut cluster.inputs);
        cluster.rate.take(f64::from(inputs) * 1e6 / (since.as_micros() as f64).max(1.0));
        let mut pools = Vec::new();
        let slices = self.config.slices.len();
        cluster.backlogs.resize((slices + 1) * NF_KINDS, Average::default());
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

    /// The input that is being dealt with has caused all that it is going to.
    pub(super) fn done(&mut self) {
        let number = std::mem::take(&mut self.input);
        if number != 0 {
            self.egress.send(Command::Done { number });
        }
    }

    /// Whether a host that is dead has carried the input out: a copy that was taken over is the result of it.
    pub(super) fn was_carried_out(&mut self) -> bool {
        let carried = self.cluster.as_ref().is_some_and(|cluster| cluster.carried.contains(&self.input));
        if carried {
            self.done();
        }
        carried
    }

    /// A new epoch: other hosts have died or joined, or buckets go from host to host.
    pub(super) fn adopt(&mut self, map: Map) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        if !map.buckets.is_whole() || cluster.map.as_ref().is_some_and(|old| old.epoch() >= map.buckets.epoch()) {
            return tracing::error!(epoch = map.buckets.epoch(), "a map that is not the next was refused");
        }
        let own = cluster.own();
        let epoch = map.buckets.epoch();
        // All that is said from here on is by it.
        self.egress.send(Command::Epoch { epoch });
        // From here on a dead host's copies are refused, and its UEs are this host's.
        let taken = cluster.member.replicator.adopt(&map);
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let balancers: Vec<BalancerId> = map.balancers.iter().map(|(balancer, _)| *balancer).collect();
        let gone = cluster.hosts.iter().any(|host| !hosts.contains(host))
            || cluster.balancers.iter().any(|balancer| !balancers.contains(balancer));
        cluster.census.adopt(gone);
        cluster.hosts.clone_from(&hosts);
        (cluster.balancers, cluster.joined) = (balancers, map.joined);
        let holder = std::mem::replace(&mut cluster.holder, map.holder());
        let passes_on = holder.is_none() || holder == cluster.holder;
        let before = cluster.map.replace(map.buckets);
        if !passes_on {
            // The one before may have died with what it was told.
            self.say_claims_again();
        }
        self.part(before);
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.wait_for_others(&hosts, &self.region);
        }
        let (count, handed) = (taken.ues.len(), taken.handed.len());
        self.enter_taken(taken);
        let Some((cluster, map)) = self.cluster.as_ref().and_then(|c| Some((c, c.map.as_ref()?))) else { return };
        let owned = (0..Bucket::COUNT).filter(|b| map.owners(Bucket::new(*b)).primary() == Some(own)).count();
        let (coming, leaving) = (cluster.coming.len(), cluster.leaving.as_ref().map_or(0, |l| l.owners.len()));
        tracing::info!(
            epoch,
            hosts = hosts.len(),
            buckets = owned,
            coming,
            leaving,
            taken_over = count,
            handed,
            "a new epoch"
        );
    }

    /// Goes on with UEs that are this host's from now on.
    pub(super) fn enter_taken(&mut self, mut taken: Taken) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.coming = std::mem::take(&mut taken.awaited);
        // Who is to have nothing of a bucket any more, or has it of another owner, has nothing of it.
        let mut known = std::mem::take(&mut cluster.known);
        known.retain(|host, known| {
            let has = |bucket: Bucket| cluster.works_for(bucket) && cluster.owners(bucket).has(*host);
            known.retain(|_, (ltmsi, _)| has(ltmsi.bucket()));
            cluster.hosts.contains(host)
        });
        cluster.known = known;
        self.tell_own();
        self.take_over_ues(taken);
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.look_again();
        }
        self.release_waiting();
    }

    /// Goes on with the UEs of a dead host, and with those that others have handed over.
    fn take_over_ues(&mut self, taken: Taken) {
        let began = std::time::Instant::now();
        let now = clock();
        if let Some(cluster) = self.cluster.as_mut().filter(|_| !taken.inputs.is_empty()) {
            cluster.carried.extend(taken.inputs.iter().copied());
            cluster.carried_until = now + CARRIED;
        }
        let lags = self.cluster.as_ref().is_some_and(|cluster| cluster.member.replication.may_lag());
        let count = taken.ues.len();
        for (ltmsi, shadow) in taken.ues {
            self.inputs.turn();
            if shadow.ephemeral.is_empty() {
                self.do_again(None, &shadow, now);
                continue;
            }
            match shadow.decode() {
                Some(ue) => {
                    let slot = self.take_over_context(ltmsi, ue, &shadow, (lags, now));
                    slot.into_iter().for_each(|slot| self.do_again(Some(slot), &shadow, now));
                }
                None => tracing::error!(%ltmsi, "the copy of a UE does not decode: the UE is lost; please report it"),
            }
        }
        self.go_on(taken.handed, now);
        if count > 0 {
            self.account.metrics.messages(Flow::Promoted, count as u64);
            tracing::warn!(ues = count, took = ?began.elapsed(), "UEs of a dead host were taken over");
        }
    }

    /// Enters a UE of another host, whose copy may lag behind what that host has had sent. Where it is.
    pub(super) fn take_over_context(
        &mut self,
        ltmsi: Ltmsi,
        mut ue: UeContext,
        shadow: &Shadow,
        (lags, now): (bool, Instant),
    ) -> Option<Slot> {
        if lags {
            ue.sequence += SKIPPED_STEPS;
            if let Some(security) = &mut ue.security {
                security.downlink = security.downlink.saturating_add(SKIPPED_COUNTS);
            }
        }
        let encoded = if lags { context::encode(&ue, Vec::new()).ok() } else { shadow.record() };
        let (Some(octets), Ok(slot)) = (encoded, self.own.insert(ltmsi)) else {
            tracing::error!(%ltmsi, "a UE was not taken over: the state region is full (state.ues)");
            return None;
        };
        self.used(slot);
        for old in references(&ue) {
            if let Err(error) = self.region.alias(slot, old) {
                tracing::debug!(%error, %ltmsi, "an earlier number of a UE does not lead to it");
            }
        }
        for session in &ue.sessions {
            self.ids.adopt(slot, &session.dnn, &session.address);
        }
        let mut seen = Snapshot::default();
        self.region.read(slot, &mut seen);
        let record = Record { consumed: self.sequence, deadline: ue.deadline(), context: &octets, ..Record::default() };
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
        if let Some(supi) = ue.identity.supi {
            self.enter_supi(slot, supi);
        }
        let summary = Summary::of(&ue);
        self.totals.change(None, Some(summary));
        self.moved(slot, None, Some(summary));
        if let Some(deadline) = ue.deadline() {
            self.timers.schedule(slot, deadline, now);
        }
        Some(slot)
    }

    /// What the last commits of a UE wanted done may not have been: it is done again, under the same names.
    fn do_again(&mut self, slot: Option<Slot>, shadow: &Shadow, now: Instant) {
        for (outbox, ways) in shadow.undone(now) {
            match Outbox::decode(outbox) {
                Some(outbox) => self.do_one_again(slot, outbox, ways),
                None => tracing::error!("what a copy wants done does not decode: please report it"),
            }
        }
    }

    fn do_one_again(&mut self, slot: Option<Slot>, outbox: Outbox, ways: Ways) {
        let Outbox { at, ltmsi, key, seids, effects, .. } = outbox;
        if let Some(slot) = slot {
            // What follows goes there, too.
            ways.into_iter().flatten().for_each(|(node, by)| self.nodes.goes_by(node, by, slot));
        }
        let mut seids = seids.into_iter();
        for (n, effect) in effects.into_iter().enumerate() {
            let key = key | n as u64 & 0xf;
            match effect {
                Effect::Ngap { assoc: node, pdu } => {
                    self.send_about((slot, ltmsi), (node, way_to(ways, node)), key, pdu);
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
                Effect::BindSupi(supi) => slot.into_iter().for_each(|slot| self.claim_again(slot, supi, at)),
                // All that is in the context, or in the tables by it.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
