//! SCTP endpoint of a run over the network.

use crate::options::Options;
use vireo_sctp::{BindError, Config, Driver, Endpoint};

/// Opens the endpoint of worker `n`.
///
/// # Errors
///
/// Returns an error if the driver or the address is not available.
pub(crate) fn bind(options: &Options, n: u32) -> Result<Box<dyn Endpoint>, BindError> {
    vireo_sctp::bind(&config(options, n))
}

/// Returns the configuration of worker `n`: a client at one of the gNBs' addresses with a new port
/// for each association.
fn config(options: &Options, n: u32) -> Config {
    let address = options.n2.get(n as usize % options.n2.len().max(1)).copied();
    let (own, peer) = options.sctp_udp_ports;
    // One local UDP port serves only one endpoint.
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
