use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{RecoveryTimeStamp, UpFunctionFeatures};

/// State of the association with a UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// No association; `at` is the time of the next attempt.
    Idle { at: Instant },
    /// An Association Setup Request is unanswered.
    SettingUp,
    /// The association exists.
    Up {
        since: Instant,
        /// Time of the next heartbeat; `None` while one is unanswered.
        heartbeat_at: Option<Instant>,
        /// Time to release the association, if the UPF has requested that.
        release_at: Option<Instant>,
    },
    /// The association exists, but the UPF does not answer. It may be isolated and still have its
    /// sessions.
    Lost {
        /// Time of the next heartbeat; `None` while one is unanswered.
        heartbeat_at: Option<Instant>,
    },
    /// An Association Release Request is unanswered.
    Releasing,
}

impl State {
    pub(super) const fn is_up(&self) -> bool {
        matches!(self, State::Up { .. })
    }

    /// Returns the time of the next action that does not depend on an unanswered request.
    pub(super) fn due(&self) -> Option<Instant> {
        match *self {
            State::Idle { at } => Some(at),
            State::Up { heartbeat_at, release_at, .. } => heartbeat_at.into_iter().chain(release_at).min(),
            State::Lost { heartbeat_at } => heartbeat_at,
            State::SettingUp | State::Releasing => None,
        }
    }
}

/// State of one UPF.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) state: State,
    /// Recovery Time Stamp of the UPF, once received.
    pub(super) recovery: Option<RecoveryTimeStamp>,
    pub(super) features: UpFunctionFeatures,
    /// True if another endpoint had the association: the UPF has its sessions if it confirms them.
    pub(super) takes_over: bool,
    /// True if the control plane regards the UPF as up, by an event of this or the previously
    /// active endpoint.
    pub(super) reported_up: bool,
    /// Time from a failed attempt to the next one.
    backoff: Duration,
    sequence: u32,
}

const SEQUENCE_MASK: u32 = 0x00ff_ffff;

impl Peer {
    pub(super) fn new(address: SocketAddr, first_sequence: u32, backoff: Duration) -> Self {
        Peer {
            address,
            state: State::Idle { at: Instant::default() },
            recovery: None,
            features: UpFunctionFeatures::default(),
            takes_over: false,
            reported_up: false,
            backoff,
            sequence: first_sequence & SEQUENCE_MASK,
        }
    }

    /// Returns the time from a failed attempt to the next one, and the next sequence number.
    pub(super) fn next(&self) -> (Duration, u32) {
        (self.backoff, self.sequence)
    }

    /// Returns true if a takeover of the association is in progress.
    pub(super) fn is_taken_over(&self) -> bool {
        self.takes_over && self.state == State::SettingUp
    }

    /// Returns the next sequence number: 24 bits, wrapping to 0.
    pub(super) fn next_sequence(&mut self) -> u32 {
        let sequence = self.sequence;
        self.sequence = (sequence + 1) & SEQUENCE_MASK;
        sequence
    }

    /// Returns the time to wait after another failed attempt.
    pub(super) fn back_off(&mut self, longest: Duration) -> Duration {
        let wait = self.backoff.min(longest);
        self.backoff = Duration(wait.0.saturating_mul(2)).min(longest);
        wait
    }

    pub(super) fn reset_backoff(&mut self, first: Duration) {
        self.backoff = first;
    }
}
