//! Execution of a UE's script: start, completion and failure of steps.

use super::chaos::Delivery;
use super::slot::{ProcedureState, SlotState, flag};
use super::timers::Kind;
use super::worker::Worker;
use crate::dialect::{Establishment, ReleaseReason, TargetBehaviour};
use crate::mix::{Activity, Steady};
use crate::options::{Options, Retry};
use crate::rat::Rat;
use crate::report::{Procedure, Times};
use crate::scenario::Step;
use crate::ue::{CommandError, Event, Fault, MmState, PowerSaving, Registration, Service};
use std::sync::atomic::Ordering;
use std::time::Duration;
use vireo_types::Tmsi;

/// 5GMM cause #22, congestion (TS 24.501 9.11.3.2).
const CONGESTION: u8 = 22;

/// A T3346 value longer than this counts as a refusal.
const LONGEST_BACK_OFF_S: u32 = 60;

/// Time after which a gNB requests the release of a UE that the core should have released itself.
const RELEASE_AGAIN_US: u64 = 1_000_000;

/// Far longer than the skew between two associations.
const BREATH_US: u64 = 50_000;

/// Duration of [`Step::Pause`].
const PAUSE_US: u64 = 100_000;

/// Delay by which the active time of a UE has passed at the core, too.
const ASLEEP_US: u64 = 500_000;

/// Time limit for the release of a UE that backs off.
const RELEASE_US: u64 = 100_000;

/// Delay of the paging trigger packet, so that the user plane knows that the UE is idle.
const PROVOKE_FIRST_US: u64 = 100_000;

/// Returns true if a UE waits for T3346 with this value. Without retries, the step must end within
/// the time limit of a procedure.
fn waits_for(options: &Options, wait_s: u32) -> bool {
    let is_in_time = Duration::from_secs(u64::from(wait_s)) <= options.timeout;
    wait_s <= LONGEST_BACK_OFF_S && (is_in_time || options.retry != Retry::Never)
}

