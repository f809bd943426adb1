//! Options of an emulator run.

use crate::chaos::Chaos;
use crate::enb::EnbConfig;
use crate::gnb::GnbConfig;
use crate::load::Pattern;
use crate::mix::Steady;
use crate::rat::{Rat, Rats};
use crate::scenario::{Scenario, Step};
use crate::traffic::Kind;
use crate::ue::Profile;
use crate::usim::Keys;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vireo_sctp::Driver;
use vireo_types::{EnbId, EnbKind, GnbId, PduSessionType, RanNodeId, Snssai, Supi, Tac, Tai};

/// NGAP port (TS 38.412 7).
pub const NGAP_PORT: u16 = 38412;

/// S1AP port (TS 36.412 7).
pub const S1AP_PORT: u16 = 36412;

/// Subscribers of the UEs.
#[derive(Clone, Debug)]
pub enum Subscribers {
    /// IMSIs from `first` upwards, all with the same keys.
    Range {
        first: Supi,
        /// K and OPc of all subscribers.
        keys: Keys,
    },
    /// Subscribers in order, at least one for each UE.
    List(Arc<[(Supi, Keys)]>),
}

impl Subscribers {
    /// Returns the subscriber of UE number `index`.
    pub fn get(&self, index: u32) -> Option<(Supi, Keys)> {
        match self {
            Subscribers::Range { first, keys } => Some((first.offset(u64::from(index)).ok()?, *keys)),
            Subscribers::List(list) => list.get(index as usize).copied(),
        }
    }
}

/// Echo targets and parameters.
#[derive(Clone, Debug)]
pub struct Echoes {
    /// IPv4 target in the data network.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 target in the data network.
    pub v6: Option<Ipv6Addr>,
    /// Packet type of the echoes.
    pub kind: Kind,
    /// Answered echoes of each session in one traffic step.
    pub count: u32,
    pub octets: usize,
    /// Time to wait for an answer before the echo is sent again.
    pub answer_timeout: Duration,
    /// Transmissions of one echo before it counts as lost.
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
            answer_timeout: Duration::from_secs(1),
            tries: 3,
        }
    }
}

/// Start times of UEs.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Closed loop: this number of UEs runs concurrently.
    Window(u32),
    /// Open loop, constant (pattern T1): UEs start at this rate per second, regardless of the core.
    /// Latency counts from the intended start, so it has no coordinated omission.
    Rate(f64),
    /// Open loop with a pattern and its mean rate per second.
    Pattern(Pattern, f64),
}

/// Behaviour of a UE in a steady load if there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The UE waits for [`Options::timeout`]; then the procedure has failed, and the UE continues
    /// from idle.
    Never,
    /// The UE waits for the timers of TS 24.501 10.2 (T3510, T3517, T3521, T3580, T3582). It then
    /// releases its connection and starts again. After five attempts the procedure has failed.
    Standard,
    /// The UE starts again after every `retry`. After `reattach` it considers its registration lost
    /// and registers again, as the UEs of the stateful baseline in the paper. It restarts a
    /// registration in progress only by T3510.
    After {
        /// Time from a request to its repetition.
        retry: Duration,
        /// Time from the first request to the new registration.
        reattach: Duration,
    },
}

/// UEs that run a share of the procedures of a steady load.
#[derive(Clone, Debug)]
pub struct BusyUes {
    /// File with their IMSIs, one in a line. The load waits for it when all UEs are ready. Another
    /// process may thus choose UEs by what the core has done with them.
    pub file: PathBuf,
    /// Share of all procedures, 0 to 1. Other UEs run the rest.
    pub share: f64,
}

/// Options of one run.
#[derive(Clone, Debug)]
pub struct Options {
    pub rats: Rats,
    /// N2 addresses of the core; gNBs use them in turn.
    pub core: Vec<SocketAddr>,
    /// S1-MME addresses of the core; eNBs use them in turn.
    pub mme: Vec<SocketAddr>,
    /// SCTP associations of each gNB. The first uses the gNB's address in `core`, the others the
    /// following addresses. With one address only, they use those of an AMF Configuration Update,
    /// else the same address.
    pub tnl_associations: u32,
    /// Interval at which every gNB drops one of its associations without notice, in turn, and sets
    /// it up again.
    pub drop_association: Option<Duration>,
    /// N2 addresses of the gNBs, used in turn; if empty, the system chooses.
    pub n2: Vec<IpAddr>,
    /// N3 addresses of the gNBs, used in turn.
    pub n3: Vec<IpAddr>,
    pub driver: Driver,
    /// UDP ports of SCTP over UDP (RFC 6951): local (0: the system chooses) and remote.
    pub sctp_udp_ports: (u16, u16),
    pub gnbs: u32,
    pub ues: u32,
    /// Subscribers of the UEs.
    pub subscribers: Subscribers,
    /// Profile shared by all UEs.
    pub profile: Profile,
    /// Tracking area of all gNBs.
    pub tac: Tac,
    /// Slices that the gNBs support.
    pub slices: Vec<Snssai>,
    /// gNB ID of the first gNB (24 bits).
    pub first_gnb_id: u32,
    /// Type of sessions for which the scenario names none.
    pub session_type: PduSessionType,
    /// Scenario of each UE.
    pub scenario: &'static Scenario,
    /// Steady load in place of the scenario. The UEs first register and establish a session, paced
    /// by `load`. When all are ready, the load runs for `duration`.
    pub steady: Option<Steady>,
    /// Behaviour of a UE if there is no answer; only with `steady`.
    pub retry: Retry,
    /// First part of the steady load, excluded from the latencies; the timeline includes it.
    pub settle: Duration,
    /// Faults during the steady load.
    pub chaos: Option<Chaos>,
    /// UEs that run more procedures of the steady load than others.
    pub busy: Option<BusyUes>,
    /// Interval of [`crate::Report::timeline`], if requested.
    pub timeline: Option<Duration>,
    /// Number of UEs, the first ones, that run the scenario `moves` instead; only with
    /// [`Rats::Both`].
    pub movers: u32,
    /// Number of iterations of the scenario's loop.
    pub rounds: u32,
    pub load: Load,
    /// Time after which no UE and no round starts. With `steady`: time in which procedures are due.
    pub duration: Option<Duration>,
    /// Time limit of each procedure of a UE.
    pub timeout: Duration,
    /// Time that a UE stays idle before it becomes active again.
    pub idle: Duration,
    pub echoes: Echoes,
    /// Maximum number of worker threads; never more than N3 addresses or gNBs.
    pub threads: u32,
    /// Seed of the random choices in loads, negative cases and campaigns.
    pub seed: u64,
    /// Number of messages in a campaign of mutated messages.
    pub messages: u64,
    /// Ends the run early when it becomes true.
    pub stop: Option<Arc<AtomicBool>>,
}

