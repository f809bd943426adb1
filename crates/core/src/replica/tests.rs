//! Random worlds: messages that are lost, doubled and late, hosts that die and that are cut off, several that want the same UE
//! at once. What was released must be one history.

use super::*;
use crate::balance::map::{BucketMap, SlicePart};
use crate::balance::ring::Weighted;
use vireo_types::Bucket;

/// The steps of a UE so far, by their numbers.
type Record = Vec<u32>;

#[derive(Clone, Debug)]
enum Message {
    Offer(Offer, Record),
    Answer(Answer),
    Ask(Ballot),
    Promise(Promise, Record),
    Denied(Ballot, Ballot),
    Settled(Version),
}

#[derive(Default)]
struct Host {
    copy: Copy,
    record: Record,
    holder: Option<Holder>,
    /// What its holder has adopted, and its commits that wait: offers and records.
    state: Record,
    offers: Vec<(Offer, Record)>,
    records: Vec<(HostId, Record)>,
    dead: bool,
}

struct World {
    random: u64,
    membership: Membership,
    ack: Ack,
    hosts: Vec<Host>,
    net: Vec<(HostId, HostId, Message)>,
    /// What has left.
    released: Vec<Record>,
    steps: u32,
    cut: Option<HostId>,
}

impl World {
    fn new(seed: u64, owners: usize, ack: Ack) -> Self {
        World {
            random: seed,
            membership: Membership { epoch: 1, owners: owned_by(owners, 0), before: None },
            ack,
            hosts: (0..6).map(|_| Host::default()).collect(),
            net: Vec::new(),
            released: Vec::new(),
            steps: 0,
            cut: None,
        }
    }

