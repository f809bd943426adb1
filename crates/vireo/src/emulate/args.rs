//! The command line of `vireo emulate`.

use clap::ValueEnum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use vireo_emulator::NGAP_PORT;
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::Activity;
use vireo_types::{Dnn, Plmn, Snssai, Supi};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List the scenarios
    #[arg(long)]
    pub(super) list: bool,
    /// What each UE does (see --list)
    #[arg(long, value_name = "S", default_value = "session")]
    pub(super) scenario: String,
    /// The core's N2 address, with or without a port; several: gNBs take them in turn
    #[arg(long, value_name = "ADDR", required_unless_present = "list", value_parser = core_address)]
    pub(super) core: Vec<SocketAddr>,
    /// SCTP associations of each gNB: with its own address of --core and those after it; if there is one only, with those
    /// that the core tells of (n2.endpoints), else with the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(super) tnl_associations: u32,
    /// So often every gNB drops one of its associations without a word, in turn, and sets it up again
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) drop_association: Option<Duration>,
    /// The gNBs' own N2 addresses, taken in turn [default: the system chooses]
    #[arg(long, value_name = "ADDR")]
    pub(super) n2: Vec<IpAddr>,
    /// The gNBs' own N3 addresses, taken in turn [default: --n2, or the address towards the core]
    #[arg(long, value_name = "ADDR")]
    pub(super) n3: Vec<IpAddr>,
    /// How SCTP is spoken
    #[arg(long, value_enum, default_value_t = Sctp::Auto)]
    pub(super) sctp: Sctp,
    /// Own UDP port of SCTP over UDP (0: the system chooses)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) sctp_udp_port: u16,
    /// The core's UDP port of SCTP over UDP
    #[arg(long, value_name = "PORT", default_value_t = vireo_sctp::UDP_ENCAPSULATION_PORT)]
    pub(super) sctp_udp_peer_port: u16,
    /// gNBs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) gnbs: u32,
    /// UEs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ues: u32,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) network: NetworkArgs,
    #[command(flatten)]
    pub(super) subscribers: SubscriberArgs,
    #[command(flatten)]
    pub(super) echo: EchoArgs,
    #[command(flatten)]
    pub(super) mutation: MutationArgs,
    /// Worker threads; gNBs that share an N3 address share a thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: u32,
    /// Seed of what is random in loads, misbehaviour scenarios and mutated messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// No progress and no table
    #[arg(long)]
    pub(super) quiet: bool,
}

/// When UEs start and how long things may take.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Open loop, whatever the core does: UEs that start in a second; with --load and --mix procedures in a second
    #[arg(long, value_name = "R")]
    pub(super) rate: Option<f64>,
    #[arg(long, value_name = "P", help = format!("How the rate goes over time: {} [default: T1]", Pattern::HELP))]
    pub(super) pattern: Option<Pattern>,
    /// What registered UEs do instead of a scenario, with weights: "service-request=0.7,xn-handover=0.3". There are
    /// service-request, periodic-update, mobility-update, xn-handover, n2-handover, session, registration and
    /// registration-session; data and paging are of --mix alone. Needs --rate and --duration
    #[arg(long, value_name = "KINDS", conflicts_with = "mix", value_delimiter = ',', value_parser = weight)]
    pub(super) load: Vec<(Activity, f64)>,
    /// The same by profiles of devices from a TOML file: meter, alarm, tracker and phone are built in, examples/mix.toml
    /// explains the rest. --rate speeds all up or slows all down, --pattern goes for all that is not periodic
    #[arg(long, value_name = "FILE")]
    pub(super) mix: Option<PathBuf>,
    /// With --load and --mix: registrations that begin in a second before the load does [default: --window at once]
    #[arg(long, value_name = "R")]
    pub(super) register_rate: Option<f64>,
    /// With --load: how long a UE stays connected after a procedure
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = span)]
    pub(super) dwell: Duration,
    /// With --load and --mix, when there is no answer: "standard" (the timers of TS 24.501, five attempts), "never" (a
    /// failure after --timeout), or a time such as 1s after which the UE tries again and again
    #[arg(long, value_name = "R", default_value = "standard", value_parser = persistence)]
    pub(super) retry: Persistence,
    /// With a time for --retry: when the UE takes itself for lost and registers anew
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub(super) reattach: Duration,
    /// With --load and --mix: leave the first part of the load out of the latencies; the timeline has it
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = span)]
    pub(super) settle: Duration,
    /// Write latency over time as CSV, by when procedures were due
    #[arg(long, value_name = "FILE")]
    pub(super) timeline: Option<PathBuf>,
    /// The interval of its rows
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = span)]
    pub(super) timeline_interval: Duration,
    /// Closed loop: UEs that are under way at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) window: u32,
    /// No UE, no round and (with --load and --mix) no procedure starts after this time; a number alone is seconds
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) duration: Option<Duration>,
    /// How often a scenario's loop runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) rounds: u32,
    /// Time in which each procedure of a UE must be done; after a load, how long the last ones may take
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = span)]
    pub(super) timeout: Duration,
    /// Milliseconds that a UE stays idle
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pub(super) idle: u64,
}

