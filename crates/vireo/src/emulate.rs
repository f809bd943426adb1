//! `vireo emulate`: gNBs and UEs against any 5G core.

use crate::cli::Failure;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vireo_emulator::scenario::{ALL, Scenario, Scheme};
use vireo_emulator::traffic::Kind;
use vireo_emulator::ue::Profile;
use vireo_emulator::usim::{Concealment, Keys};
use vireo_emulator::{Echoes, LAB_K, LAB_OPC, Load, NGAP_PORT, Options, Phase, Progress, Subscribers};
use vireo_sctp::Driver;
use vireo_types::{Dnn, PduSessionType, Plmn, Snssai, Supi, Tac};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// What each UE does (see --list)
    #[arg(long, value_name = "S", default_value = "session")]
    scenario: String,
    /// The core's N2 address, with or without a port; several: gNBs take them in turn
    #[arg(long, value_name = "ADDR", required_unless_present = "list", value_parser = core_address)]
    core: Vec<SocketAddr>,
    /// The gNBs' own N2 addresses, taken in turn [default: the system chooses]
    #[arg(long, value_name = "ADDR")]
    n2: Vec<IpAddr>,
    /// The gNBs' own N3 addresses, taken in turn [default: --n2, or the address towards the core]
    #[arg(long, value_name = "ADDR")]
    n3: Vec<IpAddr>,
    /// How SCTP is spoken
    #[arg(long, value_enum, default_value_t = Sctp::Auto)]
    sctp: Sctp,
    /// Own UDP port of SCTP over UDP (0: the system chooses)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    sctp_udp_port: u16,
    /// The core's UDP port of SCTP over UDP
    #[arg(long, value_name = "PORT", default_value_t = vireo_sctp::UDP_ENCAPSULATION_PORT)]
    sctp_udp_peer_port: u16,
    /// gNBs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    gnbs: u32,
    /// UEs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ues: u32,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    subscribers: SubscriberArgs,
    #[command(flatten)]
    echo: EchoArgs,
    /// Worker threads; gNBs that share an N3 address share a thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Seeds what is random in the misbehaviour scenarios
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// No progress and no table
    #[arg(long)]
    quiet: bool,
}

/// When UEs start and how long things may take.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Open loop: UEs that start in a second, whatever the core does
    #[arg(long, value_name = "R", conflicts_with = "window")]
    rate: Option<f64>,
    /// How the rate goes over time
    #[arg(long, value_enum, default_value_t = Pattern::T1, requires = "rate")]
    pattern: Pattern,
    /// Closed loop: UEs that are under way at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    window: u32,
    /// No UE and no round starts after this many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// How often a scenario's loop runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Seconds in which each procedure of a UE must be done
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    timeout: f64,
    /// Milliseconds that a UE stays idle
    #[arg(long, value_name = "MS", default_value_t = 10)]
    idle: u64,
}

/// The network that the UEs and gNBs belong to.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct NetworkArgs {
    /// PLMN: MCC and MNC
    #[arg(long, default_value = "99970")]
    plmn: Plmn,
    /// Tracking area code of the gNBs
    #[arg(long, default_value_t = 1)]
    tac: u32,
    /// S-NSSAI of the gNBs and the sessions: SST, or SST-SD in hexadecimal
    #[arg(long, default_value = "1")]
    snssai: Snssai,
    /// Data network of the sessions
    #[arg(long, default_value = "internet")]
    dnn: Dnn,
    /// Type of the sessions for which the scenario names none
    #[arg(long, value_enum, default_value_t = SessionType::Ipv4)]
    session_type: SessionType,
    /// ID of the first gNB, 24 bits
    #[arg(long, value_name = "ID", default_value_t = 1)]
    gnb_id: u32,
    /// The UEs offer no ciphering but NEA0, so that a capture can be read
    #[arg(long)]
    null_ciphering: bool,
}

