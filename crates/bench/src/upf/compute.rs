//! Measurement of T_c, the time of a packet in user space between input and output.
//!
//! The engine of the frame drivers runs on frames in memory. Sessions are random; batches have 32
//! frames.

use super::network::{FIRST_UE, GNB, Network, POOL, SERVER, UPF_N3};
use std::net::Ipv4Addr;
use std::time::Duration;
use vireo_config::Failure;
use vireo_datapath::{
    ALL_FLOWS, Action, DownlinkId, DownlinkRule, Limits, Locking, MemoryFrames, NextHop, Pool, Rate, Released,
    SharedTables, Tables, Tunnel, UplinkRule,
};
use vireo_traffic::frame_loop::{Direction, Packets, Teids};
use vireo_traffic::packets::{self, ETHERNET, IPV4_HEADER, OUTER, UDP_HEADER};
use vireo_types::{Instant, SessionAddress, Teid};

/// Frames of a batch.
pub const BATCH: usize = 32;

/// QoS flow of all packets.
const QFI: u8 = 1;
/// Rate limit that a session never reaches, although its clock stands still.
const MBR_KBPS: u64 = 100_000_000;

/// Table entries of a session.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub session: u32,
    pub teid: Teid,
    pub downlink: DownlinkId,
}

/// Returns the downlink rule of a session. The tunnel's TEID depends on `moves`, so that successive
/// tunnels differ.
pub fn downlink_rule(session: u32, moves: u32) -> DownlinkRule {
    DownlinkRule {
        session: session.into(),
        pdr: 2,
        qfi: Some(QFI),
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel: Some(Tunnel { teid: Teid((session + 1).wrapping_add(moves << 24)), address: GNB.into() }),
        mbr: Rate::UNLIMITED,
    }
}

/// Features of the measured sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Usage counts only, as the sessions of `vireo bench upf`.
    #[default]
    Counted,
    /// As the core sets sessions up: also a rate limit that the load never reaches and a check of
    /// the uplink QoS flow.
    Full,
    /// As in a slice of simple devices: no counts, limit or QoS check.
    Lean,
}

/// Adds the entries of a session.
pub fn add(tables: &mut Tables, session: u32, released: &mut Released) -> Result<User, Failure> {
    add_as(Kind::Counted, tables, session, released)
}

fn add_as(kind: Kind, tables: &mut Tables, session: u32, released: &mut Released) -> Result<User, Failure> {
    let ipv4 = Some(Ipv4Addr::from_bits(FIRST_UE.to_bits() + session));
    let ue = SessionAddress { ipv4, ipv6_prefix: None };
    let (flows, mbr) = match kind {
        Kind::Full => (1 << QFI, Rate::from_kbps(MBR_KBPS)),
        Kind::Counted | Kind::Lean => (ALL_FLOWS, Rate::UNLIMITED),
    };
    let uplink = UplinkRule { ue, flows, gate_open: true, forward: true, mbr };
    let teid = tables.add_uplink(None, uplink)?;
    let downlink = tables.add_downlink(ue, session.into())?;
    let rule = DownlinkRule { mbr, ..downlink_rule(session, 0) };
    tables.set_downlink(downlink, rule, false, released);
    tables.set_lean(&[teid], std::iter::once(downlink), kind == Kind::Lean);
    Ok(User { session, teid, downlink })
}

/// Returns empty tables for the sessions' addresses with a capacity of `records` entries.
pub fn tables(records: u32, locking: Locking) -> Tables {
    within(Limits { records: records as usize, locking, ..Limits::default() })
}

fn within(limits: Limits) -> Tables {
    let (base, length) = POOL;
    let pool = Pool { ipv4: Some((base, length)), mtu: 1400, ..Pool::default() };
    Tables::new(vec![pool], limits)
}

/// A node between the RAN and the user plane.
pub trait Node {
    /// Processes a batch from the RAN.
    fn uplink(&mut self, frames: &mut MemoryFrames);
    /// Processes a batch to the RAN.
    fn downlink(&mut self, frames: &mut MemoryFrames);
}

/// Null node: packets pass unchanged.
impl Node for () {
    #[inline]
    fn uplink(&mut self, _: &mut MemoryFrames) {}

    #[inline]
    fn downlink(&mut self, _: &mut MemoryFrames) {}
}

/// A user plane in memory with its sessions.
#[derive(Debug)]
pub struct Compute {
    frames: MemoryFrames,
    templates: [Vec<u8>; 2],
    teids: Teids,
    sessions: u32,
    /// Sessions that have packets; empty = all.
    active: Vec<u32>,
    random: u64,
}

/// Offset of the TEID in an uplink frame.
const TEID_AT: usize = ETHERNET + IPV4_HEADER + UDP_HEADER + 4;
/// Offsets of the UE's packet in a frame, and of the UE's address in its header, by direction.
const PACKET_AT: [usize; 2] = [ETHERNET + OUTER, ETHERNET];
const UE_AT: [usize; 2] = [12, 16];

impl Compute {
    /// Returns a user plane with `sessions` sessions.
    pub fn new(network: &Network, sessions: u32) -> Result<Self, Failure> {
        Compute::with(network, sessions, 0, Locking::default()).map(|(compute, _)| compute)
    }

    /// Returns a user plane with `sessions` sessions of a kind.
    pub fn with_kind(network: &Network, sessions: u32, kind: Kind) -> Result<Self, Failure> {
        let limits = Limits { records: sessions as usize, ..Limits::default() };
        Compute::build(network, (sessions, kind), limits).map(|(compute, _)| compute)
    }

