//! Simulated time, processes and connections.
//!
//! A connection keeps the order and loses nothing as long as it lives, like TCP. Messages in
//! transit may be lost when an end dies. Messages of different connections overtake each other
//! arbitrarily.

use super::message::Message;
use super::mutation::Mutation;
use super::oracle::Oracle;
use super::ran::{self, RanEvent};
use super::skew::Skew;
use crate::cluster::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::rc::Rc;
use vireo_core::config::CoreConfig;
use vireo_emulator::Rats;
use vireo_types::{AssocId, Instant, Ltmsi};

pub(super) const MS: u64 = 1_000;
/// Start of the simulation on an exact clock. The value encodes to as many octets as a current
/// time.
const BASE: u64 = 1_795_000_000_000_000;
/// Maximum delay of TCP's retransmission after a partition.
const MAX_RETRANSMISSION_DELAY: u64 = 200 * MS;

/// Maximum difference of two clocks.
pub(super) const CLOCK_DIFFERENCE: u64 = 40 * MS;
/// Maximum lag of a connection.
const LAG: u64 = 20 * MS;
/// Maximum additional lag of the messages of a slow balancer.
const SLOW_LAG: u64 = 30 * MS;

/// Number of a process: the controller, the first balancers, then hosts and further balancers.
/// Numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process(pub(super) usize);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionEnd {
    pub(super) connection: usize,
    /// 0 is the side that opened the connection.
    side: usize,
}

impl ConnectionEnd {
    fn other(self) -> ConnectionEnd {
        ConnectionEnd { side: 1 - self.side, ..self }
    }
}

/// Timer event of a process, by its clock.
#[derive(Clone, Debug)]
pub(super) enum TimerEvent {
    /// Each 10 to 50 ms: checks for silent peers and retransmissions.
    Tick,
    /// Host: the next event of a UE is due for its step.
    Step(u32),
    /// Host: a UE's deadline may have passed.
    Deadline(u32),
    /// Host: the subscriber database has answered.
    Authenticated(u32, Box<vireo_core::subscription::AuthenticationRequest>),
    /// Host: an input is due for its step at a serving host.
    Served(Ltmsi),
    /// Host: a deadline of a served UE, for an injected fault.
    ReplicaDeadline(Ltmsi),
    /// Balancer: inputs at serving hosts may be late.
    Late,
    /// Controller: the map of an epoch is written.
    Written(u64),
    Starts,
}

/// Event of the simulation.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrives {
        at: ConnectionEnd,
        message: Message,
    },
    Closed {
        at: ConnectionEnd,
    },
    Timer {
        process: Process,
        due: TimerEvent,
    },
    /// Event of the RAN, the UPF or the home network, which do not fail.
    Ran(RanEvent),
    /// A host starts.
    Starts,
    /// A balancer starts at an address.
    BalancerStarts(usize),
    /// The gNBs open the associations that they lack.
    Connect,
    /// The controller starts again.
    ControllerStarts {
        /// True if it has the state that an earlier one has stored.
        has_store: bool,
    },
    InjectFault,
}

#[derive(Debug)]
struct Connection {
    of: [Process; 2],
    open: [bool; 2],
    /// Arrival time of the last message from each end.
    last: [u64; 2],
    /// Earliest arrival time of messages from each end.
    earliest: [u64; 2],
    /// Additional delay of messages from each end.
    lag: [u64; 2],
}

#[derive(Debug)]
struct State {
    alive: bool,
    stopped_until: u64,
    isolated_until: u64,
    slow_until: u64,
    lags_until: u64,
    /// Offset of the process's clock.
    ahead: u64,
}

/// Simulated network with all processes and connections.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) clock: Clock<Event>,
    /// Seed of further random streams.
    pub(super) seed: u64,
    pub(super) random: StdRng,
    pub(super) oracle: Oracle,
    pub(super) mutation: Option<Mutation>,
    pub(super) config: Rc<CoreConfig>,
    /// Time until which the network is faulty.
    pub(super) faulty_until: u64,
    /// Load of the buckets, if the controller weights hosts by it.
    pub(super) skew: Option<Skew>,
    /// True if the simulation has two balancers.
    pub(super) has_several_balancers: bool,
    /// Radio access technologies of the simulation.
    pub(super) rats: Rats,
    /// Arrival time of the last PDU on each association.
    pub(super) down: BTreeMap<AssocId, u64>,
    /// Last SQN of the home network.
    pub(super) sqn: u64,
    /// Number of proposals of serving hosts that owners have committed, and that they have refused.
    pub(super) proposals: (u64, u64),
    /// Number of UEs taken over, and number of UEs migrated.
    pub(super) taken_over: u64,
    pub(super) migrated: u64,
    /// Injected faults with their times.
    pub(super) story: Vec<(u64, String)>,
    connections: Vec<Connection>,
    processes: Vec<State>,
    /// Two partitioned processes and the end of the partition.
    partition: Option<(Process, Process, u64)>,
}

