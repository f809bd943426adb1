//! Retries of a UE in a steady load.
//!
//! After a missing or wrong answer the UE repeats its script or returns to its rest state. It
//! registers again if the network has lost its registration.

use super::slot::{ProcedureState, SlotState, flag};
use super::timers::Kind;
use super::worker::Worker;
use crate::mix::{Activity, RestState, SECOND_PSI};
use crate::options::Retry;
use crate::rat::Rat;
use crate::scenario::Step;
use crate::ue::{MmState, Registration};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of attempts after which a UE gives up (TS 24.501 5.5.1.2.7, 5.6.1.7, 6.4.1.6).
const ATTEMPTS: u8 = 5;
/// The same for the first registration of a UE with unlimited retries.
const FIRST_ATTEMPTS: u8 = 30;

/// Timers of TS 24.501 10.2 and 10.3.
const T3510: Duration = Duration::from_secs(15);
const T3517: Duration = Duration::from_secs(15);
const T3521: Duration = Duration::from_secs(15);
const T3580: Duration = Duration::from_secs(16);
const T3582: Duration = Duration::from_secs(16);
/// Timers of TS 24.301 10.2 and 10.3 that differ from those of 5G.
const T3417: Duration = Duration::from_secs(5);
const T3482: Duration = Duration::from_secs(8);
const T3492: Duration = Duration::from_secs(6);
/// Longest cycle of extended DRX of the UEs, in which a page waits for its window.
const CYCLE: Duration = Duration::from_millis(20_480);
/// The gNB's timeout for handovers and releases. It is not standardised.
const GNB: Duration = Duration::from_secs(5);

