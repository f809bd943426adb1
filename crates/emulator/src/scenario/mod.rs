//! Scenarios: the steps of each UE of a run and their expected results.

mod eps;
mod nr;

use crate::gnb::UpProtection;
use crate::negative::Case;
use crate::rat::Rats;
use crate::ue::{Cause, Fault, PowerSaving, Registration, SessionVariant};
use vireo_types::PduSessionType;

/// One step of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Registers; REGISTRATION ACCEPT ends the step.
    Register(Registration),
    /// Registers afresh. In EPS the default bearer of the attach has this type.
    RegisterWith(PduSessionType),
    /// Registers with a fault in its authentication. The step ends with rejection or, if the
    /// network may retry, with registration. The fault must have been observed.
    Faulty(Fault),
    /// Establishes PDU session `psi` of this type, or of the run's type. In EPS it is a further PDN
    /// connection; the attach has established the first one.
    Establish { psi: u8, kind: Option<PduSessionType> },
    /// Establishes PDU session `psi` in this way.
    EstablishAs { psi: u8, variant: SessionVariant },
    /// Requests PDU session `psi` in this way, which the core refuses with this cause.
    Refused { psi: u8, variant: SessionVariant, cause: Cause },
    /// Requests the modification of PDU session `psi`, which the core rejects with this cause.
    RefusedModification { psi: u8, cause: Cause },
    /// Registers afresh, which the core rejects with this cause.
    RejectedRegistration { cause: u8 },
    /// Requests service, which the core rejects with this cause.
    RejectedService { cause: u8 },
    /// Releases PDU session `psi`, or disconnects the PDN connection.
    Release { psi: u8 },
    /// Sends echoes on every active session; each must be answered.
    Traffic,
    /// As [`Step::Traffic`], from a host in the network behind the UE: [`crate::BEHIND_UE`] after
    /// its own IPv4 address.
    RoutedTraffic,
    /// Goes idle: the gNB requests the release of the UE context.
    Idle,
    /// Sends nothing for [`crate::Options::idle`], idle or connected.
    Rest,
    /// Sends no signalling for 100 ms, idle or connected.
    Pause,
    /// Stays idle until paging. The gNB sends a late echo into the tunnel that the UE had when it
    /// went idle. The answer triggers the paging.
    AwaitPage,
    /// Makes each further registration request power saving, which the core must grant.
    RequestSaving(PowerSaving),
    /// Makes each further authentication by 5G AKA, instead of EAP-AKA', a deviation of the core.
    RequireEap,
    /// Sleeps in power saving mode: after the active time of the UE a packet for it arrives as in
    /// [`Step::AwaitPage`], and nothing pages the UE.
    Sleep,
    /// Makes the node lose the tunnel of the first session. The node answers the next packet with a
    /// GTP-U Error Indication. The core then has the gNB release the session's resources and sets
    /// them up again for the next packet. It has an eNB release the UE, which is then idle.
    LoseTunnel,
    /// Makes the gNB move the tunnels of the UE to a secondary node, or back.
    SecondaryNode,
    /// Makes the gNB release session `psi`, which the core then releases at the UE.
    DropSession { psi: u8 },
    /// Makes the node report the radio capability of the UE: 64 KiB.
    ReportCapability,
    /// Waits until the core has returned that capability since the last service request.
    AwaitCapability,
    /// Waits until the core has requested location reports of the node at which the UE has arrived.
    AwaitLocation,
    /// Makes the gNB request the Xn addresses of another gNB, which answers; both by the core.
    TransferConfiguration,
    /// Connects by service request unless the UE is connected.
    Connect,
    /// Waits briefly if [`Step::Connect`] has just connected the UE. The two gNBs of a handover
    /// have no common message order. The core must receive the source's last answer before the
    /// target's first message.
    Breathe,
    /// Stays connected for the dwell time of its group ([`crate::mix::Group`]).
    Dwell,
    /// Sends the data of its group, if the run has a target for it.
    Data,
    /// Waits until the core releases the connection; requests the release if that takes long.
    Released,
    /// Moves to another gNB of the run while idle.
    Roam,
    /// Moves to the other technology while idle, and registers there with the user plane of its
    /// sessions.
    ChangeRat,
    /// Moves to another node of the run by Xn or X2 handover (path switch).
    XnHandover,
    /// Moves to another node of the run by N2 or S1 handover.
    N2Handover,
    /// Begins an N2 or S1 handover that the target refuses; the UE stays.
    RefusedHandover,
    /// Begins an N2 or S1 handover that the source cancels as soon as the target is prepared; the
    /// UE stays.
    CancelledHandover,
    /// Moves to the node of the other technology by handover, and registers there.
    SystemHandover,
    /// Begins a handover to the other technology that the target refuses; the UE stays.
    RefusedSystemHandover,
    /// Begins a handover to a node of the other technology that does not exist; the UE stays.
    UnknownSystemTarget,
    /// As [`Step::CancelledHandover`], with a target of the other technology.
    CancelledSystemHandover,
    /// Starts to send an echo every 20 ms while the UE has a tunnel. They continue in later steps.
    StartPings,
    /// Ends them, and waits for their answers. Those without an answer are counted as lost.
    StopPings,
    /// Sends a service request with the user plane of all sessions.
    Service,
    /// Deregisters and waits for the accept and for the release.
    Deregister,
    /// Deregisters by switching off, and waits for the release.
    SwitchOff,
    /// Ends deregistered and without a connection, from any state.
    Leave,
    /// Makes the node reset the UE's connection (NG RESET or RESET of one UE); the UE is then idle.
    Reset,
    /// Waits until the network has deregistered and released the UE.
    AwaitDetach,
    /// Waits until all UEs of the node have come here, the node has restarted without notice, and
    /// the core serves it again.
    AwaitRestart,
    /// Waits for CONFIGURATION UPDATE COMMAND or GUTI REALLOCATION COMMAND.
    AwaitUpdate,
    /// Waits until the network has authenticated the UE again, and the UE has other keys.
    AwaitKeys,
    /// Continues at step `to`, [`crate::Options::rounds`] times in all.
    Repeat {
        /// Index of the step.
        to: u16,
    },
}

