//! A load on any user plane, through sockets: uplink packets of many users in GTP-U, from several cells, which are
//! gNBs with addresses of their own; a mirror on N6 ([`crate::respond`]) sends each back. What comes out is counted by
//! direction, and how long it took.

mod lane;
mod report;
mod window;

pub use report::{DirectionReport, Latency, Report};

use crate::distribution::{SizeDistribution, UserDistribution};
use crate::sys::batch;
use lane::Lane;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use vireo_types::Teid;
use vireo_wire::gtpu;

/// Cells of a load.
pub const CELLS: usize = 1024;
/// Users of a load.
pub const USERS: usize = 1 << 22;
/// How long a UPF may take to answer an Echo Request.
const ECHO_TIME: Duration = Duration::from_millis(500);
/// How often it is asked.
const ECHOES: u16 = 4;

/// Why there is no load. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The address of a cell is no address of this machine.
    #[error(
        "no interface here has the address {0}: add it to the one towards N3 (ip address add {0}/32 dev INTERFACE)"
    )]
    NoAddress(Ipv4Addr),
    /// Somebody else is there.
    #[error("UDP port {port} of {address} is in use: a gNB, a UPF or another load runs there; give another address")]
    InUse {
        /// Where.
        address: Ipv4Addr,
        /// The port.
        port: u16,
    },
    /// The kernel does not give the socket.
    #[error("cannot open UDP port {port} of {address}: {source}")]
    Socket {
        /// Where.
        address: Ipv4Addr,
        /// The port.
        port: u16,
        /// What the kernel said.
        source: io::Error,
    },
    /// The UPF cannot be asked or does not answer.
    #[error(
        "the UPF at {upf} does not answer GTP-U from {cell}{}: is this its N3 address, and is there a route and no \
         firewall between them?", .source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default()
    )]
    Silent {
        /// The UPF.
        upf: Ipv4Addr,
        /// Who asked.
        cell: Ipv4Addr,
        /// What the kernel said, if it did.
        source: Option<io::Error>,
    },
    /// There is nothing to send from or to.
    #[error("{0}")]
    Load(String),
    /// Anything else about the sockets.
    #[error("traffic: {0}")]
    Io(#[from] io::Error),
    /// The latency cannot be counted.
    #[error("cannot count latency: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

/// Opens a socket of this machine.
pub(crate) fn open(address: SocketAddrV4, tells: bool) -> Result<UdpSocket, LoadError> {
    let (ip, port) = (*address.ip(), address.port());
    batch::socket(address, tells).map_err(|source| match source.kind() {
        io::ErrorKind::AddrNotAvailable => LoadError::NoAddress(ip),
        io::ErrorKind::AddrInUse => LoadError::InUse { address: ip, port },
        _ => LoadError::Socket { address: ip, port, source },
    })
}

/// Where uplink packets of a user go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The UPF's TEID.
    pub teid: Teid,
    /// Its address.
    pub upf: Ipv4Addr,
}

/// How fast packets are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many a second, whatever comes back.
    Rate(f64),
    /// As many as come back: so many are on their way.
    InFlight(u64),
}

/// A load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The tunnels of the users by their numbers; user `n` is in cell `n % cells`.
    pub tunnels: Vec<Tunnel>,
    /// How many cells there are.
    pub cells: usize,
    /// The address of user 0; those of the others follow.
    pub first_ue: Ipv4Addr,
    /// The mirror.
    pub server: SocketAddrV4,
    /// The QoS flow.
    pub qfi: u8,
    /// How long packets are.
    pub sizes: SizeDistribution,
    /// Whose they are.
    pub pick: UserDistribution,
    /// How fast they are sent.
    pub pace: Pace,
    /// How long.
    pub duration: Option<Duration>,
    /// How many.
    pub packets: Option<u64>,
    /// After how long a packet is lost.
    pub timeout: Duration,
    /// Threads, each with cells of its own.
    pub threads: usize,
    /// Seed of what is random.
    pub seed: u64,
}

