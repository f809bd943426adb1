//! SCTP without a network, for tests and for benches: endpoints of one process that reach each other through a
//! [`Network`], with faults on demand. Nothing happens by time or by chance: what one endpoint sends, the other gets
//! at its next poll, in order.

mod endpoint;
mod network;

pub use network::Network;

use crate::{Config, Endpoint};
use std::net::{IpAddr, Ipv4Addr};

/// Two endpoints on a network of their own: one that listens on 10.0.0.1:38412, and a client on 10.0.0.2.
pub fn pair() -> (Box<dyn Endpoint>, Box<dyn Endpoint>) {
    let network = Network::new();
    let at = |last| vec![IpAddr::from(Ipv4Addr::new(10, 0, 0, last))];
    let server = Config { addresses: at(1), port: 38412, listen: true, ..Config::default() };
    let client = Config { addresses: at(2), ..Config::default() };
    // A new network has room for both, and only a machine without descriptors can refuse them.
    let bind = |config| network.bind(config).unwrap_or_else(|error| panic!("{error}"));
    (bind(&server), bind(&client))
}
