//! Command-line arguments of `vireo emulate`.

use clap::ValueEnum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use vireo_emulator::Rats;
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::Activity;
use vireo_types::{Dnn, Plmn, Snssai, Supi};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List the scenarios
    #[arg(long)]
    pub(super) list: bool,
    /// Emulate gNBs (5G), eNBs (4G) or both
    ///
    /// With "both" there are as many eNBs as gNBs, and half of the UEs each.
    #[arg(long, value_enum, default_value_t = RatArg::Nr)]
    pub(super) rat: RatArg,
    /// Run this scenario in each UE (see --list)
    #[arg(long, value_name = "S", default_value = "session")]
    pub(super) scenario: String,
    /// Connect to N2 addresses, optional port; gNBs use several in turn
    ///
    /// With --rat eps these are the S1-MME addresses.
    #[arg(long, value_name = "ADDR", required_unless_present = "list", value_parser = core_address)]
    pub(super) core: Vec<CoreAddress>,
    /// Connect eNBs to S1-MME addresses [default: --core, port 36412]
    #[arg(long, value_name = "ADDR", value_parser = core_address)]
    pub(super) mme: Vec<CoreAddress>,
    /// Set up N SCTP associations per gNB
    ///
    /// A gNB uses its own address of --core and the following ones. With a single --core it uses
    /// the addresses that the core announces (n2.endpoints), else the same one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(super) tnl_associations: u32,
    /// Drop one association of every gNB, in turn, each TIME; set it up again
    ///
    /// The gNB drops the association silently.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) drop_association: Option<Duration>,
    /// Use these N2 addresses for gNBs, in turn [default: system's choice]
    #[arg(long, value_name = "ADDR")]
    pub(super) n2: Vec<IpAddr>,
    /// Use these N3 addresses, in turn [default: --n2 or route to the core]
    #[arg(long, value_name = "ADDR")]
    pub(super) n3: Vec<IpAddr>,
    /// Select the SCTP implementation
    #[arg(long, value_enum, default_value_t = Sctp::Auto)]
    pub(super) sctp: Sctp,
    /// Set the local UDP port of SCTP over UDP (0: system's choice)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) sctp_udp_port: u16,
    /// Set the core's UDP port of SCTP over UDP
    #[arg(long, value_name = "PORT", default_value_t = vireo_sctp::UDP_ENCAPSULATION_PORT)]
    pub(super) sctp_udp_peer_port: u16,
    /// Emulate N gNBs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) gnbs: u32,
    /// Emulate N UEs
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
    /// Use N worker threads; gNBs with the same N3 address share a thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: u32,
    /// Set the seed of loads, misbehaviour scenarios and mutated messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Suppress progress and table
    #[arg(long)]
    pub(super) quiet: bool,
}

