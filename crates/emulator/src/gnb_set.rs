//! gNBs that share one SCTP endpoint and are driven message by message.

use crate::error::Error;
use crate::gnb::{Gnb, GnbConfig, Inbox, Outbox};
use crate::options::Options;
use crate::progress::EndpointFactory;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use vireo_sctp::{Endpoint, Event, SendError};
use vireo_types::AssocId;

/// One gNB with its association.
pub(crate) struct Peer {
    pub(crate) gnb: Gnb,
    assoc: AssocId,
    pub(crate) up: bool,
    pub(crate) streams: u16,
    /// PDUs of the core that the gNB has not processed.
    pub(crate) received: VecDeque<Vec<u8>>,
}

/// Endpoint with its gNBs.
pub(crate) struct GnbSet<'a> {
    pub(crate) options: &'a Options,
    endpoint: Box<dyn Endpoint>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
}

impl<'a> GnbSet<'a> {
    /// Opens an endpoint without gNBs.
    pub(crate) fn new(options: &'a Options, open: EndpointFactory<'_>) -> Result<Self, Error> {
        let endpoint = open(0).map_err(Error::Sctp)?;
        Ok(GnbSet { options, endpoint, peers: Vec::new(), inbox: Inbox::default(), outbox: Outbox::default() })
    }

    pub(crate) fn driver(&self) -> String {
        self.endpoint.driver().into()
    }

    /// Adds a gNB and starts its association. Returns its index.
    pub(crate) fn add(&mut self, config: GnbConfig) -> Result<usize, Error> {
        let assoc = self.associate()?;
        self.peers.push(Peer { gnb: Gnb::new(config), assoc, up: false, streams: 2, received: VecDeque::new() });
        Ok(self.peers.len() - 1)
    }

    /// Starts a new association of a gNB.
    pub(crate) fn reconnect(&mut self, peer: usize) -> Result<(), Error> {
        self.peers[peer].assoc = self.associate()?;
        Ok(())
    }

    fn associate(&mut self) -> Result<AssocId, Error> {
        self.endpoint.connect(self.options.core[0]).map_err(Error::io("connecting to the core"))
    }

    /// Waits for the association of a gNB. `number` names the gNB in the error.
    pub(crate) fn wait_until_up(&mut self, peer: usize, number: u32, deadline: Instant) -> Result<(), Error> {
        while !self.peers[peer].up {
            if Instant::now() > deadline {
                let why = "no association: is it running and reachable?".into();
                return Err(Error::NgSetup { core: self.options.core[0], gnb: number, why });
            }
            self.pump(Duration::from_millis(20))?;
        }
        Ok(())
    }

    pub(crate) fn is_up(&self, peer: usize) -> bool {
        self.peers[peer].up
    }

    /// Shuts the association of a gNB down.
    pub(crate) fn close(&mut self, peer: usize) {
        if self.peers[peer].up {
            self.endpoint.shutdown(self.peers[peer].assoc);
        }
    }

    /// Returns the next PDU received for a gNB.
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
