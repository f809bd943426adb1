//! `vireo slice`: slices of a running user plane and migration of users.
//!
//! Works with the user plane of a core or of `vireo upf`.

mod relocate;

use crate::status::table;
use clap::Subcommand;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use vireo_client::slices::{self, move_users};
use vireo_client::{Api, ApiArgs};
use vireo_config::Failure;
use vireo_ops::api::{MoveResult, SessionStatus, SliceStatus, SlicesStatus, UeStatus};
use vireo_types::Supi;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    /// Print the API response as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List slices with users, workers and packets
    List,
    /// Migrate users to another slice while their packets flow
    Move(MoveArgs),
}

#[derive(Debug, clap::Args)]
struct MoveArgs {
    /// Select users by address, range, SUPI, session or slice
    ///
    /// An address, a network (10.45.0.0/24), a range (10.45.0.2-10.45.0.99), a SUPI (of a core's
    /// subscriber), a session (seid:17) or all users of a slice (its name).
    #[arg(value_name = "WHO")]
    users: UserSelector,
    /// Migrate users to this slice
    #[arg(long, value_name = "NAME", value_parser = slice_name, required_unless_present = "to_upf")]
    to: Option<String>,
    /// Relocate sessions of a core, with addresses, to this UPF (vireo status)
    #[arg(long, value_name = "NAME", value_parser = slice_name, conflicts_with_all = ["to", "worker"])]
    to_upf: Option<String>,
    /// Use worker N of the slice, from 0 [default: the one with fewest users]
    #[arg(long, value_name = "N")]
    worker: Option<u8>,
    /// Migrate at most N users of the slice
    #[arg(long, value_name = "N")]
    count: Option<usize>,
}

/// Selects the users of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UserSelector {
    Addresses(IpAddr, IpAddr),
    Supi(Supi),
    Seid(u64),
    Slice(String),
}

impl FromStr for UserSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(UserSelector::Addresses(address, address));
        }
        if let Some(number) = text.strip_prefix("seid:") {
            let (digits, radix) = number.strip_prefix("0x").map_or((number, 10), |hex| (hex, 16));
            let seid = u64::from_str_radix(digits, radix);
            return seid
                .map(UserSelector::Seid)
                .map_err(|_| format!("{number} is no SEID: write seid:17 or seid:0x11"));
        }
        if let Some((first, last)) = text.split_once('-')
            && let (Ok(first), Ok(last)) = (first.parse(), last.parse())
        {
            return Ok(UserSelector::Addresses(first, last));
        }
        if let Some((base, length)) = text.split_once('/') {
            return network(base, length).ok_or_else(|| format!("{text} is no network: write it like 10.45.0.0/24"));
        }
        match text.parse() {
            Ok(supi) => Ok(UserSelector::Supi(supi)),
            Err(_) => match slice_name(text) {
                Ok(name) => Ok(UserSelector::Slice(name)),
                Err(_) => Err(format!("{text:?} is no slice, address or SUPI")),
            },
        }
    }
}

/// Checks a slice name. Names with characters that are special in an API query are refused.
fn slice_name(text: &str) -> Result<String, String> {
    let odd = |c: char| "&=?#%+/\\".contains(c) || c.is_whitespace() || c.is_control();
    match text.is_empty() || text.contains(odd) {
        true => Err(format!("{text:?} is no name of a slice: `vireo slice list` shows those that there are")),
        false => Ok(text.to_owned()),
    }
}

/// Returns the range of addresses of a network.
fn network(base: &str, length: &str) -> Option<UserSelector> {
    let length: u32 = length.parse().ok()?;
    match base.parse().ok()? {
        IpAddr::V4(base) => {
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            let first = base.to_bits() & !host;
            (length <= 32)
                .then(|| UserSelector::Addresses(Ipv4Addr::from(first).into(), Ipv4Addr::from(first | host).into()))
        }
        IpAddr::V6(base) => {
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            let first = base.to_bits() & !host;
            (length <= 128)
                .then(|| UserSelector::Addresses(Ipv6Addr::from(first).into(), Ipv6Addr::from(first | host).into()))
        }
    }
}

