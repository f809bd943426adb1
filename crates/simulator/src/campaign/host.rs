//! A host: its copies of UEs, the UEs that it holds, and what it does with a message. What it wants sent it returns.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use vireo_core::balance::HostId;
use vireo_core::replica::{Ack, Answer, Ballot, Copy, Holder, Membership, Offer, Promise, Taking, Version};

/// What leaves for the RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Emission {
    /// A protected NAS message.
    Downlink { count: u32, content: u64 },
    /// The key of a path switch.
    NextHop { number: u32, content: u64 },
    /// The procedure has ended.
    Done,
}

/// A context, as far as it can be broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The lowest uplink NAS COUNT that is still accepted, the next downlink one, and the next NH.
    pub(super) uplink: u32,
    pub(super) downlink: u32,
    pub(super) next_hop: u32,
    pub(super) running: bool,
    pub(super) steps: u32,
    /// A hash of all steps so far.
    pub(super) past: u64,
    /// What the last step took, and what of it leaves.
    pub(super) taken: Option<u32>,
    pub(super) outbox: Vec<Emission>,
}

/// A message of a UE.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uplink {
    pub(super) count: u32,
    /// Whether it ends the procedure.
    pub(super) completes: bool,
}

impl State {
    /// The step; `None` if the message is a replay.
    fn step(&self, uplink: Uplink, host: HostId) -> Option<State> {
        if uplink.count < self.uplink {
            return None;
        }
        let mut next = State { uplink: uplink.count + 1, steps: self.steps + 1, ..self.clone() };
        let mut hasher = DefaultHasher::new();
        // that the host is in it shows contents that two have made under one COUNT
        (self.past, uplink.count, host.0).hash(&mut hasher);
        (next.past, next.taken) = (hasher.finish(), Some(uplink.count));
        next.outbox.clear();
        if uplink.completes {
            next.running = false;
            next.outbox.push(Emission::Done);
        } else {
            next.running = true;
            next.outbox.push(Emission::Downlink { count: self.downlink, content: next.past });
            next.downlink += 1;
            if uplink.count.is_multiple_of(3) {
                next.outbox.push(Emission::NextHop { number: self.next_hop, content: next.past });
                next.next_hop += 1;
            }
        }
        Some(next)
    }
}

/// What hosts say to each other about a UE.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Uplink(Uplink),
    Offer(Offer, State),
    Answer(Answer),
    Ask(Ballot),
    Promise(Promise, State),
    Denied { ballot: Ballot, promised: Ballot },
    Settled(Version),
}

/// A UE that a host holds or is about to.
#[derive(Debug)]
struct Work {
    holder: Holder,
    state: State,
    queue: VecDeque<Uplink>,
    /// The commit that waits, one at a time, and the message that it is the step of.
    waits: Option<(Offer, State)>,
    in_hand: Option<Uplink>,
    promises: Vec<(HostId, State)>,
}

impl Work {
    /// The messages that have had no step that counts: who has lost a UE has not done what it had in hand.
    fn left(mut self) -> VecDeque<Uplink> {
        self.in_hand.into_iter().for_each(|uplink| self.queue.push_front(uplink));
        self.queue
    }
}

/// A host's part of one UE.
#[derive(Debug, Default)]
pub(super) struct Part {
    copy: Copy,
    state: State,
    work: Option<Work>,
}

/// What comes of a message.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) messages: Vec<(HostId, Message)>,
    /// What was released.
    pub(super) released: Vec<State>,
    /// A procedure has ended, by which all that live have the UE in this epoch.
    pub(super) settled: Option<u64>,
    pub(super) takeovers: u64,
}

/// Where a host is in the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) me: HostId,
    pub(super) membership: Membership,
    pub(super) ack: Ack,
}

impl Part {
    /// A message comes.
    pub(super) fn comes(&mut self, place: Place, from: HostId, message: Message) -> Out {
        let mut out = Out::default();
        let epoch = place.membership.epoch;
        match message {
            Message::Uplink(uplink) => {
                self.work(place, &mut out).queue.push_back(uplink);
                self.goes_on(place, &mut out);
            }
            Message::Offer(offer, state) => {
                let before = self.copy.version();
                let answer = self.copy.offered(&offer, epoch);
                if answer == Answer::Accepted(offer.version) && before != offer.version {
                    self.state = state;
                }
                out.messages.push((from, Message::Answer(answer)));
            }
            Message::Answer(answer) => self.answered(place, from, answer, &mut out),
            Message::Ask(ballot) => out.messages.push(match self.copy.asked(ballot, epoch) {
                Ok(promise) => (from, Message::Promise(promise, self.state.clone())),
                Err(promised) => (from, Message::Denied { ballot, promised }),
            }),
            Message::Promise(promise, state) => self.promised(place, from, promise, state, &mut out),
            Message::Denied { ballot, promised } => {
                if let Some(work) = self.work.as_mut().filter(|work| work.holder.ballot() == ballot) {
                    work.holder.denied(promised);
                }
            }
            Message::Settled(version) => self.copy.settled(version),
        }
        out
    }

    /// The newest ballot that this host knows of.
    fn known(&self) -> Ballot {
        let held = self.work.as_ref().map(|work| work.holder.has_lost().unwrap_or(work.holder.ballot()));
        self.copy.promised().max(self.copy.version().ballot).max(held.unwrap_or(Ballot::NONE))
    }

