//! The SCTP endpoint of a real run.

use crate::options::Options;
use vireo_sctp::{BindError, Config, Driver, Endpoint};

/// Opens the endpoint of worker `n`.
///
/// # Errors
///
/// Fails if the driver or the address is not there.
pub(crate) fn bind(options: &Options, n: u32) -> Result<Box<dyn Endpoint>, BindError> {
    vireo_sctp::bind(&config(options, n))
}

/// The endpoint of worker `n`: a client at one of the gNBs' addresses, with a fresh port for each
/// association.
fn config(options: &Options, n: u32) -> Config {
    let address = options.n2.get(n as usize % options.n2.len().max(1)).copied();
    let (own, peer) = options.sctp_udp_ports;
    // one own UDP port serves one endpoint only
    let own = if n == 0 && options.driver == Driver::UserspaceUdp { own } else { 0 };
    Config {
        driver: options.driver,
        addresses: address.into_iter().collect(),
        udp_local_port: own,
        udp_remote_port: peer,
        max_associations: options.gnbs as usize * options.tnl_associations.max(1) as usize + 16,
        ..Config::default()
    }
}
