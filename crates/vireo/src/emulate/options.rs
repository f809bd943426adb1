//! Conversion of command-line arguments into emulator options.

use super::args::{Args, LoadArgs, Persistence, RatArg, Sctp, SessionType, SubscriberArgs, octets};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use vireo_config::Failure;
use vireo_emulator::chaos::Chaos;
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::{Mix, Steady};
use vireo_emulator::scenario::{Mode, Scenario, Scheme};
use vireo_emulator::traffic::Kind;
use vireo_emulator::ue::Profile;
use vireo_emulator::usim::{Concealment, Keys};
use vireo_emulator::{BusyUes, Echoes, LAB_K, LAB_OPC, Load, NGAP_PORT, Options, Retry, S1AP_PORT, Subscribers};
use vireo_sctp::Driver;
use vireo_types::{PduSessionType, Tac};

pub(super) fn options(args: &Args) -> Result<Options, Failure> {
    let rats = args.rat.rats();
    let scenario = Scenario::find_for(rats, &args.scenario)
        .ok_or_else(|| Failure(format!("there is no scenario {:?}: see vireo emulate --list", args.scenario)))?;
    let (core, mme) = cores(args);
    let first_core = *core.first().or(mme.first()).ok_or_else(|| Failure("give --core ADDR".into()))?;
    let network = &args.network;
    if network.tac >= 1 << 24 {
        return Err(Failure("--tac has 24 bits: at most 16777215".into()));
    }
    let wrong = |rate: f64| !rate.is_finite() || rate <= 0.0;
    if args.load.rate.is_some_and(wrong) || args.load.register_rate.is_some_and(wrong) {
        return Err(Failure("--rate and --register-rate must be more than 0".into()));
    }
    if args.load.movers > 0 && args.rat != RatArg::Both {
        return Err(Failure("--movers needs --rat both".into()));
    }
    let is_chaos = scenario.mode == Mode::Chaos;
    let steady = if is_chaos { Some(chaos(&args.load, args.ues)?) } else { steady(&args.load, args.ues)? };
    let mut profile = Profile::new(network.plmn, network.snssai, network.dnn.clone());
    profile.concealment = concealment(&args.subscribers, scenario)?;
    profile.requests_apn = !network.default_apn;
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
        rats,
        core,
        mme,
        tnl_associations: args.tnl_associations,
        drop_association: args.drop_association,
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
        movers: args.load.movers,
        rounds: args.load.rounds.max(1),
        load: starts(&args.load, steady.is_some())?,
        steady,
        chaos: is_chaos.then(Chaos::default),
        retry: match args.load.retry {
            _ if is_chaos => Retry::After { retry: CHAOS_RETRY, reattach: args.load.reattach },
            Persistence::Never => Retry::Never,
            Persistence::Standard => Retry::Standard,
            Persistence::After(retry) => Retry::After { retry, reattach: args.load.reattach },
        },
        settle: args.load.settle,
        busy: args.load.busy_ues.clone().map(|file| BusyUes { file, share: args.load.busy_share }),
        timeline: args.load.timeline.as_ref().map(|_| args.load.timeline_interval),
        duration: args.load.duration.or(is_chaos.then_some(CHAOS_DURATION)),
        timeout: if is_chaos { args.load.timeout.max(CHAOS_TIMEOUT) } else { args.load.timeout },
        idle: Duration::from_millis(args.load.idle),
        echoes: Echoes {
            v4: args.echo.echo_v4,
            v6: args.echo.echo_v6,
            kind: args.echo.echo_udp.map_or(Kind::Icmp, Kind::Udp),
            count: args.echo.echoes,
            octets: usize::from(args.echo.echo_octets),
            tries: args.echo.echo_tries,
            ..Echoes::default()
        },
        threads: args.threads.max(1),
        seed: args.seed,
        messages: args.mutation.count,
        ..lab
    })
}

