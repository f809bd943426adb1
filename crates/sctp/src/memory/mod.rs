//! An in-memory SCTP driver without a network, for tests and benchmarks.
//!
//! The endpoints of one process reach each other through a [`Network`], with faults on demand.
//! Nothing depends on time or chance: the receiver gets sent messages at its next poll, in order.

mod endpoint;
mod network;

pub use network::Network;

use crate::config::Config;
use crate::endpoint::Endpoint;
use std::net::{IpAddr, Ipv4Addr};

/// Creates two endpoints on a new network: a server at 10.0.0.1:38412, and a client at 10.0.0.2.
pub fn pair() -> (Box<dyn Endpoint>, Box<dyn Endpoint>) {
    let network = Network::new();
    let at = |last| vec![IpAddr::from(Ipv4Addr::new(10, 0, 0, last))];
    let server = Config { addresses: at(1), port: 38412, listen: true, ..Config::default() };
    let client = Config { addresses: at(2), ..Config::default() };
    // A new network has room for both. Binding fails only without free descriptors.
    let bind = |config| network.bind(config).unwrap_or_else(|error| panic!("{error}"));
    (bind(&server), bind(&client))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use std::time::Duration;
    use vireo_types::AssocId;

    /// Polls an endpoint and returns its events as text.
    fn events(endpoint: &mut dyn Endpoint) -> Vec<String> {
        let mut events = Vec::new();
        let polled = endpoint.poll(Some(Duration::ZERO), &mut |event| {
            events.push(match event {
                Event::Up { peer, .. } => format!("up {peer}"),
                Event::Down { reason, .. } => format!("down: {reason}"),
                Event::Message { stream, ppid, data, .. } => format!("message {stream} {ppid} {data:?}"),
                other => format!("{other:?}"),
            });
        });
        assert_eq!(polled.expect("poll"), events.len());
        events
    }

    fn associate(server: &mut dyn Endpoint, client: &mut dyn Endpoint) -> AssocId {
        let assoc = client.connect("10.0.0.1:38412".parse().expect("an address")).expect("connect");
        assert_eq!(events(server), ["up 10.0.0.2:49152"]);
        assert_eq!(events(client), ["up 10.0.0.1:38412"]);
        assoc
    }

    #[test]
    fn pair_exchanges_messages_in_order() {
        let (mut server, mut client) = pair();
        let assoc = associate(&mut *server, &mut *client);
        for n in 0..3 {
            client.send(assoc, n, 60, &[n as u8]).expect("send");
        }
        assert_eq!(events(&mut *server), ["message 0 60 [0]", "message 1 60 [1]", "message 2 60 [2]"]);
        assert!(events(&mut *server).is_empty() && events(&mut *client).is_empty());
    }

    #[test]
    fn lost_association_ends_on_both_sides() {
        let network = Network::new();
        let at = |last| vec![IpAddr::from(Ipv4Addr::new(10, 0, 0, last))];
        let config = Config { addresses: at(1), port: 38412, listen: true, ..Config::default() };
        let mut server = network.bind(&config).expect("bind");
        let mut client = network.bind(&Config { addresses: at(2), ..Config::default() }).expect("bind");
        assert!(matches!(network.bind(&config), Err(crate::BindError::PortInUse { port: 38412, .. })));
        let assoc = associate(&mut *server, &mut *client);
        network.fail(assoc);
        for endpoint in [&mut server, &mut client] {
            assert_eq!(events(&mut **endpoint), ["down: the peer stopped answering"]);
        }
    }

    #[test]
    fn closed_port_refuses_and_silent_does_not() {
        let (_server, mut client) = pair();
        client.connect("10.0.0.1:1".parse().expect("an address")).expect("connect");
        assert_eq!(events(&mut *client), ["down: refused by the peer"]);
        let network = Network::new();
        network.silence("10.0.0.1".parse().expect("an address"));
        let mut client = network.bind(&Config::default()).expect("bind");
        client.connect("10.0.0.1:38412".parse().expect("an address")).expect("connect");
        assert!(events(&mut *client).is_empty());
        network.time_out();
        assert_eq!(events(&mut *client), ["down: no answer from the peer"]);
    }
}