/// Start of UEs and time limits
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Start R UEs per second (open loop); with --load or --mix: procedures
    #[arg(long, value_name = "R")]
    pub(super) rate: Option<f64>,
    #[arg(
        long,
        value_name = "P",
        help = "Vary the rate over time: T1, T2, T3, T4 or poisson [default: T1]",
        long_help = format!("Vary the rate over time [default: T1]\n\n{}", Pattern::HELP)
    )]
    pub(super) pattern: Option<Pattern>,
    /// Run weighted activities, e.g. service-request=0.7,xn-handover=0.3
    ///
    /// Registered UEs run these instead of a scenario: service-request, periodic-update,
    /// mobility-update, xn-handover, n2-handover, session, registration and registration-session.
    /// Only --mix has data and paging. Needs --rate and --duration.
    #[arg(long, value_name = "KINDS", conflicts_with = "mix", value_delimiter = ',', value_parser = weight)]
    pub(super) load: Vec<(Activity, f64)>,
    /// Run device profiles of a TOML file (see examples/mix.toml)
    ///
    /// The profiles meter, alarm, tracker and phone are built in. --rate scales all profiles;
    /// --pattern applies to all activities that are not periodic.
    #[arg(long, value_name = "FILE")]
    pub(super) mix: Option<PathBuf>,
    /// Register R UEs per second before --load or --mix starts
    ///
    /// The default is --window registrations at once.
    #[arg(long, value_name = "R")]
    pub(super) register_rate: Option<f64>,
    /// Stay connected for TIME after a procedure of --load
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = span)]
    pub(super) dwell: Duration,
    /// Retry unanswered requests of --load and --mix: standard, never or TIME
    ///
    /// "standard" uses the timers of TS 24.501 and five attempts, "never" counts a failure after
    /// --timeout, and a time such as 1s repeats at that interval. With "never", a rejection whose
    /// T3346 exceeds --timeout is a failure too; otherwise the UE waits for T3346 up to 60 s.
    #[arg(long, value_name = "R", default_value = "standard", value_parser = persistence)]
    pub(super) retry: Persistence,
    /// Register again TIME after the first attempt, if --retry is a time
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub(super) reattach: Duration,
    /// Exclude the first TIME of --load and --mix from latencies
    ///
    /// The timeline includes it.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = span)]
    pub(super) settle: Duration,
    /// Give --busy-share of the procedures of --load to the UEs that FILE lists
    ///
    /// FILE has one IMSI in a line. The load waits for FILE when all UEs are ready.
    #[arg(long, value_name = "FILE", requires = "load")]
    pub(super) busy_ues: Option<PathBuf>,
    /// Set the share of the procedures of --busy-ues, 0 to 1
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = fraction)]
    pub(super) busy_share: f64,
    /// Write latency over time as CSV, by due time of procedures
    #[arg(long, value_name = "FILE")]
    pub(super) timeline: Option<PathBuf>,
    /// Set the interval of timeline rows
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = span)]
    pub(super) timeline_interval: Duration,
    /// Keep N UEs active at once (closed loop)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) window: u32,
    /// Start no UE, round or procedure after TIME (a plain number is seconds)
    ///
    /// Procedures start only with --load and --mix.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) duration: Option<Duration>,
    /// Let the first N UEs run the scenario "moves", with --rat both
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) movers: u32,
    /// Repeat the loop of a scenario N times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) rounds: u32,
    /// Limit each procedure of a UE, and the end of a load, to TIME
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = span)]
    pub(super) timeout: Duration,
    /// Stay idle for MS milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pub(super) idle: u64,
}

/// Network of the UEs and gNBs
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub(super) struct NetworkArgs {
    /// Set the PLMN: MCC and MNC
    #[arg(long, default_value = "99970")]
    pub(super) plmn: Plmn,
    /// Set the tracking area code of the gNBs
    #[arg(long, default_value_t = 1)]
    pub(super) tac: u32,
    /// Set the S-NSSAI of gNBs and sessions: SST, or SST-SD in hexadecimal
    #[arg(long, default_value = "1")]
    pub(super) snssai: Snssai,
    /// Set the data network of the sessions
    #[arg(long, default_value = "internet")]
    pub(super) dnn: Dnn,
    /// Set the type of sessions where the scenario sets none
    #[arg(long, value_enum, default_value_t = SessionType::Ipv4)]
    pub(super) session_type: SessionType,
    /// Set the ID of the first gNB, 24 bits
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub(super) gnb_id: u32,
    /// Offer only NEA0 or EEA0 ciphering, so that captures are readable
    #[arg(long)]
    pub(super) null_ciphering: bool,
    /// Let the network choose the APN of LTE UEs (no ESM information)
    #[arg(long)]
    pub(super) default_apn: bool,
}

/// Subscribers of the UEs
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Subscribers")]
pub(super) struct SubscriberArgs {
    /// Set the IMSI of the first UE; the others count up from it
    #[arg(long, default_value = "999700000000001", conflicts_with = "subscribers")]
    pub(super) imsi: Supi,
    /// Set K of all UEs, 32 hexadecimal digits [default: the lab's]
    #[arg(long, value_name = "HEX", value_parser = key, conflicts_with = "subscribers")]
    pub(super) k: Option<[u8; 16]>,
    /// Set OPc of all UEs, 32 hexadecimal digits [default: the lab's]
    #[arg(long, value_name = "HEX", value_parser = key, conflicts_with = "subscribers")]
    pub(super) opc: Option<[u8; 16]>,
    /// Read UEs from a CSV file (vireo subscriber export --with-keys)
    #[arg(long, value_name = "FILE")]
    pub(super) subscribers: Option<PathBuf>,
    /// Conceal SUCIs with this home network public key, in hexadecimal
    ///
    /// A key of 32 octets is Profile A, one of 33 or 65 octets Profile B.
    #[arg(long, value_name = "HEX")]
    pub(super) home_key: Option<String>,
    /// Set the identifier of that key, 1 to 254
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=254))]
    pub(super) home_key_id: u8,
}

