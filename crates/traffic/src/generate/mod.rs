//! Load generator through sockets for any user plane.
//!
//! Several cells, which are gNBs with individual addresses, send uplink packets of many users in
//! GTP-U. A mirror on N6 ([`crate::respond`]) returns each packet. The result is packet counts by
//! direction and round-trip times.

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

/// Maximum number of cells of a load.
pub const CELLS: usize = 1024;
/// Maximum number of users of a load.
pub const USERS: usize = 1 << 22;
/// Maximum response time of a UPF to an Echo Request.
const ECHO_TIME: Duration = Duration::from_millis(500);
/// Maximum number of Echo Requests.
const ECHOES: u16 = 4;

/// Reason why a load does not run. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The address of a cell does not belong to this machine.
    #[error(
        "no interface here has the address {0}: add it to the one towards N3 (ip address add {0}/32 dev INTERFACE)"
    )]
    NoAddress(Ipv4Addr),
    /// Another process uses the port.
    #[error("UDP port {port} of {address} is in use: a gNB, a UPF or another load runs there; give another address")]
    InUse { address: Ipv4Addr, port: u16 },
    /// The kernel refuses the socket.
    #[error("cannot open UDP port {port} of {address}: {source}")]
    Socket {
        address: Ipv4Addr,
        port: u16,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The UPF cannot be reached or does not answer.
    #[error(
        "the UPF at {upf} does not answer GTP-U from {cell}{}: is this its N3 address, and is there a route and no \
         firewall between them?", .source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default()
    )]
    Silent {
        /// N3 address of the UPF.
        upf: Ipv4Addr,
        /// Address of the requesting cell.
        cell: Ipv4Addr,
        /// Error of the kernel, if any.
        source: Option<io::Error>,
    },
    /// The parameters of the load are invalid.
    #[error("{0}")]
    Load(String),
    /// Any other failure of the sockets.
    #[error("traffic: {0}")]
    Io(#[from] io::Error),
    /// The latency histogram cannot be created.
    #[error("cannot count latency: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

/// Opens a socket with an address of this machine.
pub(crate) fn open(address: SocketAddrV4, tells: bool) -> Result<UdpSocket, LoadError> {
    let (ip, port) = (*address.ip(), address.port());
    batch::socket(address, tells).map_err(|source| match source.kind() {
        io::ErrorKind::AddrNotAvailable => LoadError::NoAddress(ip),
        io::ErrorKind::AddrInUse => LoadError::InUse { address: ip, port },
        _ => LoadError::Socket { address: ip, port, source },
    })
}

/// Uplink tunnel of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// TEID of the UPF.
    pub teid: Teid,
    /// N3 address of the UPF.
    pub upf: Ipv4Addr,
}

/// Sending rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Open loop: packets per second, independent of returned packets.
    Rate(f64),
    /// Closed loop: number of packets in flight.
    InFlight(u64),
}

/// Parameters of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Tunnels by user number. User `n` is in cell `n % cells`.
    pub tunnels: Vec<Tunnel>,
    /// Number of cells, at most [`CELLS`].
    pub cells: usize,
    /// Address of user 0. Those of the others follow.
    pub first_ue: Ipv4Addr,
    /// Address of the mirror.
    pub server: SocketAddrV4,
    /// QFI of all packets.
    pub qfi: u8,
    /// Distribution of packet lengths.
    pub sizes: SizeDistribution,
    /// Distribution of packets among users.
    pub pick: UserDistribution,
    pub pace: Pace,
    /// Maximum duration. `None` = unlimited.
    pub duration: Option<Duration>,
    /// Maximum number of packets. `None` = unlimited.
    pub packets: Option<u64>,
    /// Time after which an outstanding packet counts as lost.
    pub timeout: Duration,
    /// Number of threads. Each serves a part of the cells.
    pub threads: usize,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Load {
    /// Returns the address of a user.
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

/// A gNB with its socket.
#[derive(Debug)]
struct Cell {
    socket: UdpSocket,
    address: Ipv4Addr,
    index: usize,
}

/// The RAN: gNBs with individual sockets.
#[derive(Debug)]
pub struct Cells(Vec<Cell>);

impl Cells {
    /// Opens `count` cells with consecutive addresses from `first` on.
    ///
    /// # Errors
    ///
    /// Returns an error if `count` is out of range or a socket cannot be opened.
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

    /// Returns the address of the cell of a user.
    pub fn address(&self, user: u32) -> Ipv4Addr {
        self.0[user as usize % self.0.len()].address
    }

    /// Returns the downlink TEID of a user in its cell.
    pub fn teid(&self, user: u32) -> Teid {
        lane::teid_of(user)
    }

    /// Sends Echo Requests to a UPF (TS 29.281 7.2.1). Returns the response time.
    ///
    /// # Errors
    ///
    /// Returns an error if the UPF does not answer.
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

/// Runs a load. `stop` ends it early. `run` distinguishes its packets from those of other runs.
///
/// # Errors
///
/// Returns an error if the parameters are invalid or a socket fails.
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
