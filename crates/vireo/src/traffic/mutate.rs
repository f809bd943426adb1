//! `vireo traffic mutate`: campaign of mutated PFCP messages.

use super::options::{create, mirror, n4, write_json};
use crate::emulate::stop_on_signal;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vireo_config::Failure;
use vireo_traffic::distribution::UserDistribution;
use vireo_traffic::generate::{Cells, Load, Pace, Report, Tunnel, generate};
use vireo_traffic::mutate::{Campaign, Counts, Sessions, TargetControlPlane, run as send};
use vireo_traffic::pfcp::{ControlPlane, Established, Session, SessionVolume};

/// Upper bound of unanswered PFCP session requests.
const WINDOW: usize = 64;
/// Packets per session before and after the campaign.
const PACKETS: u64 = 4;
/// Packets per second during the campaign.
const RATE: f64 = 100.0;
/// Longest wait for a packet.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest duration of a campaign.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);
/// QoS flow identifier of all packets.
const QFI: u8 = 9;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Set the UPF's N4 address
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = n4)]
    n4: SocketAddrV4,
    /// Set the address of the control plane whose sessions must stay
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = n4)]
    control: SocketAddrV4,
    /// Set the address of the control plane that sends mutated messages
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = n4)]
    attacker: SocketAddrV4,
    /// Add addresses without a PFCP association that also send messages
    #[arg(long = "stranger", value_name = "ADDR[:PORT]", value_parser = n4)]
    unassociated: Vec<SocketAddrV4>,
    /// Set the address of the cell towards N3
    #[arg(long, value_name = "ADDR")]
    gnb: Ipv4Addr,
    /// Set the first UE address of the sessions that must stay
    ///
    /// The attacker's UE addresses begin 4,096 addresses later.
    #[arg(long, value_name = "ADDR")]
    ue: Ipv4Addr,
    /// Send to `vireo traffic respond` at this address
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = mirror)]
    server: SocketAddrV4,
    /// Set up N sessions that must stay
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    sessions: u32,
    /// Send N messages
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Watch the memory of the local UPF process PID
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Fail if memory grows by more than KIB after a tenth of the messages
    #[arg(long, value_name = "KIB", default_value_t = 8192, requires = "pid")]
    max_growth: u64,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Result of the messages, and of the packets meanwhile.
struct CampaignResult {
    counts: Counts,
    traffic: Report,
    memory: Option<Memory>,
}

/// Resident memory of the UPF, in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Memory {
    before: u64,
    after_a_tenth: u64,
    after: u64,
}

/// Packets of the sessions that must stay.
#[derive(Debug, Serialize)]
struct Traffic {
    before: Report,
    meanwhile: Report,
    after: Report,
    /// Uplink bytes that the UPF counted for the sessions, before and during the campaign.
    counted: u64,
    /// Uplink bytes that the generator sent.
    sent: u64,
}

#[derive(Debug, Serialize)]
struct Json<'r> {
    #[serde(flatten)]
    counts: &'r Counts,
    sessions: Sessions,
    traffic: &'r Traffic,
    memory_kib: Option<Memory>,
}

/// Sends the messages and checks the remaining sessions.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let json = create(args.json.as_deref())?;
    let cells = Cells::open(args.gnb, 1)?;
    let stop = stop_on_signal()?;
    let mut plane = ControlPlane::associate(*args.control.ip(), args.control.port(), args.n4.into())?;
    let all = args.establish(&mut plane, &cells)?;
    let load = args.load(&all)?;
    let before = generate(&load, &cells, rand::random(), &stop)?;
    let CampaignResult { counts, traffic: meanwhile, memory } = args.campaign(&plane, &all, (&load, &cells), &stop)?;
    let seids: Vec<u64> = all.iter().map(|session| session.seid).collect();
    let found: Vec<SessionVolume> = plane.query(&seids)?.into_iter().flatten().collect();
    let after = generate(&load, &cells, rand::random(), &stop)?;
    let counted = found.iter().map(|carried| carried.uplink).sum();
    let sent = before.uplink.octets + meanwhile.uplink.octets;
    let traffic = Traffic { before, meanwhile, after, counted, sent };
    let sessions = Sessions { established: all.len() as u64, found: found.len() as u64 };
    plane.release()?;
    write_json(json, &Json { counts: &counts, sessions, traffic: &traffic, memory_kib: memory })?;
    println!(
        "{} messages in {:.1} s, {:.1}% decoded; {} of {} sessions are there",
        counts.messages,
        counts.seconds,
        counts.decoded * 100.0,
        sessions.found,
        sessions.established
    );
    args.judge(&counts, sessions, &traffic, memory)
}

