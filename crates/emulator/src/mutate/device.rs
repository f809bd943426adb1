//! Attacking UE: a well-behaved UE, its target state and the messages sent there.

use super::nas::Names;
use super::report::State;
use crate::dialect::{Device as AnyUe, nas_head};
use crate::error::Error;
use crate::load::Rng;
use crate::options::Options;
use crate::ran::ConnectionId;
use crate::rat::Rat;
use crate::ue::security::header;
use crate::ue::{MmState, Registration, SessionState, UeOutput};
use crate::usim::Usim;
use std::collections::VecDeque;
use vireo_wire::nas_eps::NasEpsMobileIdentity;

/// Number of attacking UEs. Their subscribers follow those of the good UEs.
pub(super) const ATTACKERS: u32 = 32;
/// Returns the PDU session or EPS bearer of each attacking UE.
pub(super) fn psi(rat: Rat) -> u8 {
    match rat {
        Rat::Nr => 1,
        Rat::Eps => 5,
    }
}

/// Number of NAS messages stored for replay.
const MAX_STORED_MESSAGES: usize = 16;
/// Maximum number of messages of a UE between two fresh registrations.
pub(super) const LIFE: u32 = 160;

/// States with their weights and the maximum number of messages in each.
const GOALS: [(State, usize, usize); 9] = [
    (State::NoContext, 1, 4),
    (State::Authenticating, 1, 6),
    (State::SecurityMode, 1, 6),
    (State::Accepted, 1, 8),
    (State::Registered, 3, 24),
    (State::Session, 6, 32),
    (State::Idle, 2, 6),
    (State::Deregistering, 1, 1),
    (State::Handover, 2, 12),
];

/// Attacking UE with its connections and messages.
pub(super) struct Device {
    pub(super) ue: AnyUe,
    pub(super) out: UeOutput,
    suci: Vec<u8>,
    pub(super) at: Option<(usize, ConnectionId)>,
    /// gNB and connection at the target of a handover.
    pub(super) target: Option<(usize, ConnectionId)>,
    pub(super) goal: State,
    /// Messages still to be sent in the target state.
    pub(super) remaining: usize,
    /// Turns since the move to the target state began.
    pub(super) waited: u32,
    /// Turns since an unanswered request.
    pub(super) pending: u32,
    /// Messages held back to keep the UE in its state.
    pub(super) deferred: Vec<Vec<u8>>,
    /// True if a COUNT after that of a deferred message was used.
    pub(super) spoiled: bool,
    /// NAS messages sent, newest last.
    pub(super) sent: VecDeque<Vec<u8>>,
    /// True if the last mutated message has had no answer.
    pub(super) unanswered: bool,
    /// Messages since the last fresh registration.
    pub(super) life: u32,
}

impl Device {
    /// Creates the UE of a subscriber.
    pub(super) fn new(options: &Options, subscriber: u32) -> Result<Self, Error> {
        let nobody =
            || Error::Options(format!("there is no subscriber {subscriber}: check --ues against --subscribers"));
        let (supi, keys) = options.subscribers.get(subscriber).ok_or_else(nobody)?;
        let rat = options.rats.list()[0];
        let suci = match rat {
            Rat::Nr => Usim::new(supi, keys)
                .suci(options.profile.plmn, &options.profile.concealment)
                .map_err(|error| error.to_string()),
            Rat::Eps => NasEpsMobileIdentity::from_imsi(&supi.reveal())
                .map(|identity| identity.value.to_vec())
                .map_err(|error| error.to_string()),
        };
        Ok(Device {
            ue: AnyUe::new(rat, Usim::new(supi, keys)),
            out: UeOutput::default(),
            suci: suci.map_err(Error::Options)?,
            at: None,
            target: None,
            goal: State::NoContext,
            remaining: 1,
            waited: 0,
            pending: 0,
            deferred: Vec::new(),
            spoiled: false,
            sent: VecDeque::new(),
            unanswered: false,
            life: 0,
        })
    }