/// Who the UEs are.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Subscribers")]
struct SubscriberArgs {
    /// The first UE's IMSI; the others count up from it
    #[arg(long, default_value = "999700000000001", conflicts_with = "subscribers")]
    imsi: Supi,
    /// K of all UEs, 32 hexadecimal digits [default: the lab's]
    #[arg(long, value_name = "HEX", value_parser = key, conflicts_with = "subscribers")]
    k: Option<[u8; 16]>,
    /// OPc of all UEs, 32 hexadecimal digits [default: the lab's]
    #[arg(long, value_name = "HEX", value_parser = key, conflicts_with = "subscribers")]
    opc: Option<[u8; 16]>,
    /// UEs from a CSV file, as `vireo subscriber export --with-keys` writes it
    #[arg(long, value_name = "FILE")]
    subscribers: Option<PathBuf>,
    /// Conceal SUCIs with this public key of the home network (hexadecimal): 32 octets are Profile A, 33 or 65 Profile B
    #[arg(long, value_name = "HEX")]
    home_key: Option<String>,
    /// Identifier of that key, 1 to 254
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=254))]
    home_key_id: u8,
}

/// User traffic.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traffic")]
struct EchoArgs {
    /// IPv4 address in the data network that answers echoes
    #[arg(long, value_name = "ADDR")]
    echo_v4: Option<Ipv4Addr>,
    /// IPv6 address in the data network that answers echoes
    #[arg(long, value_name = "ADDR")]
    echo_v6: Option<Ipv6Addr>,
    /// Echoes of each session in a traffic step
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    echoes: u32,
    /// Octets of an echo's payload
    #[arg(long, value_name = "N", default_value_t = 56, value_parser = clap::value_parser!(u16).range(2..=60_000))]
    echo_octets: u16,
    /// Echoes by UDP to this port instead of ICMP
    #[arg(long, value_name = "PORT")]
    echo_udp: Option<u16>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sctp {
    /// The kernel's where it has one, else usrsctp over raw IP
    Auto,
    /// The kernel's
    Kernel,
    /// usrsctp over raw IP
    UserspaceIp,
    /// usrsctp over UDP (RFC 6951)
    UserspaceUdp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Pattern {
    /// Constant
    #[value(name = "T1", alias = "t1")]
    T1,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SessionType {
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

fn octets(text: &str) -> Option<Vec<u8>> {
    let pair = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
    let hexadecimal = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| (0..text.len()).step_by(2).map(pair).collect()).flatten()
}

fn key(text: &str) -> Result<[u8; 16], String> {
    octets(text).and_then(|octets| octets.try_into().ok()).ok_or_else(|| "a key is 32 hexadecimal digits".into())
}

/// Runs the emulator; fails if any UE failed.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.list {
        for scenario in ALL {
            println!("{:<16} {}", scenario.name, scenario.about);
        }
        return Ok(());
    }
    let mut options = options(args)?;
    let mut json = args.json.as_deref().map(create).transpose()?;
    let stop = stop_on_signal()?;
    options.stop = Some(Arc::clone(&stop));
    let bar = if args.quiet { ProgressBar::hidden() } else { bar(u64::from(options.ues)) };
    let result = vireo_emulator::run(&options, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = result?;
    if !args.quiet {
        print!("{report}");
    }
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &report)?;
        file.write_all(b"\n")?;
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Failure(format!("stopped after {} of {} UEs", report.started, report.ues)));
    }
    if report.is_success() {
        return Ok(());
    }
    Err(Failure(match report.cases.iter().filter(|case| !case.passed()).count() {
        0 => format!("{} of {} UEs succeeded: see the table", report.succeeded, report.ues),
        failed => format!("{failed} of {} cases failed: see above", report.cases.len()),
    }))
}