    fn below(&mut self, most: usize) -> usize {
        self.random = crate::hash::mixed(self.random, 0x51);
        (self.random >> 33) as usize % most.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn send(&mut self, from: HostId, to: HostId, message: Message) {
        let reached = from == to || self.cut.is_none_or(|cut| cut != from && cut != to);
        if !reached || from != to && self.chance(10) {
            return;
        }
        if from != to && self.chance(10) {
            self.net.push((from, to, message.clone()));
        }
        self.net.push((from, to, message));
    }

    /// One thing happens.
    fn turn(&mut self) {
        match self.below(10) {
            0 => self.wants(),
            1 => self.again(),
            _ if self.net.is_empty() => self.wants(),
            _ => {
                let at = self.below(self.net.len());
                let (from, to, message) = self.net.swap_remove(at);
                if !self.hosts[to.index()].dead {
                    self.comes(from, to, message);
                }
            }
        }
    }

    /// A host has something to do for the UE.
    fn wants(&mut self) {
        let owners: Vec<HostId> = self.membership.owners.all().collect();
        let me = owners[self.below(owners.len())];
        if self.hosts[me.index()].dead {
            return;
        }
        let (membership, ack, asks) = (self.membership, self.ack, self.chance(30));
        let host = &mut self.hosts[me.index()];
        let given_up =
            host.holder.as_ref().is_some_and(|holder| holder.has_lost().is_some() || asks && !holder.holds());
        if given_up {
            let known = host.holder.take().map_or(Ballot::NONE, |holder| holder.has_lost().unwrap_or(holder.ballot()));
            let known = known.max(host.copy.promised()).max(host.copy.version().ballot);
            host.offers.clear();
            host.records.clear();
            let holder = Holder::take(me, known, membership, ack);
            let (ballot, asked): (Ballot, Vec<HostId>) = (holder.ballot(), holder.asks().collect());
            host.holder = Some(holder);
            asked.into_iter().for_each(|to| self.send(me, to, Message::Ask(ballot)));
            return;
        }
        match &host.holder {
            None => {
                host.offers.clear();
                host.records.clear();
                host.state = host.record.clone();
                host.holder = Holder::next(me, &host.copy, membership, ack);
                if host.holder.is_none() {
                    // taken at the next turn
                    let known = host.copy.promised().max(host.copy.version().ballot);
                    host.holder = Some(Holder::take(me, known, membership, ack));
                }
            }
            Some(_) => self.steps(me),
        }
    }

    fn steps(&mut self, me: HostId) {
        let last = self.chance(40);
        self.steps += 1;
        let (number, host) = (self.steps, &mut self.hosts[me.index()]);
        let Some(offer) = host.holder.as_mut().and_then(|holder| holder.commit(last)) else { return };
        host.state.push(number);
        host.offers.push((offer, host.state.clone()));
        self.offer(me);
    }

    /// Offers what waits to whom it may be offered.
    fn offer(&mut self, me: HostId) {
        let host = &self.hosts[me.index()];
        let Some(holder) = &host.holder else { return };
        let pending = holder.pending();
        let Some((offer, record)) = host.offers.iter().find(|(offer, _)| Some(offer.version) == pending).cloned()
        else {
            return;
        };
        let to: Vec<HostId> = match holder.first() {
            Some(first) => vec![first],
            None => self.membership.owners.all().collect(),
        };
        to.into_iter().for_each(|to| self.send(me, to, Message::Offer(offer, record.clone())));
    }

    /// What waits is sent again.
    fn again(&mut self) {
        let me = HostId(self.below(self.hosts.len()) as u16);
        if self.hosts[me.index()].dead {
            return;
        }
        match self.hosts[me.index()].holder.clone() {
            Some(holder) if !holder.holds() && holder.has_lost().is_none() => {
                let asked: Vec<HostId> = holder.asks().collect();
                asked.into_iter().for_each(|to| self.send(me, to, Message::Ask(holder.ballot())));
            }
            Some(_) => self.offer(me),
            None => (),
        }
    }

    fn comes(&mut self, from: HostId, to: HostId, message: Message) {
        let epoch = self.membership.epoch;
        let host = &mut self.hosts[to.index()];
        match message {
            Message::Offer(offer, record) => {
                let before = host.copy.version();
                let answer = host.copy.offered(&offer, epoch);
                if answer == Answer::Accepted(offer.version) && before != offer.version {
                    host.record = record;
                }
                self.send(to, from, Message::Answer(answer));
            }
            Message::Answer(answer) => {
                let Some(holder) = &mut host.holder else { return };
                let first = holder.first();
                match answer {
                    Answer::Accepted(version) => holder.accepted(from, version),
                    Answer::Refused { offered, promised } => holder.refused(offered, promised),
                }
                let opened = first.is_some() && holder.first().is_none() && holder.has_lost().is_none();
                self.leaves(to);
                if opened {
                    self.offer(to);
                }
            }
            Message::Ask(ballot) => {
                let answer = match host.copy.asked(ballot, epoch) {
                    Ok(promise) => Message::Promise(promise, host.record.clone()),
                    Err(promised) => Message::Denied(ballot, promised),
                };
                self.send(to, from, answer);
            }
            Message::Promise(promise, record) => {
                let Some(holder) = &mut host.holder else { return };
                if promise.ballot != holder.ballot() || holder.holds() {
                    return;
                }
                host.records.push((from, record));
                if let Taking::Holds { newest, .. } = holder.promised(from, promise) {
                    let adopted = host.records.iter().find(|(host, _)| *host == newest);
                    host.state = adopted.expect("it came with the promise").1.clone();
                    self.steps(to);
                }
            }
            Message::Settled(version) => host.copy.settled(version),
            Message::Denied(ballot, promised) => {
                if let Some(holder) = host.holder.as_mut().filter(|holder| holder.ballot() == ballot) {
                    holder.denied(promised);
                }
            }
        }
    }

    /// Effects that may leave do; a holder whose procedure has ended is none any more.
    fn leaves(&mut self, me: HostId) {
        let host = &mut self.hosts[me.index()];
        let Some(released) = host.holder.as_ref().and_then(Holder::released) else { return };
        let (out, rest): (Vec<_>, Vec<_>) = host.offers.drain(..).partition(|(offer, _)| offer.version <= released);
        host.offers = rest;
        let settled = host.holder.as_ref().and_then(Holder::settled).filter(|_| host.offers.is_empty());
        if let Some(version) = settled {
            host.holder = None;
            let owners: Vec<HostId> = self.membership.owners.all().collect();
            owners.into_iter().for_each(|to| self.send(me, to, Message::Settled(version)));
        }
        self.released.extend(out.into_iter().map(|(_, record)| record));
    }

    /// All that has left is one history.
    fn is_sound(&self, seed: u64) {
        let longest = self.released.iter().max_by_key(|record| record.len());
        for record in &self.released {
            let longest = longest.expect("there is one");
            assert_eq!(&longest[..record.len()], &record[..], "seed {seed}: two histories have left");
        }
    }
}

/// The first of the hosts from `from` on.
fn owned_by(count: usize, from: u16) -> Owners {
    let hosts = (from..from + count as u16).map(|n| Weighted { host: HostId(n), weight: 1.0 }).collect();
    BucketMap::new(1, &[SlicePart { weight: 1.0, replicas: count - 1, hosts }]).owners(Bucket::new(1))
}

#[test]
fn what_has_left_is_one_history_whatever_the_network_does() {
    for seed in 0..200 {
        let owners = 2 + seed as usize % 3;
        let ack = if seed % 5 == 0 { Ack::All } else { Ack::One };
        let mut world = World::new(seed, owners, ack);
        for n in 0..400 {
            world.turn();
            if n % 120 == 60 {
                world.cut = world.chance(60).then(|| HostId(world.below(owners) as u16));
            } else if n % 120 == 100 {
                world.cut = None;
            }
        }
        world.is_sound(seed);
    }
}

#[test]
fn without_faults_procedures_go_on() {
    let mut released = 0;
    for seed in 0..50 {
        let mut world = World::new(seed, 3, Ack::One);
        (0..400).for_each(|_| world.turn());
        world.is_sound(seed);
        released += world.released.len();
    }
    assert!(released > 500, "{released}");
}

/// A host dies; the map of the next epoch has another in its place, which has no copies. Nothing that has left is lost.
#[test]
fn a_new_host_in_the_map_and_a_dead_one_lose_nothing() {
    let mut after = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, 3, Ack::One);
        (0..200).for_each(|_| world.turn());
        let old = world.membership.owners;
        let victim = world.below(3);
        let victim = old.all().nth(victim).expect("an owner");
        world.hosts[victim.index()].dead = true;
        let hosts =
            (0..4).map(HostId).filter(|host| *host != victim).map(|host| Weighted { host, weight: 1.0 }).collect();
        let map = BucketMap::new(2, &[SlicePart { weight: 1.0, replicas: 2, hosts }]);
        let owners = map.owners(Bucket::new(1));
        world.membership = Membership { epoch: 2, owners, before: Some(old) };
        for host in world.hosts.iter_mut().filter(|host| !host.dead) {
            host.holder = None;
            host.offers.clear();
        }
        let before = world.released.len();
        (0..300).for_each(|_| world.turn());
        world.is_sound(seed);
        after += world.released.len() - before;
    }
    assert!(after > 300, "UEs are served after the change: {after}");
}

