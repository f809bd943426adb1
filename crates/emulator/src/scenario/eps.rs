//! Scenarios of LTE UEs. A registration is an attach with its default bearer, or a TAU.

use super::{FRESH, Scenario, Step, steps};
use crate::ue::{Fault, Registration};

const TAU: Step = Step::Register(Registration::Mobility);
const PERIODIC_TAU: Step = Step::Register(Registration::Periodic);

/// All scenarios. Names that 5G has, too, stand for the same procedures.
pub(super) static ALL: &[Scenario] = &[
    steps("attach", "attach with the IMSI and its default bearer; the UEs stay attached", &[FRESH]),
    steps("register", "as attach", &[FRESH]),
    steps("session", "as attach", &[FRESH]),
    steps("traffic", "attach and echoes", &[FRESH, Step::Traffic]),
    steps(
        "full",
        "attach, echoes, idle, service request, echoes, detach",
        &[FRESH, Step::Traffic, Step::Idle, Step::Rest, Step::Service, Step::Traffic, Step::Deregister],
    ),
    steps(
        "pauses",
        "attach, then echoes and a pause again and again (--rounds), detach",
        &[FRESH, Step::Traffic, Step::Rest, Step::Repeat { to: 1 }, Step::Deregister],
    ),
    steps(
        "idle-service",
        "attach, then idle and service request again and again (--rounds)",
        &[FRESH, Step::Idle, Step::Rest, Step::Service, Step::Repeat { to: 1 }],
    ),
    steps("service", "attach, idle, service request, detach", &[FRESH, Step::Idle, Step::Service, Step::Deregister]),
    steps(
        "deregister",
        "attach and detach again and again (--rounds), the last one by switching off",
        &[FRESH, Step::Deregister, Step::Repeat { to: 0 }, FRESH, Step::SwitchOff],
    ),
    steps(
        "detach",
        "attach, detach, attach, detach by switching off",
        &[FRESH, Step::Deregister, FRESH, Step::SwitchOff],
    ),
    steps("network-detach", "attach, then wait until the network detaches the UE", &[FRESH, Step::AwaitDetach]),
    steps(
        "reset",
        "the eNB resets the connection of each UE, which comes back by service request",
        &[FRESH, Step::Reset, Step::Rest, Step::Service, Step::Deregister],
    ),
    steps(
        "guti",
        "attach with the GUTI: known after detach, periodic TAU, and unknown",
        &[
            FRESH,
            Step::Deregister,
            Step::Register(Registration::Initial),
            Step::Idle,
            PERIODIC_TAU,
            // Without the active flag the core releases the connection itself.
            Step::Idle,
            Step::Deregister,
            Step::Register(Registration::UnknownGuti),
            Step::Deregister,
        ],
    ),
    steps(
        "foreign-guti",
        "attach with a GUTI of another MME: the network asks for the IMSI",
        &[Step::Register(Registration::UnknownGuti), Step::Deregister],
    ),
    steps(
        "paging",
        "an idle UE is paged for a downlink packet and comes back by service request",
        &[
            FRESH,
            Step::Traffic,
            Step::Idle,
            Step::AwaitPage,
            Step::Service,
            Step::Traffic,
            Step::Idle,
            Step::AwaitPage,
            Step::Service,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "periodic",
        "periodic TAUs between times of rest; the bearer stays",
        &[
            FRESH,
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            PERIODIC_TAU,
            Step::Idle,
            Step::Rest,
            PERIODIC_TAU,
            Step::Idle,
            Step::Service,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "tau",
        "periodic TAU, then a TAU with the active flag",
        &[FRESH, Step::Idle, PERIODIC_TAU, Step::Idle, TAU, Step::Deregister],
    ),
    steps(
        "mobility",
        "an idle UE goes to another eNB and back; each TAU brings its user plane with it",
        &[
            FRESH,
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::Roam,
            TAU,
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::Roam,
            TAU,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "auth-failures",
        "MAC failure, wrong RES and synch failure, then a good attach",
        &[
            Step::Faulty(Fault::MacFailure),
            Step::Leave,
            Step::Faulty(Fault::WrongResponse),
            Step::Leave,
            Step::Faulty(Fault::SynchFailure),
            Step::Leave,
            FRESH,
            Step::Deregister,
        ],
    ),
    steps(
        "resync",
        "attach of a UE whose SQN is ahead of the network",
        &[Step::Faulty(Fault::SynchFailure), Step::Leave],
    ),
    steps(
        "wrong-mac",
        "attach with a known GUTI under a wrong MAC: the network authenticates the UE",
        &[FRESH, Step::Deregister, Step::Faulty(Fault::WrongMac), Step::Deregister],
    ),
];