/// The network that the UEs and gNBs belong to.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub(super) struct NetworkArgs {
    /// PLMN: MCC and MNC
    #[arg(long, default_value = "99970")]
    pub(super) plmn: Plmn,
    /// Tracking area code of the gNBs
    #[arg(long, default_value_t = 1)]
    pub(super) tac: u32,
    /// S-NSSAI of the gNBs and the sessions: SST, or SST-SD in hexadecimal
    #[arg(long, default_value = "1")]
    pub(super) snssai: Snssai,
    /// Data network of the sessions
    #[arg(long, default_value = "internet")]
    pub(super) dnn: Dnn,
    /// Type of the sessions for which the scenario names none
    #[arg(long, value_enum, default_value_t = SessionType::Ipv4)]
    pub(super) session_type: SessionType,
    /// ID of the first gNB, 24 bits
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub(super) gnb_id: u32,
    /// The UEs offer no ciphering but NEA0, so that a capture can be read
    #[arg(long)]
    pub(super) null_ciphering: bool,
}

/// Who the UEs are.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Subscribers")]
pub(super) struct SubscriberArgs {
    /// The first UE's IMSI; the others count up from it
    #[arg(long, default_value = "999700000000001", conflicts_with = "subscribers")]
    pub(super) imsi: Supi,
    /// K of all UEs, 32 hexadecimal digits [default: the lab's]
    #[arg(long, value_name = "HEX", value_parser = key, conflicts_with = "subscribers")]
    pub(super) k: Option<[u8; 16]>,
    /// OPc of all UEs, 32 hexadecimal digits [default: the lab's]
    #[arg(long, value_name = "HEX", value_parser = key, conflicts_with = "subscribers")]
    pub(super) opc: Option<[u8; 16]>,
    /// UEs from a CSV file, as `vireo subscriber export --with-keys` writes it
    #[arg(long, value_name = "FILE")]
    pub(super) subscribers: Option<PathBuf>,
    /// Conceal SUCIs with this public key of the home network (hexadecimal): 32 octets are Profile A, 33 or 65 Profile B
    #[arg(long, value_name = "HEX")]
    pub(super) home_key: Option<String>,
    /// Identifier of that key, 1 to 254
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=254))]
    pub(super) home_key_id: u8,
}

/// Campaigns of mutated messages.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Mutated messages (--scenario mutate)")]
pub(super) struct MutationArgs {
    /// Send N messages
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// Watch the memory of a core's process and its children, on this machine
    #[arg(long, value_name = "PID")]
    pub(super) pid: Vec<u32>,
    /// Fail if their memory grows by more after a tenth of the messages [unit: KiB]
    #[arg(long, value_name = "KIB", default_value_t = 16_384, requires = "pid")]
    pub(super) max_growth: u64,
}

/// User traffic.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traffic")]
pub(super) struct EchoArgs {
    /// IPv4 address in the data network that answers echoes
    #[arg(long, value_name = "ADDR")]
    pub(super) echo_v4: Option<Ipv4Addr>,
    /// IPv6 address in the data network that answers echoes
    #[arg(long, value_name = "ADDR")]
    pub(super) echo_v6: Option<Ipv6Addr>,
    /// Echoes of each session in a traffic step
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) echoes: u32,
    /// How often an echo is sent, once a second, before it counts as lost
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(super) echo_tries: u32,
    /// Octets of an echo's payload
    #[arg(long, value_name = "N", default_value_t = 56, value_parser = clap::value_parser!(u16).range(2..=60_000))]
    pub(super) echo_octets: u16,
    /// Echoes by UDP to this port instead of ICMP
    #[arg(long, value_name = "PORT")]
    pub(super) echo_udp: Option<u16>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Sctp {
    /// The kernel's where it has one, else usrsctp over raw IP
    Auto,
    /// The kernel's
    Kernel,
    /// usrsctp over raw IP
    UserspaceIp,
    /// usrsctp over UDP (RFC 6951)
    UserspaceUdp,
}

/// What a UE does when there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    Never,
    Standard,
    After(Duration),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SessionType {
    /// IPv4
    Ipv4,
    /// IPv6
    Ipv6,
    /// Both
    Ipv4v6,
}

fn core_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, NGAP_PORT)));
    address.map_err(|_| "write an IP address, or ADDR:PORT ([ADDR]:PORT for IPv6)".into())
}

pub(super) fn octets(text: &str) -> Option<Vec<u8>> {
    let pair = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
    let hexadecimal = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| (0..text.len()).step_by(2).map(pair).collect()).flatten()
}

fn key(text: &str) -> Result<[u8; 16], String> {
    octets(text).and_then(|octets| octets.try_into().ok()).ok_or_else(|| "a key is 32 hexadecimal digits".into())
}

/// A time: `10`, `1.5` (seconds), `100ms`, `5m`.
fn span(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let wrong = "write a time such as 10, 1.5 (seconds), 100ms or 5m";
    seconds.map_or_else(|| humantime::parse_duration(text).map_err(|_| wrong.into()), Ok)
}

fn persistence(text: &str) -> Result<Persistence, String> {
    match text {
        "never" => Ok(Persistence::Never),
        "standard" => Ok(Persistence::Standard),
        time => match span(time) {
            Ok(time) if !time.is_zero() => Ok(Persistence::After(time)),
            _ => Err("write standard, never, or a time such as 1s".into()),
        },
    }
}

/// `service-request=0.7`; without a number the weight is 1.
fn weight(text: &str) -> Result<(Activity, f64), String> {
    let (kind, weight) = text.split_once('=').unwrap_or((text, "1"));
    let number = weight.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
    let weight = number.ok_or_else(|| format!("the weight {weight:?} of {kind} must be a number, 0 or more"))?;
    Ok((kind.trim().parse()?, weight))
}
