//! The threads, queues, clocks and effects of a running core. See ARCHITECTURE.md.

pub mod api;
pub mod balancer;
mod clock;
pub mod config;
pub mod control;
pub mod crew;
pub mod host;
pub mod metrics;
pub mod n4;
pub mod nf;
pub mod upf;

/// Room for the requests of a burst: a gNB with thousands of sessions that goes away makes one PFCP request for each at
/// once, and what the default buffer does not take comes again only after T1.
const BURST_OCTETS: usize = 8 << 20;

/// Asks for a receive buffer that takes a burst of PFCP messages. The system may give less (`net.core.rmem_max`): what
/// is lost then is repeated.
fn burst_buffer(socket: &std::net::UdpSocket) {
    if let Err(error) = socket2::SockRef::from(socket).set_recv_buffer_size(BURST_OCTETS) {
        tracing::debug!(%error, "the receive buffer of N4 stays as it is");
    }
}