impl Network {
    pub(super) fn new(seed: u64, (mutation, rats): (Option<Mutation>, Rats), faulty_until: u64) -> Self {
        Network {
            clock: Clock::new(),
            seed,
            random: StdRng::seed_from_u64(seed),
            oracle: Oracle::default(),
            mutation,
            config: Rc::new(ran::config_of_rats(rats)),
            faulty_until,
            skew: None,
            has_several_balancers: false,
            rats,
            down: BTreeMap::new(),
            sqn: 0,
            proposals: (0, 0),
            taken_over: 0,
            migrated: 0,
            story: Vec::new(),
            connections: Vec::new(),
            processes: Vec::new(),
            partition: None,
        }
    }

    /// Starts a process; its clock is wrong by up to 20 ms in either direction.
    pub(super) fn spawn(&mut self) -> Process {
        let ahead = self.random.random_range(0..CLOCK_DIFFERENCE);
        self.processes.push(State {
            alive: true,
            stopped_until: 0,
            isolated_until: 0,
            slow_until: 0,
            lags_until: 0,
            ahead,
        });
        Process(self.processes.len() - 1)
    }

    /// Returns the time by a process's clock.
    pub(super) fn time(&self, of: Process) -> Instant {
        Instant(BASE + self.clock.now() + self.processes[of.0].ahead)
    }

    pub(super) fn is_alive(&self, of: Process) -> bool {
        self.processes[of.0].alive
    }

    /// Records a line for the analysis of a seed.
    pub(super) fn trace(&mut self, what: String) {
        self.story.push((self.clock.now(), what));
    }

    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Schedules a timer event of a process after this many microseconds.
    pub(super) fn due(&mut self, process: Process, after: u64, due: TimerEvent) {
        self.clock.after(after, Event::Timer { process, due });
    }

    /// Draws the delay of a message.
    pub(super) fn delay(&mut self) -> u64 {
        let bad = self.clock.now() < self.faulty_until && self.random.random_bool(0.02);
        if bad { self.random.random_range(2 * MS..60 * MS) } else { self.random.random_range(60..500) }
    }

    /// Returns the arrival time of a message between two processes that are cut off from each
    /// other.
    fn isolated_until(&self, of: [Process; 2]) -> u64 {
        let [one, two] = of.map(|of| self.processes[of.0].isolated_until);
        let partition =
            self.partition.filter(|(a, b, _)| of == [*a, *b] || of == [*b, *a]).map_or(0, |(.., until)| until);
        one.max(two).max(partition)
    }

    /// Returns the time until which a new connection transports nothing in one direction. Some
    /// connections start late, so that messages of other connections overtake all their first
    /// messages.
    fn hold(&mut self) -> u64 {
        let late = self.clock.now() < self.faulty_until && self.random.random_bool(0.2);
        if late { self.clock.now() + self.random.random_range(MS..100 * MS) } else { 0 }
    }

    /// Draws the lag of a new connection in one direction. A connection that is always late lets
    /// longer sequences of other connections' messages overtake it than single late messages do.
    fn lag(&mut self) -> u64 {
        let late = self.clock.now() < self.faulty_until && self.random.random_bool(0.1);
        if late { self.random.random_range(MS..LAG) } else { 0 }
    }

    /// Opens a connection. The other process learns of it by the first message.
    pub(super) fn open(&mut self, from: Process, to: Process) -> ConnectionEnd {
        let open = [true, self.is_alive(to)];
        let (earliest, lag) = ([self.hold(), self.hold()], [self.lag(), self.lag()]);
        self.connections.push(Connection { of: [from, to], open, last: [0; 2], earliest, lag });
        let end = ConnectionEnd { connection: self.connections.len() - 1, side: 0 };
        if !open[1] {
            let after = self.delay();
            self.clock.after(after, Event::Closed { at: end });
        }
        end
    }

    /// Returns the process of an end.
    pub(super) fn at(&self, end: ConnectionEnd) -> Process {
        self.connections[end.connection].of[end.side]
    }

    /// Returns the process at the other end.
    pub(super) fn peer(&self, end: ConnectionEnd) -> Process {
        self.at(end.other())
    }

    /// Returns true if an end receives arriving messages.
    pub(super) fn is_open(&self, end: ConnectionEnd) -> bool {
        self.connections[end.connection].open[end.side]
    }

    /// Returns the arrival time of a message from an end, after all earlier ones.
    fn arrival(&mut self, from: ConnectionEnd) -> u64 {
        let of = self.connections[from.connection].of;
        let now = self.clock.now();
        let cut = self.isolated_until(of);
        let sent = if cut > now { cut + self.random.random_range(0..MAX_RETRANSMISSION_DELAY) } else { now };
        let is_faulty = now < self.faulty_until;
        let is_slow = self.processes[of[from.side].0].lags_until > now;
        let slowness = if is_slow { self.random.random_range(MS..SLOW_LAG) } else { 0 };
        let at = sent + self.delay() + slowness;
        let Connection { last, earliest, lag, .. } = &mut self.connections[from.connection];
        let last = &mut last[from.side];
        let at = if is_faulty { at + lag[from.side] } else { at };
        *last = at.max(*last + 1).max(earliest[from.side]);
        *last
    }

