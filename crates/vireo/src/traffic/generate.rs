//! `vireo traffic generate`: load generator on N3.

use super::options::{PFCP, create, mirror, n4, span, write_json};
use crate::emulate::stop_on_signal;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_traffic::distribution::{SizeDistribution, UserDistribution};
use vireo_traffic::generate::{CELLS, Cells, Load, Pace, Report, Tunnel, USERS, generate};
use vireo_traffic::pfcp::{ControlPlane, PfcpError, Session};
use vireo_types::Teid;

/// Upper bound of unanswered PFCP session requests.
const PFCP_WINDOW: usize = 64;
/// Default of `--in-flight`, in packets.
const IN_FLIGHT: u64 = 32;

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("sessions").args(["n4", "n3"]).required(true).multiple(true)))]
pub(crate) struct Args {
    /// Set the local N3 address of the first cell; further cells follow
    #[arg(long, value_name = "ADDR")]
    gnb: Ipv4Addr,
    /// Emulate N cells
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=CELLS as i64))]
    cells: u32,
    /// Set up sessions through PFCP at this UPF, and delete them afterwards
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = n4)]
    n4: Option<SocketAddrV4>,
    /// Set the control plane's address [default: route to the UPF, port 8805]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = n4, requires = "n4")]
    control: Option<SocketAddrV4>,
    /// Set the network instance of the sessions, if the UPF needs one
    #[arg(long, value_name = "NAME", requires = "n4")]
    network: Option<String>,
    /// Set the UPF's N3 address, with --teid
    ///
    /// The sessions exist already, or (with --n4) the control plane chooses their F-TEIDs.
    #[arg(long, value_name = "ADDR", requires = "teid")]
    n3: Option<Ipv4Addr>,
    /// Set the first user's uplink TEID [default: the UPF chooses]
    #[arg(long, value_name = "TEID", requires = "n3")]
    teid: Option<u32>,
    /// Set the distance between uplink TEIDs of consecutive users
    #[arg(long, value_name = "N", default_value_t = 1, requires = "teid")]
    teid_step: u32,
    /// Set the first user's address; those of the others follow
    #[arg(long, value_name = "ADDR")]
    ue: Ipv4Addr,
    /// Emulate N users with one session each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=USERS as i64))]
    users: u32,
    /// Send to `vireo traffic respond` at this address
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = mirror)]
    server: SocketAddrV4,
    /// Set packet sizes in bytes, from the IP header: N, imix or SIZE:WEIGHT
    ///
    /// The size imix is 64:7,576:4,1400:1; a list of sizes with weights is also valid.
    #[arg(long, value_name = "SIZES", default_value = "128")]
    size: SizeDistribution,
    /// Select the user of each packet: round-robin, uniform or zipf:S
    #[arg(long, value_name = "PICK", default_value_t = UserDistribution::RoundRobin)]
    pick: UserDistribution,
    /// Send PPS packets per second (open loop)
    #[arg(long, value_name = "PPS", value_parser = rate, conflicts_with = "in_flight")]
    rate: Option<f64>,
    /// Keep N packets in flight (closed loop) [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    in_flight: Option<u64>,
    /// Send for TIME
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "10s")]
    duration: Duration,
    /// Send at most N packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Count a packet as lost after TIME
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1s")]
    timeout: Duration,
    /// Set the QoS flow identifier of the packets
    #[arg(long, value_name = "QFI", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=63))]
    qfi: u8,
    /// Use N threads; each has its own cells
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Fail if more than this percentage is lost [default: if all are]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    max_loss: Option<f64>,
    /// Do not check the UPF with a GTP-U Echo Request
    #[arg(long)]
    no_echo: bool,
    /// Set the random seed [default: a different one in each run]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1e9);
    rate.ok_or_else(|| format!("{text:?} is not a rate above 0 and up to 1e9 packets a second"))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is not a number from 0 to 100"))
}

/// Report with the requested parameters.
#[derive(Debug, Serialize)]
struct Json<'r> {
    users: u32,
    cells: u32,
    pick: String,
    in_flight: Option<u64>,
    /// Rate of sessions set up through PFCP.
    sessions_per_second: Option<f64>,
    #[serde(flatten)]
    report: &'r Report,
}

/// Runs the load.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.addresses()?;
    let json = create(args.json.as_deref())?;
    let cells = Cells::open(args.gnb, args.cells as usize)?;
    let stop = stop_on_signal()?;
    let mut plane = args.n4.map(|upf| args.associate(upf)).transpose()?;
    let result = args.sessions_and_load(&cells, plane.as_mut(), &stop);
    let released = plane.map_or(Ok(()), ControlPlane::release);
    let (report, sessions_per_second) = result?;
    print!("{report}");
    let in_flight = report.offered_pps.is_none().then(|| args.in_flight.unwrap_or(IN_FLIGHT));
    let pick = args.pick.to_string();
    let Args { users, cells, .. } = *args;
    write_json(json, &Json { users, cells, pick, in_flight, sessions_per_second, report: &report })?;
    released.map_err(|error| Failure(format!("the load is done, but its sessions are not ended: {error}")))?;
    args.judge(&report)
}

