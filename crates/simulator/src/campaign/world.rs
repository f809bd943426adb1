//! The world around the hosts: network, clock, faults, UEs, the balancer with its pins and the controller with its epochs.

use super::Campaign;
use super::host::{Emission, Message, Out, Part, Place, Uplink};
use super::oracle::{Broken, Oracle};
use crate::cluster::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use vireo_core::balance::HostId;
use vireo_core::balance::map::{BucketMap, Owners, SlicePart};
use vireo_core::balance::ring::Weighted;
use vireo_core::replica::{Ack, Membership};
use vireo_types::Bucket;

const HOSTS: u16 = 6;
const UES: usize = 6;
const MS: u64 = 1_000;
/// Faults until then; the network is whole from then on; the world ends.
const FAULTS_UNTIL: u64 = 6_000 * MS;
const WHOLE_FROM: u64 = 7_000 * MS;
const END: u64 = 10_500 * MS;
/// Between two hosts that fail.
const APART: u64 = 2_500 * MS;
/// Heartbeats, and how long a host may be silent.
const BEAT: u64 = 50 * MS;
const SILENT: u64 = 200 * MS;
/// A UE sends again what was not answered.
const RETRY: u64 = 1_000 * MS;

#[derive(Clone, Debug)]
enum Event {
    /// A message between hosts, or from the balancer, about a UE.
    Comes { from: HostId, to: HostId, ue: usize, message: Message },
    /// A UE's message comes to the balancer.
    Uplink { ue: usize, uplink: Uplink },
    /// What a host has released comes to the balancer, by the host's epoch.
    Emitted { epoch: u64, ue: usize, emission: Emission },
    /// It comes to the UE.
    Downlink { ue: usize, emission: Emission },
    /// A UE begins, or sends again what it sent as this count.
    Wakes { ue: usize, count: u32 },
    /// A host's own clock.
    Ticks(HostId),
    /// A heartbeat, by a host's epoch.
    Beats(HostId, u64),
    /// The controller looks who is silent.
    Looks,
    /// A map comes to a host; the balancer has it at once.
    Map { to: HostId, epoch: u64 },
    /// A host fails.
    Fails,
}

#[derive(Debug)]
struct Host {
    parts: Vec<Part>,
    epoch: u64,
    dead: bool,
    stopped_until: u64,
    cut_until: u64,
    /// How long its milliseconds are.
    skew: f64,
    seen: u64,
}

#[derive(Debug, Default)]
struct Ue {
    count: u32,
    /// Whether it is in the middle of a procedure, and whether it has had the first answer.
    waits: bool,
    answered: bool,
    last_done: u64,
    procedures: u64,
}

pub(super) struct World {
    seed: u64,
    ack: Ack,
    random: StdRng,
    clock: Clock<Event>,
    hosts: Vec<Host>,
    ues: Vec<Ue>,
    /// The map of each epoch, from 1 on, and who is in the last.
    maps: Vec<BucketMap>,
    members: Vec<HostId>,
    /// In which epoch each UE was last committed by all.
    done: Vec<u64>,
    pins: Vec<Option<HostId>>,
    oracle: Oracle,
    campaign: Campaign,
}

