//! Simulation of the cluster, and the injection of faults.

use super::balancer::Balancer;
use super::controller::Controller;
use super::host::Host;
use super::network::{Event, MS, Network, Process};
use super::oracle::Violation;
use super::ran::Ran;
use super::{Campaign, Setup};
use rand::Rng;
use std::collections::BTreeMap;
use vireo_core::placement::replica::{Mode, ReplicationConfig};

const HOSTS: usize = 4;
const UES: usize = 4;
const REPLICAS: usize = 2;
/// End of fault injection. A stop or an isolation ends at the latest when the network is whole
/// again; then the simulation ends.
const FAULTS_UNTIL: u64 = 4_500 * MS;
const WHOLE_FROM: u64 = 5_500 * MS;
const END: u64 = 9_000 * MS;
/// Minimum time between two faults.
const APART: u64 = 700 * MS;
/// Delay before an ended host is replaced by a new one.
const RESTART: u64 = 300 * MS;

pub(super) struct Simulation {
    seed: u64,
    replication: ReplicationConfig,
    wires: Network,
    controller: Controller,
    balancer: Balancer,
    hosts: BTreeMap<Process, Host>,
    ran: Ran,
    campaign: Campaign,
}

impl Simulation {
    pub(super) fn new(seed: u64, setup: Setup) -> Self {
        let mut wires = Network::new(seed, setup.mutation, FAULTS_UNTIL);
        let replication = ReplicationConfig { mode: Mode::Hot, replicas: REPLICAS, ack: setup.ack };
        let controller = Controller::new(&mut wires, HOSTS, replication);
        let balancer = Balancer::new(&mut wires, controller.process);
        let ran = Ran::new(&mut wires, UES);
        let mut world = Simulation {
            seed,
            replication,
            wires,
            controller,
            balancer,
            hosts: BTreeMap::new(),
            ran,
            campaign: Campaign { seed, ..Campaign::default() },
        };
        (0..HOSTS).for_each(|_| world.starts());
        let first = world.wires.random.random_range(600 * MS..1_500 * MS);
        world.wires.clock.at(first, Event::Fails);
        world
    }

    /// Starts a host.
    fn starts(&mut self) {
        let host = Host::new(&mut self.wires, self.replication);
        self.hosts.insert(host.process, host);
    }

    pub(super) fn run(mut self) -> Campaign {
        while let Some(event) = self.wires.next_before(END) {
            self.happens(event);
            if let Some(broken) = self.wires.oracle.broken {
                self.campaign.broken = Some((self.wires.clock.now(), broken));
                break;
            }
        }
        // Each UE has had time for several procedures since the network was whole.
        if let (None, Some(ue)) = (self.campaign.broken, self.ran.stuck_since(WHOLE_FROM)) {
            self.campaign.broken = Some((END, Violation::Stuck(ue)));
        }
        self.campaign.procedures = self.ran.procedures();
        self.campaign.epochs = self.controller.epoch();
        self.campaign.failures = self.controller.evicted_hosts;
        (self.campaign.taken, self.campaign.handed) = (self.wires.taken, self.wires.handed);
        self.campaign.seed = self.seed;
        self.campaign.story = std::mem::take(&mut self.wires.story);
        self.campaign
    }

    fn happens(&mut self, event: Event) {
        let wires = &mut self.wires;
        let (controller, balancer) = (self.controller.process, self.balancer.process);
        match event {
            Event::Arrives { at, message } => {
                if !wires.is_open(at) {
                    return;
                }
                match wires.at(at) {
                    of if of == controller => self.controller.on_message(wires, at, message),
                    of if of == balancer => self.balancer.on_message(wires, at, message),
                    of => self.host(of, |host, wires| host.on_message(wires, at, message)),
                }
            }
            Event::Closed { at } => {
                if !wires.closed(at) {
                    return;
                }
                match wires.at(at) {
                    of if of == controller => self.controller.on_disconnect(wires, at),
                    of if of == balancer => self.balancer.on_disconnect(wires, at),
                    of => self.host(of, |host, wires| host.on_disconnect(wires, at)),
                }
            }
            Event::ControllerStarts { has_store } => {
                wires.revive(controller);
                self.controller.restart(wires, has_store);
            }
            Event::Due { of, what } if of == controller => self.controller.is_due(wires, &what),
            Event::Due { of, what } if of == balancer => self.balancer.is_due(wires, &what),
            Event::Due { of, what } => self.host(of, |host, wires| host.is_due(wires, &what)),
            Event::Ran(what) => {
                if let Some(input) = self.ran.on_event(wires, what) {
                    self.balancer.on_ran_or_upf_message(wires, input);
                }
            }
            Event::Starts => self.starts(),
            Event::Fails => self.inject_fault(),
        }
    }

