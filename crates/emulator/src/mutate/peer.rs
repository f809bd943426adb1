//! Attacking gNBs: one endpoint, an association of each, and their received PDUs.

use crate::engine::{EndpointFactory, Error, gnb_config};
use crate::gnb::{Gnb, Inbox, NgState, Outbox, PPID};
use crate::options::Options;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use vireo_sctp::{Endpoint, Event, SendError};
use vireo_types::AssocId;

/// Bits in which the identifiers of the attacking gNBs differ, more than a mutation changes.
const IDENTITIES: [u32; 3] = [0, 0x000f_0f0f, 0x0033_3333];
/// Number of gNBs with UEs. UEs are handed over between them.
pub(super) const WITH_UES: usize = 2;
/// gNB that sends non-UE-associated messages.
pub(super) const NODE: usize = 2;

/// One attacking gNB.
pub(super) struct Peer {
    pub(super) gnb: Gnb,
    assoc: AssocId,
    up: bool,
    streams: u16,
    received: VecDeque<Vec<u8>>,
}

/// Endpoint of the attacking gNBs.
pub(super) struct Air<'a> {
    pub(super) options: &'a Options,
    endpoint: Box<dyn Endpoint>,
    pub(super) peers: Vec<Peer>,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
}

impl<'a> Air<'a> {
    /// Connects the gNBs and sets them up.
    pub(super) fn new(options: &'a Options, open: EndpointFactory<'_>) -> Result<Self, Error> {
        let endpoint = open(0).map_err(Error::Sctp)?;
        let (inbox, outbox) = (Inbox::default(), Outbox::default());
        let mut air = Air { options, endpoint, peers: Vec::new(), inbox, outbox };
        for identity in IDENTITIES {
            let mut config = gnb_config(options, 0);
            config.id.id = (config.id.id ^ identity) & 0x00ff_ffff;
            config.name = format!("gnb-{}", config.id.id);
            let assoc = air.endpoint.connect(options.core[0]).map_err(Error::io("connecting to the core"))?;
            let received = VecDeque::new();
            air.peers.push(Peer { gnb: Gnb::new(config), assoc, up: false, streams: 2, received });
            air.set_up(air.peers.len() - 1)?;
        }
        Ok(air)
    }

    pub(super) fn driver(&self) -> String {
        self.endpoint.driver().into()
    }

    fn failed(&self, peer: usize, why: &str) -> Error {
        Error::NgSetup { core: self.options.core[0], gnb: peer as u32, why: why.into() }
    }

    /// Waits for the association, then performs NG Setup.
    fn set_up(&mut self, peer: usize) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.timeout;
        while !self.peers[peer].up {
            if Instant::now() > deadline {
                return Err(self.failed(peer, "no association: is it running and reachable?"));
            }
            self.pump(Duration::from_millis(20))?;
        }
        self.outbox.clear();
        let streams = self.peers[peer].streams;
        let sent = self.peers[peer].gnb.set_up(streams, &mut self.outbox);
        sent.map_err(|error| self.failed(peer, &error.to_string()))?;
        self.flush(peer)?;
        while self.peers[peer].gnb.state() != NgState::Up {
            if Instant::now() > deadline {
                return Err(self.failed(peer, "NG SETUP was not answered"));
            }
            self.pump(Duration::from_millis(20))?;
            while let Some(pdu) = self.peers[peer].received.pop_front() {
                self.inbox.clear();
                let _ = self.peers[peer].gnb.receive(&pdu, &mut self.inbox, &mut self.outbox);
            }
            self.outbox.clear();
        }
        Ok(())
    }

    /// Reconnects a gNB whose association has ended, and performs NG Setup.
    pub(super) fn revive(&mut self, peer: usize) -> Result<(), Error> {
        let core = self.options.core[0];
        self.peers[peer].gnb.lost();
        self.peers[peer].assoc = self.endpoint.connect(core).map_err(Error::io("connecting to the core"))?;
        self.set_up(peer)
    }

    /// Returns the stream of the gNB for this UE, which keeps the order of its messages.
    pub(super) fn stream(&self, peer: usize, owner: u32) -> u16 {
        1 + (owner % (u32::from(self.peers[peer].streams.max(2)) - 1)) as u16
    }

    pub(super) fn is_up(&self, peer: usize) -> bool {
        self.peers[peer].up
    }

    /// Returns the next PDU received for the gNB.
    pub(super) fn next(&mut self, peer: usize) -> Option<Vec<u8>> {
        self.peers[peer].received.pop_front()
    }

    /// Waits at most `wait` for messages. Returns their number.
    pub(super) fn pump(&mut self, wait: Duration) -> Result<usize, Error> {
        let peers = &mut self.peers;
        let mut sink = |event: Event<'_>| {
            let mut on = |assoc: AssocId, then: &mut dyn FnMut(&mut Peer)| {
                if let Some(peer) = peers.iter_mut().find(|peer| peer.assoc == assoc) {
                    then(peer);
                }
            };
            match event {
                Event::Up { assoc, outbound_streams, .. } => {
                    on(assoc, &mut |peer| (peer.up, peer.streams) = (true, outbound_streams));
                }
                Event::Down { assoc, .. } | Event::Restarted { assoc } => on(assoc, &mut |peer| peer.up = false),
                Event::Message { assoc, data, .. } => on(assoc, &mut |peer| peer.received.push_back(data.to_vec())),
                _ => {}
            }
        };
        self.endpoint.poll(Some(wait), &mut sink).map_err(Error::io("polling SCTP"))
    }

    /// Sends octets unchanged. A message for an ended association is lost.
    pub(super) fn send(&mut self, peer: usize, stream: u16, octets: &[u8]) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.timeout;
        loop {
            match self.endpoint.send(self.peers[peer].assoc, stream, PPID, octets) {
                Err(SendError::Full) if Instant::now() < deadline => {
                    self.pump(Duration::from_millis(5))?;
                }
                Err(SendError::Full) => {
                    return Err(Error::Options("the core takes no messages: its receive window is closed".into()));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Sends the pending PDUs of a gNB and passes each to `also`.
    pub(super) fn flush_to(&mut self, peer: usize, mut also: impl FnMut(&[u8])) -> Result<(), Error> {
        let outbox = std::mem::take(&mut self.outbox);
        for (stream, pdu) in outbox.pdus() {
            also(pdu);
            self.send(peer, stream, pdu)?;
        }
        self.outbox = outbox;
        self.outbox.clear();
        Ok(())
    }

    /// Sends the pending PDUs of a gNB.
    pub(super) fn flush(&mut self, peer: usize) -> Result<(), Error> {
        self.flush_to(peer, |_| ())
    }
}