#[test]
fn a_late_holder_is_refused_and_sends_nothing() {
    let membership = Membership { epoch: 1, owners: owned_by(2, 0), before: None };
    let [mut one, mut two] = [Copy::default(); 2];
    let primary = membership.owners.primary().expect("an owner");
    let other = membership.owners.all().nth(1).expect("another");
    let mut old = Holder::next(primary, &one, membership, Ack::One).expect("it is free");
    let offer = old.commit(false).expect("it holds");
    assert_eq!(old.first(), Some(primary));
    assert_eq!(one.offered(&offer, 1), Answer::Accepted(offer.version));
    old.accepted(primary, offer.version);
    assert_eq!((old.first(), old.released()), (None, None), "its own copy is not enough");
    let later = Membership { epoch: 2, before: Some(membership.owners), ..membership };
    let mut new = Holder::take(other, Ballot::NONE, later, Ack::One);
    let promise = two.asked(new.ballot(), 2).expect("it is newer");
    // of two owners of whom two must have a commit, one knows each
    assert!(matches!(new.promised(other, promise), Taking::Holds { version: Version::NONE, .. }));
    let Answer::Refused { offered, promised } = two.offered(&offer, 2) else { panic!("it has promised") };
    old.refused(offered, promised);
    assert_eq!(old.has_lost(), Some(promised));
    old.accepted(other, offer.version);
    assert_eq!((old.released(), old.commit(true)), (None, None));
    assert!(Ack::ALL.iter().all(|ack| Ack::from_name(ack.name()) == Some(*ack)));
}
