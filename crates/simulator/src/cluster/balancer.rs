//! The product's balancer on the virtual clock: [`BalancerMachine`] with simulated hosts and RAN
//! nodes.
//!
//! The machine routes each message, chooses the host that serves a procedure, keeps the choice, and
//! recalls late inputs. This module decides nothing.

use super::Setup;
use crate::campaign::config;
use std::net::{Ipv4Addr, SocketAddr};
use vireo_core::amf::n2::{Route, ShallowView};
use vireo_core::ids::tmsi::TmsiCipher;
use vireo_core::placement::ConnectionId;
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::balancer::{BalancerMachine, CloseReason, Input, Notice, Output, Serve, Settings};
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::message::{HostNotice, PeerEvent, PoolLoad, RanOutput, Receiver, ToBalancer};
use vireo_core::placement::message::{ToController, ToHost};
use vireo_core::schedule::kind::NfKind;
use vireo_types::{AmfUeNgapId, AssocId, Bucket, Duration, Instant, Ltmsi, RanUeNgapId};

const ID: BalancerId = BalancerId(0);
const TMSI_KEY: [u8; 16] = [7; 16];
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
/// Number of RAN nodes. Devices of all UEs are at all of them.
const RAN_NODES: u32 = 1000;
/// Number of missed reports after which a host's load is unknown.
const STALE: u64 = 3;
/// Minimum time between two checks for late inputs.
const CHECK: Duration = Duration::from_millis(1);
/// Missed heartbeats of a silent host. The simulated hosts never fail.
const MISSES: u32 = 4;

/// Message of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Slot of the procedure, and its number, which no other procedure in the slot has.
    pub(super) slot: u32,
    pub(super) procedure: u32,
    /// Position in the procedure.
    pub(super) index: u32,
}

impl Message {
    fn to_pdu(self) -> Vec<u8> {
        [self.slot, self.procedure, self.index].into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn from_pdu(pdu: &[u8]) -> Option<Self> {
        let (words, _) = pdu.as_chunks::<4>();
        let word = |at: usize| words.get(at).copied().map(u32::from_le_bytes);
        Some(Message { slot: word(0)?, procedure: word(1)?, index: word(2)? })
    }
}

/// Message on its way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) host: u16,
    /// Number of the input; 0 without a balancer machine.
    pub(super) input: u64,
    pub(super) receiver: Receiver,
    /// Bucket by which the balancer has selected the host of an unknown UE.
    pub(super) bucket: Option<Bucket>,
    pub(super) message: Message,
}

/// What the machine has sent and reported.
#[derive(Debug, Default)]
struct BalancerIo {
    deliveries: Vec<Delivery>,
    recalled: u64,
    violations: u64,
}

impl Output for BalancerIo {
    fn has_room(&self, _: ConnectionId) -> bool {
        true
    }

    fn send(&mut self, connection: ConnectionId, message: &ToHost<'_>) {
        let ToHost::Event(envelope) = message else { return };
        let PeerEvent::Ngap { pdu, .. } = &envelope.event else { return };
        self.deliveries.extend(Message::from_pdu(pdu).map(|message| Delivery {
            host: connection.0 as u16,
            input: envelope.number,
            receiver: envelope.receiver,
            bucket: envelope.bucket,
            message,
        }));
    }

    fn send_controller(&mut self, _: &ToController) {}

    fn close(&mut self, _: ConnectionId, _: CloseReason) {}

    fn execute(&mut self, _: HostId, _: RanOutput) {}

    fn reach_barrier(&mut self, _: HostId, _: u64) {}

    fn notify(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::ServingHostChosen { violation, .. } => self.violations += u64::from(violation),
            Notice::InputsRecalled(count) => self.recalled += count as u64,
            _ => {}
        }
    }
}

/// Balancer of the simulated cluster.
#[derive(Debug)]
pub(super) struct Balancer {
    machine: BalancerMachine,
    io: BalancerIo,
    cipher: TmsiCipher,
    hosts: Vec<HostId>,
    /// Time of the next check for late inputs, if one is scheduled.
    due: Option<Instant>,
}