impl Worker<'_> {
    /// Returns the time to wait for the answer to a step.
    pub(super) fn response_timeout(&self, owner: u32, step: Step) -> Duration {
        if self.steady.is_none() {
            let has_window = step == Step::AwaitPage && self.slots[owner as usize].ue.extended_drx().is_some();
            return self.options.timeout + if has_window { CYCLE } else { Duration::ZERO };
        }
        match self.options.retry {
            Retry::Never => self.options.timeout,
            Retry::After { retry, .. } if !self.begins(owner, step) => retry,
            Retry::After { .. } | Retry::Standard => {
                let is_eps = self.slots[owner as usize].ue.rat() == Rat::Eps;
                let by_rat = |nr, eps| if is_eps { eps } else { nr };
                match step {
                    Step::Register(_) | Step::RegisterWith(_) => T3510,
                    Step::Service | Step::Connect => by_rat(T3517, T3417),
                    Step::Deregister | Step::SwitchOff | Step::Leave => T3521,
                    Step::Establish { .. } => by_rat(T3580, T3482),
                    Step::Release { .. } => by_rat(T3582, T3492),
                    _ => GNB,
                }
            }
        }
    }

    /// Returns true if the UE registers, or establishes its session directly after registration.
    /// Only T3510 and T3580 repeat these steps, however slow the core is. A shorter timeout would
    /// add load to a slow core.
    fn begins(&self, owner: u32, step: Step) -> bool {
        let slot = &self.slots[owner as usize];
        let comes = slot.activity.is_none() || slot.fate == ProcedureState::Lost;
        matches!(step, Step::Register(_)) || comes && matches!(step, Step::Establish { .. })
    }

    /// Handles the expiry of the response timer in the current step of a steady load.
    pub(super) fn on_unanswered(&mut self, owner: u32, what: String) {
        if matches!(self.step(owner), Some(Step::Idle | Step::Released)) {
            // A gNB procedure: the gNB drops the UE and requests the release again.
            self.stats.report.steady.retries += 1;
            self.abandon(owner);
            return self.settle(owner);
        }
        let now_us = self.now_us;
        let slot = &mut self.slots[owner as usize];
        slot.attempts = slot.attempts.saturating_add(1);
        let waited = Duration::from_micros(now_us.saturating_sub(slot.times.sent_us));
        let arriving = slot.activity.is_none();
        let (attempts, fate) = (slot.attempts, slot.fate);
        match self.options.retry {
            Retry::Never => self.on_procedure_failed(owner, what),
            Retry::Standard if attempts >= ATTEMPTS => self.on_procedure_failed(owner, what),
            Retry::After { .. } if arriving && attempts >= FIRST_ATTEMPTS => self.on_procedure_failed(owner, what),
            // The timer of the attempt may expire slightly early.
            Retry::After { retry, reattach }
                if !arriving && fate == ProcedureState::Ok && waited + retry / 10 >= reattach =>
            {
                self.on_procedure_failure(owner, what);
                self.on_registration_lost(owner);
            }
            _ => self.repeat(owner),
        }
    }

    /// Starts the script again.
    fn repeat(&mut self, owner: u32) {
        self.stats.report.steady.retries += 1;
        self.abandon(owner);
        let slot = &mut self.slots[owner as usize];
        if matches!(slot.script.first(), Some(Step::Register(Registration::Fresh | Registration::Initial))) {
            slot.ue.detach();
        }
        if slot.activity == Some(Activity::Session) {
            slot.ue.forget_session(SECOND_PSI);
        }
        (slot.step, slot.flags) = (0, 0);
        self.advance(owner, None);
    }

    /// Handles a failed procedure: the UE returns to its rest state, by a new registration if
    /// necessary.
    pub(super) fn on_procedure_failed(&mut self, owner: u32, what: String) {
        let slot = &self.slots[owner as usize];
        if slot.life != SlotState::Running || slot.has(flag::RESUMING) {
            return;
        }
        let home = self.steady.as_ref().map_or(RestState::Off, |run| run.home(slot.group));
        match (slot.activity, slot.fate) {
            (None, _) => self.fail_ue(owner, what),
            (Some(_), ProcedureState::Lost) if slot.attempts < ATTEMPTS => {
                // The core refused the new registration; the UE retries later.
                self.stats.reason(what);
                let slot = &mut self.slots[owner as usize];
                slot.sequence = slot.sequence.wrapping_add(1);
                let (sequence, timeout) =
                    (slot.sequence, self.response_timeout(owner, Step::Register(Registration::Initial)));
                self.timers.set(self.now_us + timeout.as_micros() as u64, owner, sequence, Kind::Guard);
            }
            (Some(_), ProcedureState::Lost) => self.fail_ue(owner, what),
            (Some(_), ProcedureState::Failed) => {
                self.stats.reason(what);
                self.on_registration_lost(owner);
            }
            (Some(_), ProcedureState::Ok) => {
                let gone = slot.ue.mm() == MmState::Deregistered;
                self.on_procedure_failure(owner, what);
                if gone && home != RestState::Off {
                    return self.on_registration_lost(owner);
                }
                self.abandon(owner);
                self.slots[owner as usize].fate = ProcedureState::Failed;
                self.resume(owner, home.return_to());
            }
        }
    }

    fn on_procedure_failure(&mut self, owner: u32, what: String) {
        let slot = &self.slots[owner as usize];
        if let Some(activity) = slot.activity {
            self.stats.fail_procedure(activity.procedure(), slot.times.born_us);
        }
        self.stats.reason(what);
    }

    /// Counts the loss of the UE's registration.
    fn on_registration_lost(&mut self, owner: u32) {
        let slot = &self.slots[owner as usize];
        self.stats.record_loss(slot.activity.map(Activity::procedure), slot.times.born_us);
        self.counters.lost.fetch_add(1, Ordering::Relaxed);
        self.abandon(owner);
        let slot = &mut self.slots[owner as usize];
        slot.ue.detach();
        (slot.fate, slot.attempts) = (ProcedureState::Lost, 0);
        let home = self.steady.as_ref().map_or(RestState::Off, |run| run.home(self.slots[owner as usize].group));
        self.resume(owner, home.reattach());
    }

    /// Schedules another script for the next loop iteration, since the old script may still be in
    /// progress.
    fn resume(&mut self, owner: u32, script: &'static [Step]) {
        let slot = &mut self.slots[owner as usize];
        (slot.script, slot.step, slot.flags) = (script, 0, flag::RESUMING);
        slot.sequence = slot.sequence.wrapping_add(1);
        self.timers.set(self.now_us, owner, slot.sequence, Kind::Resume);
    }

    /// Releases the UE's NG connection locally. The gNB requests the release from the core as soon
    /// as possible.
    pub(super) fn abandon(&mut self, owner: u32) {
        let slot = &mut self.slots[owner as usize];
        // Also when the message found no cell and no connection exists.
        slot.ue.connection_released();
        let Some(ran) = slot.ran.take() else { return };
        let link = &mut self.links[usize::from(slot.link)];
        if let Err(error) = link.node.abandon(ran, &mut link.outbox) {
            self.stats.violation(format!("the gNB could not ask for a release: {error}"));
        }
    }
}
