//! Supervision of control planes (TS 29.244 6.2.2), and contested Node IDs.
//!
//! - A control plane is *silent* if it has answered a Heartbeat Request before, and then leaves
//!   several unanswered. Its sessions are kept for a time, in which it may return or another
//!   address may take over. Then they are removed.
//! - A control plane that has never answered is not supervised: some answer no heartbeats although
//!   they are alive.
//! - Any message from an address of the control plane shows that it is alive.

use super::associations::Setup;
use super::{Association, Line, Outgoing, Upf};
use crate::machine::settings::Timestamps;
use crate::machine::tables_access::TablesAccess;
use std::net::SocketAddr;
use tracing::{info, warn};
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{self, *};

/// Time within which the bound address of a Node ID must show that it is alive.
const CONTEST_TIMEOUT: Duration = Duration::from_millis(2_000);
/// Interval of Heartbeat Requests meanwhile.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Supervision state of a control plane.
#[derive(Debug)]
pub(crate) struct Supervision {
    /// Time of its last message.
    pub(crate) last_heard: Instant,
    /// True if it has ever answered a Heartbeat Request.
    pub(crate) answers: bool,
    /// Time since which it is silent.
    pub(crate) silent_since: Option<Instant>,
    /// Time of the next Heartbeat Request.
    next: Instant,
    /// Sequence number of the unanswered Heartbeat Request, and number of transmissions.
    unanswered: Option<(u32, u8)>,
}

impl Supervision {
    /// Creates the state of a control plane that has just sent a message.
    pub(crate) fn new(now: Instant) -> Self {
        Supervision { last_heard: now, answers: false, silent_since: None, next: now, unanswered: None }
    }

    /// Records a message. Returns true if the control plane was silent.
    pub(crate) fn on_message(&mut self, now: Instant) -> bool {
        self.last_heard = now;
        self.silent_since.take().is_some()
    }
}

/// Request of another address for the association of a Node ID.
#[derive(Debug)]
pub(crate) struct Contest {
    from: SocketAddr,
    sequence: u32,
    request: AssociationSetupRequest,
    since: Instant,
    next_probe: Instant,
}

impl Contest {
    pub(crate) fn new(from: SocketAddr, sequence: u32, request: AssociationSetupRequest, now: Instant) -> Self {
        Contest { from, sequence, request, since: now, next_probe: now }
    }
}

/// Action that is due for an association.
enum DueAction {
    Nothing,
    Probe,
    Release,
    Decide { dead: bool },
}

impl Upf {
    /// Records a message of this address.
    pub(crate) fn on_message_from(&mut self, from: SocketAddr, now: Instant) {
        for association in self.associations.values_mut().filter(|other| other.hosts.contains(&from.ip())) {
            if association.supervision.on_message(now)
                && let Some(suppressed) = self.lines.admit(Line::Back, from.ip(), now)
            {
                info!(control_plane = %from, suppressed, "control plane answers again");
            }
        }
    }

    /// Handles a Heartbeat Response.
    pub(crate) fn heartbeat_answered(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) {
        let asked = |association: &&mut Association| {
            let sequence = association.supervision.unanswered.map(|(sequence, _)| sequence);
            association.hosts.contains(&from.ip()) && sequence == Some(message.sequence())
        };
        let (Some(association), Ok(response)) =
            (self.associations.values_mut().find(asked), HeartbeatResponse::parse(message))
        else {
            self.stats.discarded += 1;
            return;
        };
        let supervision = &mut association.supervision;
        supervision.unanswered = None;
        supervision.next = supervision.last_heard + self.settings.heartbeat_interval().unwrap_or_default();
        if !std::mem::replace(&mut supervision.answers, true) {
            self.mark_node_changed();
        }
        self.heartbeat(from, response.recovery_time_stamp.0, now, plane);
    }

    /// Returns when [`Upf::supervise`] must be called before the next second.
    pub(crate) fn contest_deadline(&self) -> Option<Instant> {
        if self.contests == 0 {
            return None;
        }
        self.associations.values().filter_map(|association| association.contest.as_ref()).map(|c| c.next_probe).min()
    }

    /// Sends due heartbeats, removes the sessions of control planes that were silent for too long,
    /// and decides contests.
    pub(crate) fn supervise(&mut self, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        let mut due = Vec::new();
        for (node_id, association) in &mut self.associations {
            let what = association.due(now.instant, &self.settings, &mut self.lines);
            if let DueAction::Probe = what {
                probe(association, &mut self.requests, self.settings.started, out);
            } else if !matches!(what, DueAction::Nothing) {
                due.push((node_id.clone(), what));
            }
        }
        for (node_id, what) in due {
            match what {
                DueAction::Release => self.release_silent(&node_id, now, plane),
                DueAction::Decide { dead } => self.decide(&node_id, dead, now, plane, out),
                DueAction::Nothing | DueAction::Probe => {}
            }
        }
    }