/// K of the subscribers of the lab.
pub const LAB_K: [u8; 16] = *b"\x46\x5B\x5C\xE8\xB1\x99\xB4\x9F\xAA\x5F\x0A\x2E\xE2\x38\xA6\xBC";
/// OPc of the lab's subscribers.
pub const LAB_OPC: [u8; 16] = *b"\xE8\xED\x28\x9D\xEB\xA9\x52\xE4\x28\x3B\x54\xE8\x8E\x61\x83\xCA";

impl Options {
    /// Returns the configuration of gNB `number` of a run.
    pub(crate) fn gnb_config(&self, number: u32) -> GnbConfig {
        let plmn = self.profile.plmn;
        let id = self.first_gnb_id.wrapping_add(number);
        let gnb = || GnbId { plmn, id: id & 0x00ff_ffff, bits: 24 }.into();
        // Every second node, of each length of the identity in turn.
        let kinds = [EnbKind::Macro, EnbKind::ShortMacro, EnbKind::LongMacro];
        let kind = kinds[number as usize / 2 % kinds.len()];
        let ng_enb = || RanNodeId::NgEnb(EnbId { plmn, kind, id: id & 0x0003_ffff });
        let is_ng_enb = self.scenario.has_ng_enbs() && number % 2 == 1;
        GnbConfig {
            id: if is_ng_enb { ng_enb() } else { gnb() },
            name: format!("{}-{id}", if is_ng_enb { "ng-enb" } else { "gnb" }),
            tai: Tai { plmn, tac: self.tac },
            slices: self.slices.clone(),
            n3: self.n3[number as usize % self.n3.len()],
        }
    }

    /// Returns the configuration of eNB `number` of a run. Its ID has 20 bits.
    pub(crate) fn enb_config(&self, number: u32) -> EnbConfig {
        let id = self.first_gnb_id.wrapping_add(number) & 0x000f_ffff;
        EnbConfig {
            id,
            name: format!("enb-{id}"),
            tai: Tai { plmn: self.profile.plmn, tac: self.tac },
            s1u: self.n3[number as usize % self.n3.len()],
        }
    }

    /// Returns the core's addresses for nodes of a technology.
    pub(crate) fn cores(&self, rat: Rat) -> &[SocketAddr] {
        match rat {
            Rat::Nr => &self.core,
            Rat::Eps => &self.mme,
        }
    }

    /// Returns the scenario of UEs of a technology.
    fn scenario_for(&self, rat: Rat) -> &'static Scenario {
        let scenario = match rat {
            Rat::Eps if self.rats == Rats::Both => Scenario::find_for(Rats::Eps, self.scenario.name),
            _ => None,
        };
        scenario.unwrap_or(self.scenario)
    }

    /// Returns the scenario's steps for a UE of a technology.
    pub(crate) fn script(&self, rat: Rat) -> &'static [Step] {
        self.scenario_for(rat).steps()
    }

    /// Returns true if the UEs move between gNBs.
    pub(crate) fn moves(&self) -> bool {
        let moves = || self.rats.list().iter().any(|rat| self.scenario_for(*rat).moves());
        self.steady.as_ref().map_or_else(moves, Steady::moves)
    }

    /// Returns true if nodes restart when all their UEs wait for it.
    pub(crate) fn has_storm(&self) -> bool {
        self.steady.is_none() && self.scenario.steps().contains(&Step::AwaitRestart)
    }

    /// Returns true if the run sends user packets and thus needs N3.
    pub(crate) fn has_traffic(&self) -> bool {
        let target = self.echoes.v4.is_some() || self.echoes.v6.is_some();
        let has_traffic = self.scenario.has_traffic() || self.movers > 0;
        self.steady.as_ref().map_or(has_traffic, |steady| steady.has_data() && target)
    }

    /// Returns options with the lab's values: PLMN 999/70, TAC 1, SST 1, DNN `internet`, IMSIs from
    /// 999700000000001.
    pub fn lab(core: SocketAddr, scenario: &'static Scenario) -> Self {
        let lab = "the lab's values are well formed";
        let snssai = Snssai { sst: 1, sd: None };
        let profile = Profile::new("99970".parse().expect(lab), snssai, "internet".parse().expect(lab));
        let first = "999700000000001".parse().expect(lab);
        Options {
            rats: Rats::Nr,
            core: vec![core],
            mme: vec![SocketAddr::new(core.ip(), S1AP_PORT)],
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
            chaos: None,
            busy: None,
            timeline: None,
            movers: 0,
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
