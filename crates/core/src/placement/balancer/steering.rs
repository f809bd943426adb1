//! Choice of the host for the first message of a UE, and for its procedures.

use super::choice_trace::TracedChoice;
use super::settings::Settings;
use crate::amf::n2::{Route, ShallowView};
use crate::ids::tmsi::TmsiCipher;
use crate::placement::balance::HostId;
use crate::placement::balance::load_table::{LoadTable, PoolReport};
use crate::placement::balance::map::{BucketMap, BucketPlacement};
use crate::placement::balance::steer::{self, HostSelection, HostSet, Preference, SteeringRequest};
use crate::placement::host::{NamedUe, named_ue};
use crate::placement::message::PoolLoad;
use crate::placement::replica::LoadShare;
use crate::schedule::estimate::ServiceTime;
use crate::schedule::kind::NfKind;
use vireo_types::{Bucket, Instant};

/// Assumed service time of a procedure in nanoseconds, until a host reports a measured one.
const FIRST_GUESS: u64 = 100_000;
const KINDS: usize = NfKind::ALL.len();

/// State of the host selection.
#[derive(Debug)]
pub(super) struct Steering {
    cipher: TmsiCipher,
    table: LoadTable,
    hosts: HostSet,
    /// Hosts of the map that get no new UEs.
    excluded: Vec<HostId>,
    /// Per host, service times of its pools. A host with few processors, or one that waits for
    /// them, needs longer than others.
    times: Vec<Vec<ServiceTime>>,
    pools: usize,
    /// Number of choices so far.
    turn: u64,
    /// Number of choices since the last report in which no host was expected to meet the objective.
    pub(super) violations: u32,
    /// True if choices of serving hosts are passed on ([`TracedChoice`]).
    pub(super) traces: bool,
}

impl Steering {
    pub(super) fn new(settings: &Settings) -> Self {
        let pools = (settings.objectives.len() + 1) * KINDS;
        Steering {
            cipher: TmsiCipher::new(&settings.tmsi_key),
            table: LoadTable::new(pools, settings.stale),
            hosts: HostSet::default(),
            excluded: Vec::new(),
            times: Vec::new(),
            pools,
            turn: 0,
            violations: 0,
            traces: false,
        }
    }

    /// Replaces the set of hosts for new UEs, and the hosts that get none.
    pub(super) fn set_hosts(&mut self, hosts: Vec<HostId>, excluded: Vec<HostId>, prefer: Preference) {
        self.excluded = excluded;
        if self.hosts.hosts() != hosts {
            self.hosts = HostSet::new(hosts).with(prefer);
        }
    }

    /// Removes the load of a host.
    pub(super) fn forget(&mut self, host: HostId) {
        self.table.forget(host);
    }

    /// Adds an input to the load of a host.
    pub(super) fn on_sent(&mut self, host: HostId, (pool, time): LoadShare) {
        self.table.on_sent(host, pool, time);
    }

    /// Subtracts inputs that the host has finished from its load.
    pub(super) fn on_ended(&mut self, host: HostId, shares: impl Iterator<Item = LoadShare>) {
        shares.for_each(|(pool, time)| self.table.on_ended(host, pool, time));
    }

    /// Stores a load report of a host.
    pub(super) fn on_report(&mut self, host: HostId, cpu: f32, loads: &[PoolLoad], now: Instant) {
        let reports: Vec<PoolReport> =
            loads.iter().map(|load| PoolReport { backlog: load.backlog.into(), share: load.share.into() }).collect();
        self.table.report(host, cpu.into(), &reports, now);
        if self.times.len() <= host.index() {
            self.times.resize_with(host.index() + 1, || vec![ServiceTime::new(FIRST_GUESS); self.pools]);
        }
        for (time, load) in self.times[host.index()].iter_mut().zip(loads).filter(|(_, load)| load.time_us > 0.0) {
            *time = ServiceTime::new((load.time_us * 1000.0) as u64);
        }
    }

    /// Returns the service time of a pool at a host.
    fn time(&self, host: HostId, pool: usize) -> ServiceTime {
        let reported = self.times.get(host.index()).and_then(|times| times.get(pool));
        reported.copied().unwrap_or(ServiceTime::new(FIRST_GUESS))
    }

    /// Returns the shortest service time of a pool among hosts. That a host is slower than others
    /// shows in its work.
    fn shortest_time(&self, hosts: impl Iterator<Item = HostId>, pool: usize) -> ServiceTime {
        let times = hosts.map(|host| self.time(host, pool));
        times.min_by_key(|time| time.nanos()).unwrap_or(ServiceTime::new(FIRST_GUESS))
    }