impl Worker<'_> {
    pub(super) fn step(&self, owner: u32) -> Option<Step> {
        let slot = &self.slots[owner as usize];
        slot.script.get(usize::from(slot.step)).copied()
    }

    /// Starts steps until one has to wait. The first step may have been due earlier.
    pub(super) fn advance(&mut self, owner: u32, due_us: Option<u64>) {
        let mut due_us = due_us;
        while self.slots[owner as usize].life == SlotState::Running {
            let Some(step) = self.step(owner) else { return self.finish(owner) };
            let slot = &mut self.slots[owner as usize];
            // The service request of the next step answers a page that ended this one early.
            slot.flags &= match step {
                Step::Service => flag::PAGED,
                Step::Idle => 0,
                Step::Rest => flag::UPDATED | flag::CAPABLE | flag::LOCATED,
                Step::XnHandover | Step::N2Handover => flag::UPDATED | flag::CAPABLE | flag::RENEWED,
                _ => flag::UPDATED | flag::CAPABLE | flag::LOCATED | flag::RENEWED,
            };
            slot.sequence = slot.sequence.wrapping_add(1);
            (slot.times.step_us, slot.times.began_us) = (due_us.unwrap_or(self.now_us), self.now_us);
            self.start(owner, step);
            if !self.is_step_over(owner) {
                // Resting steps wait for no answer.
                if !matches!(
                    step,
                    Step::Rest | Step::Pause | Step::Dwell | Step::Breathe | Step::Sleep | Step::AwaitRestart
                ) {
                    let slot = &self.slots[owner as usize];
                    let deadline = self.now_us + self.response_timeout(owner, step).as_micros() as u64;
                    self.timers.set(deadline, owner, slot.sequence, Kind::Guard);
                }
                return;
            }
            // Steps without duration pass their intended start time to the next step.
            if !matches!(step, Step::Connect | Step::Breathe | Step::Roam | Step::Data | Step::Repeat { .. }) {
                due_us = None;
            }
            self.complete(owner);
        }
    }

    /// Advances the script if the current step is over.
    pub(super) fn settle(&mut self, owner: u32) {
        let slot = &self.slots[owner as usize];
        if slot.life == SlotState::Running && !slot.has(flag::RESUMING) && self.is_step_over(owner) {
            self.complete(owner);
            self.advance(owner, None);
        }
    }

    fn start(&mut self, owner: u32, step: Step) {
        self.out.clear();
        let has_data = step == Step::Data && self.data(owner).echoes > 0;
        let options = self.options;
        let slot = &mut self.slots[owner as usize];
        let paged = slot.has(flag::PAGED);
        let ue = &mut slot.ue;
        let signalling = Establishment::Signalling;
        let (commanded, cause) = match step {
            Step::Register(registration) => {
                slot.times.registration_us = Some((slot.times.step_us, slot.times.began_us));
                (ue.register(options, registration, &mut self.out), signalling)
            }
            Step::RefusedModification { psi, .. } => (ue.request_modification(psi, &mut self.out), signalling),
            Step::RejectedRegistration { .. } => (ue.register(options, Registration::Fresh, &mut self.out), signalling),
            Step::RejectedService { .. } => (ue.service_request(Service::Data, &mut self.out), Establishment::Data),
            Step::RegisterWith(kind) => {
                slot.times.registration_us = Some((slot.times.step_us, slot.times.began_us));
                (ue.register_with(options, Registration::Fresh, kind, &mut self.out), signalling)
            }
            Step::Faulty(fault) => {
                ue.inject(fault);
                if matches!(fault, Fault::WrongResponse | Fault::WrongEapMac | Fault::EapClientError) {
                    slot.flags |= flag::FAULTED;
                }
                let known = fault == Fault::WrongMac;
                let registration = if known { Registration::Initial } else { Registration::Fresh };
                (ue.register(options, registration, &mut self.out), signalling)
            }
            Step::Establish { psi, kind } => (ue.establish(options, psi, kind, &mut self.out), signalling),
            Step::EstablishAs { psi, variant } | Step::Refused { psi, variant, .. } => {
                (ue.establish_as(options, psi, variant, &mut self.out), signalling)
            }
            Step::Release { psi } => (ue.release(psi, &mut self.out), signalling),
            Step::Service if paged => (ue.service_request(Service::Paged, &mut self.out), Establishment::Paged),
            Step::Service => (ue.service_request(Service::Data, &mut self.out), Establishment::Data),
            Step::Connect if slot.ran.is_some() => return,
            Step::Connect => (ue.service_request(Service::Data, &mut self.out), Establishment::Data),
            Step::Deregister => (ue.deregister(options, false, &mut self.out), signalling),
            Step::SwitchOff => (ue.deregister(options, true, &mut self.out), signalling),
            Step::Leave if ue.mm() == MmState::Registered => (ue.deregister(options, true, &mut self.out), signalling),
            Step::Idle => return self.request_release(owner, ReleaseReason::Inactivity),
            Step::Rest => {
                let pause = self.now_us + self.options.idle.as_micros() as u64;
                return self.timers.set(pause, owner, slot.sequence, Kind::Pause);
            }
            Step::Pause => return self.timers.set(self.now_us + PAUSE_US, owner, slot.sequence, Kind::Pause),
            Step::Dwell | Step::Released => {
                let group = self.options.steady.as_ref().map(|steady| &steady.groups[usize::from(slot.group)]);
                let dwell = group.map_or(self.options.idle, |group| group.dwell);
                let pause = if step == Step::Dwell { dwell.as_micros() as u64 } else { RELEASE_AGAIN_US };
                if pause > 0 {
                    return self.timers.set(self.now_us + pause, owner, slot.sequence, Kind::Pause);
                }
                return slot.flags |= flag::PAUSED;
            }
            Step::Breathe if std::mem::take(&mut slot.fresh) => {
                return self.timers.set(self.now_us + BREATH_US, owner, slot.sequence, Kind::Pause);
            }
            Step::Breathe => return slot.flags |= flag::PAUSED,
            Step::Data if !has_data => return,
            Step::Traffic | Step::RoutedTraffic | Step::Data => return self.start_traffic(owner),
            Step::AwaitPage => {
                let soon = self.now_us + PROVOKE_FIRST_US;
                return self.timers.set(soon, owner, slot.sequence, Kind::Pause);
            }
            Step::RequestSaving(saving) => return ue.request_saving(saving),
            Step::RequireEap => return ue.require_eap(),
            Step::Sleep => {
                let asleep = self.now_us + PowerSaving::ACTIVE_S * 1_000_000 + ASLEEP_US;
                return self.timers.set(asleep, owner, slot.sequence, Kind::Pause);
            }
            Step::LoseTunnel => return self.lose_tunnel(owner),
            Step::SecondaryNode | Step::DropSession { .. } | Step::TransferConfiguration | Step::ReportCapability => {
                return self.change(owner, step);
            }
            Step::Reset => return self.reset_connection(owner),
            Step::Roam => return self.roam(owner),
            Step::ChangeRat => return self.change_rat(owner),
            Step::XnHandover => return self.xn_handover(owner),
            Step::N2Handover | Step::CancelledHandover => return self.n2_handover(owner, TargetBehaviour::Admits),
            Step::RefusedHandover => return self.n2_handover(owner, TargetBehaviour::Refuses),
            Step::SystemHandover | Step::CancelledSystemHandover => {
                return self.system_handover(owner, TargetBehaviour::Admits);
            }
            Step::RefusedSystemHandover => return self.system_handover(owner, TargetBehaviour::Refuses),
            Step::UnknownSystemTarget => return self.system_handover(owner, TargetBehaviour::Unknown),
            Step::StartPings => return self.start_pings(owner),
            Step::StopPings => return self.stop_pings(owner),
            Step::Leave
            | Step::AwaitDetach
            | Step::AwaitRestart
            | Step::AwaitUpdate
            | Step::AwaitKeys
            | Step::AwaitCapability
            | Step::AwaitLocation
            | Step::Repeat { .. } => return,
        };
        self.on_command_sent(owner, commanded, cause);
    }

    pub(super) fn on_command_sent(&mut self, owner: u32, commanded: Result<(), CommandError>, cause: Establishment) {
        match commanded {
            Ok(()) => self.transmit(owner, Some(cause)),
            Err(error) => self.fail(owner, error.to_string()),
        }
    }

    /// Passes the UE's messages to its node, then handles the UE's events. With `cause` the
    /// messages may open a connection.
    fn transmit(&mut self, owner: u32, cause: Option<Establishment>) {
        let deliveries: Vec<Delivery> = match self.has_chaos() {
            true => (0..self.out.messages().count()).map(|_| self.deliver(true)).collect(),
            false => Vec::new(),
        };
        let mut deliveries = deliveries.into_iter();
        let slot = &mut self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let mut trouble = None;
        for nas in self.out.messages() {
            let delivery = deliveries.next().unwrap_or(Delivery::Once);
            let sent = match (slot.ran, cause) {
                (Some(_), _) if delivery == Delivery::Lost => Ok(()),
                (Some(ran), _) => {
                    let mut send = || link.node.uplink_nas(ran, nas, &mut link.outbox);
                    if delivery == Delivery::Twice { send().and_then(|()| send()) } else { send() }
                }
                (None, Some(cause)) if link.node.is_up() => {
                    let opened = link.node.initial_ue(owner, nas, slot.ue.access_guti(), cause, &mut link.outbox);
                    opened.map(|ran| slot.ran = Some(ran))
                }
                // No cell, or the connection is gone.
                (None, _) => Ok(()),
            };
            trouble = trouble.or(sent.err());
        }
        let mut events = std::mem::take(&mut self.out.events);
        for event in events.drain(..) {
            self.on_ue_event(owner, event);
        }
        self.out.events = events;
        if let Some(error) = trouble {
            self.fail(owner, error.to_string());
        }
    }

    pub(super) fn on_nas(&mut self, owner: u32, nas: &[u8]) {
        if self.deliver(false) == Delivery::Lost {
            return;
        }
        self.out.clear();
        self.slots[owner as usize].ue.receive(self.options, nas, &mut self.out);
        self.transmit(owner, None);
        self.settle(owner);
    }

    pub(super) fn on_key(&mut self, owner: u32, key: &[u8; 32]) {
        self.out.clear();
        self.slots[owner as usize].ue.check_access_key(key, &mut self.out);
        self.transmit(owner, None);
    }

    pub(super) fn on_next_hop(&mut self, owner: u32, key: &[u8; 32], chaining: u8) {
        self.out.clear();
        self.slots[owner as usize].ue.check_next_hop(key, chaining, &mut self.out);
        self.transmit(owner, None);
    }

    fn on_ue_event(&mut self, owner: u32, event: Event) {
        let step = self.step(owner);
        let slot = &mut self.slots[owner as usize];
        match event {
            Event::Registered { .. } => {
                slot.flags |= flag::REGISTERED;
                // A UE that moves is registered already.
                if !matches!(step, Some(Step::ChangeRat | Step::SystemHandover)) {
                    self.stats.report.registered += 1;
                    self.counters.registered.fetch_add(1, Ordering::Relaxed);
                }
                self.list(owner);
            }
            Event::SessionUp { .. } => {
                self.stats.report.sessions += 1;
                self.counters.sessions.fetch_add(1, Ordering::Relaxed);
            }
            Event::ServiceAccepted => {
                slot.flags |= flag::SERVED;
                self.stats.report.service_requests += 1;
            }
            Event::Deregistered => {
                slot.flags |= flag::DEREGISTERED;
                self.stats.report.deregistered += 1;
                if step == Some(Step::Deregister) {
                    self.record(owner, Procedure::Deregistration);
                }
            }
            Event::AuthenticationFailed { .. } => slot.flags |= flag::FAULTED,
            Event::RegistrationRejected { cause, retry_after_s } => self.on_rejected(owner, cause, retry_after_s),
            Event::AuthenticationRejected => {
                slot.flags |= flag::REJECTED;
                if !matches!(step, Some(Step::Faulty(_))) {
                    self.fail(owner, "authentication rejected".into());
                }
            }
            Event::SessionRejected { cause, .. } if step.is_some_and(|step| step.expects(cause)) => {
                slot.flags |= flag::REJECTED;
            }
            Event::SessionRejected { cause, .. } => self.fail(owner, format!("PDU session rejected: {cause}")),
            Event::ServiceRejected { cause, .. } if step == Some(Step::RejectedService { cause }) => {
                slot.flags |= flag::REJECTED;
            }
            // TS 24.501 5.6.1.5: the UE stays registered and waits.
            Event::ServiceRejected { cause: CONGESTION, retry_after_s: Some(wait_s) }
                if waits_for(self.options, wait_s) =>
            {
                self.back_off(owner, wait_s);
            }
            Event::ServiceRejected { cause, .. } => {
                let mm = slot.ue.mm_name();
                self.fail(owner, format!("service rejected: {mm} cause #{cause}"));
            }
            Event::DeregisteredByNetwork { .. } if step == Some(Step::AwaitDetach) => {
                slot.flags |= flag::DEREGISTERED;
                self.stats.report.deregistered += 1;
            }
            Event::DeregisteredByNetwork { cause, .. } => {
                let mm = slot.ue.mm_name();
                self.fail(owner, format!("the network deregistered the UE: {mm} cause {cause:?}"));
            }
            Event::Status(cause) => self.fail(owner, format!("status message: {cause}")),
            Event::Violation(violation) => {
                self.stats.violation(violation.to_string());
                self.fail(owner, violation.to_string());
            }
            Event::ConfigurationUpdated => {
                slot.flags |= flag::UPDATED;
                self.list(owner);
            }
            Event::PowerSavingRefused => self.fail(owner, "power saving is not granted as requested".into()),
            Event::Secured { .. } if step == Some(Step::Faulty(Fault::WrongMac)) => {
                slot.flags |= flag::FAULTED;
            }
            Event::Data { psi } => {
                if let Some(packet) = self.out.packets.pop() {
                    self.on_packet_over_nas(owner, psi, &packet);
                }
            }
            Event::Secured { .. } => slot.flags |= flag::RENEWED,
            Event::SessionReleased { .. } => {}
        }
    }

    /// Lists the UE under its 5G-TMSI or M-TMSI for paging. Most steady loads do not page UEs.
    fn list(&mut self, owner: u32) {
        let is_paged = self.options.steady.as_ref().is_none_or(Steady::pages);
        let slot = &mut self.slots[owner as usize];
        let Some(guti) = slot.ue.guti().filter(|_| is_paged) else { return };
        let (rat, before) = (slot.ue.rat(), slot.tmsi.replace(guti.tmsi));
        if before != Some(guti.tmsi) {
            before.and_then(|before| self.listed.remove(&(rat, before.0)));
            self.listed.insert((rat, guti.tmsi.0), owner);
        }
    }

    fn on_rejected(&mut self, owner: u32, cause: u8, retry_after_s: Option<u32>) {
        let step = self.step(owner);
        let faulty = matches!(step, Some(Step::Faulty(_))) || step == Some(Step::RejectedRegistration { cause });
        let is_waiting = retry_after_s.is_some_and(|wait_s| waits_for(self.options, wait_s));
        let slot = &mut self.slots[owner as usize];
        match retry_after_s {
            _ if faulty => slot.flags |= flag::REJECTED,
            Some(wait_s) if is_waiting => self.back_off(owner, wait_s),
            _ => {
                let mm = slot.ue.mm_name();
                self.fail(owner, format!("registration rejected: {mm} cause #{cause}"));
            }
        }
    }

    /// Starts T3346 (TS 24.501 5.3.9): no signalling until it expires; then the step starts again.
    fn back_off(&mut self, owner: u32, wait_s: u32) {
        self.stats.report.back_offs += 1;
        let slot = &mut self.slots[owner as usize];
        slot.flags |= flag::BACKING_OFF;
        slot.sequence = slot.sequence.wrapping_add(1);
        let over = self.now_us + u64::from(wait_s) * 1_000_000;
        self.timers.set(over, owner, slot.sequence, Kind::Pause);
    }

    pub(super) fn on_pause_over(&mut self, owner: u32) {
        if matches!(self.step(owner), Some(Step::AwaitPage | Step::LoseTunnel)) {
            return self.trigger_paging(owner);
        }
        if self.step(owner) == Some(Step::Sleep) && !self.slots[owner as usize].has(flag::CALLED) {
            return self.trigger_paging(owner);
        }
        if self.step(owner) == Some(Step::Released) {
            return self.request_release(owner, ReleaseReason::Inactivity);
        }
        let slot = &mut self.slots[owner as usize];
        if !slot.has(flag::BACKING_OFF) {
            slot.flags |= flag::PAUSED;
            return self.settle(owner);
        }
        let Some(ran) = slot.ran else {
            let began_us = slot.times.step_us;
            return self.advance(owner, Some(began_us));
        };
        // The network should have released the refused UE (TS 24.501 5.5.1.2.5).
        if slot.has(flag::RELEASING) {
            self.links[usize::from(slot.link)].node.forget(ran);
            slot.ran = None;
            slot.ue.connection_released();
        } else {
            slot.flags |= flag::RELEASING;
            self.disconnect(owner);
        }
        let sequence = self.slots[owner as usize].sequence;
        self.timers.set(self.now_us + RELEASE_US, owner, sequence, Kind::Pause);
    }

    /// Handles a page, with the parameters of extended DRX that it has.
    pub(super) fn on_paging(&mut self, rat: Rat, tmsi: Tmsi, drx: Option<u8>) {
        let Some(owner) = self.listed.get(&(rat, tmsi.0)).copied() else { return };
        let idle = self.slots[owner as usize].ran.is_none();
        if idle && self.step(owner) == Some(Step::Sleep) {
            return self.fail(owner, "the UE was paged while it sleeps".into());
        }
        let granted = self.slots[owner as usize].ue.extended_drx();
        if idle && drx != granted {
            return self.fail(owner, format!("the page has extended DRX {drx:02x?}; the UE has {granted:02x?}"));
        }
        if idle && matches!(self.step(owner), Some(Step::Rest | Step::Pause | Step::AwaitPage)) {
            self.slots[owner as usize].flags |= flag::PAUSED | flag::PAGED;
            self.settle(owner);
        }
    }

    pub(super) fn on_released(&mut self, owner: u32, why: impl FnOnce() -> String) {
        let slot = &mut self.slots[owner as usize];
        slot.ran = None;
        slot.ue.connection_released();
        if slot.life != SlotState::Running || slot.has(flag::BACKING_OFF) {
            return;
        }
        match self.step(owner) {
            Some(
                Step::Idle | Step::Leave | Step::Deregister | Step::SwitchOff | Step::Released | Step::AwaitDetach,
            ) => self.settle(owner),
            Some(Step::Faulty(_) | Step::RejectedRegistration { .. } | Step::RejectedService { .. })
                if self.slots[owner as usize].has(flag::REJECTED) =>
            {
                self.settle(owner);
            }
            // A core releases a UE of EPS whose tunnel is lost.
            Some(Step::LoseTunnel) if self.slots[owner as usize].ue.rat() == Rat::Eps => {
                self.slots[owner as usize].flags |= flag::LOST;
                self.settle(owner);
            }
            Some(Step::AwaitRestart) => {}
            // The core ends the connection of the echo that triggers paging.
            Some(Step::AwaitPage) if self.slots[owner as usize].ue.is_over_nas() => {}
            Some(Step::Dwell) => {
                self.slots[owner as usize].flags |= flag::PAUSED;
                self.settle(owner);
            }
            // The UE waits for the timeout and retries.
            _ if self.steady.is_some() && self.options.retry != Retry::Never => {}
            _ => {
                let why = why();
                self.fail(owner, why);
            }
        }
    }

    pub(super) fn on_timeout(&mut self, owner: u32) {
        let what = match self.step(owner) {
            Some(Step::Register(_) | Step::RegisterWith(_) | Step::Faulty(_)) => "registration",
            Some(Step::Establish { .. } | Step::EstablishAs { .. }) => "PDU session establishment",
            Some(Step::Refused { .. } | Step::RefusedModification { .. }) => "refusal of the PDU session",
            Some(Step::RejectedRegistration { .. } | Step::RejectedService { .. }) => "rejection",
            Some(Step::AwaitCapability) => "return of the radio capability",
            Some(Step::AwaitLocation) => "request for location reports",
            Some(Step::Release { .. }) => "PDU session release",
            Some(Step::Service | Step::Connect) => "service request",
            Some(Step::Deregister | Step::SwitchOff | Step::Leave) => "deregistration",
            Some(Step::Idle | Step::Released) => "release of the UE context",
            Some(Step::Traffic | Step::RoutedTraffic | Step::Data) => "traffic",
            Some(Step::AwaitPage) => "paging",
            Some(Step::Sleep) => "sleep",
            Some(Step::AwaitDetach) => "detach by the network",
            Some(Step::AwaitUpdate) => "configuration update or GUTI reallocation",
            Some(Step::AwaitKeys) => "authentication by the network",
            Some(Step::LoseTunnel) => "release of the lost tunnel and set-up of another",
            Some(Step::SecondaryNode) => "modification of the tunnel",
            Some(Step::DropSession { .. }) => "release of the session that the gNB has dropped",
            Some(Step::TransferConfiguration) => "configuration transfer",
            Some(Step::XnHandover | Step::N2Handover) => "handover",
            Some(Step::SystemHandover) => "handover to the other system",
            Some(Step::ChangeRat) => "registration in the other system",
            Some(Step::RefusedHandover | Step::RefusedSystemHandover | Step::UnknownSystemTarget) => {
                "refusal of the handover"
            }
            Some(Step::CancelledHandover | Step::CancelledSystemHandover) => "cancellation of the handover",
            _ => "step",
        };
        let timeout = self.step(owner).map_or(self.options.timeout, |step| self.response_timeout(owner, step));
        let what = format!("{what} not done within {timeout:?}");
        if self.steady.is_some() { self.on_unanswered(owner, what) } else { self.fail(owner, what) }
    }

    /// Returns true if the current step is complete.
    fn is_step_over(&self, owner: u32) -> bool {
        let slot = &self.slots[owner as usize];
        let tunnels = slot.ran.map_or(&[][..], |ran| self.links[usize::from(slot.link)].node.tunnels(ran));
        match self.step(owner) {
            None => false,
            Some(Step::Register(registration)) => {
                slot.has(flag::REGISTERED) && slot.ue.is_registered(registration, tunnels)
            }
            Some(Step::ChangeRat) => slot.has(flag::REGISTERED) && slot.ue.has_tunnels(tunnels),
            Some(Step::RegisterWith(_)) => {
                slot.has(flag::REGISTERED) && slot.ue.is_registered(Registration::Fresh, tunnels)
            }
            Some(Step::Faulty(_)) => slot.has(flag::FAULTED) && slot.has(flag::REGISTERED | flag::REJECTED),
            Some(Step::Establish { psi, .. } | Step::EstablishAs { psi, .. }) => slot.ue.is_established(psi, tunnels),
            Some(Step::Refused { .. } | Step::RefusedModification { .. }) => slot.has(flag::REJECTED),
            Some(Step::RejectedRegistration { .. } | Step::RejectedService { .. }) => {
                slot.has(flag::REJECTED) && slot.ran.is_none()
            }
            Some(Step::Release { psi } | Step::DropSession { psi }) => slot.ue.is_released(psi, tunnels),
            Some(Step::Service) => slot.has(flag::SERVED) && slot.ue.has_tunnels(tunnels),
            Some(Step::Connect) => {
                slot.ran.is_some() && slot.ue.mm() == MmState::Registered && slot.ue.has_tunnels(tunnels)
            }
            Some(Step::Idle | Step::Released | Step::Reset) => slot.ran.is_none(),
            Some(Step::Deregister | Step::SwitchOff | Step::Leave) => {
                slot.ran.is_none() && slot.ue.mm() == MmState::Deregistered
            }
            Some(Step::Rest | Step::Pause | Step::Dwell | Step::Breathe | Step::Sleep) => slot.has(flag::PAUSED),
            Some(Step::RequestSaving(_) | Step::RequireEap | Step::ReportCapability) => true,
            Some(Step::AwaitCapability) => slot.has(flag::CAPABLE),
            Some(Step::AwaitLocation) => slot.has(flag::LOCATED),
            Some(Step::AwaitPage) => slot.has(flag::PAGED),
            Some(Step::AwaitDetach) => slot.has(flag::DEREGISTERED) && slot.ran.is_none(),
            Some(Step::AwaitRestart) => slot.has(flag::LOST),
            Some(Step::AwaitUpdate) => slot.has(flag::UPDATED),
            Some(Step::AwaitKeys) => slot.has(flag::RENEWED),
            Some(Step::LoseTunnel) => slot.has(flag::LOST) && slot.ran.is_none_or(|_| slot.ue.has_tunnels(tunnels)),
            Some(Step::Roam) => true,
            Some(
                Step::XnHandover
                | Step::SecondaryNode
                | Step::TransferConfiguration
                | Step::N2Handover
                | Step::RefusedHandover
                | Step::CancelledHandover
                | Step::RefusedSystemHandover
                | Step::UnknownSystemTarget
                | Step::CancelledSystemHandover,
            ) => slot.has(flag::MOVED),
            Some(Step::SystemHandover) => {
                slot.has(flag::MOVED) && slot.has(flag::REGISTERED) && slot.ue.has_tunnels(tunnels)
            }
            Some(Step::StartPings) => true,
            Some(Step::StopPings) => slot.has(flag::PAUSED) || !slot.has_open_pings(),
            Some(Step::Traffic | Step::RoutedTraffic | Step::Data) => slot.flows.is_empty(),
            Some(Step::Repeat { .. }) => true,
        }
    }

    fn record(&mut self, owner: u32, procedure: Procedure) {
        let slot = &self.slots[owner as usize];
        let point = slot.activity.is_some_and(|activity| activity.procedure() == procedure);
        // A retried procedure counts from its first attempt.
        let again = slot.attempts > 0 && point && slot.fate == ProcedureState::Ok;
        let times = if again { slot.whole(self.now_us) } else { slot.current(self.now_us) };
        let well = slot.fate == ProcedureState::Ok;
        let slot = &mut self.slots[owner as usize];
        let first = point && !slot.served;
        slot.served |= point;
        self.stats.record(procedure, times);
        if self.steady.is_some() && first && well {
            self.stats.count_in_time(times);
        }
        // In a steady load only the measured procedure of the arrival counts.
        if self.steady.is_none() || point && well {
            self.stats.plot(procedure, times);
        }
    }

    /// Records the duration of the completed step and moves to the next one.
    fn complete(&mut self, owner: u32) {
        match self.step(owner) {
            Some(Step::Register(Registration::Periodic | Registration::PeriodicFollowOn)) => {
                self.record(owner, Procedure::PeriodicUpdate);
            }
            Some(Step::Register(Registration::Mobility)) => self.record(owner, Procedure::MobilityUpdate),
            Some(Step::ChangeRat) => {
                self.n3.counts.moves.idle += 1;
                self.record(owner, Procedure::MobilityUpdate)
            }
            Some(Step::SystemHandover) => {
                self.n3.counts.moves.connected += 1;
                self.record(owner, Procedure::SystemHandover);
            }
            Some(Step::StopPings) => self.end_pings(owner),
            Some(Step::Register(_) | Step::RegisterWith(_)) => {
                self.record(owner, Procedure::Registration);
                if self.slots[owner as usize].ue.attaches_with_session() {
                    self.record_session_after_registration(owner);
                }
            }
            // The attach of an EPS UE has established this session.
            Some(Step::Establish { psi, .. }) if self.slots[owner as usize].ue.attaches_with(psi) => {}
            Some(Step::Establish { .. }) => {
                self.record(owner, Procedure::Session);
                self.record_session_after_registration(owner);
            }
            Some(Step::Service) => self.record(owner, Procedure::ServiceRequest),
            Some(Step::Connect) if self.slots[owner as usize].has(flag::SERVED) => {
                self.record(owner, Procedure::ServiceRequest);
                self.slots[owner as usize].fresh = true;
            }
            Some(Step::XnHandover) => self.record(owner, Procedure::XnHandover),
            Some(Step::N2Handover) => self.record(owner, Procedure::N2Handover),
            Some(Step::Data) if self.slots[owner as usize].activity == Some(Activity::Data) => {
                self.record(owner, Procedure::Data);
                let last = std::mem::replace(&mut self.slots[owner as usize].times.data_us, self.now_us);
                let gap = if last > 0 { self.now_us.saturating_sub(last) } else { 0 };
                self.n3.counts.longest_gap_us = self.n3.counts.longest_gap_us.max(gap);
            }
            Some(Step::AwaitPage) => self.record(owner, Procedure::Paging),
            Some(Step::Idle) => self.record(owner, Procedure::Release),
            Some(Step::Release { .. }) => self.record(owner, Procedure::SessionRelease),
            Some(Step::Deregister | Step::SwitchOff) => self.record(owner, Procedure::Departure),
            Some(Step::Repeat { to }) => {
                let again = self.slots[owner as usize].round + 1 < self.options.rounds && !self.is_over();
                let slot = &mut self.slots[owner as usize];
                if again {
                    slot.round += 1;
                    slot.step = to;
                    return;
                }
                slot.round = 0;
            }
            _ => {}
        }
        let slot = &mut self.slots[owner as usize];
        slot.step += 1;
    }

    /// Records the time from the last registration to its first session.
    fn record_session_after_registration(&mut self, owner: u32) {
        if let Some((intended_us, began_us)) = self.slots[owner as usize].times.registration_us.take() {
            let times = Times { intended_us, began_us, ended_us: self.now_us };
            self.stats.record(Procedure::RegistrationAndSession, times);
        }
    }

    fn finish(&mut self, owner: u32) {
        if self.steady.is_some() {
            return self.on_script_end(owner);
        }
        self.end(owner, SlotState::Done);
        self.stats.report.succeeded += 1;
    }

    pub(super) fn fail(&mut self, owner: u32, what: String) {
        if self.steady.is_some() {
            return self.on_procedure_failed(owner, what);
        }
        self.fail_ue(owner, what);
    }

    /// Ends the script of the UE as failed.
    pub(super) fn fail_ue(&mut self, owner: u32, what: String) {
        if self.slots[owner as usize].life != SlotState::Running {
            return;
        }
        self.end(owner, SlotState::Failed);
        self.stats.fail(what);
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        self.disconnect(owner);
    }

    fn end(&mut self, owner: u32, life: SlotState) {
        let slot = &mut self.slots[owner as usize];
        slot.life = life;
        slot.sequence = slot.sequence.wrapping_add(1);
        slot.flows = Vec::new();
        self.active -= 1;
        // In a steady load the UE was counted when it first reached its rest state.
        if slot.activity.is_none() {
            let born = slot.times.born_us;
            self.stats.add_lifetime(born, self.now_us);
            self.counters.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Releases the UE's connection, if it has one.
    fn disconnect(&mut self, owner: u32) {
        let slot = &mut self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let Some(ran) = slot.ran else { return };
        if link.node.request_release(ran, ReleaseReason::RadioLinkLost, &mut link.outbox).is_err() {
            // The core never answered, so it does not know the UE.
            link.node.forget(ran);
            slot.ran = None;
            slot.ue.connection_released();
        }
    }

    /// Ends the UE's connection without its release: the node resets it.
    fn reset_connection(&mut self, owner: u32) {
        let slot = &mut self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let Some(ran) = slot.ran.take() else { return };
        slot.ue.connection_released();
        if let Err(error) = link.node.reset(Some(&[ran]), &mut link.outbox) {
            self.fail(owner, error.to_string());
        }
    }

    fn request_release(&mut self, owner: u32, reason: ReleaseReason) {
        let slot = &mut self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let Some(ran) = slot.ran else { return };
        let paged = matches!(slot.script.get(usize::from(slot.step) + 1), Some(Step::AwaitPage | Step::Sleep));
        if let (true, Some(tunnel)) = (paged, link.node.tunnels(ran).first()) {
            self.lost_tunnels.by_ue.insert(owner, (link.node.n3(), *tunnel));
        }
        if let Err(error) = link.node.request_release(ran, reason, &mut link.outbox) {
            self.fail(owner, error.to_string());
        }
    }
}