impl Balancer {
    /// Creates a balancer to which all hosts are connected. `objectives` are those of each slice,
    /// by kind of procedure.
    pub(super) fn new(
        setup: &Setup,
        serve: Serve,
        map: BucketMap,
        objectives: Vec<[Duration; NfKind::ALL.len()]>,
    ) -> Self {
        let settings = Settings {
            balancer: ID,
            tmsi_key: TMSI_KEY,
            policy: setup.inter,
            prefer: setup.prefer,
            serve,
            core: config(),
            objectives,
            stale: Duration(setup.report_every.0.saturating_mul(STALE)),
            misses: MISSES,
            endpoints: Vec::new(),
            has_other_balancers: false,
        };
        let mut balancer = Balancer {
            machine: BalancerMachine::new(settings, Instant(0)),
            io: BalancerIo::default(),
            cipher: TmsiCipher::new(&TMSI_KEY),
            hosts: (0..setup.hosts).map(HostId).collect(),
            due: None,
        };
        balancer.set_map(map, Instant(0));
        for host in balancer.hosts.clone() {
            let connection = connection(host);
            balancer.on(Input::Connected(connection), Instant(0));
            balancer.on(Input::Message { connection, message: ToBalancer::Hello(host) }, Instant(0));
        }
        balancer
    }

    fn on(&mut self, input: Input<'_>, now: Instant) {
        self.machine.on(input, now, &mut self.io);
    }

    /// Adopts a map.
    pub(super) fn set_map(&mut self, buckets: BucketMap, now: Instant) {
        let map = ClusterMap {
            hosts: self.hosts.iter().map(|host| (*host, ADDRESS)).collect(),
            buckets,
            balancers: vec![(ID, ADDRESS)],
            joined: self.hosts.len() as u16,
            lost: Vec::new(),
            leaving: Vec::new(),
        };
        self.on(Input::Map(Box::new(map)), now);
    }

    /// Handles a message of a RAN node about a UE, which the AMF does not know yet without an
    /// LTMSI.
    pub(super) fn on_message(&mut self, message: Message, (ltmsi, kind): (Option<Ltmsi>, NfKind), now: Instant) {
        let ran_id = RanUeNgapId(message.procedure);
        let tmsi = |ltmsi: Ltmsi| self.cipher.seal(ltmsi.bucket(), ltmsi.number().into());
        let (set, pointer) = (self.machine.settings().core.amf_set, self.machine.settings().core.amf_pointer);
        let route = match ltmsi {
            // UEs are idle before a service request.
            Some(ltmsi) if message.index > 0 || kind != NfKind::ServiceRequest => {
                Route::Ue(AmfUeNgapId::new(ltmsi, message.procedure as u16))
            }
            known => {
                let s_tmsi = known.and_then(tmsi).map(|tmsi| (set, pointer, tmsi));
                Route::Initial { ran_id, s_tmsi, nas_identity: None }
            }
        };
        let view = ShallowView { route, ran_id: Some(ran_id), kind, establishment: None };
        let assoc = AssocId::at(ID.0, message.procedure % RAN_NODES);
        self.on(Input::Event(PeerEvent::Ngap { assoc, view: Some(view), pdu: message.to_pdu() }), now);
    }

    /// Handles that the owner has committed an input.
    pub(super) fn on_done(&mut self, owner: u16, number: u64, now: Instant) {
        let message = ToBalancer::Notice(HostNotice::Done { number });
        self.on(Input::Message { connection: connection(HostId(owner)), message }, now);
    }

    /// Handles the load report of a host.
    pub(super) fn on_report(&mut self, host: u16, (cpu, pools): (f64, Vec<PoolLoad>), now: Instant) {
        let message = ToBalancer::Report { cpu: cpu as f32, pools };
        self.on(Input::Message { connection: connection(HostId(host)), message }, now);
    }

    /// Returns the time of the next check for late inputs if the caller must schedule it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.machine.due().filter(|_| self.due.is_none())?;
        self.due = Some(due.max(now + CHECK));
        self.due
    }

    /// Gives late inputs to the owners.
    pub(super) fn on_due(&mut self, now: Instant) {
        self.due = None;
        self.on(Input::Poll, now);
    }

    /// Returns the messages to deliver.
    pub(super) fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.io.deliveries)
    }

    /// Returns the numbers of recalled inputs, and of choices in which no host was expected to meet
    /// the objective.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.io.recalled, self.io.violations)
    }
}

