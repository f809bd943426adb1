use clap::{ArgGroup, Args as ClapArgs, ValueEnum};
use std::io::{self, BufRead, IsTerminal, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use vireo_config::Failure;
use vireo_core::subscription::{
    Ambr, AreaRestrictions, AuthenticationMethod, DnnSubscription, ServiceArea, SliceSubscription, Subscription,
};
use vireo_subscribers::{Key, Msisdn, OnExisting, Store, Subscriber};
use vireo_types::{Dialect, Dnn, Network, PduSessionType, Snssai, Supi, SupiError, Tac, limits};

/// Upper bound of a line with a key, in bytes.
const LINE: u64 = 256;

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("operator").required(true).args(["opc", "op"]))]
pub(super) struct Args {
    /// Set the IMSI of the subscriber, or of the first one of a range
    #[arg(long)]
    imsi: Supi,
    /// Set the MSISDN (GPSI), 5 to 15 digits with country code
    #[arg(long, conflicts_with = "count")]
    msisdn: Option<Msisdn>,
    /// Set K, 32 hexadecimal digits, or - for the next line of stdin
    #[arg(long)]
    k: String,
    /// Set OPc, 32 hexadecimal digits, or - for the next line, after K
    #[arg(long)]
    opc: Option<String>,
    /// Set OP and derive OPc from it, or - as for OPc; OP is not stored
    #[arg(long)]
    op: Option<String>,
    /// Set the authentication management field, 4 hexadecimal digits
    ///
    /// The first bit must be set for 5G.
    #[arg(long, default_value = "8000", value_parser = vireo_subscribers::format::parse_amf)]
    amf: [u8; 2],
    /// Set the authentication method of 5G: 5g-aka or eap-aka-prime
    ///
    /// Without it, `subscribers.authentication-method` applies.
    #[arg(long, value_name = "METHOD")]
    authentication_method: Option<AuthenticationMethod>,
    /// Set the subscribed slices (SST or SST-SD), the default one first
    #[arg(long, default_value = "1", value_delimiter = ',', value_name = "S-NSSAI")]
    slice: Vec<Snssai>,
    /// Set the data networks of each slice, the default one first
    #[arg(long, default_value = "internet", value_delimiter = ',')]
    dnn: Vec<Dnn>,
    /// Set the session types, the default one first: ipv4, ipv6, ipv4v6
    #[arg(long, value_delimiter = ',', value_name = "TYPE", default_value = "ipv4,ipv6,ipv4v6",
          value_parser = vireo_subscribers::format::parse_type)]
    types: Vec<PduSessionType>,
    #[command(flatten)]
    rates: RateArgs,
    /// Restrict the subscriber to 4G or 5G
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Restrict NR as secondary RAT of the subscriber in 4G (EN-DC)
    #[arg(long)]
    restrict_dcnr: bool,
    /// Set the Index to RAT/Frequency Selection Priority, 1 to 256
    #[arg(long, value_name = "INDEX", value_parser = clap::value_parser!(u16).range(1..=256))]
    rfsp: Option<u16>,
    #[command(flatten)]
    areas: AreaArgs,
    /// Set the static IPv4 address in the first data network
    ///
    /// `dnn.NAME.static-ipv4` must contain it.
    #[arg(long, conflicts_with = "count")]
    static_ipv4: Option<Ipv4Addr>,
    /// Set the static IPv6 prefix in the first data network, as PREFIX/64
    ///
    /// `dnn.NAME.static-ipv6` must contain it.
    #[arg(long, conflicts_with = "count", value_name = "PREFIX",
          value_parser = vireo_subscribers::format::parse_ipv6_prefix)]
    static_ipv6: Option<Ipv6Addr>,
    /// Set networks behind the UE in the first data network
    ///
    /// `upf.framed-routes` of each UPF must contain them.
    #[arg(long, conflicts_with = "count", value_delimiter = ',', value_name = "NETWORK")]
    framed_routes: Vec<Network>,
    /// Add N subscribers with consecutive IMSIs and equal keys, for a lab
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Replace existing subscribers with the same SUPI
    #[arg(long)]
    replace: bool,
}

/// Options for the subscribed bit rates.
#[derive(Debug, ClapArgs)]
struct RateArgs {
    /// Set the uplink of UE-AMBR and Session-AMBR, in bit/s
    ///
    /// It applies to the UE (UE-AMBR) and to each of its sessions (Session-AMBR).
    #[arg(long, value_name = "BPS", default_value_t = Ambr::default().uplink_bps,
          value_parser = clap::value_parser!(u64).range(1..=limits::BIT_RATE))]
    uplink_bps: u64,
    /// Set the downlink of UE-AMBR and Session-AMBR, in bit/s
    ///
    /// It applies to the UE (UE-AMBR) and to each of its sessions (Session-AMBR).
    #[arg(long, value_name = "BPS", default_value_t = Ambr::default().downlink_bps,
          value_parser = clap::value_parser!(u64).range(1..=limits::BIT_RATE))]
    downlink_bps: u64,
}

