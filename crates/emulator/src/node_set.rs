//! RAN nodes that share one SCTP endpoint and are driven message by message.

use crate::dialect::{Node, Protocol};
use crate::error::Error;
use crate::options::Options;
use crate::progress::EndpointFactory;
use crate::ran::Outbox;
use crate::rat::Rat;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use vireo_sctp::{Endpoint, Event, SendError};
use vireo_types::AssocId;

/// One node with its association.
pub(crate) struct Peer {
    pub(crate) node: Node,
    assoc: AssocId,
    pub(crate) up: bool,
    pub(crate) streams: u16,
    /// PDUs of the core that the node has not processed.
    pub(crate) received: VecDeque<Vec<u8>>,
}

/// Endpoint with its nodes, all of one technology.
pub(crate) struct NodeSet<'a> {
    pub(crate) rat: Rat,
    pub(crate) options: &'a Options,
    endpoint: Box<dyn Endpoint>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) outbox: Outbox,
}

impl<'a> NodeSet<'a> {
    /// Opens an endpoint without nodes.
    pub(crate) fn new(options: &'a Options, open: EndpointFactory<'_>) -> Result<Self, Error> {
        let endpoint = open(0).map_err(Error::Sctp)?;
        let rat = options.rats.list()[0];
        Ok(NodeSet { rat, options, endpoint, peers: Vec::new(), outbox: Outbox::default() })
    }

    pub(crate) fn driver(&self) -> String {
        self.endpoint.driver().into()
    }

    /// Returns the protocol of the nodes.
    pub(crate) fn protocol(&self) -> &'static Protocol {
        Protocol::by_rat(self.rat)
    }

    /// Returns the address of the core.
    pub(crate) fn core(&self) -> SocketAddr {
        self.options.cores(self.rat)[0]
    }

    /// Returns the error of a node that the core does not accept.
    pub(crate) fn refused(&self, number: u32, why: String) -> Error {
        match (self.rat, self.core()) {
            (Rat::Nr, core) => Error::NgSetup { core, gnb: number, why },
            (Rat::Eps, core) => Error::S1Setup { core, enb: number, why },
        }
    }

    /// Adds a node with this identifier and starts its association. Returns its index.
    pub(crate) fn add(&mut self, id: u32) -> Result<usize, Error> {
        let assoc = self.associate()?;
        let node = Node::with_id(self.options, self.rat, id);
        self.peers.push(Peer { node, assoc, up: false, streams: 2, received: VecDeque::new() });
        Ok(self.peers.len() - 1)
    }

    /// Starts a new association of a node.
    pub(crate) fn reconnect(&mut self, peer: usize) -> Result<(), Error> {
        self.peers[peer].assoc = self.associate()?;
        Ok(())
    }

    fn associate(&mut self) -> Result<AssocId, Error> {
        self.endpoint.connect(self.core()).map_err(Error::io("connecting to the core"))
    }

    /// Waits for the association of a node. `number` names the node in the error.
    pub(crate) fn wait_until_up(&mut self, peer: usize, number: u32, deadline: Instant) -> Result<(), Error> {
        while !self.peers[peer].up {
            if Instant::now() > deadline {
                let why = "no association: is it running and reachable?".into();
                return Err(self.refused(number, why));
            }
            self.pump(Duration::from_millis(20))?;
        }
        Ok(())
    }

    pub(crate) fn is_up(&self, peer: usize) -> bool {
        self.peers[peer].up
    }

    /// Shuts the association of a node down.
    pub(crate) fn close(&mut self, peer: usize) {
        if self.peers[peer].up {
            self.endpoint.shutdown(self.peers[peer].assoc);
        }
    }

    /// Returns the next PDU received for a node.
    pub(crate) fn next(&mut self, peer: usize) -> Option<Vec<u8>> {
        self.peers[peer].received.pop_front()
    }

    /// Waits at most `wait` for messages. Returns the number of events.
    pub(crate) fn pump(&mut self, wait: Duration) -> Result<usize, Error> {
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

    /// Sends octets unchanged.
    pub(crate) fn send_octets(&mut self, peer: usize, stream: u16, ppid: u32, octets: &[u8]) -> Result<(), SendError> {
        self.endpoint.send(self.peers[peer].assoc, stream, ppid, octets)
    }
}
