//! Balancer of the campaign: `core::placement::balance`, `core::placement::replica` and simulated
//! I/O.
//!
//! By the controller's cluster map the balancer forwards inputs to hosts and drops repeats. It
//! redelivers the unfinished inputs of a dead host.

use super::Mutation;
use super::controller::BEAT;
use super::message::{Input, Message};
use super::network::{ConnectionEnd, Due, Event, Network, Process};
use super::ran::{self, RanEvent};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use vireo_core::amf::engine;
use vireo_core::amf::n2::{self, Route, ShallowView};
use vireo_core::ids::tmsi::TmsiCipher;
use vireo_core::placement::balance::load_table::LoadTable;
use vireo_core::placement::balance::steer::{self, HostSet, Policy, Request};
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, DurableState, RejoinInfo, Secrets};
use vireo_core::placement::replica::{Claims, EffectDedup, InflightInputs, RecentEffects};
use vireo_core::schedule::estimate::ServiceTime;
use vireo_types::{AssocId, Bucket, Duration, Tmsi};

/// Buckets alternate between slice 0 and the only configured slice.
pub(super) const SLICES: usize = 2;
/// Missed heartbeats of a connected host, and of an unconnected one, before the report to the
/// controller.
const MISSES: u32 = 4;
const CONNECTS: u32 = 5;

/// Connection of a host.
#[derive(Debug, Default)]
struct Link {
    host: Option<HostId>,
    serves: bool,
    heard: bool,
    flying: InflightInputs<Input>,
    emitted: RecentEffects,
}

#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) process: Process,
    controller: ConnectionEnd,
    me: Option<(BalancerId, DurableState)>,
    links: BTreeMap<ConnectionEnd, Link>,
    serving: BTreeMap<HostId, ConnectionEnd>,
    lost: BTreeMap<HostId, (InflightInputs<Input>, RecentEffects)>,
    misses: BTreeMap<HostId, u32>,
    complained: bool,
    map: Option<Rc<ClusterMap>>,
    fleet: HostSet,
    board: LoadTable,
    turn: u64,
    cipher: Option<TmsiCipher>,
    number: u64,
    again: VecDeque<(u64, Input)>,
    /// Inputs from RAN and UPF for which no host is available.
    waiting: VecDeque<Input>,
    repeats: EffectDedup,
    /// Latest claims, for hosts that join.
    claims: Claims,
    /// NG Setup Requests, for hosts that join.
    nodes: Vec<(AssocId, Rc<[u8]>)>,
}

impl Balancer {
    pub(super) fn new(wires: &mut Network, controller: Process) -> Self {
        let process = wires.spawn();
        let end = wires.open(process, controller);
        wires.send(end, Message::JoinBalancer(None));
        wires.due(process, BEAT, Due::Tick);
        Balancer {
            process,
            controller: end,
            me: None,
            links: BTreeMap::new(),
            serving: BTreeMap::new(),
            lost: BTreeMap::new(),
            misses: BTreeMap::new(),
            complained: false,
            map: None,
            fleet: HostSet::default(),
            board: LoadTable::new(1, Duration::from_secs(1)),
            turn: 0,
            cipher: None,
            number: 0,
            again: VecDeque::new(),
            waiting: VecDeque::new(),
            repeats: EffectDedup::default(),
            claims: Claims::default(),
            nodes: Vec::new(),
        }
    }

    pub(super) fn on_message(&mut self, wires: &mut Network, at: ConnectionEnd, message: Message) {
        match message {
            Message::Seat(me, secrets) => self.on_joined(wires, me, secrets),
            Message::Map(map) if at == self.controller => self.adopt(wires, map),
            Message::Beat if at == self.controller => {}
            message => self.said(wires, at, message),
        }
        self.give_all(wires);
    }

    fn on_joined(&mut self, wires: &mut Network, me: BalancerId, secrets: Secrets) {
        self.cipher = Some(TmsiCipher::new(&secrets.tmsi_key));
        self.me.get_or_insert((me, DurableState { secrets, map: None }));
        wires.send(self.controller, Message::Ready);
    }

    /// Handles the end of a connection.
    pub(super) fn on_disconnect(&mut self, wires: &mut Network, at: ConnectionEnd) {
        if at == self.controller {
            // The next heartbeat reconnects it.
            return;
        }
        let Some(link) = self.links.remove(&at) else { return };
        let Some(host) = link.host.filter(|host| self.serving.get(host) == Some(&at)) else { return };
        self.serving.remove(&host);
        self.lost.insert(host, (link.flying, link.emitted));
        self.report_silent_hosts(wires);
    }

