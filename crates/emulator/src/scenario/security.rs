//! Scenarios of authentication by the network and of emergency services.

use super::{FRESH, Step};
use crate::ue::Registration;

pub(super) const RENEWAL_ABOUT: &str = "the network authenticates the UE at a service request, and on its connection \
     (core.security.key-lifetime shorter than --idle)";

/// The handover follows the keys of the connection.
pub(super) const RENEWAL: &[Step] = &[
    FRESH,
    Step::Establish { psi: 1, kind: None },
    Step::Traffic,
    Step::Idle,
    Step::Rest,
    Step::Service,
    Step::AwaitKeys,
    Step::Traffic,
    Step::Rest,
    Step::Establish { psi: 2, kind: None },
    Step::AwaitKeys,
    Step::Traffic,
    Step::XnHandover,
    Step::Traffic,
    Step::Deregister,
];

/// As [`RENEWAL`]; the first session is the default bearer.
pub(super) const EPS_RENEWAL: &[Step] = &[
    FRESH,
    Step::Traffic,
    Step::Idle,
    Step::Rest,
    Step::Service,
    Step::AwaitKeys,
    Step::Traffic,
    Step::Rest,
    Step::Establish { psi: 2, kind: None },
    Step::AwaitKeys,
    Step::Traffic,
    Step::XnHandover,
    Step::Traffic,
    Step::Deregister,
];

pub(super) const EMERGENCY_ABOUT: &str =
    "emergency registration and emergency PDU session, idle and back (n2.emergency-dnn)";

pub(super) const EMERGENCY: &[Step] = &[
    Step::Register(Registration::Emergency),
    Step::Establish { psi: 1, kind: None },
    Step::Traffic,
    Step::Idle,
    Step::AwaitPage,
    Step::Service,
    Step::Traffic,
    Step::Idle,
    Step::Register(Registration::Mobility),
    Step::Traffic,
    Step::Deregister,
];