impl Step {
    /// Returns true if the core is to refuse a session, or its modification, with this cause.
    pub(crate) fn expects(self, refusal: Cause) -> bool {
        matches!(self, Step::Refused { cause, .. } | Step::RefusedModification { cause, .. } if cause == refusal)
    }

    /// Returns true if the step needs a second node.
    fn moves(&self) -> bool {
        use Step::*;
        matches!(self, Roam | XnHandover | N2Handover | RefusedHandover | CancelledHandover | TransferConfiguration)
    }
}

/// Kind of a scenario's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every UE runs these steps.
    Steps(&'static [Step]),
    /// One negative case with its own gNB and UE; see [`crate::negative`].
    Abuse(Case),
    /// All negative cases, one after the other.
    AllAbuse,
    /// A campaign of mutated messages.
    Mutate,
    /// A steady load with faults; see [`crate::chaos`].
    Chaos,
}

/// Identity concealment that a scenario requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// As the profile specifies.
    Any,
    A,
    B,
}

/// Scenario of a run.
#[derive(Debug)]
pub struct Scenario {
    /// Name on the command line.
    pub name: &'static str,
    /// Summary in one line.
    pub about: &'static str,
    pub mode: Mode,
    pub scheme: Scheme,
}

impl Scenario {
    /// Returns the steps of each UE; none for negative cases.
    pub fn steps(&self) -> &'static [Step] {
        match self.mode {
            Mode::Steps(steps) => steps,
            _ => &[],
        }
    }

    /// Returns true if the scenario sends user packets.
    pub fn has_traffic(&self) -> bool {
        self.steps().contains(&Step::Traffic)
    }

    /// Returns true if its UEs move to the other technology.
    pub fn changes_rat(&self) -> bool {
        self.steps().iter().any(|step| matches!(step, Step::ChangeRat | Step::SystemHandover))
    }

    /// Returns true if every second gNB is an ng-eNB.
    pub(crate) fn has_ng_enbs(&self) -> bool {
        self.name == NG_ENB
    }

    /// Returns the UP security policy that its sessions have.
    pub(crate) fn protection(&self) -> Option<UpProtection> {
        PROTECTIONS.iter().find(|(name, _)| *name == self.name).map(|(_, protection)| *protection)
    }

    /// Returns true if its UEs move between gNBs.
    pub fn moves(&self) -> bool {
        self.steps().iter().any(Step::moves)
    }

    /// Returns the scenario of [`crate::Options::movers`].
    pub(crate) fn movers() -> &'static Scenario {
        &MOVES[MOVES.len() - 1]
    }

    /// Returns the 5G scenario of this name.
    pub fn find(name: &str) -> Option<&'static Scenario> {
        nr::ALL.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the scenarios that exist for these technologies.
    pub fn all_for(rats: Rats) -> Box<dyn Iterator<Item = &'static Scenario>> {
        match rats {
            Rats::Nr => Box::new(nr::ALL.iter()),
            Rats::Eps => Box::new(eps::ALL.iter()),
            Rats::Both => {
                // A campaign and negative cases have one dialect.
                let has_steps = |scenario: &&Scenario| matches!(scenario.mode, Mode::Steps(_) | Mode::Chaos);
                let exists = |scenario: &&Scenario| Scenario::find_for(Rats::Eps, scenario.name).is_some();
                Box::new(nr::ALL.iter().filter(has_steps).filter(exists).chain(&MOVES))
            }
        }
    }

    /// Returns the scenarios of 5G that these technologies lack, with the reasons.
    pub fn absent_for(rats: Rats) -> &'static [(&'static str, &'static str)] {
        match rats {
            Rats::Nr => &[],
            Rats::Eps | Rats::Both => eps::ABSENT,
        }
    }

    /// Returns the scenario of this name for these technologies.
    pub fn find_for(rats: Rats, name: &str) -> Option<&'static Scenario> {
        Scenario::all_for(rats).find(|scenario| scenario.name == name)
    }
}

