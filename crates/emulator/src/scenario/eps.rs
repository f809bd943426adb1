//! Scenarios of LTE UEs. A registration is an attach with its default bearer, or a TAU.

use super::{FRESH, Mode, Scenario, Scheme, Step, abuse, steps};
use crate::negative::Case;
use crate::ue::{Fault, Registration};
use vireo_types::PduSessionType;

/// Scenarios of 5G without a counterpart, with the reasons.
pub(super) static ABSENT: &[(&str, &str)] = &[
    ("lost-tunnel", "the eNB answers no packet with a GTP-U Error Indication"),
    ("multi-session", "the UE has one PDN connection; the core refuses further ones"),
    ("sessions", "as multi-session: the default bearer lasts as long as the attach"),
    ("profile-a", "a UE of EPS sends its IMSI; there is no SUCI"),
    ("profile-b", "as profile-a"),
];

/// Bearer of a UE that has attached without PDN connection.
const BEARER: u8 = 5;
const WITHOUT_PDN: Step = Step::Register(Registration::WithoutPdn);
const OVER_NAS: Step = Step::Register(Registration::OverNas);
const TAU: Step = Step::Register(Registration::Mobility);
const PERIODIC_TAU: Step = Step::Register(Registration::Periodic);

const X2_HANDOVER: &[Step] = &[
    FRESH,
    Step::Traffic,
    Step::XnHandover,
    Step::Traffic,
    Step::XnHandover,
    Step::Traffic,
    Step::Idle,
    Step::Rest,
    Step::Service,
    Step::Traffic,
    Step::Deregister,
];

const S1_HANDOVER: &[Step] = &[
    FRESH,
    Step::Traffic,
    Step::N2Handover,
    Step::Traffic,
    Step::N2Handover,
    Step::Traffic,
    Step::Idle,
    Step::Rest,
    Step::Service,
    Step::Traffic,
    Step::Deregister,
];

const HANDOVER: &[Step] =
    &[FRESH, Step::Traffic, Step::XnHandover, Step::Traffic, Step::N2Handover, Step::Traffic, Step::Deregister];

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
        "x2-handover",
        "a connected UE goes to another eNB and back by X2; echoes come through each eNB's tunnel",
        X2_HANDOVER,
    ),
    steps("xn-handover", "as x2-handover", X2_HANDOVER),
    steps(
        "s1-handover",
        "a connected UE goes to another eNB and back by S1; echoes come through each eNB's tunnel",
        S1_HANDOVER,
    ),
    steps("n2-handover", "as s1-handover", S1_HANDOVER),
    steps("handover", "a connected UE goes to another eNB by X2, and back by S1", HANDOVER),
    steps(
        "handover-failures",
        "S1 handovers that the target refuses and that the source cancels; then one that completes",
        &[
            FRESH,
            Step::Traffic,
            Step::RefusedHandover,
            Step::Traffic,
            Step::CancelledHandover,
            Step::Traffic,
            Step::N2Handover,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "ipv6",
        "a default bearer of IPv6: router advertisement, address autoconfiguration and echoes",
        &[Step::RegisterWith(PduSessionType::Ipv6), Step::Traffic, Step::Deregister],
    ),
    steps(
        "ipv4v6",
        "a default bearer of IPv4v6 with echoes of both versions, kept over idle",
        &[
            Step::RegisterWith(PduSessionType::Ipv4v6),
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::Service,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "without-pdn",
        "attach without PDN connection, which comes later and ends (core.ciot.attach-without-pdn)",
        &[
            WITHOUT_PDN,
            Step::Released,
            PERIODIC_TAU,
            Step::Released,
            Step::Service,
            Step::Establish { psi: BEARER, kind: None },
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::Service,
            Step::Traffic,
            Step::Release { psi: BEARER },
            Step::Idle,
            Step::Service,
            Step::Deregister,
        ],
    ),
    steps(
        "over-nas",
        "packets over NAS, of a connected and of a paged UE (core.ciot.control-plane-data)",
        &[
            OVER_NAS,
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::Service,
            Step::Traffic,
            Step::Idle,
            Step::AwaitPage,
            Step::Service,
            Step::Traffic,
            Step::Idle,
            PERIODIC_TAU,
            Step::Idle,
            Step::Service,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "restoration",
        "echoes and pauses again and again (--rounds); a core that failed meanwhile serves the UE on",
        &[FRESH, Step::Traffic, Step::Idle, Step::Rest, Step::Service, Step::Traffic, Step::Repeat { to: 1 }],
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
    abuse("s1-reset", "ENB CONFIGURATION UPDATE, RESET of one UE and of all; the UEs come back", Case::Node),
    abuse("ng-reset", "as s1-reset", Case::Node),
    Scenario {
        name: "bad-input",
        about: "every misbehaviour below; each must get its answer and leave another UE served",
        mode: Mode::AllAbuse,
        scheme: Scheme::Any,
    },
    abuse("bad-random", "random octets as S1AP", Case::Random),
    abuse("bad-truncated", "S1AP messages cut at every length", Case::Truncated),
    abuse("bad-ppid", "S1AP under other payload protocol identifiers", Case::Ppid),
    abuse("bad-stream", "S1 SETUP off stream 0 and UE signalling on it", Case::Stream),
    abuse("bad-procedure", "a procedure code that does not exist, with each criticality", Case::Procedure),
    abuse("bad-missing-ie", "messages without a mandatory IE", Case::MissingIe),
    abuse("bad-ue-ids", "UE S1AP IDs of nobody and of others", Case::UeIds),
    abuse("bad-nas-mac", "NAS with a wrong MAC", Case::NasMac),
    abuse("bad-replay", "NAS with a COUNT that was used before", Case::Replay),
    abuse("bad-order", "messages of procedures that nobody started", Case::Order),
    abuse("bad-nas", "random octets as NAS", Case::NasGarbage),
    abuse("bad-setup", "S1 SETUP of another network, and signalling before it", Case::Setup),
    abuse("bad-unserved", "requests for services that the core does not have, and requests cut short", Case::Unserved),
    Scenario {
        name: "mutate",
        about: "--count mutated S1AP and NAS messages (--seed) of 3 eNBs, while --ues of another eNB are served",
        mode: Mode::Mutate,
        scheme: Scheme::Any,
    },
    abuse("bad-half-open", "as many attaches as --ues that stop after the first message", Case::HalfOpen),
];
