//! Simulation of the cluster, and the injection of faults.

mod balancers;

use super::balancer::Balancer;
use super::controller::Controller;
use super::host::Host;
use super::labels::Labels;
use super::network::{Event, MS, Network, Process};
use super::oracle::Violation;
use super::ran::{self, Ran};
use super::skew::Skew;
use super::{Campaign, Mutation, Setup};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::rc::Rc;
use vireo_core::placement::balancer::Serve;
use vireo_core::placement::replica::{Ack, Mode, ReplicationConfig};

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
/// Time for which hosts return to a new controller.
const MEMBERS_RETURN: u64 = 1_000 * MS;
/// Delay before an ended host is replaced by a new one.
const RESTART: u64 = 300 * MS;

/// Distinguishes the random stream of the number of replicas from that of the network.
const STREAM: u64 = 0x0c09_1e5e;
/// Interval at which gNBs open the associations that they lack.
const CONNECT_INTERVAL: u64 = 50 * MS;
/// Weights of 0, 1 and 2 replicas where hosts serve procedures.
const REPLICA_WEIGHTS: [u32; 3] = [1, 4, 5];

pub(super) struct Simulation {
    seed: u64,
    serve: Serve,
    replication: ReplicationConfig,
    /// Machines of hosts, if the seed has labels.
    labels: Option<Labels>,
    network: Network,
    controller: Controller,
    balancers: BTreeMap<Process, Balancer>,
    hosts: BTreeMap<Process, Host>,
    ran: Ran,
    /// Time until which a new controller may declare hosts dead that have not returned to it.
    members_return_until: u64,
    campaign: Campaign,
}

impl Simulation {
    pub(super) fn new(seed: u64, setup: Setup) -> Self {
        let mut network = Network::new(seed, (setup.mutation, setup.rats), FAULTS_UNTIL);
        // Seeds that are known to break, by a fault or without acknowledgements, stay as they are.
        let is_sound = setup.mutation.is_none() && setup.ack != Ack::None;
        let draws_replicas = is_sound && setup.serve == Serve::Procedure;
        let is_labelled = is_sound || setup.mutation == Some(Mutation::LabelsIgnored);
        let labels = Labels::draw(seed, setup.mutation).filter(|_| is_labelled);
        let replicas = match &labels {
            _ if draws_replicas => draw_replicas(seed),
            // A machine that has both copies of a UE loses it.
            Some(_) => 1,
            None => REPLICAS,
        };
        let replication = ReplicationConfig { mode: Mode::Hot, replicas, ack: setup.ack };
        network.skew = Skew::draw(seed, HOSTS).filter(|_| is_sound);
        if let Some(Skew { run, factor, .. }) = &network.skew {
            let buckets = format!("runs of {run} buckets by a factor of up to {factor:.1} in load");
            network.trace(format!("hosts differ in speed, {buckets}: weights follow the load"));
        }
        let rebalances = network.skew.is_some();
        if setup.serve == Serve::Procedure {
            network.trace(format!("each UE has {replicas} replicas"));
            let has_shortest_timers = is_sound && seed % 4 == 3 || setup.mutation == Some(Mutation::DeadlineAtReplica);
            network.config = Rc::new(if has_shortest_timers {
                network.trace("deadlines of UEs come due within 120 ms".into());
                ran::config_with_shortest_timers(setup.rats)
            } else {
                ran::config_with_short_timers(setup.rats)
            });
            Ran::start_reports(&mut network);
        }
        if labels.is_some() {
            network.trace("hosts share machines".into());
        }
        network.has_several_balancers = match setup.mutation {
            Some(mutation) => mutation.needs_several_balancers(),
            None => is_sound && setup.serve == Serve::Procedure && setup.has_two_balancers,
        };
        if network.has_several_balancers {
            network.trace("there are two balancers".into());
        }
        let controller = Controller::new(&mut network, HOSTS, replication, rebalances);
        let count = if network.has_several_balancers { 2 } else { 1 };
        let balancers = (0..count).map(|address| Balancer::new(&mut network, setup.serve, address));
        let balancers: BTreeMap<Process, Balancer> = balancers.map(|balancer| (balancer.process, balancer)).collect();
        let ran = Ran::new(&mut network, UES);
        let mut world = Simulation {
            seed,
            serve: setup.serve,
            replication,
            labels,
            network,
            controller,
            balancers,
            hosts: BTreeMap::new(),
            ran,
            members_return_until: 0,
            campaign: Campaign { seed, ..Campaign::default() },
        };
        (0..HOSTS).for_each(|_| world.start_host());
        let first = world.network.random.random_range(600 * MS..1_500 * MS);
        world.network.clock.at(first, Event::InjectFault);
        world
    }