/// Scenario whose nodes are gNBs and ng-eNBs in turn.
const NG_ENB: &str = "ng-enb";

/// Scenarios whose gNBs expect a UP security policy.
const PROTECTIONS: [(&str, UpProtection); 4] = [
    ("up-required", UpProtection::Required),
    ("up-preferred", UpProtection::Preferred),
    ("up-not-needed", UpProtection::NotNeeded),
    ("up-impossible", UpProtection::Impossible),
];

const FRESH: Step = Step::Register(Registration::Fresh);
const IPV4_OR_RUN: Step = Step::Establish { psi: 1, kind: None };
const IPV6: Step = Step::Establish { psi: 2, kind: Some(PduSessionType::Ipv6) };

const fn steps(name: &'static str, about: &'static str, steps: &'static [Step]) -> Scenario {
    Scenario { name, about, mode: Mode::Steps(steps), scheme: Scheme::Any }
}

/// The scenario `key-renewal` of each dialect.
const RENEWAL_ABOUT: &str = "the network authenticates the UE at a service request, and on its connection \
     (core.security.key-lifetime shorter than --idle)";

// In EPS, the first session is the default bearer of the attach.

/// A sleeping UE gets its packets with its periodic update, which has no pending data of its own.
const POWER_SAVING: &[Step] = &[
    Step::RequestSaving(PowerSaving::Mode),
    FRESH,
    IPV4_OR_RUN,
    Step::Traffic,
    Step::Idle,
    Step::Sleep,
    Step::Register(Registration::Periodic),
    Step::Connect,
    Step::Traffic,
    Step::Idle,
    Step::Sleep,
    Step::Service,
    Step::Traffic,
    Step::Deregister,
];