impl Args {
    fn establish(&self, plane: &mut ControlPlane, cells: &Cells) -> Result<Vec<Established>, Failure> {
        let build = |user: u32| Session {
            ue: Ipv4Addr::from_bits(self.ue.to_bits() + user),
            gnb: self.gnb,
            teid: cells.teid(user),
            f_teid: None,
            qfi: QFI,
            mbr_kbps: None,
            measured: true,
            filters: 0,
        };
        let mut all = Vec::new();
        plane.establish(0..self.sessions, WINDOW, build, |established| all.push(established))?;
        all.sort_by_key(|established| established.session);
        Ok(all)
    }

    fn load(&self, all: &[Established]) -> Result<Load, Failure> {
        let tunnel = |session: &Established| match session.upf {
            IpAddr::V4(upf) => Ok(Tunnel { teid: session.teid, upf }),
            IpAddr::V6(upf) => Err(Failure(format!("the UPF's N3 address {upf} is not IPv4, which the load needs"))),
        };
        Ok(Load {
            tunnels: all.iter().map(tunnel).collect::<Result<_, _>>()?,
            cells: 1,
            first_ue: self.ue,
            server: self.server,
            qfi: QFI,
            sizes: "128".parse().map_err(|_| Failure("bug: 128 octets are a size".to_owned()))?,
            pick: UserDistribution::RoundRobin,
            pace: Pace::InFlight(8),
            duration: Some(Duration::from_secs(60)),
            packets: Some(PACKETS * u64::from(self.sessions)),
            timeout: TIMEOUT,
            threads: 1,
            seed: self.seed,
        })
    }

    /// Sends the messages, and packets of the sessions meanwhile.
    fn campaign(
        &self,
        plane: &ControlPlane,
        all: &[Established],
        (load, cells): (&Load, &Cells),
        stop: &AtomicBool,
    ) -> Result<CampaignResult, Failure> {
        let campaign = Campaign {
            upf: self.n4.into(),
            attacker: self.attacker,
            strangers: self.unassociated.clone(),
            target: TargetControlPlane {
                address: *self.control.ip(),
                recovery: plane.recovery().0,
                seids: all.iter().map(|session| session.seid).collect(),
                teids: all.iter().map(|session| session.teid).collect(),
                first_ue: self.ue,
            },
            gnb: self.gnb,
            first_ue: Ipv4Addr::from_bits(self.ue.to_bits() + 4096),
            seed: self.seed,
            count: self.count,
        };
        let load = Load { pace: Pace::Rate(RATE), duration: Some(MAX_DURATION), packets: None, ..load.clone() };
        let over = AtomicBool::new(false);
        let mut memory =
            self.pid.map(|pid| resident(pid).map(|kib| Memory { before: kib, ..Memory::default() })).transpose()?;
        let result = std::thread::scope(|scope| {
            scope.spawn(|| plane.serve_requests(&over));
            let packets = scope.spawn(|| generate(&load, cells, rand::random(), &over));
            let sent = send(&campaign, stop, |messages| {
                if let (Some(memory), Some(pid)) = (&mut memory, self.pid)
                    && memory.after_a_tenth == 0
                    && messages >= self.count / 10
                {
                    memory.after_a_tenth = resident(pid).unwrap_or_default();
                }
            });
            over.store(true, Ordering::Relaxed);
            let packets = packets.join().map_err(|_| Failure("bug: the thread of the load panicked".to_owned()))?;
            Ok::<_, Failure>((sent?, packets?))
        });
        if let (Some(memory), Some(pid)) = (&mut memory, self.pid) {
            memory.after = resident(pid)?;
        }
        result.map(|(counts, traffic)| CampaignResult { counts, traffic, memory })
    }