    /// Starts a host.
    fn start_host(&mut self) {
        let label = self.labels.as_mut().map(Labels::next);
        let host = Host::new(&mut self.network, self.replication, label);
        self.hosts.insert(host.process, host);
    }

    pub(super) fn run(mut self) -> Campaign {
        while let Some(event) = self.network.next_before(END) {
            self.on_event(event);
            if self.network.oracle.violation.is_some() {
                break;
            }
        }
        self.check_identifiers();
        self.network.oracle.check_sent(self.network.clock.now());
        self.campaign.violation = self.network.oracle.violation.map(|violation| (self.network.clock.now(), violation));
        // Each UE has had time for several procedures since the network was whole.
        if let (None, Some(ue)) = (self.campaign.violation, self.ran.stuck_since(WHOLE_FROM)) {
            self.campaign.violation = Some((END, Violation::Stuck(ue)));
        }
        self.campaign.procedures = self.ran.procedures();
        self.campaign.moves = self.ran.moves();
        self.campaign.epochs = self.controller.epoch();
        self.campaign.failures = self.controller.evicted_hosts;
        self.campaign.rebalances = self.controller.rebalances;
        (self.campaign.taken_over, self.campaign.migrated) = (self.network.taken_over, self.network.migrated);
        self.campaign.proposals = self.network.proposals;
        self.campaign.seed = self.seed;
        self.campaign.story = std::mem::take(&mut self.network.story);
        self.campaign
    }

    fn on_event(&mut self, event: Event) {
        let network = &mut self.network;
        let controller = self.controller.process;
        match event {
            Event::Arrives { at, message } => {
                if !network.is_open(at) {
                    return;
                }
                match network.at(at) {
                    of if of == controller => self.controller.on_message(network, at, message),
                    of if self.balancers.contains_key(&of) => {
                        self.balancer(of, |balancer, network| balancer.on_message(network, at, message));
                    }
                    of => self.host(of, |host, network| host.on_message(network, at, message)),
                }
            }
            Event::Closed { at } => {
                if !network.closed(at) {
                    return;
                }
                match network.at(at) {
                    of if of == controller => self.controller.on_disconnect(network, at),
                    of if self.balancers.contains_key(&of) => {
                        self.balancer(of, |balancer, network| balancer.on_disconnect(network, at));
                    }
                    of => self.host(of, |host, network| host.on_disconnect(network, at)),
                }
            }
            Event::ControllerStarts { has_store } => {
                network.revive(controller);
                self.members_return_until = network.clock.now() + MEMBERS_RETURN;
                self.controller.restart(network, has_store);
            }
            Event::Timer { process, due } if process == controller => self.controller.on_timer(network, &due),
            Event::Timer { process, due } if self.balancers.contains_key(&process) => {
                self.balancer(process, |balancer, network| balancer.on_timer(network, &due));
            }
            Event::Timer { process, due } => self.host(process, |host, network| host.on_timer(network, &due)),
            Event::Ran(event) => {
                if let Some((to, input)) = self.ran.on_event(network, event)
                    && let Some(to) = to.or_else(|| self.holder())
                {
                    self.balancer(to, |balancer, network| balancer.on_ran_or_upf_message(network, input));
                }
            }
            Event::Starts => self.start_host(),
            Event::BalancerStarts(address) => {
                let balancer = Balancer::new(network, self.serve, address);
                self.balancers.insert(balancer.process, balancer);
            }
            Event::Connect => self.connect_gnbs(),
            Event::InjectFault => self.inject_fault(),
        }
    }

    /// Runs an action on a host, which may end by it.
    fn host(&mut self, of: Process, act: impl FnOnce(&mut Host, &mut Network)) {
        let Some(host) = self.hosts.get_mut(&of) else { return };
        act(host, &mut self.network);
        if host.ended {
            self.kill_process(of);
        }
    }

    fn kill_process(&mut self, process: Process) {
        self.network.kill(process);
        if let Some(host) = self.hosts.remove(&process).and_then(|host| host.id()) {
            self.network.oracle.on_host_gone(host);
        }
        let after = self.network.random.random_range(RESTART..2 * RESTART);
        self.network.clock.after(after, Event::Starts);
    }

    /// Records a violation if a host at work keeps an identifier that none of its UEs has.
    fn check_identifiers(&mut self) {
        let keeps =
            self.hosts.values().find(|host| self.network.is_running(host.process) && host.ues.has_unused_tmsi());
        if let Some(host) = keeps.and_then(Host::id) {
            self.network.oracle.record_violation(Violation::Identifier(host));
        }
    }

