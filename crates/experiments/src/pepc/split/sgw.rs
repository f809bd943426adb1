//! S-GW-like part of the split core: tunnels on both sides and a count.
//!
//! Its signalling sends a request to the P-GW-like part for events that concern the P-GW.

use super::link::LinkEnd;
use super::messages::{self, Create, CreateSessionResponse};
use super::relay::{Bearer, Relay, S1, S5, TunnelEnd};
use std::net::{IpAddr, Ipv4Addr};
use vireo_config::Failure;
use vireo_datapath::Tunnel;
use vireo_types::Teid;
use vireo_wire::gtpu;
use vireo_wire::pfcp::{Message, MessageType};

/// Capacity for pending transactions with the P-GW: more than the events in progress.
const TRANSACTION_CAPACITY: usize = 256;

/// A pending request to the P-GW and its origin.
#[derive(Clone, Copy, Debug)]
struct PendingTransaction {
    /// Sequence number of the MME's request.
    request: u32,
    index: u32,
}

/// State of a bearer that only signalling needs.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// The MME's identifier of the session.
    mme: u64,
    /// The P-GW's identifier of the session.
    pgw: u64,
    enb: TunnelEnd,
}

/// The S-GW-like part.
pub(super) struct Sgw {
    pub(super) relay: Relay,
    sessions: Vec<Session>,
    free: Vec<u32>,
    mme: LinkEnd,
    pgw: LinkEnd,
    waiting: [Option<PendingTransaction>; TRANSACTION_CAPACITY],
    sequence: u32,
    octets: Vec<u8>,
    /// Number of End Markers sent.
    pub(super) markers: u64,
}

impl Sgw {
    pub(super) fn new(bearers: u32, mme: LinkEnd, pgw: LinkEnd) -> Self {
        Sgw {
            relay: Relay { bearers: vec![Bearer::default(); bearers as usize], unknown: 0 },
            sessions: vec![Session::default(); bearers as usize],
            free: (0..bearers).rev().collect(),
            mme,
            pgw,
            waiting: [None; TRANSACTION_CAPACITY],
            sequence: 0,
            octets: vec![],
            markers: 0,
        }
    }

    /// Handles messages from the MME and the P-GW. Returns true if there were any.
    pub(super) fn work(&mut self) -> Result<bool, Failure> {
        let Sgw { relay, sessions, free, mme, pgw, waiting, sequence, octets, markers } = self;
        let mut parts = Parts { relay, sessions, free, waiting, sequence, octets, markers };
        let (to_mme, to_pgw) = (&mut mme.out, &mut pgw.out);
        let asked = mme.inbox.take(|message| match parts.request(&messages::view(message)?)? {
            Next::Answer => to_mme.send(parts.octets),
            Next::RequestPgw => to_pgw.send(parts.octets),
        })?;
        to_pgw.flush()?;
        let answered = pgw.inbox.take(|message| {
            parts.answer(&messages::view(message)?)?;
            to_mme.send(parts.octets)
        })?;
        to_mme.flush()?;
        Ok(asked || answered)
    }
}

/// The fields that messages change.
struct Parts<'a> {
    relay: &'a mut Relay,
    sessions: &'a mut [Session],
    free: &'a mut Vec<u32>,
    waiting: &'a mut [Option<PendingTransaction>; TRANSACTION_CAPACITY],
    sequence: &'a mut u32,
    octets: &'a mut Vec<u8>,
    markers: &'a mut u64,
}

/// Destination of the written message.
enum Next {
    Answer,
    RequestPgw,
}

fn unknown_session() -> Failure {
    Failure("the S-GW-like part is asked for a session that it does not have".into())
}

fn tunnel_end(tunnel: Tunnel) -> TunnelEnd {
    let address = match tunnel.address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED.to_bits(),
    };
    TunnelEnd { teid: tunnel.teid.0, address }
}

impl Parts<'_> {
    /// Handles a request of the MME.
    fn request(&mut self, message: &Message<'_>) -> Result<Next, Failure> {
        let request = message.sequence();
        if message.message_type() == MessageType::SESSION_ESTABLISHMENT_REQUEST {
            let asked = messages::created(message)?;
            let index = self.free.pop().ok_or_else(unknown_session)?;
            self.sessions[index as usize] = Session { mme: asked.seid, pgw: 0, enb: tunnel_end(asked.tunnel) };
            let tunnel = messages::end(Teid::from_index(index, 1).0, S5);
            let sequence = self.remember(request, index);
            messages::create(&Create { seid: index.into(), ue: asked.ue, tunnel }, sequence, self.octets)?;
            return Ok(Next::RequestPgw);
        }
        let index = message.seid() as u32;
        let session = *self.sessions.get(index as usize).ok_or_else(unknown_session)?;
        if message.message_type() == MessageType::SESSION_MODIFICATION_REQUEST {
            let new = tunnel_end(messages::modified(message)?);
            let bearer = self.relay.bearers.get_mut(index as usize).ok_or_else(unknown_session)?;
            // The End Marker tells the old eNB that no more packets follow.
            let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
            if gtpu::end_marker(&mut buffer, Teid(bearer.enb.teid)).is_ok() {
                *self.markers += 1;
            }
            bearer.enb = new;
            messages::confirm(session.mme, request, self.octets)?;
            return Ok(Next::Answer);
        }
        let sequence = self.remember(request, index);
        messages::delete(session.pgw, sequence, self.octets)?;
        Ok(Next::RequestPgw)
    }

    fn remember(&mut self, request: u32, index: u32) -> u32 {
        *self.sequence = (*self.sequence + 1) & 0xff_ffff;
        self.waiting[*self.sequence as usize % TRANSACTION_CAPACITY] = Some(PendingTransaction { request, index });
        *self.sequence
    }

    /// Handles a response of the P-GW and writes the response to the MME.
    fn answer(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        let waiting = self.waiting[message.sequence() as usize % TRANSACTION_CAPACITY].take();
        let PendingTransaction { request, index } = waiting.ok_or_else(unknown_session)?;
        let session = self.sessions.get_mut(index as usize).ok_or_else(unknown_session)?;
        let bearer = self.relay.bearers.get_mut(index as usize).ok_or_else(unknown_session)?;
        if message.message_type() == MessageType::SESSION_ESTABLISHMENT_RESPONSE {
            let created = messages::accepted(message)?;
            session.pgw = created.seid;
            let own = Teid::from_index(index, 1);
            *bearer = Bearer::new(own.0, session.enb, tunnel_end(created.tunnel));
            let answer = CreateSessionResponse { seid: index.into(), tunnel: messages::end(own.0, S1) };
            return messages::accept(session.mme, &answer, request, self.octets);
        }
        messages::granted(message)?;
        *bearer = Bearer::default();
        self.free.push(index);
        messages::session_deleted(session.mme, request, self.octets)
    }
}