    /// Returns an error if the campaign affected another control plane's sessions or the UPF.
    fn judge(
        &self,
        counts: &Counts,
        sessions: Sessions,
        traffic: &Traffic,
        memory: Option<Memory>,
    ) -> Result<(), Failure> {
        let reports = [&traffic.before, &traffic.meanwhile, &traffic.after];
        let lost: u64 = reports.iter().map(|report| report.uplink.sent.saturating_sub(report.downlink.received)).sum();
        let growth = memory.map_or(0, |memory| memory.after.saturating_sub(memory.after_a_tenth));
        let harm = if sessions.found != sessions.established {
            format!("{} sessions are gone", sessions.established - sessions.found)
        } else if counts.violations > 0 {
            format!("{} foreign requests were accepted: {}", counts.violations, counts.described.join("; "))
        } else if lost > 0 {
            format!("{lost} packets of the sessions are lost")
        } else if traffic.counted != traffic.sent {
            format!("the UPF has counted {} octets of {}", traffic.counted, traffic.sent)
        } else if counts.codec_faults + counts.unsound > 0 {
            format!(
                "{} messages change when they are written again, {} of the UPF are unsound",
                counts.codec_faults, counts.unsound
            )
        } else if growth > self.max_growth {
            format!("the UPF's memory has grown by {growth} KiB")
        } else if counts.messages < self.count {
            format!("stopped after {} messages", counts.messages)
        } else {
            return Ok(());
        };
        Err(Failure(format!("{harm}; repeat with --seed {}", self.seed)))
    }
}

/// Returns the resident memory of a process, in KiB.
fn resident(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure(format!("{path}: {error}; check --pid")))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kib.ok_or_else(|| Failure(format!("{path} says no VmRSS; check --pid")))
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

    #[test]
    fn harm_is_told_with_the_seed() {
        let line = "mutate --n4 192.0.2.1 --control 192.0.2.5 --attacker 192.0.2.6 --gnb 192.0.2.9 --ue 10.45.0.2 \
                    --server 198.51.100.7 --count 10 --seed 4711";
        let args = Line::try_parse_from(line.split_whitespace()).map(|line| line.args).unwrap();
        assert_eq!((args.server.port(), args.n4.port()), (super::super::options::MIRROR_PORT, 8805));
        let mut traffic = Traffic {
            before: Report::default(),
            meanwhile: Report::default(),
            after: Report::default(),
            counted: 0,
            sent: 0,
        };
        let mut counts = Counts { messages: 10, ..Counts::default() };
        let whole = Sessions { established: 5, found: 5 };
        let says = |counts: &Counts, sessions, traffic: &Traffic, memory| {
            args.judge(counts, sessions, traffic, memory).err().map(|failure| failure.to_string())
        };
        assert_eq!(says(&counts, whole, &traffic, None), None);
        let gone = says(&counts, Sessions { established: 5, found: 3 }, &traffic, None);
        assert_eq!(gone.as_deref(), Some("2 sessions are gone; repeat with --seed 4711"));
        let memory = Memory { before: 1, after_a_tenth: 100, after: 10_000 };
        assert!(says(&counts, whole, &traffic, Some(memory)).is_some_and(|text| text.contains("grown by 9900 KiB")));
        traffic.sent = 7;
        assert!(says(&counts, whole, &traffic, None).is_some_and(|text| text.contains("counted 0 octets of 7")));
        traffic.after.uplink.sent = 2;
        assert!(says(&counts, whole, &traffic, None).is_some_and(|text| text.contains("2 packets")));
        counts.violations = 1;
        assert!(says(&counts, whole, &traffic, None).is_some_and(|text| text.contains("accepted")));
    }
}
