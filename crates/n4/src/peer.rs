use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{RecoveryTimeStamp, UpFunctionFeatures};

/// Where the association with a UPF stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// There is none; the next attempt begins then.
    Idle { at: Instant },
    /// An Association Setup Request waits for its response.
    Asking,
    /// There is one.
    Up {
        /// Since when.
        since: Instant,
        /// When the next heartbeat goes out; `None` while one waits for its response.
        heartbeat_at: Option<Instant>,
        /// When the association is released, if the UPF asked for it.
        release_at: Option<Instant>,
    },
    /// There is one, but the UPF does not answer: it may be cut off and still have its sessions.
    Lost {
        /// When the next heartbeat goes out; `None` while one waits for its response.
        heartbeat_at: Option<Instant>,
    },
    /// An Association Release Request waits for its response.
    Releasing,
}

impl State {
    pub(super) const fn is_up(&self) -> bool {
        matches!(self, State::Up { .. })
    }

    /// When there is something to do that no outstanding request brings about.
    pub(super) fn due(&self) -> Option<Instant> {
        match *self {
            State::Idle { at } => Some(at),
            State::Up { heartbeat_at, release_at, .. } => heartbeat_at.into_iter().chain(release_at).min(),
            State::Lost { heartbeat_at } => heartbeat_at,
            State::Asking | State::Releasing => None,
        }
    }
}

/// A UPF.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) state: State,
    /// When the UPF started, once it has said so.
    pub(super) recovery: Option<RecoveryTimeStamp>,
    pub(super) features: UpFunctionFeatures,
    /// Another endpoint had the association before: the UPF has its sessions if it says so.
    pub(super) takes_over: bool,
    /// Whether the rest of the control plane knows that the UPF is up, or that it was at that endpoint.
    pub(super) is_said_up: bool,
    /// How long the next attempt waits after one that failed.
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
            is_said_up: false,
            backoff,
            sequence: first_sequence & SEQUENCE_MASK,
        }
    }

    /// How long the next attempt waits after one that failed, and the next sequence number.
    pub(super) fn next(&self) -> (Duration, u32) {
        (self.backoff, self.sequence)
    }

    /// Whether the association is being taken over right now.
    pub(super) fn is_taken_over(&self) -> bool {
        self.takes_over && self.state == State::Asking
    }

    /// The next sequence number: 24 bits, then from 0 on again.
    pub(super) fn next_sequence(&mut self) -> u32 {
        let sequence = self.sequence;
        self.sequence = (sequence + 1) & SEQUENCE_MASK;
        sequence
    }

    /// How long to wait after another failed attempt.
    pub(super) fn back_off(&mut self, longest: Duration) -> Duration {
        let wait = self.backoff.min(longest);
        self.backoff = Duration(wait.0.saturating_mul(2)).min(longest);
        wait
    }

    pub(super) fn reset_backoff(&mut self, first: Duration) {
        self.backoff = first;
    }
}
