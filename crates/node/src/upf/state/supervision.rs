//! Signs of life of control planes: heartbeats of the UPF (TS 29.244 6.2.2), sessions of those that are silent, and
//! which of two addresses a Node ID means.
//!
//! - A control plane that has answered a Heartbeat Request before and now leaves several without an answer is *silent*. Its
//!   sessions are kept for a time, in which it may come back or another address may take over, and are then removed.
//! - One that never answered is not supervised: there are control planes that answer none, and they may be alive.
//! - Any message from an address of the control plane is a sign of life.

use super::associations::Setup;
use super::{Association, Line, Outgoing, TablesAccess, Timestamps, Upf};
use std::net::SocketAddr;
use tracing::{info, warn};
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{self, *};

/// How long the address that a Node ID is bound to may take to show that it is there.
const CONTEST: Duration = Duration::from_millis(2_000);
/// How often it is asked meanwhile.
const PROBE: Duration = Duration::from_millis(250);

/// What is known of the life of a control plane.
#[derive(Debug)]
pub(super) struct Supervision {
    /// When it sent something last.
    pub(super) heard: Instant,
    /// Whether it has ever answered a Heartbeat Request.
    pub(super) answers: bool,
    /// Since when it is silent.
    pub(super) silent_since: Option<Instant>,
    /// When the next Heartbeat Request is due.
    next: Instant,
    /// The sequence number of the one without an answer, and how often it was sent.
    unanswered: Option<(u32, u8)>,
}

impl Supervision {
    /// Of a control plane that has just sent something.
    pub(super) fn new(now: Instant) -> Self {
        Supervision { heard: now, answers: false, silent_since: None, next: now, unanswered: None }
    }

    /// It has sent something. Returns true if it was silent.
    pub(super) fn heard_at(&mut self, now: Instant) -> bool {
        self.heard = now;
        self.silent_since.take().is_some()
    }
}

/// Another address asks for the association.
#[derive(Debug)]
pub(super) struct Contest {
    from: SocketAddr,
    sequence: u32,
    request: AssociationSetupRequest,
    since: Instant,
    next_probe: Instant,
}

impl Contest {
    pub(super) fn new(from: SocketAddr, sequence: u32, request: AssociationSetupRequest, now: Instant) -> Self {
        Contest { from, sequence, request, since: now, next_probe: now }
    }
}

/// What is to be done about an association.
enum Due {
    Nothing,
    Probe,
    Release,
    Decide { dead: bool },
}

impl Upf {
    /// An address has sent something.
    pub(super) fn heard(&mut self, from: SocketAddr, now: Instant) {
        for association in self.associations.values_mut().filter(|other| other.hosts.contains(&from.ip())) {
            if association.supervision.heard_at(now)
                && let Some(left_out) = self.lines.admit(Line::Back, from.ip(), now)
            {
                info!(control_plane = %from, left_out, "control plane answers again");
            }
        }
    }

    /// A control plane answered a Heartbeat Request.
    pub(super) fn heartbeat_answered(
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
        supervision.next = supervision.heard + self.settings.heartbeat_interval().unwrap_or_default();
        if !std::mem::replace(&mut supervision.answers, true) {
            self.note_node();
        }
        self.heartbeat(from, response.recovery_time_stamp.0, now, plane);
    }

    /// When [`Upf::supervise`] has something to do that does not wait for the next second.
    pub(super) fn contest_deadline(&self) -> Option<Instant> {
        if self.contests == 0 {
            return None;
        }
        self.associations.values().filter_map(|association| association.contest.as_ref()).map(|c| c.next_probe).min()
    }

    /// Sends heartbeats that are due, removes the sessions of control planes that were silent for too long, and decides
    /// which address a contested Node ID means.
    pub(super) fn supervise(&mut self, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        let mut due = Vec::new();
        for (node_id, association) in &mut self.associations {
            let what = association.due(now.instant, &self.settings, &mut self.lines);
            if let Due::Probe = what {
                probe(association, &mut self.requests, self.settings.started, out);
            } else if !matches!(what, Due::Nothing) {
                due.push((node_id.clone(), what));
            }
        }
        for (node_id, what) in due {
            match what {
                Due::Release => self.release_silent(&node_id, now, plane),
                Due::Decide { dead } => self.decide(&node_id, dead, now, plane, out),
                Due::Nothing | Due::Probe => {}
            }
        }
    }

    fn release_silent(&mut self, node_id: &NodeId, now: Timestamps, plane: &mut impl TablesAccess) {
        let Some(address) = self.associations.get(node_id).map(|association| association.address) else { return };
        let before = self.sessions.len();
        self.dissociate(node_id, plane);
        let released = (before - self.sessions.len()) as u64;
        self.stats.released += released;
        if let Some(left_out) = self.lines.admit(Line::Released, address.ip(), now.instant) {
            warn!(control_plane = %address, node = ?node_id, sessions = released, left_out,
                "control plane silent for too long, association and sessions removed");
        }
    }

    /// Answers who has asked for an association that another address had.
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
            // Heartbeats go on from the beginning.
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

    /// Writes the answer to an Association Setup Request, if it is answered now.
    pub(super) fn setup_response(&self, setup: Setup, sequence: u32, answer: &mut Vec<u8>) -> Option<Cause> {
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
    fn due(&mut self, now: Instant, settings: &super::Settings, lines: &mut super::LogLimit<Line>) -> Due {
        let Association { supervision, contest, .. } = self;
        if let Some(contest) = contest {
            return match contest {
                _ if supervision.heard > contest.since => Due::Decide { dead: false },
                _ if now.since(contest.since) >= CONTEST => Due::Decide { dead: true },
                _ if contest.next_probe <= now => {
                    contest.next_probe = now + PROBE;
                    Due::Probe
                }
                _ => Due::Nothing,
            };
        }
        let Some(interval) = settings.heartbeat_interval() else { return Due::Nothing };
        let keep = settings.associations.keep_sessions.into();
        let (attempts, wait) = (settings.associations.heartbeat_attempts, settings.response_time);
        if supervision.silent_since.is_some_and(|since| now.since(since) >= keep) {
            return Due::Release;
        }
        if supervision.next > now {
            return Due::Nothing;
        }
        let sent = supervision.unanswered.map_or(0, |(_, sent)| sent);
        if sent < attempts {
            supervision.next = now + wait;
            return Due::Probe;
        }
        supervision.unanswered = None;
        supervision.next = now + interval;
        // It may be too busy for heartbeats, or answer none at all.
        let silent = supervision.answers && now.since(supervision.heard) >= wait;
        if silent && supervision.silent_since.is_none() {
            supervision.silent_since = Some(now);
            let address = self.address;
            if let Some(left_out) = lines.admit(Line::Silent, address.ip(), now) {
                let keep_s = settings.associations.keep_sessions.as_secs();
                warn!(control_plane = %address, keep_s, left_out, "control plane silent, its sessions are kept for a time");
            }
            if keep == Duration(0) {
                return Due::Release;
            }
        }
        Due::Nothing
    }
}

/// Sends a Heartbeat Request, the one without an answer again if there is one.
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