    pub(super) fn is_due(&mut self, wires: &mut Network, _: &Due) {
        if !wires.is_open(self.controller) {
            self.controller = wires.open(self.process, Process(0));
            let past = self.me.clone().map(|(id, record)| {
                let map = self.map.as_deref().cloned();
                Box::new(RejoinInfo { id, record: DurableState { map, ..record } })
            });
            wires.send(self.controller, Message::JoinBalancer(past));
        }
        wires.send(self.controller, Message::Beat);
        for (at, link) in &mut self.links {
            wires.send(*at, Message::Beat);
            if let Some(host) = link.host.filter(|_| link.serves) {
                if std::mem::take(&mut link.heard) {
                    self.misses.remove(&host);
                } else {
                    *self.misses.entry(host).or_default() += 1;
                }
            }
        }
        for (host, _) in self.map.iter().flat_map(|map| &map.hosts) {
            if !self.serving.contains_key(host) {
                *self.misses.entry(*host).or_default() += 1;
            }
        }
        self.repeats.forget(wires.time(self.process));
        self.report_silent_hosts(wires);
        self.give_all(wires);
        wires.due(self.process, BEAT, Due::Tick);
    }

    fn report_silent_hosts(&mut self, wires: &mut Network) {
        let most = |host: &HostId| if self.serving.contains_key(host) { MISSES } else { MISSES * CONNECTS };
        let silent = self.misses.iter().filter(|(host, misses)| **misses >= most(host)).map(|(host, _)| *host);
        let mut unheard: Vec<HostId> = silent.chain(self.lost.keys().copied()).collect();
        unheard.sort_unstable();
        unheard.dedup();
        let complains = !unheard.is_empty();
        if complains || self.complained {
            wires.send(self.controller, Message::Unheard(unheard));
            self.complained = complains;
        }
    }

    /// Handles a message of a host.
    fn said(&mut self, wires: &mut Network, at: ConnectionEnd, message: Message) {
        let (epoch, now) = (self.epoch(), wires.time(self.process));
        let link = self.links.entry(at).or_default();
        link.heard = true;
        match message {
            Message::Host(host) => self.greets(wires, at, host),
            Message::Map(map) if map.epoch() > epoch => self.adopt(wires, map),
            Message::Map(_) if !link.serves => wires.close(at),
            Message::Done(number) => link.flying.acknowledge(number),
            Message::Back(number) => {
                let back = link.flying.returned(number).map(|input| (number, input));
                self.again.extend(back);
            }
            Message::Claim(claim) => {
                let but = link.host;
                self.claims.on_remote_claim(claim, now);
                let others = self.serving.iter().filter(|(host, _)| Some(**host) != but);
                others.for_each(|(_, at)| wires.send(*at, Message::Claimed(claim)));
            }
            Message::Sync(number) => wires.send(at, Message::Synced(number)),
            Message::Ngap { assoc, ue, key, counts, pdu } if self.emits(wires, at, ue.map(|ue| ue.bucket()), key) => {
                wires.oracle.on_effect(key, &pdu, counts);
                ran::down(wires, assoc, pdu);
            }
            Message::Stale { assoc, ran, ue, key, pdu } if self.emits(wires, at, Some(ue.bucket()), key) => {
                wires.clock.after(0, Event::Ran(RanEvent::Stale { assoc, ran, pdu }));
            }
            Message::Pfcp { key, seid, message } if self.emits(wires, at, seid.map(|s| s.ltmsi().bucket()), key) => {
                let after = wires.delay();
                wires.clock.after(after, Event::Ran(RanEvent::Pfcp { key, seid, message }));
            }
            _ => {}
        }
    }

    /// Returns true if the balancer may execute the host's effect and has not executed it before.
    fn emits(&mut self, wires: &mut Network, at: ConnectionEnd, bucket: Option<Bucket>, key: u64) -> bool {
        let now = wires.time(self.process);
        let serves = self.links.get(&at).is_some_and(|link| link.serves);
        let Some(link) = self.links.get_mut(&at).filter(|_| serves) else { return false };
        if key != 0 && self.repeats.has(key) && !wires.is(Mutation::RepeatsSent) {
            return false;
        }
        link.emitted.add(key, now);
        if let (Some(host), Some(bucket)) = (link.host, bucket) {
            wires.oracle.on_host_output(host, bucket);
        }
        true
    }