impl Load {
    /// The address of a user.
    pub fn ue(&self, user: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first_ue.to_bits().wrapping_add(user as u32))
    }

    fn check(&self, cells: &Cells) -> Result<(), LoadError> {
        let wrong = |what: String| Err(LoadError::Load(what));
        let (users, threads) = (self.tunnels.len(), self.threads);
        if self.cells != cells.0.len() || users < self.cells || users > USERS {
            return wrong(format!(
                "{users} users cannot be divided among {} cells: give 1 to {USERS} of them",
                self.cells
            ));
        }
        if threads == 0 || threads > self.cells {
            return wrong(format!("{threads} threads cannot share {} cells: each has cells of its own", self.cells));
        }
        match self.pace {
            Pace::Rate(rate) if !(rate > 0.0 && rate <= 1e9) => wrong(format!("a rate of {rate} packets/s cannot be")),
            Pace::InFlight(packets) if packets < threads as u64 => {
                wrong(format!("{packets} packets on their way are fewer than {threads} threads"))
            }
            _ => Ok(()),
        }
    }
}

/// A gNB.
#[derive(Debug)]
struct Cell {
    socket: UdpSocket,
    address: Ipv4Addr,
    index: usize,
}

/// The RAN: gNBs with sockets of their own.
#[derive(Debug)]
pub struct Cells(Vec<Cell>);

impl Cells {
    /// Opens `count` cells: the first has this address, the others those that follow.
    pub fn open(first: Ipv4Addr, count: usize) -> Result<Self, LoadError> {
        if count == 0 || count > CELLS {
            return Err(LoadError::Load(format!("{count} cells cannot be: take 1 to {CELLS}")));
        }
        let cells = (0..count).map(|index| {
            let address = Ipv4Addr::from_bits(first.to_bits().wrapping_add(index as u32));
            let socket = open(SocketAddrV4::new(address, gtpu::PORT), false)?;
            Ok(Cell { socket, address, index })
        });
        Ok(Cells(cells.collect::<Result<_, LoadError>>()?))
    }

    /// The address of the cell that a user is in.
    pub fn of(&self, user: u32) -> Ipv4Addr {
        self.0[user as usize % self.0.len()].address
    }

    /// The user's TEID there.
    pub fn teid(&self, user: u32) -> Teid {
        lane::teid_of(user)
    }

    /// Asks a UPF whether it is there (TS 29.281 7.2.1).
    pub fn echo(&self, upf: Ipv4Addr) -> Result<Duration, LoadError> {
        let Cell { socket, address, .. } = &self.0[0];
        let silent = |source| LoadError::Silent { upf, cell: *address, source };
        socket.set_read_timeout(Some(ECHO_TIME))?;
        let mut refusal = None;
        for sequence in 0..ECHOES {
            let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
            let request = gtpu::echo_request(&mut buffer, sequence).map_err(io::Error::other)?;
            let asked = Instant::now();
            refusal = socket.send_to(request, (upf, gtpu::PORT)).err();
            let mut answer = [0; 2048];
            while asked.elapsed() < ECHO_TIME {
                let Ok((length, from)) = socket.recv_from(&mut answer) else { break };
                let message = gtpu::Packet::parse(&answer[..length]).ok();
                let answered = message.is_some_and(|message| message.kind == gtpu::MessageType::EchoResponse);
                if answered && matches!(from, SocketAddr::V4(from) if *from.ip() == upf) {
                    return Ok(asked.elapsed());
                }
            }
        }
        Err(silent(refusal))
    }
}

/// Carries out a load; `stop` ends it early. `run` tells its packets from those of others.
pub fn generate(load: &Load, cells: &Cells, run: u32, stop: &AtomicBool) -> Result<Report, LoadError> {
    load.check(cells)?;
    let results = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..load.threads)
            .map(|number| scope.spawn(move || Lane::new(load, &cells.0, number, run)?.run(stop)))
            .collect();
        let panicked = || Err(LoadError::Load("a thread of the load panicked".to_owned()));
        lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| panicked())).collect::<Vec<_>>()
    });
    let mut all = report::ThreadCounters::new()?;
    for result in results {
        all.add(result?);
    }
    let offered = match load.pace {
        Pace::Rate(rate) => Some(rate),
        Pace::InFlight(_) => None,
    };
    Ok(all.report(offered))
}
