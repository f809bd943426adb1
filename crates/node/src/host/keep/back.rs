//! Sessions of kept contexts on their way back to their UPFs, and RAN nodes that wait for that.

use crate::host::{Host, Input};
use rustc_hash::FxHashSet;
use std::net::SocketAddr;
use vireo_core::context::UeContext;
use vireo_types::{Duration, Instant, Seid};

/// How long RAN nodes wait at most for the sessions of kept contexts: less than they wait for NG
/// Setup.
const RAN_WAITS: Duration = Duration::from_secs(5);
/// Messages of RAN nodes that wait meanwhile; what comes beyond is dropped, and sent again by the
/// nodes.
const RAN_MESSAGES: usize = 4096;

/// Sessions of kept contexts on their way back to their UPFs.
#[derive(Debug, Default)]
pub(in crate::host) struct Back {
    /// UPFs that are to get theirs as soon as they are associated.
    upfs: FxHashSet<SocketAddr>,
    /// Sessions that have no answer.
    sessions: FxHashSet<Seid>,
    /// Until when RAN nodes wait; `None`: they do not.
    until: Option<Instant>,
    /// What RAN nodes have sent meanwhile.
    waiting: Vec<Input>,
}

impl Back {
    /// A UE that was resumed has sessions.
    pub(super) fn awaits(&mut self, ue: &UeContext) {
        for session in &ue.sessions {
            self.upfs.insert(session.upf);
            self.sessions.insert(session.cp_seid);
        }
    }
}

impl Host {
    /// Has RAN nodes wait for the sessions of contexts that were resumed, if there are any.
    pub(super) fn wait_for_sessions(&mut self, now: Instant) {
        if !self.back.sessions.is_empty() {
            self.back.until = Some(now + RAN_WAITS);
        }
    }

    /// A UPF is associated: it gets the sessions of kept contexts, if it has not.
    pub(in crate::host) fn upf_gets_sessions(&mut self, upf: SocketAddr) {
        if self.back.upfs.remove(&upf) {
            self.lost.push_back((upf, 0));
        }
    }

    /// Takes an input, unless it waits for the sessions of kept contexts.
    pub(in crate::host) fn waits_for_sessions(&mut self, input: Input) -> Option<Input> {
        let back = &mut self.back;
        if back.until.is_none() {
            return Some(input);
        }
        match &input {
            Input::Ngap { .. } => {
                if back.waiting.len() < RAN_MESSAGES {
                    back.waiting.push(input);
                }
                return None;
            }
            Input::Down { assoc, .. } => {
                back.waiting.retain(|waits| !matches!(waits, Input::Ngap { assoc: of, .. } if of == assoc));
            }
            Input::Pfcp { seid, .. } | Input::PfcpTimeout { seid, .. } => _ = back.sessions.remove(seid),
            _ => {}
        }
        Some(input)
    }

    /// Serves RAN nodes as soon as kept sessions are set up again, or if that takes too long.
    pub(in crate::host) fn serve_ran_nodes(&mut self, now: Instant) {
        let back = &mut self.back;
        let Some(until) = back.until else { return };
        let missing = back.sessions.len();
        if missing > 0 && now < until {
            return;
        }
        back.until = None;
        let waiting = std::mem::take(&mut back.waiting);
        back.sessions = FxHashSet::default();
        if missing > 0 {
            tracing::warn!(missing, "sessions of kept contexts are not at their UPFs yet; RAN nodes are served");
        } else {
            tracing::info!("sessions of kept contexts are set up again");
        }
        waiting.into_iter().for_each(|input| self.input(input));
    }
}