/// Runs `vireo slice`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let api = args.api.find()?;
    match &args.command {
        Command::List => list(args, &api),
        Command::Move(order) => {
            if order.count.is_some() && !matches!(order.users, UserSelector::Slice(_)) {
                return Err(Failure("--count limits the users of a slice: give a slice, or remove --count".into()));
            }
            let (moved, to) = match (&order.to_upf, &order.to) {
                (Some(upf), _) => (relocate::relocate(&api, &order.users, order.count, upf)?, upf),
                (None, Some(slice)) => (move_to_slice(&api, order, slice)?, slice),
                (None, None) => return Err(Failure("give --to SLICE or --to-upf UPF".into())),
            };
            match args.json {
                true => println!("{}", serde_json::to_string(&moved)?),
                false => println!("{} of {} users moved to {to}", moved.moved, moved.users),
            }
            Ok(())
        }
    }
}

/// Migrates users to another slice of their user plane.
fn move_to_slice(api: &Api, order: &MoveArgs, to: &str) -> Result<MoveResult, Failure> {
    let addresses = match &order.users {
        UserSelector::Supi(supi) => addresses_of(api, *supi)?,
        _ => vec![],
    };
    let who = match &order.users {
        UserSelector::Addresses(first, last) => vec![format!("address={first}&last={last}")],
        UserSelector::Seid(seid) => vec![format!("seid={seid}")],
        UserSelector::Slice(name) => {
            let count = order.count.map(|count| format!("&count={count}")).unwrap_or_default();
            vec![format!("slice={name}{count}")]
        }
        UserSelector::Supi(_) => addresses.iter().map(|one| format!("address={one}")).collect(),
    };
    let worker = order.worker.map(|n| format!("&worker={n}")).unwrap_or_default();
    let mut sum = MoveResult::default();
    for who in who {
        let moved = move_users(api, &format!("{who}&to={to}{worker}"))?;
        (sum.users, sum.moved) = (sum.users + moved.users, sum.moved + moved.moved);
    }
    Ok(sum)
}

/// Returns the address of a session.
fn address_of(session: &SessionStatus) -> Option<IpAddr> {
    let text = session.ipv4.as_ref().or(session.ipv6.as_ref())?;
    text.split('/').next()?.parse().ok()
}

fn belongs_to(ue: &UeStatus, supi: Supi) -> bool {
    ue.supi.strip_prefix("imsi-").unwrap_or(&ue.supi) == supi.reveal()
}

/// Returns one address per session of a subscriber. The core provides them, because its user plane
/// does not know SUPIs.
fn addresses_of(api: &Api, supi: Supi) -> Result<Vec<IpAddr>, Failure> {
    let mut found: Option<Vec<IpAddr>> = None;
    slices::each_ue(api, |ue| {
        if belongs_to(ue, supi) {
            found = Some(ue.sessions.iter().filter_map(address_of).collect());
        }
        found.is_none()
    })?;
    match found {
        Some(all) if all.is_empty() => Err(Failure(format!("{supi} has no session now: there is nothing to move"))),
        Some(all) => Ok(all),
        None => Err(Failure(format!(
            "{api} knows no UE {supi}: `vireo status` lists those of a core; a UPF alone knows users by address or SEID"
        ))),
    }
}

fn list(args: &Args, api: &Api) -> Result<(), Failure> {
    if args.json {
        println!("{}", api.fetch("/slices")?.trim_end());
        return Ok(());
    }
    print!("{}", render(&slices::list(api)?));
    Ok(())
}

