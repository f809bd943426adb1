//! `vireo status`: RAN nodes, UEs and sessions of a running core as tables.
//!
//! Requests `/status` from the API. Depends only on the structures of the response.

use crate::cluster_command::members;
use std::fmt::Write as _;
use vireo_client::ApiArgs;
use vireo_config::Failure;
use vireo_ops::api::{GnbStatus, NfStatus, SessionStatus, ShardStatus, Status, UeStatus, UpfStatus, WorkerStatus};
use vireo_types::Supi;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
    /// List up to N UEs and RAN nodes, at most 1000
    #[arg(long, value_name = "N", default_value_t = 20)]
    ues: usize,
    /// Skip the first N entries
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// Show complete SUPIs
    #[arg(long)]
    reveal_supi: bool,
    /// Show only the UE of this subscriber, and its RAN node
    #[arg(long, value_name = "IMSI", conflicts_with = "gnb")]
    supi: Option<Supi>,
    /// Show only the RAN node with this name or ID, and its connected UEs
    #[arg(long, value_name = "NAME")]
    gnb: Option<String>,
    /// Show workers and their NFs too
    #[arg(long)]
    nfs: bool,
}

impl Args {
    fn path(&self) -> String {
        let Args { offset, ues, reveal_supi, supi, gnb, .. } = self;
        let mut path = format!("/status?offset={offset}&limit={ues}&reveal_supi={reveal_supi}");
        if let Some(supi) = supi {
            path += &format!("&supi={}", supi.reveal());
        }
        if let Some(gnb) = gnb {
            path += &format!("&gnb={}", escaped(gnb));
        }
        path
    }
}

/// Returns a text for a query: other characters than letters and digits are escaped (RFC 3986 2.1).
fn escaped(text: &str) -> String {
    let octet = |octet: u8| match octet {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(octet).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(octet).collect()
}

/// Runs `vireo status`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let api = args.api.find()?;
    let body = api.fetch(&args.path())?;
    if args.json {
        println!("{}", body.trim_end());
        return Ok(());
    }
    let mut status: Status = serde_json::from_str(&body)
        .map_err(|e| Failure(format!("{api}: unexpected answer ({e}); use a vireo of the release of the core")))?;
    if !args.nfs {
        status.workers.clear();
    }
    let is_selection = args.supi.is_some() || args.gnb.is_some();
    if let (true, Some(supi)) = (status.ues.is_empty(), args.supi) {
        return Err(Failure(format!("{api}: no UE of {supi} is known; see the log for refused devices")));
    }
    print!("{}", render(&status, (!is_selection).then_some(args.offset)));
    Ok(())
}

/// Returns the tables. Without an offset, the UEs are a selection and not a page of all.
fn render(status: &Status, offset: Option<usize>) -> String {
    let mut text = String::new();
    let c = &status.counts;
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "vireo {}, up {}: {} RAN nodes, {} UEs known, {} registered, {} connected, {} sessions",
        status.version,
        uptime(status.uptime_s),
        c.gnbs,
        c.ues,
        c.registered,
        c.connected,
        c.sessions
    );
    table(&mut text, &["RAN node", "id", "address", "TACs", "slices", "UEs"], status.gnbs.iter().map(gnb));
    table(
        &mut text,
        &[
            "UE", "5G-TMSI", "RM", "CM", "TAI", "RAN node", "PSI/EBI", "DNN", "slice", "address", "session", "QFI",
            "UPF",
        ],
        status.ues.iter().flat_map(ue),
    );
    let header = ["UPF", "node", "N4", "sessions", "UL packets", "DL packets", "dropped"];
    table(&mut text, &header, status.upfs.iter().map(upf));
    let header = ["shard", "process", "state", "host", "UEs", "copies", "CPU", "ended", "all copied"];
    table(&mut text, &header, status.shards.iter().map(shard));
    // Controller and balancers have no UEs, and know who has.
    if let Some(members) = members(status) {
        let _ = write!(text, "\n{members}");
    }
    table(
        &mut text,
        &["worker", "process", "NF", "slice", "kind", "state", "queue", "share", "done", "violations", "takes"],
        status.workers.iter().flat_map(worker),
    );
    if let Some(last) = offset.map(|offset| offset + status.ues.len()).filter(|last| *last < c.ues) {
        let _ = writeln!(text, "\n{} more UEs: --offset {last}, or a higher --ues", c.ues - last);
    }
    text
}