fn connection(host: HostId) -> ConnectionId {
    ConnectionId(host.0.into())
}

#[cfg(test)]
mod tests {
    use super::super::host_weights::bucket_map;
    use super::*;
    use vireo_core::placement::balance::load_table::{LoadTable, PoolReport};
    use vireo_core::placement::balance::ring::WeightedHost;
    use vireo_core::placement::balance::steer::{HostSet, Policy, Preference, SteeringRequest, select_serving_host};
    use vireo_core::schedule::estimate::ServiceTime;

    const KINDS: usize = NfKind::ALL.len();
    const SLO: Duration = Duration::from_millis(20);
    const TIME: ServiceTime = ServiceTime::new(1_000_000);

    /// The hosts of procedures are those that the product's function selects by the same reports
    /// and the same inputs under way.
    #[test]
    fn choices_equal_product_on_same_loads() {
        let hosts: Vec<HostId> = (0..5).map(HostId).collect();
        let weighted: Vec<WeightedHost> = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
        let policies = [Policy::SkewedCh, Policy::LeastLoaded, Policy::RoundRobin, Policy::ConsistentHash];
        let cases = policies.into_iter().flat_map(|policy| Preference::ALL.map(|prefer| (policy, prefer)));
        for (policy, prefer) in cases {
            let map = bucket_map(&weighted, 1, 2);
            let setup = Setup { hosts: 5, inter: policy, prefer, ..Setup::default() };
            let mut balancer = Balancer::new(&setup, Serve::Procedure, map.clone(), vec![[SLO; KINDS]]);
            let fleet = HostSet::new(hosts.clone()).with(prefer);
            let mut loads = LoadTable::new(2 * KINDS, Duration::from_millis(600));
            let mut rng = vireo_emulator::load::Rng::new(3);
            let (mut in_progress, mut replicas): (Vec<(Delivery, usize)>, u32) = (Vec::new(), 0);
            for n in 1..3000 {
                let now = Instant(1_000_000 + u64::from(n) * 300);
                if n % 100 == 1 {
                    for host in &hosts {
                        let report = PoolReport { backlog: 0.0, share: 0.5 };
                        let cpu = rng.below(100) as f64 / 128.0;
                        loads.report(*host, cpu, &[report; 2 * KINDS], now);
                        let load = PoolLoad { backlog: 0.0, share: 0.5, time_us: 1000.0 };
                        balancer.on_report(host.0, (cpu, vec![load; 2 * KINDS]), now);
                    }
                }
                let kind = [NfKind::Handover, NfKind::Session][rng.below(2)];
                let bucket = Bucket::new(rng.below(4) as u16 * 2 + 1);
                let pool = KINDS + kind.index();
                let (owners, turn) = (map.owners(bucket), u64::from(n));
                let request = SteeringRequest { bucket, owners, pool, time: TIME, slo: SLO, turn };
                let expected = select_serving_host(policy, &request, &fleet, &loads, now).expect("there are hosts");
                let message = Message { slot: 0, procedure: n, index: 0 };
                balancer.on_message(message, (Some(Ltmsi::new(bucket, 1)), kind), now);
                let delivery = balancer.take_deliveries().pop().expect("the message");
                assert_eq!(
                    (HostId(delivery.host), delivery.message),
                    (expected.host, message),
                    "{policy:?} {prefer:?}"
                );
                replicas += u32::from(delivery.receiver == Receiver::ServingHost);
                loads.on_sent(expected.host, pool, TIME);
                in_progress.push((delivery, pool));
                if rng.below(10) < 9 {
                    let (ended, pool) = in_progress.swap_remove(rng.below(in_progress.len()));
                    loads.on_ended(HostId(ended.host), pool, TIME);
                    // The message tells where the owner is; any host may report to the balancer.
                    balancer.on_done(ended.host, ended.input, now);
                }
            }
            assert_eq!(replicas > 100, policy != Policy::ConsistentHash, "{policy:?} {prefer:?}: {replicas}");
        }
    }
}