    /// Returns the identifiers for its messages.
    pub(super) fn names(&mut self, options: &Options) -> Names {
        Names {
            rat: self.ue.rat(),
            suci: self.suci.clone(),
            guti: self.ue.guti_octets(),
            ksi: self.ue.ksi(),
            psi: psi(self.ue.rat()),
            sst: options.profile.snssai.sst,
            dnn: options.profile.dnn.as_str().into(),
        }
    }

    /// Returns the state from the UE's point of view.
    pub(super) fn state(&self) -> State {
        if !self.deferred.is_empty() {
            return self.deferred_state();
        }
        if self.target.is_some() {
            return State::Handover;
        }
        let active = self.ue.sessions().iter().any(|session| session.state == SessionState::Active);
        match (self.at, self.ue.mm()) {
            (None, MmState::Registered) => State::Idle,
            (None, _) => State::NoContext,
            (_, MmState::Registered) if active => State::Session,
            (_, MmState::Registered) => State::Registered,
            (_, MmState::ServiceRequested) => State::Serving,
            (_, MmState::Deregistering) => State::Deregistering,
            (_, MmState::Registering | MmState::Deregistered) => State::Registering,
        }
    }

    fn deferred_state(&self) -> State {
        match self.deferred.first().and_then(|nas| nas_head(self.ue.rat(), nas)) {
            Some((header::PLAIN, _)) => State::Authenticating,
            Some((header::NEW_CIPHERED, _)) => State::SecurityMode,
            _ => State::Accepted,
        }
    }

    /// Returns true if this message of the UE would leave its target state.
    pub(super) fn holds(&self, nas: &[u8]) -> bool {
        // AUTHENTICATION RESPONSE.
        let response = if self.ue.rat() == Rat::Nr { 0x57 } else { 0x53 };
        match (self.goal, nas_head(self.ue.rat(), nas)) {
            (State::Authenticating, Some((header::PLAIN, kind))) => kind == response,
            (State::SecurityMode, Some((protection, _))) => protection == header::NEW_CIPHERED,
            // REGISTRATION COMPLETE or ATTACH COMPLETE is the first message of a registered UE.
            (State::Accepted, Some((protection, _))) => {
                protection == header::CIPHERED && self.ue.mm() == MmState::Registered
            }
            _ => false,
        }
    }

    /// Chooses the next target state.
    pub(super) fn choose(&mut self, rng: &mut Rng) {
        // An attached UE of EPS has its session.
        let without = if self.ue.rat() == Rat::Eps { Some(State::Registered) } else { None };
        let goals = || GOALS.into_iter().filter(|(state, ..)| Some(*state) != without);
        let mut place = rng.below(goals().map(|(_, weight, _)| weight).sum());
        for (state, weight, most) in goals() {
            if place < weight {
                (self.goal, self.remaining) = (state, 1 + rng.below(most));
                break;
            }
            place -= weight;
        }
        self.set_out();
    }

    /// Starts the move to the next state.
    pub(super) fn set_out(&mut self) {
        (self.waited, self.pending) = (0, 0);
    }

    /// Handles the loss of its connection.
    pub(super) fn disconnected(&mut self) {
        (self.at, self.target) = (None, None);
        self.deferred.clear();
        self.spoiled = false;
        self.pending = 0;
        self.ue.connection_released();
    }

    /// Resets the UE to switched off without signalling.
    pub(super) fn forget(&mut self) {
        self.disconnected();
        self.ue.detach();
        self.life = 0;
    }

    /// Stores a NAS message for replay.
    pub(super) fn remember(&mut self, nas: &[u8]) {
        if self.sent.len() >= MAX_STORED_MESSAGES {
            self.sent.pop_front();
        }
        self.sent.push_back(nas.to_vec());
    }

    /// Chooses the kind of the next registration.
    pub(super) fn registration(&self, rng: &mut Rng) -> Registration {
        let known = self.ue.guti().is_some();
        if known && rng.below(4) == 0 { Registration::Initial } else { Registration::Fresh }
    }
}