    /// Returns a user plane with sessions, spare capacity and the given locking of its tables.
    pub fn with(network: &Network, sessions: u32, room: u32, locking: Locking) -> Result<(Self, Vec<User>), Failure> {
        let limits = Limits { records: (sessions + room) as usize, locking, ..Limits::default() };
        Compute::build(network, (sessions, Kind::Counted), limits)
    }

    /// Returns a user plane with sessions of a kind and tables with the given bounds.
    pub fn build(
        network: &Network,
        (sessions, kind): (u32, Kind),
        limits: Limits,
    ) -> Result<(Self, Vec<User>), Failure> {
        let mut tables = within(limits);
        let mut released = Released::default();
        let add = |session| add_as(kind, &mut tables, session, &mut released);
        let users = (0..sessions).map(add).collect::<Result<Vec<User>, Failure>>()?;
        let first = users.first().ok_or_else(|| Failure("there are no sessions".into()))?;
        let mut teids = Teids::with(0, first.teid);
        if !users.iter().all(|user| teids.add(user.session, user.teid)) {
            return Err(Failure("the tables give TEIDs out of order, so there can be no load".into()));
        }
        Ok((Compute::from_tables(network, tables, sessions, &network.packets(teids), GNB)?, users))
    }

    /// Returns a user plane with the given tables. Uplink packets have the form of `packets`;
    /// downlink packets leave for `ran`.
    pub fn from_tables(
        network: &Network,
        tables: Tables,
        sessions: u32,
        packets: &Packets,
        ran: Ipv4Addr,
    ) -> Result<Self, Failure> {
        let [uplink, downlink] =
            [Direction::Uplink, Direction::Downlink].map(|way| packets.frame(&network.ours, way, 0));
        let hop = |to: Ipv4Addr, port| NextHop { to: to.into(), port, macs: [2; 12] };
        let frames = MemoryFrames::new(tables, &[UPF_N3.into()], &[hop(ran, 0), hop(SERVER, 1)]);
        let templates = [uplink?, downlink?];
        Ok(Compute { frames, templates, teids: packets.teids.clone(), sessions, active: vec![], random: 1 })
    }

    /// Restricts packets to the given sessions; empty = all.
    pub fn activate(&mut self, active: Vec<u32>) {
        self.active = active;
    }

    /// Returns the tables, so that another thread can change the rules during the measurement.
    pub fn tables(&self) -> &SharedTables {
        &self.frames.tables
    }

    /// Sets whether the tables have several workers, whose concurrent counts must all be kept.
    pub fn one_of_several(&mut self, several: bool) {
        self.frames.tables.change(|tables, _| tables.set_single_worker(!several), |_| ());
    }

    /// Decides on one batch of packets of random sessions. Returns the time taken.
    pub fn batch(&mut self, direction: Direction) -> Result<Duration, Failure> {
        self.batch_behind(direction, &mut ())
    }

    /// Decides on one batch that also passes through `node`. Returns the time taken.
    pub fn batch_behind(&mut self, direction: Direction, node: &mut impl Node) -> Result<Duration, Failure> {
        self.fill(direction);
        let now = std::time::Instant::now();
        if direction == Direction::Uplink {
            node.uplink(&mut self.frames);
        }
        let left = self.frames.process(Instant(1_000_000));
        if direction == Direction::Downlink {
            node.downlink(&mut self.frames);
        }
        let spent = now.elapsed();
        match left {
            BATCH => Ok(spent),
            left => Err(Failure(format!("{left} of {BATCH} frames left: {:?}", self.frames.stats))),
        }
    }

    /// Returns the time of a packet in one direction in nanoseconds, measured for about `span`.
    pub fn nanoseconds(&mut self, direction: Direction, span: Duration) -> Result<f64, Failure> {
        let (began, mut spent, mut batches) = (std::time::Instant::now(), Duration::ZERO, 0_u32);
        while began.elapsed() < span {
            // As in a driver, the clock is read once per several batches.
            for _ in 0..64 {
                spent += self.batch(direction)?;
                batches += 1;
            }
        }
        Ok(spent.as_nanos() as f64 / f64::from(batches) / BATCH as f64)
    }

    /// Fills a batch with frames of random sessions.
    fn fill(&mut self, direction: Direction) {
        let way = usize::from(direction == Direction::Downlink);
        for _ in 0..BATCH {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let among = if self.active.is_empty() { u64::from(self.sessions) } else { self.active.len() as u64 };
            let session = (((self.random >> 32) * among) >> 32) as u32;
            let session = self.active.get(session as usize).copied().unwrap_or(session);
            let template = &self.templates[way];
            let Some(frame) = self.frames.next(template.len()) else { return };
            frame.copy_from_slice(template);
            let ue = (FIRST_UE.to_bits() + session).to_be_bytes();
            let header = &mut frame[PACKET_AT[way]..][..IPV4_HEADER];
            header[UE_AT[way]..][..4].copy_from_slice(&ue);
            header[10..12].fill(0);
            let check = !packets::sum(header);
            header[10..12].copy_from_slice(&check.to_be_bytes());
            if way == 0 {
                frame[TEID_AT..TEID_AT + 4].copy_from_slice(&self.teids.teid(session).0.to_be_bytes());
            }
        }
    }
}