    pub(super) fn send(&mut self, from: ConnectionEnd, message: Message) {
        if self.is_open(from) {
            let at = self.arrival(from);
            self.clock.at(at, Event::Arrives { at: from.other(), message });
        }
    }

    /// Closes an end. The other end sees this after all earlier messages.
    pub(super) fn close(&mut self, end: ConnectionEnd) {
        if std::mem::take(&mut self.connections[end.connection].open[end.side]) {
            let at = self.arrival(end);
            self.clock.at(at, Event::Closed { at: end.other() });
        }
    }

    /// Closes this end after the other one. Returns true if it was open.
    pub(super) fn closed(&mut self, end: ConnectionEnd) -> bool {
        std::mem::take(&mut self.connections[end.connection].open[end.side])
    }

    /// Kills a process. Its last messages arrive or not.
    pub(super) fn kill(&mut self, process: Process) {
        self.processes[process.0].alive = false;
        for connection in 0..self.connections.len() {
            for side in 0..2 {
                let Connection { of, open, last, .. } = &mut self.connections[connection];
                if of[side] != process || !std::mem::take(&mut open[side]) {
                    continue;
                }
                let (of, last) = (*of, last[side]);
                let cut = self.isolated_until(of);
                let whole = self.random.random_bool(0.5);
                let soon = self.clock.now().max(cut) + self.random.random_range(0..2 * MS);
                let at = if whole { soon.max(last + 1) } else { soon };
                self.clock.at(at, Event::Closed { at: ConnectionEnd { connection, side: 1 - side } });
            }
        }
    }

    /// Breaks the connections between two processes and drops messages in transit.
    pub(super) fn reset(&mut self, one: Process, two: Process) {
        self.reset_where(|of| of == [one, two] || of == [two, one]);
    }

    /// Breaks all connections of a process.
    pub(super) fn reset_all(&mut self, process: Process) {
        self.reset_where(|of| of.contains(&process));
    }

    fn reset_where(&mut self, matches: impl Fn([Process; 2]) -> bool) {
        for connection in 0..self.connections.len() {
            if !matches(self.connections[connection].of) {
                continue;
            }
            for side in 0..2 {
                let after = self.random.random_range(0..2 * MS);
                self.clock.after(after, Event::Closed { at: ConnectionEnd { connection, side } });
            }
        }
    }

    /// Returns true if a process is neither stopped nor isolated.
    pub(super) fn is_running(&self, process: Process) -> bool {
        let (state, now) = (&self.processes[process.0], self.clock.now());
        let partition = self.partition.is_some_and(|(a, b, until)| until > now && (a == process || b == process));
        state.stopped_until <= now && state.isolated_until <= now && !partition
    }

    /// Restarts a process.
    pub(super) fn revive(&mut self, process: Process) {
        self.processes[process.0].alive = true;
    }

    /// Stops a process until a time.
    pub(super) fn stop(&mut self, process: Process, until: u64) {
        self.processes[process.0].stopped_until = until;
    }

    /// Returns the time until which a process is stopped, if it is.
    pub(super) fn stopped_until(&self, process: Process) -> Option<u64> {
        Some(self.processes[process.0].stopped_until).filter(|until| *until > self.clock.now())
    }

    /// Isolates a process from all others until a time.
    pub(super) fn isolate(&mut self, process: Process, until: u64) {
        self.processes[process.0].isolated_until = until;
    }

    /// Slows down the steps of a process until a time.
    pub(super) fn slow(&mut self, process: Process, until: u64) {
        self.processes[process.0].slow_until = until;
    }

    /// Delays the messages of a process until a time.
    pub(super) fn delay_messages_of(&mut self, process: Process, until: u64) {
        self.processes[process.0].lags_until = until;
    }

    /// Draws the time until a process executes the next event of a UE.
    pub(super) fn step_delay(&mut self, process: Process) -> u64 {
        let is_slow = self.processes[process.0].slow_until > self.clock.now();
        if is_slow { self.random.random_range(30 * MS..80 * MS) } else { self.random.random_range(30..400) }
    }

    /// Partitions two processes until a time.
    pub(super) fn partition(&mut self, one: Process, two: Process, until: u64) {
        self.partition = Some((one, two, until));
    }

    /// Returns the next event before `end` of a process that lives and is not stopped. A stopped
    /// process receives its events when it continues.
    pub(super) fn next_before(&mut self, end: u64) -> Option<Event> {
        loop {
            let event = self.clock.next_before(end)?;
            let of = match &event {
                Event::Arrives { at, .. } | Event::Closed { at } => self.at(*at),
                Event::Timer { process, .. } => *process,
                Event::Ran(_)
                | Event::Starts
                | Event::BalancerStarts(_)
                | Event::Connect
                | Event::ControllerStarts { .. }
                | Event::InjectFault => return Some(event),
            };
            let state = &self.processes[of.0];
            if !state.alive {
                continue;
            }
            if state.stopped_until > self.clock.now() {
                let until = state.stopped_until;
                self.clock.at(until, event);
                continue;
            }
            return Some(event);
        }
    }
}