/// Returns an uptime in seconds as text with units.
pub(crate) fn uptime(s: u64) -> String {
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

fn gnb(g: &GnbStatus) -> Vec<String> {
    let tacs: Vec<String> = g.tacs.iter().map(u32::to_string).collect();
    vec![g.name.clone(), g.id.clone(), g.address.clone(), tacs.join(","), g.slices.join(","), g.ues.to_string()]
}

/// Returns one table line per session, and one for a UE without sessions.
fn ue(u: &UeStatus) -> Vec<Vec<String>> {
    let gnb = u.gnb.clone().unwrap_or_default();
    let who = [u.supi.clone(), u.tmsi.clone(), u.rm.clone(), u.cm.clone(), u.tai.clone(), gnb];
    if u.sessions.is_empty() {
        return vec![who.to_vec()];
    }
    let mut lines = Vec::new();
    for (n, s) in u.sessions.iter().enumerate() {
        let mut line = if n == 0 { who.to_vec() } else { vec![String::new(); who.len()] };
        line.extend(session(s));
        lines.push(line);
    }
    lines
}

fn session(s: &SessionStatus) -> Vec<String> {
    let address = [s.ipv4.as_deref(), s.ipv6.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    // A moving session is being relocated to or from another UPF, which still holds a PFCP session.
    let upf = if s.moves { format!("{}, moving", s.upf) } else { s.upf.clone() };
    vec![s.psi.to_string(), s.dnn.clone(), s.snssai.clone(), address, s.state.clone(), s.qfi.to_string(), upf]
}

fn upf(u: &UpfStatus) -> Vec<String> {
    let n4 = if u.associated { "up" } else { "down" };
    let numbers = [u.sessions, u.uplink_packets, u.downlink_packets, u.dropped_packets];
    [u.name.clone(), u.node.clone(), n4.to_owned()].into_iter().chain(numbers.map(|n| n.to_string())).collect()
}

fn shard(s: &ShardStatus) -> Vec<String> {
    let pid = if s.pid == 0 { "-".to_owned() } else { s.pid.to_string() };
    let host = s.host.map_or_else(|| "-".to_owned(), |host| host.to_string());
    let cpu = format!("{:.1} s", s.cpu_us as f64 / 1e6);
    let copied = if s.copied { "yes" } else { "no" };
    let [shard, ues, copies] = [s.shard.into(), s.ues, s.copies].map(|n: usize| n.to_string());
    vec![shard, pid, s.state.clone(), host, ues, copies, cpu, s.ends.to_string(), copied.to_owned()]
}

/// Returns one table line per NF, and one for a worker without NFs.
fn worker(w: &WorkerStatus) -> Vec<Vec<String>> {
    let who = [w.number.to_string(), w.pid.to_string()];
    if w.nfs.is_empty() {
        return vec![who.to_vec()];
    }
    let line = |(n, nf): (usize, &NfStatus)| {
        let who = if n == 0 { who.clone() } else { Default::default() };
        let slice = if nf.slice.is_empty() { "-" } else { &nf.slice };
        let words = [slice, &nf.kind, &nf.state].map(str::to_owned);
        let numbers = [nf.queue.to_string(), format!("{:.3}", nf.share), nf.processed.to_string()];
        let rest = [nf.violations.to_string(), format!("{:.1} us", nf.service_time_us)];
        who.into_iter().chain([nf.id.to_string()]).chain(words).chain(numbers).chain(rest).collect()
    };
    w.nfs.iter().enumerate().map(line).collect()
}

/// Appends a table whose columns are as wide as their widest cell. Appends nothing for an empty
/// table.
pub(crate) fn table(text: &mut String, header: &[&str], lines: impl Iterator<Item = Vec<String>>) {
    let mut all: Vec<Vec<String>> = vec![header.iter().map(|h| (*h).to_owned()).collect()];
    all.extend(lines);
    if all.len() == 1 {
        return;
    }
    let width =
        |column: usize| all.iter().filter_map(|line| line.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    text.push('\n');
    for line in &all {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vireo_client::Api;
    use vireo_ops::api::{Counts, Server, StatusFilter, StatusSource};
    use vireo_ops::config::ApiConfig;
    use vireo_ops::metrics::Metrics;

    struct Core;

    impl StatusSource for Core {
        fn deregister(
            &self,
            _: vireo_types::Supi,
            _: bool,
            _: Option<vireo_types::DeregistrationCause>,
        ) -> Option<bool> {
            Some(false)
        }

        fn status(&self, filter: &StatusFilter) -> Option<Status> {
            let session = |psi, ipv4: &str| SessionStatus {
                psi,
                dnn: "internet".into(),
                snssai: "1".into(),
                ipv4: Some(ipv4.into()),
                state: "ACTIVE".into(),
                qfi: 9,
                upf: if psi == 2 { "edge".into() } else { String::new() },
                moves: psi == 2,
                ..SessionStatus::default()
            };
            let nf = |id, slice: &str| NfStatus {
                id,
                slice: slice.into(),
                kind: "handover".into(),
                state: "active".into(),
                queue: 2,
                share: 0.25,
                processed: 9,
                violations: 1,
                service_time_us: 12.34,
            };
            let supi = if filter.reveal_supi { "imsi-999700000000001" } else { "imsi-99970**********" };
            let ue = UeStatus {
                supi: supi.into(),
                tmsi: "0a0b0c0d".into(),
                rm: "REGISTERED".into(),
                cm: "CONNECTED".into(),
                tai: "99970-1".into(),
                gnb: Some("gnb-1".into()),
                sessions: vec![session(1, "10.45.0.2"), session(2, "10.45.0.3")],
                ..UeStatus::default()
            };
            Some(Status {
                version: "0.2.0".into(),
                uptime_s: 61,
                counts: Counts { gnbs: 1, ues: 3, registered: 1, connected: 1, sessions: 2 },
                ues: vec![ue; filter.limit.min(1)],
                upfs: vec![UpfStatus {
                    name: "edge".into(),
                    node: "192.0.2.7:8805".into(),
                    sessions: 7,
                    ..UpfStatus::default()
                }],
                workers: vec![WorkerStatus { number: 1, pid: 4711, cpu_us: 0, nfs: vec![nf(3, "phones"), nf(4, "")] }],
                ..Status::default()
            })
        }
    }

    fn serve(directory: &std::path::Path) -> (Server, Api) {
        let token = directory.join("api.token");
        let config = ApiConfig { listen: Some("127.0.0.1:0".parse().unwrap()), ..ApiConfig::loopback(token.clone()) };
        let server = Server::start(&config, Arc::new(Core), Arc::new(Metrics::new())).unwrap().unwrap();
        let api = Api::at(&format!("http://{}", server.address().unwrap()), &token).unwrap();
        (server, api)
    }

    #[test]
    fn prints_what_the_api_says() {
        let directory = tempfile::tempdir().unwrap();
        let (_server, api) = serve(directory.path());
        let body = api.fetch("/status?limit=1").unwrap();
        let text = render(&serde_json::from_str(&body).unwrap(), Some(0));
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert!(text.starts_with("vireo 0.2.0, up 1 min: 1 RAN nodes, 3 UEs known, 1 registered"), "{text}");
        let first: Vec<&str> =
            "imsi-99970********** 0a0b0c0d REGISTERED CONNECTED 99970-1 gnb-1 1 internet 1 10.45.0.2 ACTIVE 9"
                .split(' ')
                .collect();
        assert!(lines.contains(&first), "{text}");
        assert!(lines.contains(&vec!["2", "internet", "1", "10.45.0.3", "ACTIVE", "9", "edge,", "moving"]), "{text}");
        assert!(lines.contains(&"edge 192.0.2.7:8805 down 7 0 0 0".split(' ').collect()), "{text}");
        let worker = "1 4711 3 phones handover active 2 0.250 9 1 12.3 us".split(' ').collect();
        assert!(lines.contains(&worker), "{text}");
        assert!(lines.contains(&"4 - handover active 2 0.250 9 1 12.3 us".split(' ').collect()), "{text}");
        assert!(text.ends_with("2 more UEs: --offset 1, or a higher --ues\n"), "{text}");
    }

    #[test]
    fn balancer_lists_members_of_cluster() {
        use vireo_ops::api::{BalancerStatus, HostStatus};
        let host = |host| HostStatus { host, buckets: 7, epoch: 9, ..HostStatus::default() };
        let balancers = vec![BalancerStatus { balancer: 1, holds_n4: true, ..BalancerStatus::default() }];
        let text = render(&Status { hosts: vec![host(2), host(5)], balancers, ..Status::default() }, Some(0));
        assert!(text.contains("\nepoch 9: 2 hosts, 1 balancers\n"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["5", "7", "0"])), "{text}");
    }

    #[test]
    fn selection_is_in_query() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let path = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["status"], words].concat());
            line.map(|line| line.args.path())
        };
        let supi = path(&["--supi", "imsi-999700000000001"]).unwrap();
        assert_eq!(supi, "/status?offset=0&limit=20&reveal_supi=false&supi=999700000000001");
        let gnb = path(&["--gnb", "gNB 1&x"]).unwrap();
        assert_eq!(gnb, "/status?offset=0&limit=20&reveal_supi=false&gnb=gNB%201%26x");
        assert!(path(&["--gnb", "a", "--supi", "999700000000001"]).is_err());
    }

    #[test]
    fn failures_are_sentences() {
        let directory = tempfile::tempdir().unwrap();
        let (server, api) = serve(directory.path());
        let bad = api.fetch("/status?limit=x").unwrap_err().0;
        assert!(bad.contains("400"), "{bad}");
        drop(server);
        let gone = api.fetch("/status").unwrap_err().0;
        assert!(gone.starts_with(&format!("no core answers at {api}")), "{gone}");
    }
}