    fn greets(&mut self, wires: &mut Network, at: ConnectionEnd, host: HostId) {
        if self.lost.contains_key(&host) || self.serving.contains_key(&host) {
            // Inputs sent on the other connection are not known to have arrived.
            wires.send(at, Message::Refused);
            self.links.remove(&at);
            return wires.close(at);
        }
        if let Some(link) = self.links.get_mut(&at) {
            link.host = Some(host);
        }
        if self.map.as_ref().is_some_and(|map| map.has_host(host)) {
            self.serve(wires, at);
        }
    }

    fn serve(&mut self, wires: &mut Network, at: ConnectionEnd) {
        let now = wires.time(self.process);
        let Some(link) = self.links.get_mut(&at).filter(|link| !link.serves) else { return };
        let Some(host) = link.host else { return };
        link.serves = true;
        if let Some(map) = &self.map {
            wires.send(at, Message::Map(Rc::clone(map)));
        }
        for (assoc, pdu) in &self.nodes {
            let input = Input::Ngap { assoc: *assoc, bucket: None, answers: false, pdu: Rc::clone(pdu) };
            wires.send(at, Message::Give { number: 0, input });
        }
        for claim in self.claims.recent(now) {
            wires.send(at, Message::Claimed(claim));
        }
        self.serving.insert(host, at);
        self.misses.remove(&host);
    }