/// The handover follows the keys of the connection. A late answer to an echo that was sent again
/// may page the UE, and so end its first rest early: the second one, without packets before, has
/// its whole length.
const RENEWAL: &[Step] = &[
    FRESH,
    IPV4_OR_RUN,
    Step::Traffic,
    Step::Idle,
    Step::Rest,
    Step::Service,
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

const EMERGENCY: &[Step] = &[
    Step::Register(Registration::Emergency),
    IPV4_OR_RUN,
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

/// All UEs of a node come back at once.
const STORM: &[Step] =
    &[FRESH, IPV4_OR_RUN, Step::Traffic, Step::AwaitRestart, Step::Service, Step::Traffic, Step::Deregister];

/// Scenarios of UEs with both technologies.
static MOVES: [Scenario; 4] = [
    steps(
        "idle-move",
        "an idle UE moves to the other system and back (--rounds); its session and address stay",
        &[
            FRESH,
            IPV4_OR_RUN,
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::ChangeRat,
            Step::Traffic,
            Step::Idle,
            Step::Rest,
            Step::ChangeRat,
            Step::Traffic,
            Step::Repeat { to: 3 },
            Step::Deregister,
        ],
    ),
    steps(
        "connected-move",
        "a connected UE moves to the other system and back (--rounds) by handover, with echoes meanwhile",
        &[
            FRESH,
            IPV4_OR_RUN,
            Step::Traffic,
            Step::StartPings,
            Step::Pause,
            Step::SystemHandover,
            Step::Pause,
            Step::SystemHandover,
            Step::Pause,
            Step::StopPings,
            Step::Traffic,
            Step::Repeat { to: 3 },
            Step::Idle,
            Step::Rest,
            Step::Service,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "move-failures",
        "handovers to the other system that are refused or cancelled, there and back; then it completes",
        &[
            FRESH,
            IPV4_OR_RUN,
            Step::Traffic,
            Step::UnknownSystemTarget,
            Step::Traffic,
            Step::RefusedSystemHandover,
            Step::Traffic,
            Step::CancelledSystemHandover,
            Step::Traffic,
            Step::SystemHandover,
            Step::Traffic,
            Step::UnknownSystemTarget,
            Step::RefusedSystemHandover,
            Step::CancelledSystemHandover,
            Step::Traffic,
            Step::SystemHandover,
            Step::Traffic,
            Step::Deregister,
        ],
    ),
    steps(
        "moves",
        "a UE moves between the systems, connected and idle in turn (--rounds), with echoes meanwhile",
        &[
            FRESH,
            IPV4_OR_RUN,
            Step::Traffic,
            Step::StartPings,
            Step::Pause,
            Step::SystemHandover,
            Step::Pause,
            // A node releases an inactive UE: no packet is in transit.
            Step::StopPings,
            Step::Idle,
            Step::Pause,
            Step::ChangeRat,
            Step::StartPings,
            Step::Pause,
            Step::StopPings,
            Step::Idle,
            Step::Pause,
            Step::ChangeRat,
            Step::StartPings,
            Step::Pause,
            Step::SystemHandover,
            Step::Pause,
            Step::StopPings,
            Step::Traffic,
            Step::Repeat { to: 3 },
            Step::Deregister,
        ],
    ),
];

const fn abuse(name: &'static str, about: &'static str, case: Case) -> Scenario {
    Scenario { name, about, mode: Mode::Abuse(case), scheme: Scheme::Any }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_loops_go_back() {
        for rats in [Rats::Nr, Rats::Eps, Rats::Both] {
            let all: Vec<_> = Scenario::all_for(rats).collect();
            for (index, scenario) in all.iter().enumerate() {
                assert!(all[..index].iter().all(|other| other.name != scenario.name), "{}", scenario.name);
                assert!(scenario.name.len() <= 17, "{}: the column of --list", scenario.name);
                let found = Scenario::find_for(rats, scenario.name).expect("is listed");
                assert!(std::ptr::eq(found, *scenario));
                for (place, step) in scenario.steps().iter().enumerate() {
                    assert!(!matches!(step, Step::Repeat { to } if usize::from(*to) >= place), "{}", scenario.name);
                }
            }
        }
        for scenario in Scenario::all_for(Rats::Nr) {
            let is_absent = Scenario::absent_for(Rats::Eps).iter().any(|(name, _)| *name == scenario.name);
            assert_ne!(Scenario::find_for(Rats::Eps, scenario.name).is_some(), is_absent, "{}", scenario.name);
        }
        assert!(Scenario::find("nothing").is_none());
        assert!(Scenario::find("attach").is_none() && Scenario::find_for(Rats::Eps, "attach").is_some());
    }

    #[test]
    fn eps_scenarios_keep_first_session() {
        for scenario in Scenario::all_for(Rats::Eps) {
            for step in scenario.steps() {
                // It ends with the attach alone (TS 24.301 6.5.2.1).
                let ends_first = matches!(step, Step::Release { psi: crate::ue::eps::ATTACH_PSI });
                assert!(!ends_first, "{}: {step:?}", scenario.name);
            }
        }
    }
}
