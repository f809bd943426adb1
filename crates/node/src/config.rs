//! What the parts of a running core are told at start. It is read and checked by the binary; here it is data. What
//! decisions depend on is apart, in `vireo_core::config`; the user plane's is in `upf`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_sctp::Driver;

/// The N2 endpoint: where RAN nodes connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N2Config {
    /// Which SCTP.
    pub driver: Driver,
    /// The local addresses of the endpoint, at least one; several make it multi-homed.
    pub addresses: Vec<IpAddr>,
    /// SCTP port (38412 for NGAP, TS 38.412 7).
    pub port: u16,
    /// UDP encapsulation (RFC 6951): the local UDP port. Only for [`Driver::UserspaceUdp`].
    pub udp_port: u16,
    /// UDP encapsulation: the UDP port of peers.
    pub udp_peer_port: u16,
}

impl Default for N2Config {
    /// Any driver, loopback, the ports of the specifications.
    fn default() -> Self {
        N2Config {
            driver: Driver::Auto,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            port: 38412,
            udp_port: 9899,
            udp_peer_port: 9899,
        }
    }
}

/// The control plane's N4 endpoint (PFCP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N4Config {
    /// The local address and UDP port (8805, TS 29.244 6.3.1).
    pub listen: SocketAddr,
}

impl Default for N4Config {
    /// Loopback, apart from the embedded UPF's 127.0.0.8.
    fn default() -> Self {
        N4Config { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8805)) }
    }
}

/// The HTTP endpoint: metrics and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// Where it listens; `None` = not at all.
    pub listen: Option<SocketAddr>,
}

impl Default for ApiConfig {
    /// Loopback only: it has no access control of its own.
    fn default() -> Self {
        ApiConfig { listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))) }
    }
}