/// Options for the areas of the subscriber.
#[derive(Debug, ClapArgs)]
struct AreaArgs {
    /// Set tracking areas (TAC) in which the subscriber gets no service
    #[arg(long, value_delimiter = ',', value_name = "TAC", num_args = 1)]
    forbidden_areas: Vec<u32>,
    /// Set the tracking areas (TAC) in which the subscriber gets service
    ///
    /// In the others it may only register.
    #[arg(long, value_delimiter = ',', value_name = "TAC", num_args = 1, conflicts_with = "not_allowed_areas")]
    allowed_areas: Vec<u32>,
    /// Set tracking areas (TAC) in which the subscriber may only register
    #[arg(long, value_delimiter = ',', value_name = "TAC", num_args = 1)]
    not_allowed_areas: Vec<u32>,
}

impl AreaArgs {
    fn restrictions(&self) -> AreaRestrictions {
        let tacs = |codes: &[u32]| codes.iter().map(|code| Tac(*code)).collect::<Vec<_>>();
        let service = match (&self.allowed_areas[..], &self.not_allowed_areas[..]) {
            ([], []) => None,
            ([], not_allowed) => Some(ServiceArea::NotAllowed(tacs(not_allowed))),
            (allowed, _) => Some(ServiceArea::Allowed(tacs(allowed))),
        };
        AreaRestrictions { forbidden: tacs(&self.forbidden_areas), service }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Only {
    /// Allow 4G only
    #[value(name = "4g")]
    FourG,
    /// Allow 5G only
    #[value(name = "5g")]
    FiveG,
}

/// Adds the subscriber or the range, completely or not at all.
pub(super) fn run(store: &mut Store, args: &Args) -> Result<(), Failure> {
    let k = key("--k", &args.k)?;
    let opc = match (&args.opc, &args.op) {
        (Some(opc), _) => key("--opc", opc)?,
        (None, Some(op)) => Key::opc_of(&k, &key("--op", op)?),
        (None, None) => return Err(Failure("give --opc or --op".into())),
    };
    let first = vireo_subscribers::format::check(Subscriber {
        msisdn: args.msisdn.clone(),
        amf: args.amf,
        method: args.authentication_method,
        static_ipv4: args.static_ipv4,
        subscription: subscription(args),
        ..Subscriber::new(args.imsi, k, opc)
    })
    .map_err(|problem| Failure(problem.to_string()))?;
    let too_far =
        |_: SupiError| Failure(format!("{} IMSIs from {} on do not fit its digits", args.count, args.imsi.reveal()));
    let range = (0..args.count).map(|n| Ok(Subscriber { supi: args.imsi.offset(n)?, ..first.clone() }));
    let range: Vec<_> = range.collect::<Result<_, SupiError>>().map_err(too_far)?;
    let existing = if args.replace { OnExisting::Replace } else { OnExisting::Refuse };
    let added = super::progress(args.count, |report| store.import(&range, existing, report).map_err(Failure::from))?;
    println!("added {added}");
    Ok(())
}

/// Parses a key. clap does not parse keys, because its messages would show them. Arguments are
/// visible to every user of the machine; standard input is not.
fn key(option: &str, text: &str) -> Result<Key, Failure> {
    let line = if text == "-" { Some(line(option)?) } else { None };
    line.as_deref().unwrap_or(text).parse().map_err(|e| Failure(format!("{option}: {e}")))
}

/// Reads the next line of standard input.
fn line(option: &str) -> Result<String, Failure> {
    let failed =
        |reason: String| Failure(format!("{option}: standard input {reason}; give a key of 32 hexadecimal digits"));
    let mut input = io::stdin().lock();
    if input.is_terminal() {
        eprint!("{}: ", option.trim_start_matches('-'));
    }
    let mut line = String::new();
    match input.by_ref().take(LINE).read_line(&mut line) {
        Ok(0) => Err(failed("has no line for it".into())),
        Ok(_) => Ok(line.trim().to_owned()),
        Err(error) => Err(failed(format!("cannot be read ({error})"))),
    }
}

fn subscription(args: &Args) -> Subscription {
    let ambr = Ambr { uplink_bps: args.rates.uplink_bps, downlink_bps: args.rates.downlink_bps };
    let dnn = |dnn: &Dnn| DnnSubscription { dnn: dnn.clone(), types: args.types.clone(), ambr, ..Default::default() };
    let slice = |(n, snssai): (usize, &Snssai)| SliceSubscription {
        snssai: *snssai,
        default: n == 0,
        dnns: args.dnn.iter().map(dnn).collect(),
    };
    let only = args.only.map(|only| match only {
        Only::FourG => Dialect::Eps,
        Only::FiveG => Dialect::Nr,
    });
    let mut slices: Vec<_> = args.slice.iter().enumerate().map(slice).collect();
    if let Some(first) = slices.first_mut().and_then(|slice| slice.dnns.first_mut()) {
        (first.static_ipv6_prefix, first.framed_routes) = (args.static_ipv6, args.framed_routes.clone());
    }
    let rfsp = args.rfsp.and_then(std::num::NonZeroU16::new);
    let areas = args.areas.restrictions();
    Subscription { slices, ambr, only, restricts_dcnr: args.restrict_dcnr, rfsp, areas, ..Default::default() }
}