fn render(status: &SlicesStatus) -> String {
    if status.slices.is_empty() {
        return "the user plane is not divided into slices: slice.NAME.data-workers in its configuration does that\n"
            .to_owned();
    }
    let SlicesStatus { moved, rebalanced, .. } = status;
    let mut text = format!(
        "{} slices, {moved} users moved since the start, {rebalanced} of them to balance workers\n",
        status.slices.len()
    );
    let header = ["slice", "S-NSSAI", "users", "worker", "core", "of them", "UL packets", "DL packets", "dropped"];
    table(&mut text, &header, status.slices.iter().flat_map(lines));
    text
}

/// Returns one table line per worker.
fn lines(slice: &SliceStatus) -> Vec<Vec<String>> {
    let who = [slice.name.clone(), slice.snssai.clone().unwrap_or_default(), slice.users.to_string()];
    let line = |(n, worker): (usize, &vireo_ops::api::SliceWorkerStatus)| {
        let who = if n == 0 { who.clone() } else { Default::default() };
        let core = worker.core.map_or_else(|| "any".to_owned(), |core| core.to_string());
        let numbers = [worker.users, worker.uplink_packets, worker.downlink_packets, worker.dropped_packets];
        who.into_iter().chain([worker.number.to_string(), core]).chain(numbers.map(|n| n.to_string())).collect()
    };
    slice.workers.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::SliceWorkerStatus;

    #[test]
    fn users_are_named_in_many_ways() {
        let who = |text: &str| text.parse::<UserSelector>();
        let range =
            |first: &str, last: &str| Ok(UserSelector::Addresses(first.parse().unwrap(), last.parse().unwrap()));
        assert_eq!(who("10.45.0.7"), range("10.45.0.7", "10.45.0.7"));
        assert_eq!(who("10.45.0.2-10.45.0.99"), range("10.45.0.2", "10.45.0.99"));
        assert_eq!(who("10.45.1.9/24"), range("10.45.1.0", "10.45.1.255"));
        assert_eq!(who("fd45::/63"), range("fd45::", "fd45:0:0:1:ffff:ffff:ffff:ffff"));
        assert_eq!(who("0.0.0.0/0"), range("0.0.0.0", "255.255.255.255"));
        assert_eq!(who("imsi-999700000000001"), Ok(UserSelector::Supi("999700000000001".parse().unwrap())));
        assert_eq!((who("seid:17"), who("seid:0x11")), (Ok(UserSelector::Seid(17)), Ok(UserSelector::Seid(17))));
        assert_eq!(who("phones"), Ok(UserSelector::Slice("phones".into())));
        assert_eq!(who("iot-meters"), Ok(UserSelector::Slice("iot-meters".into())));
        for bad in ["", "seid:x", "10.45.0.0/33", "fd45::/129", "a&to=b", "a b"] {
            assert!(who(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn slice_names_without_query_characters_pass() {
        assert_eq!(slice_name("iot-meters_2"), Ok("iot-meters_2".into()));
        for bad in ["", "a&worker=1", "a b", "a?b", "a%20b", "a\r\nHost: b", "a/b"] {
            assert!(slice_name(bad).is_err_and(|says| says.contains("slice list")), "{bad:?}");
        }
    }

    #[test]
    fn slices_are_a_table() {
        let worker =
            |number, core| SliceWorkerStatus { number, core, users: 4, uplink_packets: 9, ..Default::default() };
        let phones = SliceStatus {
            name: "phones".into(),
            snssai: Some("1".into()),
            users: 8,
            workers: vec![worker(0, Some(1)), worker(1, None)],
            counted: None,
        };
        let text = render(&SlicesStatus { moved: 3, rebalanced: 2, slices: vec![phones] });
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with("1 slices, 3 users moved since the start, 2 of them"), "{text}");
        assert!(lines.contains(&"phones 1 8 0 1 4 9 0 0".split(' ').collect()), "{text}");
        assert!(lines.contains(&"1 any 4 9 0 0".split(' ').collect()), "{text}");
        assert!(render(&SlicesStatus::default()).contains("data-workers"));
    }
}