fn create(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::create(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

fn bar(ues: u64) -> ProgressBar {
    let bar = ProgressBar::new(ues);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} UEs, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.ues);
    bar.set_position(progress.done);
    bar.set_message(match progress.phase {
        Phase::Connecting => "connecting the gNBs".into(),
        _ if progress.failed > 0 => format!("{} failed", progress.failed),
        _ => format!("{} registered, {} sessions", progress.registered, progress.sessions),
    });
}

/// A flag that the first Ctrl-C or SIGTERM sets: no UE starts any more, and what was measured is told.
fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = runtime.block_on(async {
        Ok::<_, std::io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        });
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

fn options(args: &Args) -> Result<Options, Failure> {
    let scenario = Scenario::find(&args.scenario)
        .ok_or_else(|| Failure(format!("there is no scenario {:?}: see vireo emulate --list", args.scenario)))?;
    let first_core = *args.core.first().ok_or_else(|| Failure("give --core ADDR".into()))?;
    let network = &args.network;
    if network.tac >= 1 << 24 {
        return Err(Failure("--tac has 24 bits: at most 16777215".into()));
    }
    if args.load.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err(Failure("--rate must be more than 0".into()));
    }
    let mut profile = Profile::new(network.plmn, network.snssai, network.dnn.clone());
    profile.concealment = concealment(&args.subscribers, scenario)?;
    if network.null_ciphering {
        (profile.ciphering, profile.integrity) = (0x80, 0x20);
    }
    let n3 = match (&args.n3[..], &args.n2[..]) {
        ([], []) => vec![towards(first_core)?],
        ([], n2) => n2.to_vec(),
        (n3, _) => n3.to_vec(),
    };
    let lab = Options::lab(first_core, scenario);
    Ok(Options {
        core: args.core.clone(),
        n2: args.n2.clone(),
        n3,
        driver: match args.sctp {
            Sctp::Auto => Driver::Auto,
            Sctp::Kernel => Driver::Kernel,
            Sctp::UserspaceIp => Driver::UserspaceIp,
            Sctp::UserspaceUdp => Driver::UserspaceUdp,
        },
        sctp_udp_ports: (args.sctp_udp_port, args.sctp_udp_peer_port),
        gnbs: args.gnbs,
        ues: args.ues,
        subscribers: subscribers(&args.subscribers)?,
        profile,
        tac: Tac(network.tac),
        slices: vec![network.snssai],
        first_gnb_id: network.gnb_id,
        session_type: match network.session_type {
            SessionType::Ipv4 => PduSessionType::Ipv4,
            SessionType::Ipv6 => PduSessionType::Ipv6,
            SessionType::Ipv4v6 => PduSessionType::Ipv4v6,
        },
        rounds: args.load.rounds.max(1),
        load: match (args.load.rate, args.load.pattern) {
            (Some(rate), Pattern::T1) => Load::Rate(rate),
            (None, Pattern::T1) => Load::Window(args.load.window),
        },
        duration: args.load.duration.map(|s| span(s, "--duration")).transpose()?,
        timeout: span(args.load.timeout, "--timeout")?,
        idle: Duration::from_millis(args.load.idle),
        echoes: Echoes {
            v4: args.echo.echo_v4,
            v6: args.echo.echo_v6,
            kind: args.echo.echo_udp.map_or(Kind::Icmp, Kind::Udp),
            count: args.echo.echoes,
            octets: usize::from(args.echo.echo_octets),
            ..Echoes::default()
        },
        threads: args.threads.max(1),
        seed: args.seed,
        ..lab
    })
}

fn span(seconds: f64, option: &str) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds).map_err(|_| Failure(format!("{option} must be a number of seconds")))
}

/// The address that this machine has towards the core.
fn towards(core: SocketAddr) -> Result<IpAddr, Failure> {
    let any: IpAddr = if core.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(core)?;
        socket.local_addr()
    });
    match address {
        Ok(address) => Ok(address.ip()),
        Err(error) => Err(Failure(format!("this machine has no route to {}: {error}; give --n2 and --n3", core.ip()))),
    }
}

