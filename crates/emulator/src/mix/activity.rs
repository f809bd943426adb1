//! Procedures of a steady load, each as a script.

use crate::report::Procedure;
use crate::scenario::Step;
use crate::ue::Registration;
use std::fmt;
use std::str::FromStr;

/// State of a UE between procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestState {
    /// Registered and idle (CM-IDLE).
    Idle,
    /// Registered and connected (CM-CONNECTED).
    Connected,
    Off,
}

impl RestState {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            RestState::Idle => "idle",
            RestState::Connected => "connected",
            RestState::Off => "off",
        }
    }

    /// Returns the first script of a UE: it reaches the rest state with a session.
    pub(crate) fn arrive(self) -> &'static [Step] {
        match self {
            RestState::Idle => &[FRESH, SESSION, Step::Idle],
            RestState::Connected => &[FRESH, SESSION],
            RestState::Off => &[],
        }
    }

    /// Returns the script that reaches the rest state after the network has lost the UE.
    pub(crate) fn reattach(self) -> &'static [Step] {
        match self {
            RestState::Idle => &[AGAIN, SESSION, Step::Dwell, Step::Idle],
            RestState::Connected => &[AGAIN, SESSION],
            RestState::Off => &[],
        }
    }

    /// Returns the script from registered and idle to the rest state.
    pub(crate) fn return_to(self) -> &'static [Step] {
        match self {
            RestState::Idle => &[],
            RestState::Connected => &[Step::Connect],
            RestState::Off => &[Step::SwitchOff],
        }
    }
}

/// Kind of procedure in a steady load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Idle to connected by service request, and idle again after a dwell time.
    ServiceRequest,
    PeriodicUpdate,
    /// An idle UE becomes active at another gNB: mobility registration update.
    MobilityUpdate,
    /// Xn handover of a connected UE to another gNB.
    XnHandover,
    /// N2 handover of a connected UE to another gNB.
    N2Handover,
    /// Establishment of a second PDU session or PDN connection, and its release after a dwell time.
    Session,
    /// Registration, and deregistration after a dwell time.
    Registration,
    /// Registration with a PDU session, and deregistration after a dwell time.
    RegistrationSession,
    /// Echoes of the group from a connected UE. The time between two answers is measured for each
    /// UE.
    Data,
    /// An idle UE connects, goes idle and is paged for a downlink packet. It goes idle again after
    /// a dwell time.
    Paging,
}

const FRESH: Step = Step::Register(Registration::Fresh);
const AGAIN: Step = Step::Register(Registration::Initial);
const SESSION: Step = Step::Establish { psi: 1, kind: None };
/// Session of [`Activity::Session`].
pub(crate) const SECOND_PSI: u8 = 2;
const SECOND: Step = Step::Establish { psi: SECOND_PSI, kind: None };
const SECOND_DOWN: Step = Step::Release { psi: SECOND_PSI };

impl Activity {
    /// All activities.
    pub const ALL: [Activity; 10] = [
        Activity::ServiceRequest,
        Activity::PeriodicUpdate,
        Activity::MobilityUpdate,
        Activity::XnHandover,
        Activity::N2Handover,
        Activity::Session,
        Activity::Registration,
        Activity::RegistrationSession,
        Activity::Data,
        Activity::Paging,
    ];

