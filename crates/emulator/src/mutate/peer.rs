//! Attacking nodes: one endpoint, an association of each, and their received PDUs.

use crate::error::Error;
use crate::node_set::NodeSet;
use crate::options::Options;
use crate::progress::EndpointFactory;
use std::time::{Duration, Instant};
use vireo_sctp::SendError;

/// Bits in which the identifiers of the attacking nodes differ, more than a mutation changes.
const IDENTITIES: [u32; 3] = [0, 0x000f_0f0f, 0x0033_3333];
/// Number of nodes with UEs. UEs are handed over between them.
pub(super) const WITH_UES: usize = 2;
/// node that sends non-UE-associated messages.
pub(super) const NODE: usize = 2;

impl<'a> NodeSet<'a> {
    /// Connects the attacking nodes and sets them up.
    pub(super) fn attackers(options: &'a Options, open: EndpointFactory<'_>) -> Result<Self, Error> {
        let mut nodes = NodeSet::new(options, open)?;
        for identity in IDENTITIES {
            let peer = nodes.add(options.first_gnb_id ^ identity)?;
            nodes.set_up(peer)?;
        }
        Ok(nodes)
    }

    fn failed(&self, peer: usize, why: &str) -> Error {
        self.refused(peer as u32, why.into())
    }

    /// Waits for the association, then performs NG or S1 Setup.
    fn set_up(&mut self, peer: usize) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.timeout;
        self.wait_until_up(peer, peer as u32, deadline)?;
        self.outbox.clear();
        let streams = self.peers[peer].streams;
        let sent = self.peers[peer].node.set_up(streams, &mut self.outbox);
        sent.map_err(|error| self.failed(peer, &error.to_string()))?;
        self.flush(peer)?;
        while !self.peers[peer].node.is_up() {
            if Instant::now() > deadline {
                return Err(self.failed(peer, "SETUP was not answered"));
            }
            self.pump(Duration::from_millis(20))?;
            while let Some(pdu) = self.peers[peer].received.pop_front() {
                let _ = self.peers[peer].node.receive(&pdu, &mut self.outbox);
            }
            self.outbox.clear();
        }
        Ok(())
    }

    /// Reconnects a node whose association has ended, and performs NG or S1 Setup.
    pub(super) fn revive(&mut self, peer: usize) -> Result<(), Error> {
        self.peers[peer].node.on_association_lost();
        self.reconnect(peer)?;
        self.set_up(peer)
    }

    /// Returns the stream of the node for this UE, which keeps the order of its messages.
    pub(super) fn stream(&self, peer: usize, owner: u32) -> u16 {
        1 + (owner % (u32::from(self.peers[peer].streams.max(2)) - 1)) as u16
    }

    /// Sends octets unchanged. A message for an ended association is lost.
    pub(super) fn send(&mut self, peer: usize, stream: u16, octets: &[u8]) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.timeout;
        loop {
            match self.send_octets(peer, stream, self.peers[peer].node.ppid(), octets) {
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

    /// Sends the pending PDUs of a node and passes each to `also`.
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

    /// Sends the pending PDUs of a node.
    pub(super) fn flush(&mut self, peer: usize) -> Result<(), Error> {
        self.flush_to(peer, |_| ())
    }
}