impl Args {
    /// Checks that cells do not exceed users, that threads do not exceed cells, and that all
    /// addresses and TEIDs are in range.
    fn addresses(&self) -> Result<(), Failure> {
        let fits = |first: Ipv4Addr, count: u32| first.to_bits().checked_add(count - 1).is_some();
        if self.users < self.cells {
            return Err(Failure(format!("{} cells need at least as many users", self.cells)));
        }
        if self.threads > self.cells {
            return Err(Failure(format!("{} threads need at least as many cells", self.threads)));
        }
        let last = |first: u32| u64::from(first) + u64::from(self.users - 1) * u64::from(self.teid_step);
        if !fits(self.ue, self.users) || !fits(self.gnb, self.cells) || last(self.teid.unwrap_or(0)) > u32::MAX.into() {
            return Err(Failure("the addresses or TEIDs of so many users or cells go past the last there is".into()));
        }
        Ok(())
    }

    fn associate(&self, upf: SocketAddrV4) -> Result<ControlPlane, Failure> {
        let control = match self.control {
            Some(control) => control,
            None => {
                let probe = UdpSocket::bind("0.0.0.0:0")?;
                let no_route = |error| Failure(format!("no way to the UPF's N4 address {upf}: {error}"));
                probe.connect(upf).map_err(no_route)?;
                match probe.local_addr()? {
                    SocketAddr::V4(local) => SocketAddrV4::new(*local.ip(), PFCP),
                    SocketAddr::V6(_) => return Err(Failure("the UPF's N4 address is not IPv4".into())),
                }
            }
        };
        let mut plane = ControlPlane::associate(*control.ip(), control.port(), upf.into()).map_err(|error| {
            let hint = "; --control gives another address";
            Failure(match error {
                PfcpError::Socket { .. } => format!("{error}{hint}"),
                _ => error.to_string(),
            })
        })?;
        if let Some(name) = &self.network {
            plane.in_network(name);
        }
        Ok(plane)
    }

    /// Returns the uplink tunnel of a user, if the UPF does not choose it.
    fn configured_tunnel(&self, user: u32) -> Option<(Teid, Ipv4Addr)> {
        let (first, upf) = self.teid.zip(self.n3)?;
        Some((Teid(first.wrapping_add(user.wrapping_mul(self.teid_step))), upf))
    }

    fn sessions_and_load(
        &self,
        cells: &Cells,
        mut plane: Option<&mut ControlPlane>,
        stop: &AtomicBool,
    ) -> Result<(Report, Option<f64>), Failure> {
        let began = Instant::now();
        let tunnels = match plane.as_deref_mut() {
            Some(plane) => self.establish(cells, plane)?,
            None => (0..self.users)
                .filter_map(|user| self.configured_tunnel(user).map(|(teid, upf)| Tunnel { teid, upf }))
                .collect(),
        };
        let seconds = began.elapsed().as_secs_f64();
        let sessions_per_second = plane.is_some().then(|| f64::from(self.users) / seconds);
        if let Some(rate) = sessions_per_second {
            eprintln!("traffic: {} sessions, {rate:.0} a second", self.users);
        }
        if !self.no_echo {
            let upfs: BTreeSet<Ipv4Addr> = tunnels.iter().map(|tunnel| tunnel.upf).collect();
            upfs.into_iter().try_for_each(|upf| cells.echo(upf).map(|_| ()))?;
        }
        let load = self.load(tunnels);
        let run = rand::random();
        let over = AtomicBool::new(false);
        let plane = plane.as_deref();
        let report = std::thread::scope(|scope| {
            if let Some(plane) = plane {
                // A UPF deletes the sessions of an unresponsive control plane. An error shows when
                // the sessions are deleted.
                scope.spawn(|| plane.serve_requests(&over));
            }
            let report = generate(&load, cells, run, stop);
            over.store(true, Ordering::Relaxed);
            report
        });
        Ok((report?, sessions_per_second))
    }

