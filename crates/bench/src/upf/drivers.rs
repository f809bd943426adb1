//! User-space drivers, each compared with the same driver without a user plane.
//!
//! The baseline is `vireo_datapath::Bare`, which connects input and output directly. It runs before
//! and after the user plane, with the same frames in flight, on the same interfaces and processor.

use super::kernel::{self, Round, Spans};
use super::network::{GNB, LENGTH, Network, POOL, SERVER, UPF_N3};
use super::process::Upf;
use vireo_config::Failure;
use vireo_datapath::{Bare, FrameIo, FramesConfig, Limits, Pool, Tunnel, UserPlane, UserPlaneConfig, XdpMode};
use vireo_lab::Interrupt;
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::{Direction, FrameLoop, Teids};
use vireo_types::Teid;

/// A driver of user space.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Name in the configuration.
    pub name: &'static str,
    io: Option<FrameIo>,
    /// Frames in flight: enough that the driver never waits, and fewer than any queue on the path
    /// holds.
    pub flight: usize,
}

/// Attempts to measure if frames are lost.
const ATTEMPTS: u32 = 4;

/// All user-space drivers.
pub const DRIVERS: [Driver; 3] = [
    // The queue of a TUN device has 500 places.
    Driver { name: "sockets", io: None, flight: 256 },
    // The kernel delivers frames in blocks of about 400, or after 1 ms.
    Driver { name: "af-packet", io: Some(FrameIo::AfPacket(vireo_datapath::Fanout::Hash)), flight: 4096 },
    Driver { name: "af-xdp", io: Some(FrameIo::AfXdp(XdpMode::Native)), flight: 512 },
];

/// Values in both directions.
#[derive(Clone, Copy, Debug)]
pub struct BothDirections {
    pub uplink: Round,
    pub downlink: Round,
}

/// One run of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub bare: [BothDirections; 2],
    /// Results with one session and with many.
    pub ours: [BothDirections; 2],
}

impl Driver {
    /// Returns the configuration of the user plane.
    pub fn toml(&self, network: &Network) -> String {
        let (n3, n6) = (&network.ours.n3.name, &network.ours.n6.name);
        match self.io {
            None => format!("[datapath]\ndriver = \"{}\"\nworkers = 1", self.name),
            Some(_) => format!(
                "[datapath]\ndriver = \"{}\"\nworkers = 1\ninterfaces = [\"{n3}\", \"{n6}\"]\nnext-hops = [\"{SERVER}\"]",
                self.name
            ),
        }
    }

    /// Starts the driver with header handling only. Dropping the result stops the driver.
    pub fn bare(&self, network: &Network, processor: usize, forward: bool) -> Result<UserPlane, Failure> {
        let interfaces = vec![network.ours.n3.name.clone(), network.ours.n6.name.clone()];
        let config = UserPlaneConfig {
            n3: vec![UPF_N3.into()],
            tun: "bare".into(),
            pools: vec![Pool { ipv4: Some(POOL), mtu: 1400, ..Pool::default() }],
            limits: Limits { records: 1, ..Limits::default() },
            workers: 1,
            nat: false,
            access: vireo_datapath::Access::default(),
            host_routes: false,
            xdp: None,
            frames: self.io.map(|io| FramesConfig { interfaces, io, ..FramesConfig::default() }),
            slices: vec![],
            processes: None,
        };
        let tunnel = Tunnel { teid: Teid(1), address: GNB.into() };
        let bare = Bare { tunnel, qfi: 1, server: SERVER.into(), octets: LENGTH, forward };
        Ok(on_processors(&[processor], || UserPlane::bare(config, bare))??)
    }

    /// Measures packets of the given sessions through the running forwarder.
    fn both(
        &self,
        network: &Network,
        teids: &Teids,
        sessions: u32,
        (processor, spans): (usize, Spans),
    ) -> Result<BothDirections, Failure> {
        let mut load = network.outside(|| FrameLoop::load(&network.ours, network.packets(teids.clone())))??;
        let mut one = |direction| {
            let mut round = Round::default();
            // On a machine with other work, a queue on the path may overflow.
            for _ in 0..ATTEMPTS {
                round = kernel::round(network, &mut load, direction, (0, sessions), processor, (self.flight, spans))?;
                if round.in_flight >= self.flight as u64 / 2 {
                    return Ok(round);
                }
            }
            let Round { in_flight, .. } = round;
            Err(Failure(format!("{}: of {} frames in flight only {in_flight} were left", self.name, self.flight)))
        };
        Ok(BothDirections { uplink: one(Direction::Uplink)?, downlink: one(Direction::Downlink)? })
    }

    /// Measures once: bare, with sessions, bare.
    pub fn run(
        &self,
        network: &Network,
        sessions: u32,
        (processor, beside): (usize, &[usize]),
        spans: Spans,
        interrupt: &Interrupt,
    ) -> Result<Run, Failure> {
        let floor = || {
            let _bare = self.bare(network, processor, true)?;
            self.both(network, &Teid(1).into(), 1, (processor, spans))
        };
        let before = floor()?;
        interrupt.check()?;
        let toml = self.toml(network);
        let mut upf = Upf::start(network, beside, sessions, &toml, interrupt)?;
        upf.workers_on(processor)?;
        on_processors(&[processor], || upf.establish(0..sessions, false))??;
        let teids = upf.teids.take().ok_or_else(|| Failure("the UPF has no sessions".into()))?;
        let ours = [1, sessions].map(|sessions| self.both(network, &teids, sessions, (processor, spans)));
        let [one, many] = ours;
        let ours = [one?, many?];
        upf.stop()?;
        interrupt.check()?;
        Ok(Run { bare: [before, floor()?], ours })
    }
}