/// Returns the N2 and the S1-MME addresses. A port of `--core` belongs to N2 unless all nodes are
/// eNBs.
fn cores(args: &Args) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    let core = |port| args.core.iter().map(move |core| core.or_port(port)).collect();
    let mme = match (&args.mme[..], args.rat) {
        ([], RatArg::Eps) => core(S1AP_PORT),
        ([], _) => args.core.iter().map(|core| core.with_port(S1AP_PORT)).collect(),
        (mme, _) => mme.iter().map(|mme| mme.or_port(S1AP_PORT)).collect(),
    };
    (core(NGAP_PORT), mme)
}

/// Returns the start of UEs. With a steady load, `--rate` and `--pattern` apply to the load, and
/// registrations have their own rate.
fn starts(args: &LoadArgs, steady: bool) -> Result<Load, Failure> {
    match (args.rate, &args.pattern, steady) {
        (_, _, true) => Ok(args.register_rate.map_or(Load::Window(args.window), Load::Rate)),
        (None, None, false) => Ok(Load::Window(args.window)),
        (None, Some(_), false) => Err(Failure("a --pattern needs a --rate".into())),
        (Some(rate), None, false) => Ok(Load::Rate(rate)),
        (Some(rate), Some(pattern), false) => Ok(Load::Pattern(pattern.clone(), rate)),
    }
}

/// Time after which a UE repeats an unanswered request, with --scenario chaos.
const CHAOS_RETRY: Duration = Duration::from_secs(1);
/// Time in which faults occur.
const CHAOS_DURATION: Duration = Duration::from_secs(15);
/// Time limit of the UEs after the faults: two attempts of a registration by T3510.
const CHAOS_TIMEOUT: Duration = Duration::from_secs(40);

/// Returns the load of the scenario chaos: a procedure of each UE every two seconds, unless the
/// rate is set.
fn chaos(args: &LoadArgs, ues: u32) -> Result<Steady, Failure> {
    if args.mix.is_some() || !args.load.is_empty() {
        return Err(Failure("the scenario chaos has its own load: remove --load and --mix".into()));
    }
    Ok(Chaos::load(args.rate.unwrap_or(f64::from(ues) / 2.0)))
}

/// Returns the steady load of registered UEs, if requested.
fn steady(args: &LoadArgs, ues: u32) -> Result<Option<Steady>, Failure> {
    if let Some(path) = &args.mix {
        let told = |error: &dyn std::fmt::Display| Failure(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| told(&error))?;
        let mix: Mix = text.parse().map_err(|error| told(&error))?;
        return Ok(Some(mix.steady(ues, args.rate, args.pattern.as_ref())));
    }
    if args.load.is_empty() {
        return Ok(None);
    }
    let rate = args.rate.ok_or_else(|| Failure("--load needs --rate".into()))?;
    let pattern = args.pattern.clone().unwrap_or(Pattern::Constant);
    Ok(Some(Steady::weighted(&args.load, rate, pattern, args.dwell)))
}