    fn establish(&self, cells: &Cells, plane: &mut ControlPlane) -> Result<Vec<Tunnel>, Failure> {
        let build = |user| Session {
            ue: Ipv4Addr::from_bits(self.ue.to_bits() + user),
            gnb: cells.address(user),
            teid: cells.teid(user),
            f_teid: self.configured_tunnel(user),
            qfi: self.qfi,
            mbr_kbps: None,
            measured: false,
            filters: 0,
        };
        let nowhere = Tunnel { teid: Teid(0), upf: Ipv4Addr::UNSPECIFIED };
        let mut tunnels = vec![nowhere; self.users as usize];
        let mut other = None;
        plane.establish(0..self.users, PFCP_WINDOW, build, |established| {
            match (established.upf, tunnels.get_mut(established.session as usize)) {
                (IpAddr::V4(upf), Some(tunnel)) => *tunnel = Tunnel { teid: established.teid, upf },
                (address, _) => other = Some(address),
            }
        })?;
        match other {
            Some(address) => Err(Failure(format!("the UPF's N3 address {address} is not IPv4, which the load needs"))),
            None => Ok(tunnels),
        }
    }

    fn load(&self, tunnels: Vec<Tunnel>) -> Load {
        Load {
            tunnels,
            cells: self.cells as usize,
            first_ue: self.ue,
            server: self.server,
            qfi: self.qfi,
            sizes: self.size.clone(),
            pick: self.pick,
            pace: match self.rate {
                Some(rate) => Pace::Rate(rate),
                None => Pace::InFlight(self.in_flight.unwrap_or(IN_FLIGHT)),
            },
            duration: Some(self.duration),
            packets: self.packets,
            timeout: self.timeout,
            threads: self.threads as usize,
            seed: self.seed.unwrap_or_else(rand::random),
        }
    }

    /// Returns an error if the loss is too high.
    fn judge(&self, report: &Report) -> Result<(), Failure> {
        let lost = report.lost_percent();
        if report.uplink.sent == 0 {
            return Err(Failure("no packet was sent: the load was stopped before".into()));
        }
        if report.downlink.received == 0 {
            let reason = match report {
                Report { refusal: Some(refusal), .. } => format!("the kernel refuses to send them ({refusal})"),
                Report { error_indications: 1.., .. } => "the UPF does not know their tunnels: see --teid, --n4".into(),
                _ => format!(
                    "is `vireo traffic respond` at {}, does the UPF route there, and has the way back a route for {} to \
                     the UPF?",
                    self.server, self.ue
                ),
            };
            return Err(Failure(format!("no packet came back: {reason}")));
        }
        match self.max_loss {
            Some(most) if lost > most => Err(Failure(format!("{lost:.4}% of the packets are lost, more than {most}%"))),
            _ => Ok(()),
        }
    }
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

    const LEAST: &str = "generate --gnb 192.0.2.1 --ue 10.45.0.2 --server 198.51.100.1";

    fn parse(more: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(format!("{LEAST} {more}").split_whitespace()).map(|line| line.args)
    }

    #[test]
    fn sessions_are_given_or_asked_for() {
        let args = parse("--n3 192.0.2.9 --teid 0x10").err().map(|error| error.to_string());
        assert!(args.is_some_and(|error| error.contains("0x10")), "decimal, as everywhere else");
        let args = parse("--n3 192.0.2.9 --teid 16 --teid-step 256 --users 3 --rate 1000").unwrap();
        let upf = Ipv4Addr::new(192, 0, 2, 9);
        assert_eq!(
            (args.configured_tunnel(0), args.configured_tunnel(2)),
            (Some((Teid(16), upf)), Some((Teid(528), upf)))
        );
        assert_eq!(args.load(vec![]).pace, Pace::Rate(1000.0));
        let args = parse("--n4 192.0.2.8 --size imix --pick zipf:1.1").unwrap();
        assert_eq!((args.configured_tunnel(0), args.n4), (None, Some("192.0.2.8:8805".parse().unwrap())));
        assert_eq!(args.server, "198.51.100.1:5678".parse().unwrap());
        assert_eq!(args.load(vec![]).pace, Pace::InFlight(32));
        for line in [
            "",
            "--n3 192.0.2.9",
            "--n4 x",
            "--n4 192.0.2.8 --rate 0",
            "--n4 192.0.2.8 --rate 5 --in-flight 5",
            "--n4 192.0.2.8 --size 20",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["--cells 2", "--threads 2", "--users 3 --n3 192.0.2.9 --teid 4294967294"] {
            assert!(parse(&format!("--n4 192.0.2.8 {line}")).unwrap().addresses().is_err(), "{line}");
        }
    }

    #[test]
    fn load_without_replies_fails() {
        let mut report = Report::default();
        let mut args = parse("--n4 192.0.2.8").unwrap();
        let says = |args: &Args, report: &Report| args.judge(report).err().map(|failure| failure.to_string());
        report.uplink.sent = 1000;
        assert!(says(&args, &report).is_some_and(|text| text.contains("198.51.100.1:5678")));
        report.error_indications = 1;
        assert!(says(&args, &report).is_some_and(|text| text.contains("tunnels")));
        report.downlink.received = 990;
        assert_eq!(says(&args, &report), None);
        args.max_loss = Some(0.5);
        assert!(says(&args, &report).is_some_and(|text| text.contains("1.0000%")));
    }
}
