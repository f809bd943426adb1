//! Set-up of the sessions of kept contexts at their UPFs, while RAN nodes wait.

use crate::host::state::Host;
use rustc_hash::FxHashSet;
use std::net::SocketAddr;
use vireo_cluster::Input;
use vireo_core::placement::message::PeerEvent;
use vireo_types::{Duration, Instant};

/// Maximum time that RAN nodes wait for the sessions of kept contexts: less than they wait for NG
/// Setup.
const MAX_RAN_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of waiting messages of RAN nodes. Further ones are dropped, and the RAN nodes
/// send them again.
const RAN_MESSAGES: usize = 4096;

impl Host {
    /// Makes RAN nodes wait for the sessions of resumed contexts, if there are any.
    pub(super) fn wait_for_sessions(&mut self, now: Instant) {
        if !self.persistence.restoring.sessions.is_empty() {
            self.persistence.restoring.deadline = Some(now + MAX_RAN_WAIT);
        }
    }

    /// Sets up the sessions of kept contexts at a newly associated UPF.
    pub(in crate::host) fn upf_gets_sessions(&mut self, upf: SocketAddr) {
        if self.persistence.restoring.upfs.remove(&upf) {
            self.events.lost.push_back((upf, 0));
        }
    }

    /// Returns the input, unless it waits for the sessions of kept contexts.
    pub(in crate::host) fn waits_for_sessions(&mut self, input: Input) -> Option<Input> {
        let restoring = &mut self.persistence.restoring;
        if restoring.deadline.is_none() {
            return Some(input);
        }
        let Input::Peer { envelope, .. } = &input else { return Some(input) };
        match &envelope.event {
            PeerEvent::Ngap { assoc, .. } => {
                if restoring.waiting.len() < RAN_MESSAGES {
                    restoring.waiting.push((*assoc, input));
                }
                return None;
            }
            PeerEvent::Down { assoc, .. } => restoring.waiting.retain(|(of, _)| of != assoc),
            PeerEvent::Pfcp { seid, .. } | PeerEvent::PfcpTimeout { seid } => _ = restoring.sessions.remove(seid),
            _ => {}
        }
        Some(input)
    }

    /// Serves RAN nodes when the kept sessions are set up again, or after the timeout.
    pub(in crate::host) fn serve_ran_nodes(&mut self, now: Instant) {
        let restoring = &mut self.persistence.restoring;
        let Some(deadline) = restoring.deadline else { return };
        let missing = restoring.sessions.len();
        if missing > 0 && now < deadline {
            return;
        }
        restoring.deadline = None;
        let waiting = std::mem::take(&mut restoring.waiting);
        restoring.sessions = FxHashSet::default();
        if missing > 0 {
            tracing::warn!(missing, "sessions of kept contexts not established at their UPFs yet; serving RAN nodes");
        } else {
            tracing::info!("sessions of kept contexts established again");
        }
        waiting.into_iter().for_each(|(_, input)| self.input(input));
    }
}