    /// Returns the bucket of the UE that an initial message names, if this AMF assigned its
    /// 5G-TMSI.
    pub(super) fn named_bucket(&self, view: &ShallowView, settings: &Settings) -> Option<Bucket> {
        match named_ue(view, &settings.core) {
            NamedUe::Initial { tmsi: Some(tmsi), .. } => Some(self.cipher.bucket(tmsi)),
            _ => None,
        }
    }

    /// Returns the load share of a message at a host. `bucket` is that by which an initial message
    /// was routed.
    pub(super) fn load_share(
        &self,
        host: HostId,
        view: &ShallowView,
        bucket: Option<Bucket>,
        settings: &Settings,
    ) -> Option<LoadShare> {
        let bucket = match view.route {
            Route::Ue(id) => id.ltmsi().bucket(),
            _ => bucket?,
        };
        // The same mapping from buckets to slices as in hosts.
        let slices = settings.objectives.len() + 1;
        let pool = usize::from(bucket.get()) % slices * KINDS + view.kind.index();
        Some((pool, self.time(host, pool)))
    }

    /// Chooses the host that serves a procedure of a known UE, among those that have the UE. `None`
    /// leaves it to the owner. The record is absent unless choices are traced.
    pub(super) fn choose_serving_host(
        &mut self,
        kind: NfKind,
        (bucket, owners): (Bucket, BucketPlacement),
        (settings, may_serve): (&Settings, impl Fn(HostId) -> bool),
        now: Instant,
    ) -> Option<(HostSelection, Option<TracedChoice>)> {
        self.turn += 1;
        // The same mapping from buckets to slices as in hosts.
        let slice = usize::from(bucket.get()) % (settings.objectives.len() + 1);
        let pool = slice * KINDS + kind.index();
        let slo = settings.objective(slice, kind);
        let candidates = BucketPlacement::new(owners.all().filter(|host| may_serve(*host)));
        let time = self.shortest_time(candidates.all(), pool);
        let request = SteeringRequest { bucket, owners: candidates, pool, time, slo, turn: self.turn };
        let choice = steer::select_serving_host(settings.policy, &request, &self.hosts, &self.table, now)?;
        let rule = (settings.policy, self.hosts.prefer());
        let load = |host| self.table.load(host, pool, request.time, now);
        Some((choice, self.traces.then(|| TracedChoice::new(rule, &request, load, choice.host))))
    }

    /// Selects a host by the policy for an unknown UE, and a bucket that this host owns. The
    /// candidates are the hosts of a bucket for UEs of unknown slice.
    pub(super) fn place_new_ue(
        &mut self,
        view: &ShallowView,
        map: &BucketMap,
        settings: &Settings,
        now: Instant,
    ) -> Option<(HostId, Bucket)> {
        self.turn += 1;
        // Round robin over the buckets of slice 0, whose columns have all slices. The UE later gets
        // an LTMSI of its home slice in the same column.
        let slices = settings.objectives.len() as u64 + 1;
        let columns = u64::from(Bucket::COUNT) / slices;
        let column = |n: u64| Bucket::new(((self.turn + n) % columns * slices) as u16);
        let pool = view.kind.index();
        let slo = settings.strictest_objective(view.kind);
        let eligible = |bucket: Bucket| {
            let placement = map.owners(bucket);
            let hosts = placement.all().filter(|host| !self.excluded.contains(host));
            (bucket, BucketPlacement::new(hosts))
        };
        // If only excluded hosts have the bucket, another one has the UE.
        let with_hosts = (0..columns).map(|n| eligible(column(n))).find(|(_, owners)| owners.owner().is_some());
        let (bucket, owners) = with_hosts.unwrap_or((column(0), map.owners(column(0))));
        let time = self.shortest_time(owners.all(), pool);
        let request = SteeringRequest { bucket, owners, pool, time, slo, turn: self.turn };
        let choice = steer::select_host(settings.policy, &request, &self.hosts, &self.table, now)?;
        self.violations += u32::from(choice.violation);
        let mut next = (0..columns).map(column);
        let own = next.find(|bucket| map.owners(*bucket).owner() == Some(choice.host));
        // A host without buckets has just joined.
        own.map(|bucket| (choice.host, bucket)).or_else(|| Some((owners.owner()?, bucket)))
    }
}