impl World {
    pub(super) fn new(seed: u64, ack: Ack) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let host = |random: &mut StdRng| Host {
            parts: (0..UES).map(|_| Part::default()).collect(),
            epoch: 1,
            dead: false,
            stopped_until: 0,
            cut_until: 0,
            skew: random.random_range(0.5..2.0),
            seen: 0,
        };
        let hosts = (0..HOSTS).map(|_| host(&mut random)).collect();
        let members: Vec<HostId> = (0..HOSTS).map(HostId).collect();
        let mut world = World {
            seed,
            ack,
            random,
            clock: Clock::new(),
            hosts,
            ues: (0..UES).map(|_| Ue::default()).collect(),
            maps: vec![map(1, &members)],
            members,
            done: vec![1; UES],
            pins: vec![None; UES],
            oracle: Oracle::default(),
            campaign: Campaign { seed, procedures: 0, failures: 0, takeovers: 0, broken: None },
        };
        for ue in 0..UES {
            let at = world.random.random_range(0..100 * MS);
            world.clock.at(at, Event::Wakes { ue, count: 0 });
        }
        for host in 0..HOSTS {
            let at = world.random.random_range(0..BEAT);
            world.clock.at(at, Event::Ticks(HostId(host)));
        }
        let first = world.random.random_range(300 * MS..APART);
        world.clock.at(first, Event::Fails);
        world.clock.at(SILENT, Event::Looks);
        world
    }

    pub(super) fn run(mut self) -> Campaign {
        while let Some(event) = self.clock.next_before(END) {
            self.happens(event);
            if let Some(broken) = self.oracle.broken {
                self.campaign.broken = Some((self.clock.now(), broken));
                break;
            }
        }
        // each UE has had time for several procedures since the network was whole
        let stuck = self.ues.iter().position(|ue| ue.last_done < WHOLE_FROM + RETRY);
        if let (None, Some(ue)) = (self.campaign.broken, stuck) {
            self.campaign.broken = Some((self.clock.now(), Broken::Stuck(ue)));
        }
        self.campaign.procedures = self.ues.iter().map(|ue| ue.procedures).sum();
        self.campaign.seed = self.seed;
        self.campaign
    }

    fn owners(&self, epoch: u64, ue: usize) -> Owners {
        let bucket = Bucket::new((ue * 683) as u16);
        self.maps.get(epoch as usize - 1).map(|map| map.owners(bucket)).unwrap_or_default()
    }

    fn place(&self, me: HostId, ue: usize) -> Place {
        let epoch = self.hosts[me.index()].epoch;
        let owners = self.owners(epoch, ue);
        let before = (epoch > 1 && self.done[ue] < epoch).then(|| self.owners(epoch - 1, ue));
        Place { me, membership: Membership { epoch, owners, before }, ack: self.ack }
    }

    fn is_cut(&self, host: HostId) -> bool {
        self.hosts[host.index()].cut_until > self.clock.now()
    }

    /// How long a message takes.
    fn delay(&mut self) -> u64 {
        let troubled = self.clock.now() < FAULTS_UNTIL && self.random.random_bool(0.03);
        if troubled { self.random.random_range(2 * MS..120 * MS) } else { self.random.random_range(100..600) }
    }

    fn send(&mut self, from: HostId, to: HostId, ue: usize, message: Message) {
        if from == to {
            return self.clock.after(1, Event::Comes { from, to, ue, message });
        }
        let faulty = self.clock.now() < FAULTS_UNTIL;
        if self.is_cut(from) || self.is_cut(to) || faulty && self.random.random_bool(0.02) {
            return;
        }
        if faulty && self.random.random_bool(0.03) {
            let after = self.delay();
            self.clock.after(after, Event::Comes { from, to, ue, message: message.clone() });
        }
        let after = self.delay();
        self.clock.after(after, Event::Comes { from, to, ue, message });
    }

    /// Whose event it is, if it is a host's.
    fn host_of(event: &Event) -> Option<HostId> {
        match event {
            Event::Comes { to, .. } | Event::Map { to, .. } | Event::Ticks(to) => Some(*to),
            _ => None,
        }
    }

    fn happens(&mut self, event: Event) {
        if let Some(host) = Self::host_of(&event) {
            let host = &self.hosts[host.index()];
            if host.dead {
                return;
            }
            if host.stopped_until > self.clock.now() {
                // a host that is stopped finds all of it when it goes on
                let at = host.stopped_until;
                return self.clock.at(at, event);
            }
        }
        match event {
            Event::Comes { from, to, ue, message } => self.comes(from, to, ue, message),
            Event::Uplink { ue, uplink } => self.steered(ue, uplink),
            Event::Emitted { epoch, ue, emission } => {
                // the balancer refuses what comes by an old epoch
                if epoch == self.maps.len() as u64 {
                    if emission == Emission::Done {
                        self.pins[ue] = None;
                    }
                    let after = self.delay();
                    self.clock.after(after, Event::Downlink { ue, emission });
                }
            }
            Event::Downlink { ue, emission } => self.heard(ue, emission),
            Event::Wakes { ue, count } => self.wakes(ue, count),
            Event::Ticks(host) => self.ticks(host),
            Event::Beats(host, epoch) => {
                self.hosts[host.index()].seen = self.clock.now();
                let newest = self.maps.len() as u64;
                if epoch < newest {
                    let after = self.delay();
                    self.clock.after(after, Event::Map { to: host, epoch: newest });
                }
            }
            Event::Looks => self.looks(),
            Event::Map { to, epoch } => self.new_map(to, epoch),
            Event::Fails => self.fails(),
        }
    }

    fn comes(&mut self, from: HostId, to: HostId, ue: usize, message: Message) {
        let place = self.place(to, ue);
        if matches!(message, Message::Uplink(_)) && !place.membership.owners.has(to) {
            return;
        }
        let out = self.hosts[to.index()].parts[ue].comes(place, from, message);
        self.carried_out(to, ue, out);
    }

    fn carried_out(&mut self, host: HostId, ue: usize, out: Out) {
        self.campaign.takeovers += out.takeovers;
        for state in &out.released {
            self.oracle.released(ue, state);
            for emission in &state.outbox {
                let (epoch, emission) = (self.hosts[host.index()].epoch, *emission);
                if !self.is_cut(host) {
                    let after = self.delay();
                    self.clock.after(after, Event::Emitted { epoch, ue, emission });
                }
            }
        }
        if let Some(epoch) = out.settled {
            self.done[ue] = self.done[ue].max(epoch);
        }
        for (to, message) in out.messages {
            self.send(host, to, ue, message);
        }
    }

    /// The balancer: to the host that has the UE's procedure, else to any that has the UE.
    fn steered(&mut self, ue: usize, uplink: Uplink) {
        let owners = self.owners(self.maps.len() as u64, ue);
        let pinned = self.pins[ue].filter(|host| owners.has(*host));
        let any = self.random.random_range(0..owners.all().count().max(1));
        let Some(to) = pinned.or(owners.all().nth(any)) else { return };
        self.pins[ue] = Some(to);
        if !self.is_cut(to) {
            let after = self.delay();
            self.clock.after(after, Event::Comes { from: to, to, ue, message: Message::Uplink(uplink) });
        }
    }

    fn sends(&mut self, ue: usize) {
        let own = &mut self.ues[ue];
        let uplink = Uplink { count: own.count, completes: own.answered };
        own.count += 1;
        let again = own.count;
        let after = self.delay();
        self.clock.after(after, Event::Uplink { ue, uplink });
        self.clock.after(RETRY, Event::Wakes { ue, count: again });
    }

    fn wakes(&mut self, ue: usize, count: u32) {
        let own = &mut self.ues[ue];
        if own.count == count {
            if !own.waits {
                (own.waits, own.answered) = (true, false);
            }
            self.sends(ue);
        }
    }

    fn heard(&mut self, ue: usize, emission: Emission) {
        let own = &mut self.ues[ue];
        match emission {
            Emission::Downlink { .. } if own.waits && !own.answered => {
                own.answered = true;
                self.sends(ue);
            }
            Emission::Done if own.waits && own.answered => {
                (own.waits, own.last_done) = (false, self.clock.now());
                own.procedures += 1;
                let (count, after) = (own.count, self.random.random_range(20 * MS..250 * MS));
                self.clock.after(after, Event::Wakes { ue, count });
            }
            Emission::Downlink { .. } | Emission::NextHop { .. } | Emission::Done => (),
        }
    }

    fn ticks(&mut self, host: HostId) {
        let at = host.index();
        if !self.is_cut(host) {
            let (epoch, after) = (self.hosts[at].epoch, self.delay());
            self.clock.after(after, Event::Beats(host, epoch));
        }
        for ue in 0..UES {
            let (place, patience) = (self.place(host, ue), self.random.random_bool(0.7));
            let out = self.hosts[at].parts[ue].again(place, patience);
            self.carried_out(host, ue, out);
        }
        // a clock that is wrong beats wrongly, but not so slowly that the host is taken for dead
        let every = (BEAT as f64 * self.hosts[at].skew.min(1.5)) as u64;
        self.clock.after(every, Event::Ticks(host));
    }

    /// The controller: one change of the map at a time, when all UEs have their copies by the last.
    fn looks(&mut self) {
        let (now, epoch) = (self.clock.now(), self.maps.len() as u64);
        let moved = self.done.iter().all(|done| *done == epoch);
        let silent = self.members.iter().position(|host| self.hosts[host.index()].seen + SILENT < now);
        if let Some(silent) = silent.filter(|_| moved && self.members.len() > 3) {
            self.members.remove(silent);
            self.campaign.failures += 1;
            self.maps.push(map(epoch + 1, &self.members));
            for pin in &mut self.pins {
                *pin = pin.filter(|host| self.members.contains(host));
            }
            for host in 0..HOSTS {
                let (to, after) = (HostId(host), self.delay());
                if !self.is_cut(to) {
                    self.clock.after(after, Event::Map { to, epoch: epoch + 1 });
                }
            }
        }
        self.clock.after(BEAT, Event::Looks);
    }

    fn new_map(&mut self, host: HostId, epoch: u64) {
        let at = host.index();
        if epoch <= self.hosts[at].epoch {
            return;
        }
        self.hosts[at].epoch = epoch;
        for ue in 0..UES {
            let place = self.place(host, ue);
            let owners = place.membership.owners;
            let out = self.hosts[at].parts[ue].new_map(place, owners.primary() == Some(host), owners.has(host));
            self.carried_out(host, ue, out);
        }
    }

    /// A host dies, is stopped or is cut off, for long enough to be taken out of the map or not.
    fn fails(&mut self) {
        let now = self.clock.now();
        let at = self.members[self.random.random_range(0..self.members.len())].index();
        let long = self.random.random_range(30 * MS..1_500 * MS);
        let kind = self.random.random_range(0..3);
        let host = &mut self.hosts[at];
        match kind {
            0 => host.dead = true,
            1 => host.stopped_until = now + long,
            _ => host.cut_until = now + long,
        }
        let next = now + APART + self.random.random_range(0..500 * MS);
        if next < FAULTS_UNTIL {
            self.clock.at(next, Event::Fails);
        }
    }
}

fn map(epoch: u64, members: &[HostId]) -> BucketMap {
    let hosts = members.iter().map(|host| Weighted { host: *host, weight: 1.0 }).collect();
    BucketMap::new(epoch, &[SlicePart { weight: 1.0, replicas: 2, hosts }])
}
