//! Faults during a steady load, and what the UEs have after it.

use super::slot::{ProcedureState, SlotState, flag};
use super::worker::Worker;
use crate::chaos::Chaos;
use crate::load::Rng;
use crate::mix::Activity;
use crate::report::{SessionAtEnd, UeAtEnd};
use crate::scenario::Step;
use crate::ue::{MmState, Registration, SessionState};
use vireo_sctp::Endpoint;

/// Last script of a registered UE. By the service request, UE and core learn which sessions the
/// other side has.
const SETTLE: &[Step] = &[Step::Idle, Step::Service, Step::Idle];
/// Last script of a UE that is not registered.
const REGISTER: &[Step] = &[Step::Register(Registration::Initial), Step::Establish { psi: 1, kind: None }, Step::Idle];

/// What happens to a NAS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Once,
    Lost,
    Twice,
}

/// Faults of one worker.
pub(super) struct ChaosRun {
    chaos: Chaos,
    rng: Rng,
    /// Time of the next restart of a node, in microseconds.
    restart_us: Option<u64>,
}

impl ChaosRun {
    pub(super) fn new(chaos: Chaos, seed: u64, worker: u32) -> Self {
        ChaosRun { chaos, rng: Rng::new(seed ^ u64::from(worker) << 32 ^ 0x0043_4841_4f53), restart_us: None }
    }
}

impl Worker<'_> {
    /// Returns true if faults occur in this run.
    pub(super) fn has_chaos(&self) -> bool {
        self.steady.as_ref().is_some_and(|run| run.chaos.is_some())
    }

    /// Returns true while faults occur.
    fn has_faults(&self) -> bool {
        self.has_chaos() && self.steady.as_ref().is_some_and(|run| run.is_loaded())
    }

    /// Draws the fate of a NAS message of the UE, or of one for it.
    pub(super) fn deliver(&mut self, is_uplink: bool) -> Delivery {
        if !self.has_faults() {
            return Delivery::Once;
        }
        let Some(run) = self.steady.as_mut().and_then(|run| run.chaos.as_mut()) else { return Delivery::Once };
        let draw = run.rng.unit();
        let report = self.stats.report.chaos.get_or_insert_default();
        if draw <= run.chaos.loss {
            report.messages_lost += 1;
            return Delivery::Lost;
        }
        if is_uplink && draw <= run.chaos.loss + run.chaos.repetition {
            report.messages_repeated += 1;
            return Delivery::Twice;
        }
        Delivery::Once
    }

    /// Restarts a node when the time has come: it loses its UEs and its association without
    /// notice. Returns the time of the next restart.
    pub(super) fn restart_nodes(&mut self, endpoint: &mut dyn Endpoint) -> Option<u64> {
        if !self.has_faults() {
            return None;
        }
        let (now_us, nodes) = (self.now_us, self.links.len());
        let run = self.steady.as_mut()?.chaos.as_mut()?;
        let mean_s = run.chaos.restart.as_secs_f64();
        let mut next = || now_us + (run.rng.exponential(mean_s) * 1e6) as u64;
        let due_us = *run.restart_us.get_or_insert_with(&mut next);
        if due_us > now_us {
            return Some(due_us);
        }
        let next_us = next();
        run.restart_us = Some(next_us);
        let index = run.rng.below(nodes);
        if let Some(assoc) = self.links[index].associations[0].assoc.filter(|_| self.links[index].is_complete()) {
            self.stats.report.chaos.get_or_insert_default().restarts += 1;
            self.end_association(assoc, (index, 0), "the node has restarted", endpoint);
        }
        Some(next_us)
    }

    /// Restarts each node whose UEs all wait for it ([`Step::AwaitRestart`]), and lets them
    /// continue at once when the core serves it again.
    pub(super) fn restart_with_all_ues(&mut self, endpoint: &mut dyn Endpoint) {
        let all_there = self.slots.len() as u32 >= self.share.ues;
        if !all_there || !self.options.has_storm() {
            return;
        }
        for index in 0..self.links.len() {
            let is_here = |owner: &u32| {
                let slot = &self.slots[*owner as usize];
                usize::from(slot.link) == index && slot.life == SlotState::Running
            };
            let ues: Vec<u32> = (0..self.slots.len() as u32).filter(is_here).collect();
            let all_wait = ues.iter().all(|owner| self.step(*owner) == Some(Step::AwaitRestart));
            if ues.is_empty() || !all_wait || !self.links[index].is_complete() {
                continue;
            }
            if ues.iter().any(|owner| self.slots[*owner as usize].ran.is_some()) {
                if let Some(assoc) = self.links[index].associations[0].assoc {
                    self.end_association(assoc, (index, 0), "the node has restarted", endpoint);
                }
                continue;
            }
            for owner in ues {
                self.slots[owner as usize].flags |= flag::LOST;
                self.settle(owner);
            }
        }
    }

    /// Begins the last procedure of each UE, without faults.
    pub(super) fn settle_ues(&mut self) {
        for owner in 0..self.slots.len() as u32 {
            let registered = self.slots[owner as usize].ue.mm() == MmState::Registered;
            if !registered {
                self.abandon(owner);
                self.slots[owner as usize].ue.detach();
            }
            let slot = &mut self.slots[owner as usize];
            (slot.life, slot.fate) = (SlotState::Running, ProcedureState::Ok);
            slot.script = if registered { SETTLE } else { REGISTER };
            // A UE without activity would count as one that arrives.
            slot.activity = Some(Activity::ServiceRequest);
            (slot.step, slot.attempts, slot.flags) = (0, 0, 0);
            (slot.served, slot.fresh) = (false, false);
            (slot.times.born_us, slot.times.sent_us) = (self.now_us, self.now_us);
            self.active += 1;
            self.advance(owner, None);
        }
    }

    /// Records what each UE has.
    pub(super) fn record_ues(&mut self) {
        let unsettled = self.slots.iter().filter(|slot| slot.life != SlotState::Free).count();
        let report = self.stats.report.chaos.get_or_insert_default();
        report.unsettled += unsettled as u64;
        report.ues.extend(self.slots.iter().map(|slot| {
            let active = slot.ue.sessions().iter().filter(|session| session.state == SessionState::Active);
            let session = |session: &crate::ue::Session| SessionAtEnd { id: session.psi, ipv4: session.address.ipv4 };
            let mut sessions: Vec<_> = active.map(session).collect();
            sessions.sort();
            UeAtEnd {
                supi: slot.ue.usim().supi().reveal(),
                registered: slot.ue.mm() == MmState::Registered,
                tmsi: slot.ue.guti().map(|guti| guti.tmsi.0),
                sessions,
            }
        }));
    }
}
