//! Socket of a campaign, with its unanswered messages.

use super::corpus;
use super::make::Level;
use super::report::{Counts, SentMessage};
use super::world::World;
use crate::pfcp::PfcpError;
use rand::Rng;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use vireo_wire::pfcp::*;

/// Time without a response after which the heartbeat at the end of a batch is sent again.
const HEARTBEAT_RETRY: Duration = Duration::from_millis(500);
/// Maximum number of stored unanswered messages.
const UNANSWERED: usize = 4_096;

/// A peer of the UPF.
#[derive(Debug)]
pub(super) struct Peer {
    socket: UdpSocket,
    upf: SocketAddr,
    sequence: u32,
    /// Unanswered messages by sequence number.
    pending: HashMap<u32, SentMessage>,
}

impl Peer {
    pub(super) fn open(address: SocketAddrV4, upf: SocketAddr) -> Result<Self, PfcpError> {
        let address = SocketAddr::from(address);
        let socket = UdpSocket::bind(address).map_err(|source| PfcpError::Socket { address, source })?;
        socket.connect(upf)?;
        Ok(Peer { socket, upf, sequence: 0, pending: HashMap::new() })
    }

    fn next(&mut self) -> u32 {
        self.sequence = if self.sequence >= 0xff_ffff { 1 } else { self.sequence + 1 };
        self.sequence
    }

    /// Sends a message. It gets the next sequence number, unless it repeats an earlier one or a
    /// changed octet has altered the number.
    pub(super) fn send(&mut self, octets: &mut [u8], mut of: SentMessage) -> Result<(), PfcpError> {
        let before = Message::new(octets).ok().map(|message| message.sequence());
        match (of.level, before) {
            (Level::Order, Some(before)) if before != 0 => {}
            (Level::Octet, None) => {}
            (Level::Octet, Some(before)) if before != 0 => {
                // The UPF may take it for a request that it has answered before, and repeat that
                // answer.
                of.foreign = None;
            }
            _ => {
                let sequence = self.next();
                set_sequence(octets, sequence);
            }
        }
        let answered_as = match Message::new(octets) {
            Ok(message) if message.message_type().is_request() => Some(message.sequence()),
            Err(HeaderError::Version { sequence, .. }) => Some(sequence),
            _ => None,
        };
        if let Some(sequence) = answered_as
            && self.pending.len() < UNANSWERED
        {
            self.pending.insert(sequence, of);
        }
        self.transmit(octets)
    }

    fn transmit(&self, octets: &[u8]) -> Result<(), PfcpError> {
        match self.socket.send(octets) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Receives responses until the UPF has processed everything before a heartbeat.
    pub(super) fn settle(
        &mut self,
        attacker: bool,
        world: &mut World,
        counts: &mut Counts,
        patience: Duration,
    ) -> Result<(), PfcpError> {
        let until = Instant::now() + patience;
        self.socket.set_read_timeout(Some(HEARTBEAT_RETRY))?;
        while Instant::now() < until {
            let last = self.next();
            // The time stamp is earlier, so it does not indicate a restart.
            let mut octets = corpus::heartbeat(world.recovery.wrapping_sub(1));
            set_sequence(&mut octets, last);
            self.transmit(&octets)?;
            while let Some(datagram) = self.receive()? {
                if self.take(&datagram, attacker, world, counts)? == Some(last) {
                    return Ok(());
                }
            }
        }
        Err(PfcpError::Silent(self.upf))
    }

    /// Returns true if an Association Setup Request is unanswered.
    pub(super) fn waits_for_setup(&self) -> bool {
        self.pending.values().any(|of| of.kind == MessageType::ASSOCIATION_SETUP_REQUEST)
    }

    /// Receives the messages that arrive within 20 ms of each other.
    pub(super) fn linger(&mut self, attacker: bool, world: &mut World, counts: &mut Counts) -> Result<(), PfcpError> {
        self.socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        while let Some(datagram) = self.receive()? {
            self.take(&datagram, attacker, world, counts)?;
        }
        Ok(())
    }

    /// Counts the unanswered messages.
    pub(super) fn end(&mut self, counts: &mut Counts) {
        self.pending.drain().for_each(|(_, of)| counts.answer(of.kind, "none"));
    }

    fn receive(&self) -> Result<Option<Vec<u8>>, PfcpError> {
        let mut buffer = [0; 65_536];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Ok(Some(buffer[..length].to_vec())),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::TimedOut => Ok(None),
                io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error.into()),
            },
        }
    }

    /// Processes a message of the UPF. Returns the sequence number of a response.
    fn take(
        &mut self,
        datagram: &[u8],
        attacker: bool,
        world: &mut World,
        counts: &mut Counts,
    ) -> Result<Option<u32>, PfcpError> {
        let Ok(message) = Message::new(datagram) else {
            counts.unsound += 1;
            return Ok(None);
        };
        if message.message_type().is_request() {
            counts.upf_requests += 1;
            self.answer(&message, world)?;
            return Ok(None);
        }
        let Some(of) = self.pending.remove(&message.sequence()) else {
            return Ok(Some(message.sequence()));
        };
        counts.take(&of, &message);
        if attacker {
            learn(&of, &message, world);
        }
        Ok(Some(message.sequence()))
    }

    /// Answers requests of the UPF: heartbeats validly, reports also invalidly.
    fn answer(&self, message: &Message<'_>, world: &mut World) -> Result<(), PfcpError> {
        let mut octets = match message.message_type() {
            MessageType::HEARTBEAT_REQUEST => {
                let mut octets = Vec::new();
                let response = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(world.recovery) };
                if response.emit(&mut octets, 0).is_err() {
                    return Ok(());
                }
                octets
            }
            MessageType::SESSION_REPORT_REQUEST => corpus::report_response(message.seid(), &mut world.rng),
            _ => corpus::node_message(world.node_id(), world.recovery, &mut world.rng),
        };
        set_sequence(&mut octets, message.sequence());
        if message.message_type() != MessageType::HEARTBEAT_REQUEST && world.rng.random_bool(0.3) {
            super::elements::mutate_octets(&mut octets, &mut world.rng);
        }
        self.transmit(&octets)
    }
}

/// Updates the attacker's association and sessions from a response.
fn learn(of: &SentMessage, message: &Message<'_>, world: &mut World) {
    let cause = message.get::<Cause>().ok().flatten();
    let accepted = cause.is_some_and(Cause::is_accepted);
    match message.message_type() {
        _ if cause == Some(Cause::NO_ESTABLISHED_ASSOCIATION) && of.own_name => {
            world.associated = false;
            world.forget();
        }
        MessageType::ASSOCIATION_SETUP_RESPONSE if accepted && of.own_name => {
            if of.recovery.is_some_and(|stamp| stamp != world.recovery) {
                world.forget();
            }
            world.recovery = of.recovery.unwrap_or(world.recovery);
            world.associated = true;
        }
        MessageType::ASSOCIATION_RELEASE_RESPONSE if accepted => {
            world.associated = false;
            world.forget();
        }
        MessageType::SESSION_ESTABLISHMENT_RESPONSE if accepted => {
            if let Ok(Some(f_seid)) = message.get::<FSeid>() {
                world.own.push(f_seid.seid);
            }
        }
        MessageType::SESSION_DELETION_RESPONSE if accepted || cause == Some(Cause::SESSION_CONTEXT_NOT_FOUND) => {
            world.own.retain(|seid| Some(*seid) != of.seid);
            of.seid.into_iter().for_each(|seid| world.remember_ended(seid));
        }
        _ => {}
    }
}
