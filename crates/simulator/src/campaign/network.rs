//! Time, processes and the connections between them. A connection keeps the order and loses nothing as long as it lives, as TCP
//! does; what is on the way when an end dies may be lost. Messages of different connections overtake each other at will.

use super::Mutation;
use super::message::Message;
use super::oracle::Oracle;
use super::ran::{self, RanEvent};
use crate::cluster::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::rc::Rc;
use vireo_core::config::CoreConfig;
use vireo_types::Instant;

pub(super) const MS: u64 = 1_000;
/// The time of the world's beginning on a clock that goes right: as many octets as today's.
const BASE: u64 = 1_795_000_000_000_000;
/// How long TCP takes to send again what a cut has swallowed, at the most.
const AGAIN: u64 = 200 * MS;

/// A process, by its number: the controller, the balancer, then hosts. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process(pub(super) usize);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionEnd {
    pub(super) connection: usize,
    /// 0: of who has opened it.
    side: usize,
}

impl ConnectionEnd {
    fn other(self) -> ConnectionEnd {
        ConnectionEnd { side: 1 - self.side, ..self }
    }
}

/// What is due for a process by its own clock.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// Each 10 to 50 ms: who is silent, what is to be said again.
    Tick,
    /// A host: a UE's next event has its step.
    Step(u32),
    /// A host: a UE's deadline may have passed.
    Deadline(u32),
    /// A host: the subscriber database has answered.
    Authenticated(u32, Box<vireo_core::subscription::AuthenticationRequest>),
    /// The controller of a life: the map of an epoch is written.
    Written(u64),
    /// A process begins.
    Starts,
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrives {
        at: ConnectionEnd,
        message: Message,
    },
    Closed {
        at: ConnectionEnd,
    },
    Due {
        of: Process,
        what: Due,
    },
    /// Of the RAN, the UPF and the home network, which do not fail.
    Ran(RanEvent),
    /// A host is started.
    Starts,
    /// Something fails.
    Fails,
}

#[derive(Debug)]
struct Connection {
    of: [Process; 2],
    open: [bool; 2],
    /// When the last that was sent from each end arrives.
    last: [u64; 2],
    /// Nothing from each end arrives before.
    held: [u64; 2],
}

#[derive(Debug)]
struct State {
    alive: bool,
    stopped_until: u64,
    cut_until: u64,
    /// Its clock is ahead by so much.
    ahead: u64,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) clock: Clock<Event>,
    pub(super) random: StdRng,
    pub(super) oracle: Oracle,
    pub(super) mutation: Option<Mutation>,
    /// The core's configuration.
    pub(super) config: Rc<CoreConfig>,
    /// Until then the network is bad.
    pub(super) faulty_until: u64,
    /// When the last PDU to each gNB comes there.
    pub(super) down: [u64; ran::GNBS],
    /// The SQN that the home network gave last.
    pub(super) sqn: u64,
    /// UEs that were taken over, and that were handed over.
    pub(super) taken: u64,
    pub(super) handed: u64,
    /// What has failed, and when.
    pub(super) story: Vec<(u64, String)>,
    connections: Vec<Connection>,
    processes: Vec<State>,
    /// Two processes that do not reach each other.
    apart: Option<(Process, Process, u64)>,
}

impl Network {
    pub(super) fn new(seed: u64, mutation: Option<Mutation>, faulty_until: u64) -> Self {
        Network {
            clock: Clock::new(),
            random: StdRng::seed_from_u64(seed),
            oracle: Oracle::default(),
            mutation,
            config: Rc::new(ran::config()),
            faulty_until,
            down: [0; ran::GNBS],
            sqn: 0,
            taken: 0,
            handed: 0,
            story: Vec::new(),
            connections: Vec::new(),
            processes: Vec::new(),
            apart: None,
        }
    }

    /// A process begins; its clock is wrong by up to 20 ms either way.
    pub(super) fn spawn(&mut self) -> Process {
        let ahead = self.random.random_range(0..40 * MS);
        self.processes.push(State { alive: true, stopped_until: 0, cut_until: 0, ahead });
        Process(self.processes.len() - 1)
    }

    /// The time by a process's clock.
    pub(super) fn time(&self, of: Process) -> Instant {
        Instant(BASE + self.clock.now() + self.processes[of.0].ahead)
    }

    pub(super) fn is_alive(&self, of: Process) -> bool {
        self.processes[of.0].alive
    }

    /// Notes something for who looks into a seed.
    pub(super) fn trace(&mut self, what: String) {
        self.story.push((self.clock.now(), what));
    }

    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Something is due for a process after so many microseconds.
    pub(super) fn due(&mut self, of: Process, after: u64, what: Due) {
        self.clock.after(after, Event::Due { of, what });
    }

    /// How long a message takes.
    pub(super) fn delay(&mut self) -> u64 {
        let bad = self.clock.now() < self.faulty_until && self.random.random_bool(0.02);
        if bad { self.random.random_range(2 * MS..60 * MS) } else { self.random.random_range(60..500) }
    }

    /// When what is sent between two arrives that is sent now, if they are cut off.
    fn cut_until(&self, of: [Process; 2]) -> u64 {
        let [one, two] = of.map(|of| self.processes[of.0].cut_until);
        let apart = self.apart.filter(|(a, b, _)| of == [*a, *b] || of == [*b, *a]).map_or(0, |(.., until)| until);
        one.max(two).max(apart)
    }

