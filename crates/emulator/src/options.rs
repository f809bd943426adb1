//! What a run of the emulator is told.

use crate::load::Pattern;
use crate::mix::Steady;
use crate::scenario::Scenario;
use crate::traffic::Kind;
use crate::ue::Profile;
use crate::usim::Keys;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vireo_sctp::Driver;
use vireo_types::{PduSessionType, Snssai, Supi, Tac};

/// NGAP's port (TS 38.412 7).
pub const NGAP_PORT: u16 = 38412;

/// Who the UEs are.
#[derive(Clone, Debug)]
pub enum Subscribers {
    /// `first` and the IMSIs after it, all with the same keys.
    Range {
        /// The first IMSI.
        first: Supi,
        /// K and OPc of all.
        keys: Keys,
    },
    /// These, in order; there must be one for each UE.
    List(Arc<[(Supi, Keys)]>),
}

impl Subscribers {
    /// UE number `index`.
    pub fn get(&self, index: u32) -> Option<(Supi, Keys)> {
        match self {
            Subscribers::Range { first, keys } => Some((first.offset(u64::from(index)).ok()?, *keys)),
            Subscribers::List(list) => list.get(index as usize).copied(),
        }
    }
}

/// Where and how echoes go.
#[derive(Clone, Debug)]
pub struct Echoes {
    /// The IPv4 target in the data network.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 target in the data network.
    pub v6: Option<Ipv6Addr>,
    /// ICMP or UDP.
    pub kind: Kind,
    /// How many answered echoes each session makes in one traffic step.
    pub count: u32,
    /// Octets of payload.
    pub octets: usize,
    /// How long an answer is waited for before the echo is sent again.
    pub patience: Duration,
    /// How often one echo is sent before it counts as lost.
    pub tries: u32,
}

impl Default for Echoes {
    fn default() -> Self {
        Echoes {
            v4: None,
            v6: None,
            kind: Kind::Icmp,
            count: 3,
            octets: 56,
            patience: Duration::from_secs(1),
            tries: 3,
        }
    }
}

/// When UEs start.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Closed loop: so many UEs are under way at once.
    Window(u32),
    /// Open loop, constant (pattern T1): so many UEs start in a second, whatever the core does. Latency counts from the
    /// intended start, so it is free of coordinated omission.
    Rate(f64),
    /// The same by a pattern, with so many in a second in the mean.
    Pattern(Pattern, f64),
}

/// What a UE does in a steady load when there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It waits for [`Options::timeout`]; then the procedure has failed, and the UE goes on from idle.
    Never,
    /// It waits as long as TS 24.501 10.2 says (T3510, T3517, T3521, T3580, T3582), then lets go of its connection and
    /// starts again; after five attempts the procedure has failed.
    Standard,
    /// It starts again after `retry` and again, and when `reattach` has passed it takes itself for lost and registers
    /// anew, as the UEs of the stateful baseline do in the paper. A registration that is under way it does not begin anew but
    /// by T3510.
    After {
        /// From a request to its repetition.
        retry: Duration,
        /// From the first request to the new registration.
        reattach: Duration,
    },
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The core's N2 addresses; gNBs take them in turn.
    pub core: Vec<SocketAddr>,
    /// SCTP associations of each gNB: the first with its address in `core`, the others with the addresses after it; if
    /// there is one address only, with those that an AMF Configuration Update tells, else with the same.
    pub tnl_associations: u32,
    /// So often every gNB drops one of its associations without a word, in turn, and sets it up again.
    pub drop_association: Option<Duration>,
    /// The gNBs' own N2 addresses, taken in turn; none lets the system choose.
    pub n2: Vec<IpAddr>,
    /// The gNBs' own N3 addresses, taken in turn.
    pub n3: Vec<IpAddr>,
    /// The SCTP driver.
    pub driver: Driver,
    /// UDP ports of SCTP over UDP (RFC 6951): ours (0: the system chooses) and the core's.
    pub sctp_udp_ports: (u16, u16),
    /// gNBs.
    pub gnbs: u32,
    /// UEs.
    pub ues: u32,
    /// Who the UEs are.
    pub subscribers: Subscribers,
    /// What all UEs share.
    pub profile: Profile,
    /// Tracking area of all gNBs.
    pub tac: Tac,
    /// The slices that the gNBs serve.
    pub slices: Vec<Snssai>,
    /// gNB ID of the first gNB (24 bits).
    pub first_gnb_id: u32,
    /// The type of sessions for which the scenario names none.
    pub session_type: PduSessionType,
    /// What each UE does.
    pub scenario: &'static Scenario,
    /// What the UEs do instead of the scenario: they register and get a session, paced by `load`, and when all are
    /// there they do this for `duration`.
    pub steady: Option<Steady>,
    /// What they do when there is no answer; only with `steady`.
    pub retry: Retry,
    /// The first part of the steady load, which is left out of the latencies; the timeline has it.
    pub settle: Duration,
    /// The interval of [`crate::Report::timeline`], if it is wanted.
    pub timeline: Option<Duration>,
    /// How often the scenario's loop runs.
    pub rounds: u32,
    /// When UEs start.
    pub load: Load,
    /// No UE and no round starts after this. With `steady`: for how long its procedures are due.
    pub duration: Option<Duration>,
    /// Each procedure of a UE must be done within this.
    pub timeout: Duration,
    /// How long a UE stays idle before it comes back.
    pub idle: Duration,
    /// Echo traffic.
    pub echoes: Echoes,
    /// Worker threads; never more than there are N3 addresses or gNBs.
    pub threads: u32,
    /// Seed of what is random in loads, misbehaviour scenarios and campaigns.
    pub seed: u64,
    /// Messages of a campaign of mutated messages.
    pub messages: u64,
    /// Ends the run early when it becomes true.
    pub stop: Option<Arc<AtomicBool>>,
}