/// Campaigns of mutated messages
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Mutated messages (--scenario mutate)")]
pub(super) struct MutationArgs {
    /// Send N messages
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// Watch the memory of local core process PID and its children
    #[arg(long, value_name = "PID")]
    pub(super) pid: Vec<u32>,
    /// Fail if memory grows by more than KIB after a tenth of the messages
    #[arg(long, value_name = "KIB", default_value_t = 16_384, requires = "pid")]
    pub(super) max_growth: u64,
}

/// User traffic
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traffic")]
pub(super) struct EchoArgs {
    /// Send echoes to this IPv4 address in the data network
    #[arg(long, value_name = "ADDR")]
    pub(super) echo_v4: Option<Ipv4Addr>,
    /// Send echoes to this IPv6 address in the data network
    #[arg(long, value_name = "ADDR")]
    pub(super) echo_v6: Option<Ipv6Addr>,
    /// Send N echoes per session in a traffic step
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) echoes: u32,
    /// Send each echo up to N times, once per second, before it is lost
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(super) echo_tries: u32,
    /// Set the payload of an echo in bytes
    #[arg(long, value_name = "N", default_value_t = 56, value_parser = clap::value_parser!(u16).range(2..=60_000))]
    pub(super) echo_octets: u16,
    /// Send echoes by UDP to this port instead of ICMP
    #[arg(long, value_name = "PORT")]
    pub(super) echo_udp: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RatArg {
    /// Emulate gNBs and 5G UEs
    Nr,
    /// Emulate eNBs and LTE UEs
    Eps,
    /// Emulate both
    Both,
}

impl RatArg {
    pub(super) fn rats(self) -> Rats {
        match self {
            RatArg::Nr => Rats::Nr,
            RatArg::Eps => Rats::Eps,
            RatArg::Both => Rats::Both,
        }
    }
}

/// Address of a core, with a port if one was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CoreAddress {
    ip: IpAddr,
    port: Option<u16>,
}

impl CoreAddress {
    /// Returns the address with its port, or with the default one.
    pub(super) fn or_port(self, default: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(default))
    }

    /// Returns the IP address with this port.
    pub(super) fn with_port(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Sctp {
    /// Use the kernel's SCTP if available, else usrsctp over raw IP
    Auto,
    /// Use the kernel's SCTP
    Kernel,
    /// Use usrsctp over raw IP
    UserspaceIp,
    /// Use usrsctp over UDP (RFC 6951)
    UserspaceUdp,
}

/// Reaction of a UE to an unanswered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    Never,
    Standard,
    After(Duration),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SessionType {
    /// Use IPv4
    Ipv4,
    /// Use IPv6
    Ipv6,
    /// Use IPv4 and IPv6
    Ipv4v6,
}

fn core_address(text: &str) -> Result<CoreAddress, String> {
    let whole = text.parse::<SocketAddr>().map(|address| CoreAddress { ip: address.ip(), port: Some(address.port()) });
    let address = whole.or_else(|_| text.parse().map(|ip| CoreAddress { ip, port: None }));
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

/// Parses a time: `10`, `1.5` (seconds), `100ms`, `5m`.
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

fn fraction(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "write a number from 0 to 1".into())
}

/// Parses `service-request=0.7`. The weight is 1 without a number.
fn weight(text: &str) -> Result<(Activity, f64), String> {
    let (kind, weight) = text.split_once('=').unwrap_or((text, "1"));
    let number = weight.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
    let weight = number.ok_or_else(|| format!("the weight {weight:?} of {kind} must be a number, 0 or more"))?;
    let activity = kind.trim().parse::<Activity>().map_err(|error| error.to_string())?;
    Ok((activity, weight))
}
