//! Thread of a load, with its cells and outstanding packets.

use super::report::ThreadCounters;
use super::window::SendWindow;
use super::{Cell, Load, LoadError, Pace};
use crate::distribution::Users;
use crate::packets::{self, IPV4_HEADER, UDP_HEADER};
use crate::stamp::{STAMP, Stamp};
use crate::sys::batch::{BATCH, Datagram, Inbox, Outbox, Poller};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, G_PDU_HEADER, MessageType, PduSession};

/// UDP port of the UEs.
const UE_PORT: u16 = 40_000;
/// Maximum number of outstanding packets.
const WINDOW: usize = 1 << 20;
/// Maximum sleep, which bounds the reaction time to a stop.
const SLEEP: Duration = Duration::from_millis(10);
/// Batching interval of an open loop, in seconds: packets due within it are sent together.
const TICK: f64 = 500e-6;
/// Maximum delay in seconds. Packets that are due for longer are skipped.
const MAX_DELAY_S: f64 = 0.1;
/// Batches that are received from a cell before the next cell is polled.
const BATCHES: usize = 4;

/// A cell with its users.
struct LaneCell<'c> {
    cell: &'c Cell,
    users: Users,
    sent: u64,
}

pub(super) struct Lane<'l> {
    load: &'l Load,
    number: u16,
    run: u32,
    cells: Vec<LaneCell<'l>>,
    pace: Pace,
    packets: u64,
    started: Instant,
    window: SendWindow,
    inbox: Inbox,
    outbox: Outbox,
    waiting: Poller,
    random: SmallRng,
    tally: ThreadCounters,
    /// Number of packets that were due, sent or not.
    due: u64,
}

impl<'l> Lane<'l> {
    /// Creates the lane `number` with its share of the cells.
    pub(super) fn new(load: &'l Load, cells: &'l [Cell], number: usize, run: u32) -> Result<Self, LoadError> {
        let (lanes, users) = (load.threads, load.tunnels.len());
        let share = |all: u64| all / lanes as u64 + u64::from((number as u64) < all % lanes as u64);
        let own: Vec<_> = cells.iter().filter(|cell| cell.index % lanes == number).collect();
        let slot = G_PDU_HEADER + usize::from(load.sizes.longest());
        Ok(Lane {
            load,
            number: number as u16,
            run,
            waiting: Poller::new(own.iter().map(|cell| &cell.socket)),
            cells: own
                .into_iter()
                .map(|cell| {
                    let count = (users - cell.index).div_ceil(cells.len());
                    LaneCell { cell, users: Users::new(count as u32, load.pick), sent: 0 }
                })
                .collect(),
            pace: match load.pace {
                Pace::Rate(rate) => Pace::Rate(rate / lanes as f64),
                Pace::InFlight(packets) => Pace::InFlight(share(packets)),
            },
            packets: load.packets.map_or(u64::MAX, share),
            started: Instant::now(),
            window: SendWindow::new(WINDOW),
            // The UPF may add optional fields to downlink packets.
            inbox: Inbox::new(slot + 64),
            outbox: Outbox::new(slot),
            random: SmallRng::seed_from_u64(load.seed ^ (number as u64) << 32),
            tally: ThreadCounters::new()?,
            due: 0,
        })
    }