    fn epoch(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.epoch())
    }

    /// Adopts the next cluster map. Hosts that are not in it are fenced.
    fn adopt(&mut self, wires: &mut Network, map: Rc<ClusterMap>) {
        let Some((me, _)) = self.me else { return };
        if map.epoch() <= self.epoch() || !map.has_balancer(me) {
            return;
        }
        let now = wires.time(self.process);
        wires.oracle.goes_by(&map.buckets);
        let old = self.map.replace(Rc::clone(&map));
        let hosts = |map: &ClusterMap| map.hosts.iter().map(|(host, _)| *host).collect::<Vec<_>>();
        let gone: Vec<HostId> = old.iter().flat_map(|old| hosts(old)).filter(|host| !map.has_host(*host)).collect();
        let mut unfinished = Vec::new();
        for host in gone {
            self.misses.remove(&host);
            let (flying, emitted) = match self.serving.get(&host).copied() {
                // Injected fault: the host continues as if it were in the map.
                Some(_) if wires.is(Mutation::FenceIgnored) => continue,
                Some(at) => {
                    self.serving.remove(&host);
                    wires.send(at, Message::Map(Rc::clone(&map)));
                    wires.close(at);
                    let link = self.links.remove(&at).unwrap_or_default();
                    (link.flying, link.emitted)
                }
                None => self.lost.remove(&host).unwrap_or_default(),
            };
            self.repeats.add(emitted, now);
            // A host that left in order has completed all its inputs and migrated its UEs.
            let owned = old.as_ref().is_some_and(|old| old.buckets.buckets_owned_by(host).next().is_some());
            unfinished.extend(flying.into_unfinished(now).into_iter().filter(|_| owned));
            self.board.forget(host);
        }
        unfinished.sort_by_key(|(number, _)| *number);
        let (leave, stay): (Vec<_>, Vec<_>) = hosts(&map).into_iter().partition(|host| map.leaving.contains(host));
        let hosts = if stay.is_empty() { leave } else { stay };
        if self.fleet.hosts() != hosts {
            self.fleet = HostSet::new(hosts);
        }
        // Later inputs follow this map.
        self.serving.values().for_each(|at| wires.send(*at, Message::Map(Rc::clone(&map))));
        let new = |link: &Link| !link.serves && link.host.is_some_and(|host| map.has_host(host));
        let new: Vec<ConnectionEnd> = self.links.iter().filter(|(_, link)| new(link)).map(|(at, _)| *at).collect();
        new.into_iter().for_each(|at| self.serve(wires, at));
        unfinished.into_iter().rev().for_each(|again| self.again.push_front(again));
    }

    /// Handles a message of a gNB or of the UPF.
    pub(super) fn on_ran_or_upf_message(&mut self, wires: &mut Network, input: Input) {
        self.waiting.push_back(input);
        self.give_all(wires);
    }

    fn give_all(&mut self, wires: &mut Network) {
        if self.map.is_none() || self.serving.is_empty() {
            return;
        }
        while let Some((number, input)) = self.again.pop_front() {
            if let Err(input) = self.dispatch(wires, number, input) {
                return self.again.push_front((number, input));
            }
        }
        while let Some(input) = self.waiting.pop_front() {
            let number = BalancerId(0).input(self.number + 1);
            if let Err(input) = self.dispatch(wires, number, input) {
                return self.waiting.push_front(input);
            }
            self.number += 1;
        }
    }

    fn owner(&self, bucket: Bucket) -> Option<HostId> {
        self.map.as_ref()?.buckets.owners(bucket).owner()
    }

    fn dispatch(&mut self, wires: &mut Network, number: u64, mut input: Input) -> Result<(), Input> {
        let to = match &mut input {
            // Redelivery: to the new owner of the bucket.
            Input::Ngap { bucket: Some(bucket), .. } => self.owner(*bucket),
            Input::Ngap { pdu, bucket, .. } => match n2::peek(pdu) {
                Err(_) => self.serving.keys().next().copied(),
                Ok(ShallowView { route: Route::Node, .. }) => None,
                Ok(ShallowView { route: Route::Ue(id), .. }) => self.owner(id.ltmsi().bucket()),
                Ok(view @ ShallowView { route: Route::Initial { s_tmsi, .. }, .. }) => {
                    let named = self.named(wires, s_tmsi, pdu).zip(self.cipher.as_ref());
                    let by = named.map(|(tmsi, cipher)| cipher.bucket(tmsi));
                    match by.map(|by| (self.owner(by), by)).or_else(|| self.first_contact(wires, &view)) {
                        Some((host, by)) => {
                            *bucket = Some(by);
                            host
                        }
                        None => return Err(input),
                    }
                }
            },
            Input::Pfcp { seid, .. } => self.owner(seid.ltmsi().bucket()),
        };
        match to {
            Some(host) => self.one(wires, host, number, input),
            None => {
                self.all(wires, number, &input);
                Ok(())
            }
        }
    }

    fn named(&self, wires: &Network, s_tmsi: Option<(u16, u8, Tmsi)>, pdu: &[u8]) -> Option<Tmsi> {
        let config = &*wires.config;
        match s_tmsi {
            Some((set, pointer, tmsi)) if (set, pointer) == (config.amf_set, config.amf_pointer) => Some(tmsi),
            _ => match n2::ue_message(pdu) {
                Ok((_, n2::UeMessage::Initial(message))) => engine::named_tmsi(&message.nas, config),
                _ => None,
            },
        }
    }

    fn first_contact(&mut self, wires: &Network, _: &ShallowView) -> Option<(Option<HostId>, Bucket)> {
        let map = &self.map.as_ref()?.buckets;
        self.turn += 1;
        let columns = usize::from(Bucket::COUNT) / SLICES;
        let at = |n: u64| Bucket::new((n as usize % columns * SLICES) as u16);
        let bucket = at(self.turn * 97);
        let owners = map.owners(bucket);
        let (time, slo) = (ServiceTime::new(100_000), Duration::from_millis(200));
        let request = Request { bucket, owners, pool: 0, time, slo, turn: self.turn };
        let choice =
            steer::select_host(Policy::SkewedCh, &request, &self.fleet, &self.board, wires.time(self.process))?;
        let mut next = (0..columns as u64).map(|n| at(self.turn * 97 + n));
        let own = next.find(|bucket| map.owners(*bucket).owner() == Some(choice.host));
        own.map(|bucket| (Some(choice.host), bucket)).or_else(|| Some((owners.owner(), bucket)))
    }

    fn one(&mut self, wires: &mut Network, host: HostId, number: u64, input: Input) -> Result<(), Input> {
        let now = wires.time(self.process);
        if let Some((flying, _)) = self.lost.get_mut(&host) {
            flying.add(number, input, None, now);
            return Ok(());
        }
        let Some((at, link)) = self.serving.get(&host).and_then(|at| Some((*at, self.links.get_mut(at)?))) else {
            return Err(input);
        };
        wires.send(at, Message::Give { number, input: input.clone() });
        link.flying.add(number, input, None, now);
        Ok(())
    }

    /// Sends a RAN node's message to all hosts; one of them answers.
    fn all(&mut self, wires: &mut Network, number: u64, input: &Input) {
        let Input::Ngap { assoc, pdu, .. } = input else { return };
        self.nodes.push((*assoc, Rc::clone(pdu)));
        for (n, at) in self.serving.values().enumerate() {
            let input = Input::Ngap { assoc: *assoc, bucket: None, answers: n == 0, pdu: Rc::clone(pdu) };
            wires.send(*at, Message::Give { number, input });
        }
    }
}
