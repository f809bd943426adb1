//! Host as cluster member: replication of commits, reports, and adoption of cluster maps.
//!
//! `core::placement::host` decides ([`super::machine_io`] drives it). The effects of a commit are
//! sent in commit order, when the required replicas acknowledge the copy. If one replica is
//! required, it is the first in takeover order. At the end of a procedure all replicas are
//! required.

mod member;

pub use member::Membership;
pub(super) use member::{Cluster, EnteredUes, Owner, Pending};

use super::database_takeover::newly_owned_buckets;
use super::egress::EffectRoute;
use super::pools;
use super::state::Host;
use crate::worker::outbox::Outbox;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::load_table::MovingAverage;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host as machine;
use vireo_core::placement::message::{ClusterOutput, HostNotice, PoolLoad, ToReplica};
use vireo_core::placement::replica::{Commit, WATERMARK_INTERVAL};
use vireo_core::schedule::kind::NfKind;
use vireo_ops::config::NF_KINDS;
use vireo_ops::metrics::{Flow, ServedBy, process};
use vireo_store::region::{Buffer, Slot, Snapshot};
use vireo_types::{Bucket, Duration, Instant};

/// Number of records with deferred effects at which the host stops reading the workers' rings.
const AWAITING: usize = 16_384;

impl Host {
    /// Returns the owner side of replication, in a cluster.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.machine.as_ref()?.owner()
    }

    /// Returns true if this host sends the messages to RAN nodes that concern all hosts.
    pub(super) fn is_ran_responder(&self) -> bool {
        self.owner().is_some_and(|owner| owner.hosts().iter().min() == Some(&owner.host_id()))
    }

    /// Returns true if too many records wait for acknowledgements for the host to read more.
    pub(super) fn awaits_too_many(&self) -> bool {
        self.owner().is_some_and(|owner| owner.waiting() >= AWAITING)
    }

    /// Returns true if a migration or catch-up needs further calls.
    pub(super) fn is_moving(&self) -> bool {
        let cluster = self.cluster.as_ref().zip(self.owner());
        cluster.is_some_and(|(cluster, owner)| owner.is_moving(&cluster.member.replicator))
    }

    /// Copies a commit to its replicas. Its effects are emitted when the required replicas
    /// acknowledge.
    pub(super) fn copy(
        &mut self,
        (slot, buffer): (Slot, Buffer),
        outbox: Outbox,
        snapshot: &Snapshot,
        route: Option<EffectRoute>,
    ) {
        let (Some(cluster), Some(machine)) = (self.cluster.as_mut(), self.machine.as_mut()) else {
            return self.emit_effects(slot, buffer, outbox, EffectRoute::default());
        };
        // Fixed at the commit: a new owner that executes the effects again uses the same
        // associations.
        let own = || self.nodes.effect_associations(slot, &outbox.effects);
        let route = route.unwrap_or_else(|| EffectRoute { associations: own(), served_by: None });
        let (associations, proposer) = (route.associations, route.served_by);
        // A record of an unfinished procedure has a pin.
        let ended = snapshot.pin == 0 || outbox.forgets();
        let (ltmsi, input) = (outbox.ltmsi, outbox.input);
        if ended && input != 0 {
            let role = if proposer.is_some() { ServedBy::Replica } else { ServedBy::Owner };
            self.statistics.step_metrics.metrics.served(role);
        }
        let before = self.ues.region.ltmsi_of(slot).filter(|before| *before != ltmsi);
        let (context, effects) = (&snapshot.context[..], &snapshot.outbox[..]);
        let commit = Commit { slot, ltmsi, before, input, context, outbox: effects, associations, proposer };
        let Cluster { member: Membership { replicator, .. }, awaited, .. } = &mut **cluster;
        let (mut copies, mut octets) = (0, 0);
        let mut send = |to, number, message: &ToReplica<'_>| {
            (copies, octets) = (copies + 1, octets + replicator.put(to, number, message) as u64);
        };
        let record = Pending { slot, buffer, outbox, route };
        let released = machine.commit((&commit, ended), record, &*replicator, &mut send);
        if copies > 0 {
            self.statistics.step_metrics.metrics.messages(Flow::CopiesOut, copies);
            self.statistics.step_metrics.metrics.messages(Flow::CopyOctetsOut, octets);
        }
        match released {
            Some(Pending { outbox, .. }) => self.emit_effects(slot, buffer, outbox, route),
            None => drop(awaited.insert(buffer.to_item())),
        }
    }

    /// Runs the periodic cluster tasks of a host.
    pub(super) fn replicate(&mut self, now: Instant) {
        while let (Some(cluster), Some(machine)) = (self.cluster.as_mut(), self.machine.as_mut())
            && let Some(pending) = machine.next_released(&cluster.member.replicator)
        {
            let Pending { slot, buffer, outbox, route } = pending;
            cluster.awaited.remove(&buffer.to_item());
            self.emit_effects(slot, buffer, outbox, route);
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        let every = Duration::from_millis(cluster.member.welcome.report.into());
        let since = now.since(cluster.reported);
        if now.since(cluster.watermark_at) >= WATERMARK_INTERVAL {
            cluster.watermark_at = now;
            self.on(machine::Input::WatermarkDue);
        }
        if self.cluster.as_ref().is_some_and(|cluster| cluster.member.replicator.has_handoff()) {
            self.on(machine::Input::Handoff);
        }
        self.receive_peer_messages();
        self.advance_served();
        self.on(machine::Input::Poll);
        if since >= every {
            self.report(now, since);
            self.on(machine::Input::ReportDue);
        }
        if let Some(cluster) = &self.cluster {
            cluster.member.replicator.flush();
        }
    }

    /// Reports load and unreachable replicas to the balancers and the controller.
    fn report(&mut self, now: Instant, since: Duration) {
        let hosts = self.owner().map(|owner| owner.hosts().to_vec()).unwrap_or_default();
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.reported = now;
        let unreached = |host: &HostId| cluster.member.replicator.is_unreached(*host);
        let unreached: Vec<HostId> = hosts.into_iter().filter(unreached).collect();
        if !unreached.is_empty() || cluster.complained {
            cluster.complained = !unreached.is_empty();
            self.egress.send(ClusterOutput::UnreachablePeers(unreached));
        }
        let used = process::cpu_us()
            + self.workers.rings.iter().filter_map(|worker| process::cpu_us_of(worker.pid)).sum::<u64>();
        // The CPU time of an exited worker is missing from the sum.
        let worked = used.saturating_sub(std::mem::replace(&mut cluster.used_us, used));
        let processors = cluster.quota.unwrap_or(f64::INFINITY).min(self.workers.pools.processors() as f64);
        cluster.cpu.take((worked as f64 / (since.as_micros() as f64 * processors).max(1.0)).min(1.0));
        let inputs = std::mem::take(&mut cluster.inputs);
        cluster.rate.take(f64::from(inputs) * 1e6 / (since.as_micros() as f64).max(1.0));
        let mut pools = Vec::new();
        let slices = self.config.slices.len();
        cluster.backlogs.resize((slices + 1) * NF_KINDS, MovingAverage::default());
        for slice in 0..=slices {
            for kind in NfKind::ALL {
                let pool_id = self.workers.pools.pool_id(slice, kind);
                let active = |nf: &&pools::Nf| nf.pool_id == pool_id && nf.state == pools::NfState::Active;
                let of = || self.workers.pools.iter().filter(active);
                let backlogs = of().map(|nf| f64::from(nf.queue.len() as u32) / nf.share.max(1e-3));
                let average = &mut cluster.backlogs[slice * NF_KINDS + kind.index()];
                average.take(backlogs.fold(f64::INFINITY, f64::min).min(1e9));
                pools.push(PoolLoad {
                    backlog: average.get() as f32,
                    share: of().map(|nf| nf.share).sum::<f64>() as f32,
                    time_us: self.workers.pools.time(pool_id).nanos() as f32 / 1000.0,
                });
            }
        }
        let (cpu, rate) = (cluster.cpu.get() as f32, cluster.rate.get() as f32);
        self.egress.send(ClusterOutput::Report { cpu, rate, pools });
    }

    /// Acknowledges the current input: it has no further consequences.
    pub(super) fn acknowledge_input(&mut self) {
        let number = std::mem::take(&mut self.current.input);
        if number != 0 {
            self.egress.send(HostNotice::Done { number });
        }
    }

    /// Applies the cluster map of a new epoch.
    pub(super) fn adopt(&mut self, map: &ClusterMap) {
        let epoch = map.buckets.epoch();
        let (Some(machine), true) = (&self.machine, self.cluster.is_some()) else { return };
        if !machine.is_next(map) {
            return tracing::error!(epoch, "cluster map refused: its epoch is not the next one");
        }
        let owner = machine.owner();
        let begins = owner.is_some_and(|owner| owner.map().is_none());
        self.guests.on_map();
        let gained = owner.filter(|_| self.loads()).map(|owner| newly_owned_buckets(owner, &map.buckets));
        let gained = gained.unwrap_or_default();
        self.on(machine::Input::Map { map, loading: &gained });
        self.load(gained, begins);
        let Some(owner) = self.owner() else { return };
        let own = |bucket: &u16| map.buckets.owners(Bucket::new(*bucket)).owner() == Some(owner.host_id());
        tracing::info!(
            epoch,
            hosts = map.hosts.len(),
            buckets = (0..Bucket::COUNT).filter(own).count(),
            incoming = owner.incoming().len(),
            outgoing = owner.outgoing_count(),
            "cluster map adopted"
        );
    }
}
