//! Endpoints of N2 and S1 as one endpoint, for one thread that polls both.

use crate::endpoint::{Endpoint, Event, SendError};
use crate::hot_restart::{EndpointSnapshot, HandoffError};
use crate::sys::Waker;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;
use vireo_types::{AssocId, Dialect};

/// Token of the descriptor of S1's endpoint at N2's. No owner uses it.
const S1_TOKEN: u64 = u64::MAX;

/// The endpoints of N2 and S1. Identifiers of S1's associations have the dialect EPS.
struct Pair {
    n2: Box<dyn Endpoint>,
    s1: Box<dyn Endpoint>,
    driver: String,
}

/// Joins the endpoints of N2 and S1 to one.
///
/// [`AssocId::dialect`] tells their associations apart. Everything else (descriptors to watch, the
/// waker, [`Endpoint::connect`], the port) is of N2's endpoint.
///
/// # Errors
///
/// Returns an error if N2's endpoint cannot watch the descriptor of S1's.
pub fn pair(mut n2: Box<dyn Endpoint>, s1: Box<dyn Endpoint>) -> io::Result<Box<dyn Endpoint>> {
    n2.watch(s1.descriptor(), S1_TOKEN)?;
    let driver = format!("{}; S1: {}", n2.driver(), s1.driver());
    Ok(Box::new(Pair { n2, s1, driver }))
}

impl Pair {
    /// Returns the endpoint of an association, and its identifier there.
    fn at(&mut self, assoc: AssocId) -> (&mut dyn Endpoint, AssocId) {
        match assoc.dialect() {
            Dialect::Nr => (&mut *self.n2, assoc),
            Dialect::Eps => (&mut *self.s1, assoc.with_dialect(Dialect::Nr)),
        }
    }

    /// Passes what S1's endpoint has received to `sink`, without a wait.
    fn poll_s1(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize> {
        self.s1.poll(Some(Duration::ZERO), &mut |mut event| {
            if let Some(assoc) = event.assoc_mut() {
                *assoc = assoc.with_dialect(Dialect::Eps);
            }
            sink(event);
        })
    }
}

impl Endpoint for Pair {
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize> {
        // The wait is at N2's endpoint, which watches S1's.
        self.s1.send_pending();
        let within = self.s1.poll_within();
        let wait = timeout.map_or(within, |timeout| Some(within.map_or(timeout, |within| within.min(timeout))));
        let mut is_ready = false;
        let count = self.n2.poll(wait, &mut |event| match event {
            Event::Readable { token: S1_TOKEN } => is_ready = true,
            other => sink(other),
        })?;
        // S1's messages follow, as `Event::Readable` promises for the other descriptors. N2's
        // endpoint has counted the descriptor of S1's as an event.
        Ok(count.saturating_sub(usize::from(is_ready)) + self.poll_s1(sink)?)
    }

    fn send_pending(&mut self) {
        self.n2.send_pending();
        self.s1.send_pending();
    }

    fn send(&mut self, assoc: AssocId, stream: u16, ppid: u32, data: &[u8]) -> Result<(), SendError> {
        let (endpoint, assoc) = self.at(assoc);
        endpoint.send(assoc, stream, ppid, data)
    }

    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId> {
        self.n2.connect(peer)
    }

    fn shutdown(&mut self, assoc: AssocId) {
        let (endpoint, assoc) = self.at(assoc);
        endpoint.shutdown(assoc);
    }

    fn abort(&mut self, assoc: AssocId) {
        let (endpoint, assoc) = self.at(assoc);
        endpoint.abort(assoc);
    }

    fn probe(&mut self, assoc: AssocId) {
        let (endpoint, assoc) = self.at(assoc);
        endpoint.probe(assoc);
    }

    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.n2.watch(fd, token)
    }

    fn waker(&self) -> Waker {
        self.n2.waker()
    }

    fn descriptor(&self) -> RawFd {
        self.n2.descriptor()
    }

    fn poll_within(&self) -> Option<Duration> {
        [self.n2.poll_within(), self.s1.poll_within()].into_iter().flatten().min()
    }

    fn driver(&self) -> &str {
        &self.driver
    }

    fn parses_packets(&self) -> bool {
        self.n2.parses_packets() || self.s1.parses_packets()
    }

    fn port(&self) -> u16 {
        self.n2.port()
    }

    fn snapshot(&self) -> Result<EndpointSnapshot, HandoffError> {
        let s1 = Some(Box::new(self.s1.snapshot()?));
        Ok(EndpointSnapshot { s1, ..self.n2.snapshot()? })
    }

    fn detach(self: Box<Self>) {
        self.n2.detach();
        self.s1.detach();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::memory::Network;
    use std::net::{IpAddr, Ipv4Addr};

    fn bind(network: &Network, last: u8, port: u16) -> Box<dyn Endpoint> {
        let addresses = vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))];
        network.bind(&Config { addresses, port, listen: port != 0, ..Config::default() }).expect("it binds")
    }

    /// Polls an endpoint and returns association and first octet of what arrives.
    fn messages(endpoint: &mut dyn Endpoint) -> Vec<(AssocId, u8)> {
        let mut messages = Vec::new();
        let mut sink = |event: Event<'_>| match event {
            Event::Message { assoc, data, .. } => messages.push((assoc, data[0])),
            Event::Up { assoc, .. } => messages.push((assoc, 0)),
            Event::Down { .. } | Event::Alive { .. } => {}
            other => panic!("{other:?}"),
        };
        endpoint.poll(Some(Duration::from_secs(5)), &mut sink).expect("poll");
        messages
    }

    #[test]
    fn associations_of_pair_have_dialects() {
        let network = Network::new();
        let mut core = pair(bind(&network, 1, 38412), bind(&network, 1, 36412)).expect("a pair");
        let mut nodes = [bind(&network, 2, 0), bind(&network, 3, 0)];
        for (node, (port, dialect)) in nodes.iter_mut().zip([(38412, Dialect::Nr), (36412, Dialect::Eps)]) {
            let own = node.connect(SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), port)).expect("connect");
            let up = messages(&mut *core);
            let [(assoc, 0)] = up[..] else { panic!("{up:?}") };
            assert_eq!(assoc.dialect(), dialect);
            node.poll(Some(Duration::ZERO), &mut |_| ()).expect("poll");
            node.send(own, 0, 0, &[7]).expect("send");
            assert_eq!(messages(&mut *core), [(assoc, 7)]);
            core.send(assoc, 0, 0, &[8]).expect("send");
            assert_eq!(messages(&mut **node), [(own, 8)]);
            core.abort(assoc);
            assert!(matches!(core.send(assoc, 0, 0, &[9]), Err(SendError::NoAssociation)));
        }
    }

    #[test]
    fn handoff_of_pair_has_both_endpoints() {
        let network = Network::new();
        let core = pair(bind(&network, 1, 38412), bind(&network, 1, 36412)).expect("a pair");
        let mut handoff = core.snapshot().expect("it is handed over");
        let s1 = *handoff.s1.take().expect("S1's endpoint");
        core.detach();
        let adopt = |handoff, port| {
            let addresses = vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))];
            let config = Config { addresses, port, listen: true, ..Config::default() };
            network.adopt(&config, handoff).expect("it continues")
        };
        let mut next = pair(adopt(handoff, 38412), adopt(s1, 36412)).expect("a pair");
        let mut node = bind(&network, 3, 0);
        node.connect(SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 36412)).expect("connect");
        let up = messages(&mut *next);
        assert!(matches!(up[..], [(assoc, 0)] if assoc.dialect() == Dialect::Eps), "{up:?}");
    }
}