    fn clock(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sends and receives until the duration or number of packets is reached or `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<ThreadCounters, LoadError> {
        self.started = Instant::now();
        let until = self.load.duration.map_or(u64::MAX, |duration| duration.as_nanos() as u64);
        let timeout = self.load.timeout.as_nanos() as u64;
        let mut last_sent = 0;
        loop {
            let now = self.clock();
            self.window.expire(now.saturating_sub(timeout));
            let over = now >= until || self.tally.sent >= self.packets || stop.load(Ordering::Relaxed);
            if over && (self.window.outstanding() == 0 || now > last_sent + timeout) {
                break;
            }
            let count = if over { 0 } else { self.count_due(now) };
            if count > 0 {
                self.send(count, now);
                last_sent = now;
            }
            let wait = match (count, over) {
                (1.., _) => Duration::ZERO,
                (0, true) => SLEEP,
                (0, false) => self.until_due(now),
            };
            self.waiting.wait(wait)?;
            self.receive()?;
        }
        self.tally.seconds = last_sent.max(1) as f64 / 1e9;
        Ok(self.tally)
    }

    /// Returns the number of packets to be sent now, at most a batch.
    fn count_due(&mut self, now: u64) -> usize {
        let left = (self.packets - self.tally.sent).min(self.window.room()).min(BATCH as u64);
        match self.pace {
            Pace::InFlight(packets) => packets.saturating_sub(self.window.outstanding()).min(left) as usize,
            Pace::Rate(rate) => {
                let all = (now as f64 / 1e9 * rate) as u64 + 1;
                let mut due = all.saturating_sub(self.due);
                let most = ((rate * MAX_DELAY_S) as u64).max(BATCH as u64);
                if due > most {
                    self.tally.skipped += due - most;
                    self.due += due - most;
                    due = most;
                }
                // Packets that are due soon are sent in the same batch.
                if due < self.tick(rate).min(left) {
                    return 0;
                }
                let count = due.min(left);
                self.due += count;
                count as usize
            }
        }
    }

    fn tick(&self, rate: f64) -> u64 {
        ((rate * TICK) as u64).clamp(1, BATCH as u64)
    }

    fn until_due(&self, now: u64) -> Duration {
        match self.pace {
            Pace::InFlight(_) => SLEEP,
            Pace::Rate(rate) => {
                let at = (self.due + self.tick(rate) - 1) as f64 / rate;
                Duration::from_secs_f64((at - now as f64 / 1e9).max(0.0)).min(SLEEP)
            }
        }
    }

    /// Sends packets of users of the cell that has sent least. Batches vary in size, and cells must
    /// send equally.
    fn send(&mut self, count: usize, now: u64) {
        let turn = (0..self.cells.len()).min_by_key(|n| self.cells[*n].sent).unwrap_or(0);
        self.cells[turn].sent += count as u64;
        let (load, number, run) = (self.load, self.number, self.run);
        let first = self.tally.sent;
        let mut lengths = [0; BATCH];
        let mut numbers = [0; BATCH];
        for n in 0..count {
            let own = &mut self.cells[turn];
            let user = own.cell.index + own.users.next(&mut self.random) as usize * load.cells;
            let length = load.sizes.pick(&mut self.random);
            let sequence = self.window.send(now);
            let stamp = Stamp { run, lane: number, sequence, time: now, mirrored: 0 };
            let tunnel = load.tunnels[user];
            write(self.outbox.next(), load, user, length, &stamp);
            let to = SocketAddrV4::new(tunnel.upf, gtpu::PORT);
            self.outbox.queue(to, None, G_PDU_HEADER + usize::from(length));
            (lengths[n], numbers[n]) = (length, sequence);
        }
        let sent = self.outbox.send(&self.cells[turn].cell.socket);
        self.tally.sent = first + count as u64;
        self.tally.octets += lengths[..count].iter().map(|length| u64::from(*length)).sum::<u64>();
        if sent.refused != 0 {
            self.tally.refused += u64::from(sent.refused.count_ones());
            self.tally.refusal = sent.error.map(|error| error.to_string());
            for n in (0..count).filter(|n| sent.refused & 1 << n != 0) {
                self.window.take(numbers[n]);
            }
        }
    }

    /// Receives the pending datagrams of all cells.
    fn receive(&mut self) -> Result<(), LoadError> {
        for at in 0..self.cells.len() {
            if !self.waiting.is_ready(at) {
                continue;
            }
            for _ in 0..BATCHES {
                let cell = self.cells[at].cell;
                let count = self.inbox.receive(&cell.socket)?;
                let now = self.clock();
                for n in 0..count {
                    match self.inbox.datagram(n) {
                        Some(datagram) => {
                            take(
                                self.load,
                                self.number,
                                self.run,
                                cell,
                                datagram,
                                now,
                                &mut self.window,
                                &mut self.tally,
                            );
                        }
                        None => self.tally.unrelated += 1,
                    }
                }
                if count < BATCH {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Writes a user's packet in its tunnel. The buffer must be long enough.
fn write(room: &mut [u8], load: &Load, user: usize, length: u16, stamp: &Stamp) {
    let session = PduSession::Uplink { qfi: load.qfi };
    let Some(tunnel) = gtpu::g_pdu_header(load.tunnels[user].teid, session, usize::from(length)) else { return };
    let ip = packets::ipv4_header(load.ue(user), *load.server.ip(), length);
    let udp = packets::udp_header(UE_PORT, load.server.port(), length - IPV4_HEADER as u16);
    let mut octets = [0; STAMP];
    stamp.write(&mut octets);
    let mut at = 0;
    for part in [&tunnel[..], &ip[..], &udp[..], &octets[..]] {
        room[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// Processes a datagram received by a cell.
fn take(
    load: &Load,
    lane: u16,
    run: u32,
    cell: &Cell,
    datagram: Datagram<'_>,
    now: u64,
    window: &mut SendWindow,
    tally: &mut ThreadCounters,
) {
    let Ok(message) = gtpu::Packet::parse(datagram.octets) else {
        tally.unrelated += 1;
        return;
    };
    match message.kind {
        MessageType::GPdu => {}
        MessageType::EchoRequest => {
            let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
            if let Ok(answer) = gtpu::echo_response(&mut buffer, message.sequence.unwrap_or(0)) {
                // If it is not sent, the peer repeats its request.
                let _ = cell.socket.send_to(answer, datagram.from);
            }
            return;
        }
        MessageType::ErrorIndication => {
            tally.error_indications += 1;
            return;
        }
        _ => {
            tally.unrelated += 1;
            return;
        }
    }
    let Some(stamp) = mirrored(message.payload, *load.server.ip()).filter(|(stamp, _)| stamp.run == run) else {
        tally.unrelated += 1;
        return;
    };
    let (stamp, ue) = stamp;
    let user = user_of(message.teid);
    let own = load.tunnels.get(user).is_some() && user % load.cells == cell.index && load.ue(user) == ue;
    if !own || stamp.lane != lane {
        tally.astray += 1;
        return;
    }
    tally.mirrored = tally.mirrored.max(stamp.mirrored);
    match window.take(stamp.sequence) {
        Some(sent) => {
            tally.received += 1;
            tally.latency.saturating_record(now.saturating_sub(sent));
        }
        None => tally.late += 1,
    }
}

/// Returns the TEID of a user at the RAN node. 0 is reserved.
pub(super) fn teid_of(user: u32) -> Teid {
    Teid(user.wrapping_add(1))
}

fn user_of(teid: Teid) -> usize {
    teid.0.wrapping_sub(1) as usize
}

/// Returns the stamp of a packet from the mirror, and its UE.
fn mirrored(packet: &[u8], server: Ipv4Addr) -> Option<(Stamp, Ipv4Addr)> {
    const UDP: u8 = 17;
    let header: &[u8; IPV4_HEADER] = packet.first_chunk()?;
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    if (header[0], header[9]) != (0x45, UDP) || address(12) != server || packets::sum(header) != 0xffff {
        return None;
    }
    Some((Stamp::read(packet.get(IPV4_HEADER + UDP_HEADER..)?)?, address(16)))
}