    /// Returns the name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Activity::ServiceRequest => "service-request",
            Activity::PeriodicUpdate => "periodic-update",
            Activity::MobilityUpdate => "mobility-update",
            Activity::XnHandover => "xn-handover",
            Activity::N2Handover => "n2-handover",
            Activity::Session => "session",
            Activity::Registration => "registration",
            Activity::RegistrationSession => "registration-session",
            Activity::Data => "data",
            Activity::Paging => "paging",
        }
    }

    /// Returns the rest state of UEs that do only this activity.
    pub fn home(self) -> RestState {
        match self {
            Activity::ServiceRequest | Activity::PeriodicUpdate | Activity::MobilityUpdate | Activity::Paging => {
                RestState::Idle
            }
            Activity::XnHandover | Activity::N2Handover | Activity::Session | Activity::Data => RestState::Connected,
            Activity::Registration | Activity::RegistrationSession => RestState::Off,
        }
    }

    /// Returns true if the activity moves the UE to another gNB.
    pub fn moves(self) -> bool {
        matches!(self, Activity::MobilityUpdate | Activity::XnHandover | Activity::N2Handover)
    }

    /// Returns the measured procedure, whose latency counts from the arrival.
    pub fn procedure(self) -> Procedure {
        match self {
            Activity::ServiceRequest => Procedure::ServiceRequest,
            Activity::PeriodicUpdate => Procedure::PeriodicUpdate,
            Activity::MobilityUpdate => Procedure::MobilityUpdate,
            Activity::XnHandover => Procedure::XnHandover,
            Activity::N2Handover => Procedure::N2Handover,
            Activity::Session => Procedure::Session,
            Activity::Registration | Activity::RegistrationSession => Procedure::Registration,
            Activity::Data => Procedure::Data,
            Activity::Paging => Procedure::Paging,
        }
    }

    /// Returns the script of a UE that rests at `home`, from there and back. If the procedure
    /// requires a connected UE, a service request comes first. If it requires a UE that is switched
    /// off, a deregistration comes first.
    pub(crate) fn script(self, home: RestState) -> &'static [Step] {
        use Step::{AwaitPage, Breathe, Connect, Data, Deregister, Dwell, Idle, Leave, Released, Roam, Service};
        const UPDATE: Step = Step::Register(Registration::Periodic);
        const MOVED: Step = Step::Register(Registration::Mobility);
        match (self, home) {
            (Activity::ServiceRequest, RestState::Idle) => &[Service, Data, Dwell, Idle],
            (Activity::ServiceRequest, _) => &[Idle, Service, Data],
            (Activity::PeriodicUpdate, RestState::Idle) => &[UPDATE, Released],
            (Activity::PeriodicUpdate, _) => &[Idle, UPDATE, Released, Connect],
            (Activity::MobilityUpdate, RestState::Idle) => &[Roam, MOVED, Data, Dwell, Idle],
            (Activity::MobilityUpdate, _) => &[Idle, Roam, MOVED, Data],
            (Activity::XnHandover, RestState::Connected) => &[Connect, Breathe, Step::XnHandover, Dwell],
            (Activity::XnHandover, _) => &[Connect, Breathe, Step::XnHandover, Data, Dwell, Idle],
            (Activity::N2Handover, RestState::Connected) => &[Connect, Breathe, Step::N2Handover, Dwell],
            (Activity::N2Handover, _) => &[Connect, Breathe, Step::N2Handover, Data, Dwell, Idle],
            (Activity::Session, RestState::Connected) => &[Connect, SECOND, Dwell, Connect, SECOND_DOWN],
            (Activity::Session, _) => &[Connect, SECOND, Dwell, Connect, SECOND_DOWN, Idle],
            (Activity::Data, RestState::Connected) => &[Connect, Data],
            (Activity::Paging, RestState::Idle) => &[Connect, Idle, AwaitPage, Service, Data, Dwell, Idle],
            (Activity::Paging, _) => &[Connect, Idle, AwaitPage, Service, Data],
            (Activity::Data, _) => &[Connect, Data, Dwell, Idle],
            (Activity::Registration, RestState::Off) => &[FRESH, Dwell, Deregister],
            (Activity::RegistrationSession, RestState::Off) => &[FRESH, SESSION, Data, Dwell, Deregister],
            (Activity::Registration | Activity::RegistrationSession, RestState::Idle) => {
                &[Leave, AGAIN, SESSION, Dwell, Idle]
            }
            (Activity::Registration | Activity::RegistrationSession, RestState::Connected) => &[Leave, AGAIN, SESSION],
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no activity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no procedure {text:?}: there are {}, and handover (xn-handover)", activity_names())]
pub struct ActivityError {
    text: String,
}

fn activity_names() -> String {
    let names: Vec<_> = Activity::ALL.iter().map(|activity| activity.name()).collect();
    names.join(", ")
}

impl FromStr for Activity {
    type Err = ActivityError;

    fn from_str(text: &str) -> Result<Self, ActivityError> {
        // The word alone means the handover that every core supports.
        let name = if text == "handover" { Activity::XnHandover.name() } else { text };
        Activity::ALL
            .into_iter()
            .find(|activity| activity.name() == name)
            .ok_or_else(|| ActivityError { text: text.to_owned() })
    }
}