fn subscribers(args: &SubscriberArgs) -> Result<Subscribers, Failure> {
    let Some(path) = &args.subscribers else {
        let keys = Keys { k: args.k.unwrap_or(LAB_K), opc: args.opc.unwrap_or(LAB_OPC) };
        return Ok(Subscribers::Range { first: args.imsi, keys });
    };
    let file = std::fs::File::open(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let list = vireo_subscribers::format::read_csv(file)?;
    let keys = |s: &vireo_subscribers::Subscriber| (s.supi, Keys { k: *s.k.octets(), opc: *s.opc.octets() });
    Ok(Subscribers::List(list.iter().map(keys).collect()))
}

fn concealment(args: &SubscriberArgs, scenario: &Scenario) -> Result<Concealment, Failure> {
    use vireo_emulator::usim::HomeNetworkPublicKey;
    let Some(text) = &args.home_key else {
        return match scenario.scheme {
            Scheme::Any => Ok(Concealment::Null),
            _ => Err(Failure(format!(
                "scenario {} conceals SUCIs: give --home-key with the public key (vireo subscriber hn-key makes a pair)",
                scenario.name
            ))),
        };
    };
    let octets = octets(text).ok_or_else(|| Failure("--home-key takes hexadecimal digits".into()))?;
    let (key, scheme) = match <[u8; 32]>::try_from(octets.as_slice()) {
        Ok(octets) => (HomeNetworkPublicKey::profile_a(&octets), Scheme::A),
        Err(_) => {
            let key = HomeNetworkPublicKey::profile_b(&octets);
            (
                key.map_err(|_| Failure("--home-key is no key of Profile A (32 octets) or B (33 or 65)".into()))?,
                Scheme::B,
            )
        }
    };
    if scenario.scheme != Scheme::Any && scenario.scheme != scheme {
        return Err(Failure(format!("scenario {} needs a key of the other profile", scenario.name)));
    }
    Ok(Concealment::Ecies { key_id: args.home_key_id, key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Options, String> {
        let line = Line::try_parse_from([&["emulate"], line].concat()).map_err(|error| error.to_string())?;
        options(&line.args).map_err(|failure| failure.0)
    }

    #[test]
    fn the_stable_contract_is_understood() {
        let line = ["--core", "127.0.0.1", "--scenario", "full", "--gnbs", "2", "--ues", "500", "--rate", "100"];
        let options = parse(&[&line[..], &["--pattern", "T1", "--echo-v4", "10.45.0.1"]].concat()).expect("is right");
        assert_eq!(options.core, ["127.0.0.1:38412".parse().expect("an address")]);
        assert_eq!((options.gnbs, options.ues, options.load), (2, 500, Load::Rate(100.0)));
        assert_eq!(options.n3, ["127.0.0.1".parse::<IpAddr>().expect("an address")]);
        assert_eq!(options.scenario.name, "full");
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        assert!(parse(&[]).is_err_and(|why| why.contains("--core")));
        let core = ["--core", "[::1]:5000"];
        let with = |more: &[&str]| parse(&[&core[..], more].concat());
        assert!(with(&["--scenario", "nothing"]).is_err_and(|why| why.contains("--list")));
        assert!(with(&["--rate", "0"]).is_err_and(|why| why.contains("--rate")));
        assert!(with(&["--k", "00"]).is_err_and(|why| why.contains("32 hexadecimal")));
        assert!(with(&["--scenario", "profile-a"]).is_err_and(|why| why.contains("--home-key")));
        let key = "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650";
        assert!(with(&["--scenario", "profile-b", "--home-key", key]).is_err_and(|why| why.contains("other profile")));
        assert!(with(&["--scenario", "profile-a", "--home-key", key]).is_ok());
        assert_eq!(with(&[]).map(|options| options.core[0].port()), Ok(5000));
    }
}