/// Returns the source address of this machine towards the core.
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

    /// A load of `vireo experiment`, as its own test writes the line.
    #[test]
    fn line_of_experiment_is_accepted() {
        let line = "--core 127.0.0.1 --rate 100 --load service-request=0.6,registration-session=0.4 --duration 2.5 \
                    --settle 625ms --timeline /tmp/timeline.csv --timeline-interval 100ms --retry 1s";
        parse(&line.split_whitespace().collect::<Vec<_>>()).expect("is right");
    }

    #[test]
    fn stable_options_are_accepted() {
        let line = ["--core", "127.0.0.1", "--scenario", "full", "--gnbs", "2", "--ues", "500", "--rate", "100"];
        let options = parse(&[&line[..], &["--pattern", "T1", "--echo-v4", "10.45.0.1"]].concat()).expect("is right");
        assert_eq!(options.core, ["127.0.0.1:38412".parse().expect("an address")]);
        assert_eq!((options.gnbs, options.ues), (2, 500));
        assert_eq!(options.load, Load::Pattern(Pattern::Constant, 100.0));
        assert_eq!(options.n3, ["127.0.0.1".parse::<IpAddr>().expect("an address")]);
        assert_eq!(options.scenario.name, "full");
    }

    #[test]
    fn steady_load_options_are_accepted() {
        let core = ["--core", "127.0.0.1", "--ues", "1000", "--duration", "30s"];
        let with = |more: &[&str]| parse(&[&core[..], more].concat());
        let load = ["--load", "service-request=0.7,handover=0.3", "--rate", "5000", "--pattern", "T4:alpha=1"];
        let options = with(&[&load[..], &["--retry", "1s", "--dwell", "20ms"]].concat()).expect("is right");
        let steady = options.steady.expect("was asked for");
        assert_eq!((steady.rate(), steady.sizes(1000)), (5000.0, vec![700, 300]));
        assert_eq!(steady.streams[0].pattern.to_string(), "T4:alpha=1,every=1,width=0.05,share=0.5,cap=100");
        assert_eq!(steady.groups[0].dwell, Duration::from_millis(20));
        let (retry, reattach) = (Duration::from_secs(1), Duration::from_secs(5));
        assert_eq!(
            (options.retry, options.duration),
            (Retry::After { retry, reattach }, Some(Duration::from_secs(30)))
        );
        // The rate is the load's; registrations have their own.
        assert_eq!(options.load, Load::Window(100));
        assert_eq!(with(&[&load[..], &["--register-rate", "7"]].concat()).map(|o| o.load), Ok(Load::Rate(7.0)));
        let mix = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mix.toml");
        let options = with(&["--mix", mix, "--rate", "100"]).expect("is right");
        assert!(options.steady.is_some_and(|steady| (steady.rate() - 100.0).abs() < 1e-6));
        assert!(with(&["--load", "service-request"]).is_err_and(|why| why.contains("--rate")));
        assert!(with(&["--load", "jump=1", "--rate", "1"]).is_err_and(|why| why.contains("no procedure")));
        assert!(with(&["--pattern", "T2"]).is_err_and(|why| why.contains("--rate")));
        assert!(with(&["--mix", "/nothing"]).is_err_and(|why| why.contains("/nothing")));
    }

    #[test]
    fn rat_selects_scenarios_and_addresses() {
        use vireo_emulator::Rats;
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let eps = parse(&["--core", "127.0.0.1", "--rat", "eps", "--scenario", "attach"]).expect("is right");
        assert_eq!((eps.rats, eps.mme), (Rats::Eps, vec![address("127.0.0.1:36412")]));
        let eps = parse(&["--core", "127.0.0.1:5000", "--rat", "eps", "--default-apn"]).expect("is right");
        assert_eq!((eps.mme, eps.profile.requests_apn), (vec![address("127.0.0.1:5000")], false));
        let line = ["--core", "127.0.0.1:5000", "--rat", "both", "--scenario", "full"];
        let both = parse(&line).expect("is right");
        assert_eq!((both.core, both.mme), (vec![address("127.0.0.1:5000")], vec![address("127.0.0.1:36412")]));
        let both = parse(&[&line[..], &["--mme", "127.0.0.2"]].concat()).expect("is right");
        assert_eq!((both.rats, both.mme), (Rats::Both, vec![address("127.0.0.2:36412")]));
        for (rat, scenario) in [("nr", "attach"), ("eps", "profile-a"), ("both", "ng-reset")] {
            let refused = parse(&["--core", "127.0.0.1", "--rat", rat, "--scenario", scenario]);
            assert!(refused.is_err_and(|why| why.contains("--list")), "{rat} {scenario}");
        }
    }

    #[test]
    fn campaign_of_mutations_is_understood() {
        let line = ["--core", "127.0.0.1", "--scenario", "mutate", "--seed", "7", "--count", "5000", "--ues", "8"];
        let options = parse(&line).expect("is right");
        assert_eq!((options.seed, options.messages, options.ues), (7, 5000, 8));
        assert!(parse(&[&line[..], &["--max-growth", "1"]].concat()).is_err_and(|why| why.contains("--pid")));
        assert!(parse(&["--core", "127.0.0.1", "--count", "0"]).is_err());
    }

    #[test]
    fn contradictory_options_are_refused() {
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