/// K of the lab's subscribers (DESIGN, lab values).
pub const LAB_K: [u8; 16] = *b"\x46\x5B\x5C\xE8\xB1\x99\xB4\x9F\xAA\x5F\x0A\x2E\xE2\x38\xA6\xBC";
/// OPc of the lab's subscribers.
pub const LAB_OPC: [u8; 16] = *b"\xE8\xED\x28\x9D\xEB\xA9\x52\xE4\x28\x3B\x54\xE8\x8E\x61\x83\xCA";

impl Options {
    /// Whether the UEs go from gNB to gNB.
    pub(crate) fn moves(&self) -> bool {
        self.steady.as_ref().map_or(self.scenario.moves(), Steady::moves)
    }

    /// Whether user packets are sent, so that N3 is needed.
    pub(crate) fn has_traffic(&self) -> bool {
        let target = self.echoes.v4.is_some() || self.echoes.v6.is_some();
        self.steady.as_ref().map_or(self.scenario.has_traffic(), |steady| steady.has_data() && target)
    }

    /// A run with the lab's values (DESIGN): PLMN 999/70, TAC 1, SST 1, DNN `internet`, IMSI 999700000000001 and up.
    pub fn lab(core: SocketAddr, scenario: &'static Scenario) -> Self {
        let lab = "the lab's values are well formed";
        let snssai = Snssai { sst: 1, sd: None };
        let profile = Profile::new("99970".parse().expect(lab), snssai, "internet".parse().expect(lab));
        let first = "999700000000001".parse().expect(lab);
        Options {
            core: vec![core],
            tnl_associations: 1,
            drop_association: None,
            n2: Vec::new(),
            n3: vec![core.ip()],
            driver: Driver::Auto,
            sctp_udp_ports: (0, vireo_sctp::UDP_ENCAPSULATION_PORT),
            gnbs: 1,
            ues: 1,
            subscribers: Subscribers::Range { first, keys: Keys { k: LAB_K, opc: LAB_OPC } },
            profile,
            tac: Tac(1),
            slices: vec![snssai],
            first_gnb_id: 1,
            session_type: PduSessionType::Ipv4,
            scenario,
            steady: None,
            retry: Retry::Standard,
            settle: Duration::ZERO,
            timeline: None,
            rounds: 1,
            load: Load::Window(100),
            duration: None,
            timeout: Duration::from_secs(10),
            idle: Duration::from_millis(10),
            echoes: Echoes::default(),
            threads: 1,
            seed: 1,
            messages: 10_000,
            stop: None,
        }
    }
}