    /// The UE's work here, begun if there is none.
    fn work(&mut self, place: Place, out: &mut Out) -> &mut Work {
        let Place { me, membership, ack } = place;
        if self.work.is_none() && Holder::next(me, &self.copy, membership, ack).is_none() {
            self.take(place, out);
        }
        let (copy, state) = (self.copy, self.state.clone());
        self.work.get_or_insert_with(|| {
            // it is free: the other way would have been taken above
            let holder = Holder::next(me, &copy, membership, ack);
            let holder = holder.unwrap_or_else(|| Holder::take(me, copy.promised(), membership, ack));
            Work { holder, state, queue: VecDeque::new(), waits: None, in_hand: None, promises: Vec::new() }
        })
    }

    /// Takes the UE by asking; what waited for its turn still does.
    pub(super) fn take(&mut self, place: Place, out: &mut Out) {
        let Place { me, membership, ack } = place;
        let holder = Holder::take(me, self.known(), membership, ack);
        let queue = self.work.take().map(Work::left).unwrap_or_default();
        out.messages.extend(holder.asks().map(|to| (to, Message::Ask(holder.ballot()))));
        out.takeovers += 1;
        let state = State::default();
        self.work = Some(Work { holder, state, queue, waits: None, in_hand: None, promises: Vec::new() });
    }

    fn promised(&mut self, place: Place, from: HostId, promise: Promise, state: State, out: &mut Out) {
        let Some(work) = self.work.as_mut().filter(|w| w.holder.ballot() == promise.ballot && !w.holder.holds()) else {
            return;
        };
        work.promises.push((from, state));
        let Taking::Holds { newest, .. } = work.holder.promised(from, promise) else { return };
        if let Some((_, state)) = work.promises.iter().find(|(host, _)| *host == newest) {
            work.state = state.clone();
        }
        // what is adopted is committed again before anything of it leaves
        let (state, last) = (work.state.clone(), !work.state.running && work.queue.is_empty());
        self.commit(place, state, last, out);
    }

    fn commit(&mut self, place: Place, state: State, last: bool, out: &mut Out) {
        let Some(work) = &mut self.work else { return };
        if let Some(offer) = work.holder.commit(last) {
            (work.state, work.waits) = (state.clone(), Some((offer, state)));
        }
        self.offers(place, out);
    }

    /// What waits is offered to whom it may be offered.
    fn offers(&self, place: Place, out: &mut Out) {
        let Some(Work { holder, waits: Some((offer, state)), .. }) = &self.work else { return };
        let mut send = |to| out.messages.push((to, Message::Offer(*offer, state.clone())));
        match holder.first() {
            Some(first) => send(first),
            None => place.membership.owners.all().for_each(send),
        }
    }

    fn answered(&mut self, place: Place, from: HostId, answer: Answer, out: &mut Out) {
        let Some(work) = &mut self.work else { return };
        let first = work.holder.first();
        match answer {
            Answer::Accepted(version) => work.holder.accepted(from, version),
            Answer::Refused { offered, promised } => work.holder.refused(offered, promised),
        }
        if first.is_some() && work.holder.first().is_none() && work.holder.has_lost().is_none() {
            self.offers(place, out);
        }
        self.goes_on(place, out);
    }

    /// What may leave does, then the next message has its step.
    fn goes_on(&mut self, place: Place, out: &mut Out) {
        let Some(work) = &mut self.work else { return };
        if let (Some(released), Some((offer, _))) = (work.holder.released(), &work.waits)
            && offer.version <= released
        {
            work.in_hand = None;
            out.released.extend(work.waits.take().map(|(_, state)| state));
            if let Some(version) = work.holder.settled() {
                let queue = self.work.take().map(|work| work.queue).unwrap_or_default();
                out.settled = Some(version.ballot.epoch);
                out.messages.extend(place.membership.owners.all().map(|to| (to, Message::Settled(version))));
                out.messages.extend(queue.into_iter().map(|uplink| (place.me, Message::Uplink(uplink))));
                return;
            }
        }
        if !work.holder.holds() || work.waits.is_some() {
            return;
        }
        while let Some(uplink) = work.queue.pop_front() {
            if let Some(next) = work.state.step(uplink, place.me) {
                let last = !next.running;
                work.in_hand = Some(uplink);
                return self.commit(place, next, last, out);
            }
        }
        if !work.state.running && work.holder.pending().is_none() {
            // a replay alone: nobody holds the UE for it
            let state = work.state.clone();
            self.commit(place, state, true, out);
        }
    }

    /// Nothing was heard for a while: what waits is sent again; who has lost takes the UE again if something waits for it.
    pub(super) fn again(&mut self, place: Place, patience: bool) -> Out {
        let mut out = Out::default();
        let Some(work) = &mut self.work else { return out };
        match (work.holder.has_lost(), work.holder.holds()) {
            (Some(_), _) if work.queue.is_empty() && work.in_hand.is_none() => self.work = None,
            (Some(_), _) => self.take(place, &mut out),
            // a primary that does not answer is gone around
            (None, true) if work.holder.first().is_some() && !patience => self.take(place, &mut out),
            (None, true) => self.offers(place, &mut out),
            (None, false) if patience => {
                let asks = work.holder.asks().map(|to| (to, Message::Ask(work.holder.ballot())));
                out.messages.extend(asks.collect::<Vec<_>>());
            }
            (None, false) => self.take(place, &mut out),
        }
        out
    }

    /// A later map: who held UEs by the old one does not any more. `refresh`: this host sees to it that the UE has its copies;
    /// `owner`: it keeps one.
    pub(super) fn new_map(&mut self, place: Place, refresh: bool, owner: bool) -> Out {
        let mut out = Out::default();
        let waits = self.work.as_ref().is_some_and(|work| !work.queue.is_empty() || work.in_hand.is_some());
        if refresh || waits && owner {
            self.take(place, &mut out);
        } else {
            self.work = None;
        }
        out
    }
}