    fn release_silent(&mut self, node_id: &NodeId, now: Timestamps, plane: &mut impl TablesAccess) {
        let Some(address) = self.associations.get(node_id).map(|association| association.address) else { return };
        let before = self.sessions.len();
        self.dissociate(node_id, plane);
        let released = (before - self.sessions.len()) as u64;
        self.stats.released += released;
        if let Some(suppressed) = self.lines.admit(Line::Released, address.ip(), now.instant) {
            warn!(control_plane = %address, node = ?node_id, sessions = released, suppressed,
                "control plane silent for too long, association and sessions removed");
        }
    }

    /// Decides a contest and answers its Association Setup Request.
    fn decide(
        &mut self,
        node_id: &NodeId,
        dead: bool,
        now: Timestamps,
        plane: &mut impl TablesAccess,
        out: &mut Outgoing,
    ) {
        let contest = self.associations.get_mut(node_id).and_then(|association| association.contest.take());
        let Some(contest) = contest else { return };
        self.contests -= 1;
        if let Some(association) = self.associations.get_mut(node_id) {
            // Regular heartbeats restart.
            association.supervision.unanswered = None;
        }
        let Contest { from, sequence, request, .. } = *contest;
        let setup = match dead {
            true => self.bind(from, request, now, plane),
            false => self.refuse_setup(from, node_id, "Node ID is bound to another address, which answers", now),
        };
        let mut answer = vec![];
        if let Some(cause) = self.setup_response(setup, sequence, &mut answer) {
            match cause.is_accepted() {
                true => self.stats.accepted += 1,
                false => self.stats.rejected += 1,
            }
            out.push((from, answer));
        }
    }

    /// Encodes the response to an Association Setup Request, unless the answer is deferred.
    pub(crate) fn setup_response(&self, setup: Setup, sequence: u32, answer: &mut Vec<u8>) -> Option<Cause> {
        let Setup::Answer { cause, retained } = setup else { return None };
        let response = AssociationSetupResponse {
            node_id: NodeId::from(self.settings.address),
            cause,
            recovery_time_stamp: RecoveryTimeStamp(self.settings.started),
            up_function_features: Some(self.features()),
            cp_function_features: None,
            flags: retained.then_some(AsRspFlags::PSREI),
        };
        response.emit(answer, sequence).ok().map(|()| cause)
    }
}

impl Association {
    fn due(&mut self, now: Instant, settings: &super::Settings, lines: &mut super::LogLimit<Line>) -> DueAction {
        let Association { supervision, contest, .. } = self;
        if let Some(contest) = contest {
            return match contest {
                _ if supervision.last_heard > contest.since => DueAction::Decide { dead: false },
                _ if now.since(contest.since) >= CONTEST_TIMEOUT => DueAction::Decide { dead: true },
                _ if contest.next_probe <= now => {
                    contest.next_probe = now + PROBE_INTERVAL;
                    DueAction::Probe
                }
                _ => DueAction::Nothing,
            };
        }
        let Some(interval) = settings.heartbeat_interval() else { return DueAction::Nothing };
        let keep = settings.associations.keep_sessions.into();
        let (attempts, wait) = (settings.associations.heartbeat_attempts, settings.response_time);
        if supervision.silent_since.is_some_and(|since| now.since(since) >= keep) {
            return DueAction::Release;
        }
        if supervision.next > now {
            return DueAction::Nothing;
        }
        let sent = supervision.unanswered.map_or(0, |(_, sent)| sent);
        if sent < attempts {
            supervision.next = now + wait;
            return DueAction::Probe;
        }
        supervision.unanswered = None;
        supervision.next = now + interval;
        // It may be too busy for heartbeats, or answer none at all.
        let silent = supervision.answers && now.since(supervision.last_heard) >= wait;
        if silent && supervision.silent_since.is_none() {
            supervision.silent_since = Some(now);
            let address = self.address;
            if let Some(suppressed) = lines.admit(Line::Silent, address.ip(), now) {
                let keep_s = settings.associations.keep_sessions.as_secs();
                warn!(control_plane = %address, keep_s, suppressed, "control plane silent, its sessions are kept for a time");
            }
            if keep == Duration(0) {
                return DueAction::Release;
            }
        }
        DueAction::Nothing
    }
}

/// Sends a Heartbeat Request, or retransmits the unanswered one.
fn probe(association: &mut Association, requests: &mut super::Requests, started: u32, out: &mut Outgoing) {
    let supervision = &mut association.supervision;
    let (sequence, sent) = supervision.unanswered.unwrap_or_else(|| (requests.next_sequence(), 0));
    supervision.unanswered = Some((sequence, sent.saturating_add(1)));
    let mut octets = vec![];
    let request = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(started) };
    if request.emit(&mut octets, sequence).is_ok() {
        out.push((SocketAddr::new(association.address.ip(), pfcp::PORT), octets));
    }
}