    /// Until when a connection that is opened now carries nothing in one direction: some begin late, so that what comes by
    /// others overtakes all that is said first.
    fn hold(&mut self) -> u64 {
        let late = self.clock.now() < self.faulty_until && self.random.random_bool(0.2);
        if late { self.clock.now() + self.random.random_range(MS..100 * MS) } else { 0 }
    }

    /// A connection from one process to another, which learns of it by the first that is said.
    pub(super) fn open(&mut self, from: Process, to: Process) -> ConnectionEnd {
        let open = [true, self.is_alive(to)];
        let held = [self.hold(), self.hold()];
        self.connections.push(Connection { of: [from, to], open, last: [0; 2], held });
        let end = ConnectionEnd { connection: self.connections.len() - 1, side: 0 };
        if !open[1] {
            let after = self.delay();
            self.clock.after(after, Event::Closed { at: end });
        }
        end
    }

    /// The process of an end.
    pub(super) fn at(&self, end: ConnectionEnd) -> Process {
        self.connections[end.connection].of[end.side]
    }

    /// The process at the other end.
    pub(super) fn peer(&self, end: ConnectionEnd) -> Process {
        self.at(end.other())
    }

    /// Whether what arrives at an end is heard.
    pub(super) fn is_open(&self, end: ConnectionEnd) -> bool {
        self.connections[end.connection].open[end.side]
    }

    /// When something from an end arrives, behind all that was sent before.
    fn arrival(&mut self, from: ConnectionEnd) -> u64 {
        let of = self.connections[from.connection].of;
        let now = self.clock.now();
        let cut = self.cut_until(of);
        let left = if cut > now { cut + self.random.random_range(0..AGAIN) } else { now };
        let at = left + self.delay();
        let Connection { last, held, .. } = &mut self.connections[from.connection];
        let last = &mut last[from.side];
        *last = at.max(*last + 1).max(held[from.side]);
        *last
    }

    pub(super) fn send(&mut self, from: ConnectionEnd, message: Message) {
        if self.is_open(from) {
            let at = self.arrival(from);
            self.clock.at(at, Event::Arrives { at: from.other(), message });
        }
    }

    /// A process closes its end: the other one learns that when it has all that was sent before.
    pub(super) fn close(&mut self, end: ConnectionEnd) {
        if std::mem::take(&mut self.connections[end.connection].open[end.side]) {
            let at = self.arrival(end);
            self.clock.at(at, Event::Closed { at: end.other() });
        }
    }

    /// The other end is closed: this one is, too. Whether it was open.
    pub(super) fn closed(&mut self, end: ConnectionEnd) -> bool {
        std::mem::take(&mut self.connections[end.connection].open[end.side])
    }

    /// A process dies. What it had sent last arrives, or not.
    pub(super) fn kill(&mut self, process: Process) {
        self.processes[process.0].alive = false;
        for connection in 0..self.connections.len() {
            for side in 0..2 {
                let Connection { of, open, last, .. } = &mut self.connections[connection];
                if of[side] != process || !std::mem::take(&mut open[side]) {
                    continue;
                }
                let (of, last) = (*of, last[side]);
                let cut = self.cut_until(of);
                let whole = self.random.random_bool(0.5);
                let soon = self.clock.now().max(cut) + self.random.random_range(0..2 * MS);
                let at = if whole { soon.max(last + 1) } else { soon };
                self.clock.at(at, Event::Closed { at: ConnectionEnd { connection, side: 1 - side } });
            }
        }
    }

    /// The connections between two processes break, with what was on the way.
    pub(super) fn reset(&mut self, one: Process, two: Process) {
        for connection in 0..self.connections.len() {
            let of = self.connections[connection].of;
            if of != [one, two] && of != [two, one] {
                continue;
            }
            for side in 0..2 {
                let after = self.random.random_range(0..2 * MS);
                self.clock.after(after, Event::Closed { at: ConnectionEnd { connection, side } });
            }
        }
    }

    /// Whether a process neither is stopped nor cut off.
    pub(super) fn is_running(&self, process: Process) -> bool {
        let (state, now) = (&self.processes[process.0], self.clock.now());
        let apart = self.apart.is_some_and(|(a, b, until)| until > now && (a == process || b == process));
        state.stopped_until <= now && state.cut_until <= now && !apart
    }

    /// A process begins anew.
    pub(super) fn revive(&mut self, process: Process) {
        self.processes[process.0].alive = true;
    }

    /// A process does nothing until then.
    pub(super) fn stop(&mut self, process: Process, until: u64) {
        self.processes[process.0].stopped_until = until;
    }

    /// A process reaches nobody until then.
    pub(super) fn isolate(&mut self, process: Process, until: u64) {
        self.processes[process.0].cut_until = until;
    }

    /// Two do not reach each other until then.
    pub(super) fn partition(&mut self, one: Process, two: Process, until: u64) {
        self.apart = Some((one, two, until));
    }

    /// The next event before `end`, of a process that lives and is not stopped: one that is finds all of it when it goes on.
    pub(super) fn next_before(&mut self, end: u64) -> Option<Event> {
        loop {
            let event = self.clock.next_before(end)?;
            let of = match &event {
                Event::Arrives { at, .. } | Event::Closed { at } => self.at(*at),
                Event::Due { of, .. } => *of,
                Event::Ran(_) | Event::Starts | Event::Fails => return Some(event),
            };
            let state = &self.processes[of.0];
            if !state.alive && !matches!(event, Event::Due { what: Due::Starts, .. }) {
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