    /// Runs an action on a host, which may end by it.
    fn host(&mut self, of: Process, what: impl FnOnce(&mut Host, &mut Network)) {
        let Some(host) = self.hosts.get_mut(&of) else { return };
        what(host, &mut self.wires);
        if host.ended {
            self.kill_process(of);
        }
    }

    fn kill_process(&mut self, process: Process) {
        self.wires.kill(process);
        self.hosts.remove(&process);
        let after = self.wires.random.random_range(RESTART..2 * RESTART);
        self.wires.clock.after(after, Event::Starts);
    }

    /// Injects a fault. A host fails only if all planned copies exist: the cluster guarantees to
    /// survive one fault at a time.
    fn inject_fault(&mut self) {
        let now = self.wires.clock.now();
        let hosts = self.controller.hosts();
        let random = &mut self.wires.random;
        let long = now + random.random_range(30 * MS..900 * MS);
        let next = now + APART + random.random_range(0..400 * MS);
        let which = random.random_range(0..hosts.len().max(1));
        let other = random.random_range(0..hosts.len().max(1));
        let kind = random.random_range(0..114);
        if next < FAULTS_UNTIL {
            self.wires.clock.at(next, Event::Fails);
        }
        let whole = self.controller.is_settled() && hosts.len() >= 3 && hosts.iter().all(|(_, of)| self.works(*of));
        let (Some((host, of)), Some((_, with))) = (hosts.get(which).copied(), hosts.get(other).copied()) else {
            return;
        };
        let until = format!("until {:.3} s", long as f64 / 1e6);
        let what = match kind {
            0..25 if whole => {
                self.kill_process(of);
                format!("{host:?} ({of:?}) dies")
            }
            25..45 if whole => {
                self.wires.stop(of, long);
                format!("{host:?} ({of:?}) is stopped {until}")
            }
            45..60 if whole => {
                self.wires.isolate(of, long);
                format!("{host:?} ({of:?}) is cut off {until}")
            }
            60..68 if whole && of != with => {
                self.wires.partition(of, with, long);
                format!("{of:?} and {with:?} do not reach each other {until}")
            }
            68..76 if of != with => {
                self.wires.reset(of, with);
                format!("the connections of {of:?} and {with:?} break")
            }
            76..86 if whole && !self.controller.is_draining() && hosts.len() > 3 => {
                self.controller.drain(&mut self.wires, host);
                format!("{host:?} is drained")
            }
            86..92 if hosts.len() < HOSTS + 2 => {
                self.starts();
                "one more host is started".into()
            }
            92..100 => {
                self.kill_controller(true);
                "the controller dies".into()
            }
            100..105 if whole => {
                self.kill_controller(false);
                "the controller dies, and its store is lost".into()
            }
            105..110 => {
                self.balancer.restart(&mut self.wires);
                "another process continues as the balancer".into()
            }
            110.. if whole => {
                self.wires.reset_all(of);
                format!("all connections of {host:?} ({of:?}) break")
            }
            _ => return,
        };
        self.wires.trace(what);
        self.campaign.faults += 1;
    }

    /// Kills the controller, which starts again with or without its store.
    fn kill_controller(&mut self, has_store: bool) {
        self.wires.kill(self.controller.process);
        let after = self.wires.random.random_range(50 * MS..600 * MS);
        self.wires.clock.after(after, Event::ControllerStarts { has_store });
    }

    /// Returns true if a host runs without a fault.
    fn works(&self, of: Process) -> bool {
        self.hosts.contains_key(&of) && self.wires.is_running(of)
    }
}