    /// Injects a fault. A host fails only if all planned copies exist: the cluster guarantees to
    /// survive one fault at a time.
    fn inject_fault(&mut self) {
        self.check_identifiers();
        self.network.oracle.check_sent(self.network.clock.now());
        let now = self.network.clock.now();
        let hosts = self.controller.hosts();
        let random = &mut self.network.random;
        let long = now + random.random_range(30 * MS..900 * MS);
        let next = now + APART + random.random_range(0..400 * MS);
        let which = random.random_range(0..hosts.len().max(1));
        let other = random.random_range(0..hosts.len().max(1));
        let kind = random.random_range(0..if self.serve == Serve::Procedure { 130 } else { 114 });
        if next < FAULTS_UNTIL {
            self.network.clock.at(next, Event::InjectFault);
        }
        // The cluster guarantees to survive one fault at a time.
        if self.network.has_several_balancers && !self.are_balancers_healthy() {
            return;
        }
        let is_whole =
            self.controller.is_settled() && hosts.len() >= 3 && hosts.iter().all(|(_, of)| self.is_healthy(*of));
        // Without replicas only planned changes lose no UE. One replica is lost with one more host.
        let whole = is_whole
            && match self.replication.replicas {
                0 => false,
                1 => self.members_return_until <= now,
                _ => true,
            };
        let (Some((host, of)), Some((_, with))) = (hosts.get(which).copied(), hosts.get(other).copied()) else {
            return;
        };
        if is_whole && self.members_return_until <= now && self.fails_balancer(of, long, whole) {
            return;
        }
        let until = format!("until {:.3} s", long as f64 / 1e6);
        let what = match kind {
            0..25 if whole => match self.machine_to_fail(of) {
                Some(all) => {
                    all.iter().for_each(|of| self.kill_process(*of));
                    format!("the machine of {host:?} dies with {all:?}")
                }
                None => {
                    self.kill_process(of);
                    format!("{host:?} ({of:?}) dies")
                }
            },
            25..45 if whole => {
                self.network.stop(of, long);
                format!("{host:?} ({of:?}) is stopped {until}")
            }
            45..60 if whole => {
                self.network.isolate(of, long);
                format!("{host:?} ({of:?}) is cut off {until}")
            }
            60..68 if whole && of != with => {
                self.network.partition(of, with, long);
                format!("{of:?} and {with:?} do not reach each other {until}")
            }
            68..76 if of != with => {
                self.network.reset(of, with);
                format!("the connections of {of:?} and {with:?} break")
            }
            76..86 if is_whole && !self.controller.is_draining() && hosts.len() > 3 => {
                self.controller.drain(&mut self.network, host);
                format!("{host:?} is drained")
            }
            86..92 if hosts.len() < HOSTS + 2 => {
                self.start_host();
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
                self.restart_balancer(which);
                "another process continues as the balancer".into()
            }
            110..114 if whole => {
                self.network.reset_all(of);
                format!("all connections of {host:?} ({of:?}) break")
            }
            114.. => {
                self.network.slow(of, long);
                format!("{host:?} ({of:?}) is slow {until}")
            }
            _ => return,
        };
        self.network.trace(what);
        self.campaign.faults += 1;
    }

    /// Returns the processes of a host's machine if all of them fail, which a host of the map
    /// survives. `None`: the host fails alone.
    fn machine_to_fail(&mut self, of: Process) -> Option<Vec<Process>> {
        let label = self.hosts.get(&of)?.label.clone()?;
        let on_machine = self.hosts.iter().filter(|(_, host)| host.label.as_ref() == Some(&label));
        let all: Vec<Process> = on_machine.map(|(process, _)| *process).collect();
        let survives = self.controller.hosts().iter().any(|(_, of)| !all.contains(of));
        (self.labels.as_mut()?.machine_fails() && survives).then_some(all)
    }

    /// Kills the controller, which starts again with or without its store.
    fn kill_controller(&mut self, has_store: bool) {
        self.network.kill(self.controller.process);
        let after = self.network.random.random_range(50 * MS..600 * MS);
        self.network.clock.after(after, Event::ControllerStarts { has_store });
    }

    /// Returns true if a host runs without a fault.
    fn is_healthy(&self, of: Process) -> bool {
        self.hosts.contains_key(&of) && self.network.is_running(of)
    }
}

/// Draws the number of replicas in a simulation whose hosts serve procedures.
fn draw_replicas(seed: u64) -> usize {
    let mut random = StdRng::seed_from_u64(seed ^ STREAM);
    let mut draw = random.random_range(0..REPLICA_WEIGHTS.iter().sum());
    REPLICA_WEIGHTS.iter().take_while(|weight| draw.checked_sub(**weight).map(|rest| draw = rest).is_some()).count()
}
