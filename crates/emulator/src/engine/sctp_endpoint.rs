//! The SCTP endpoint of a real run.

use super::{Error, Progress, run_with};
use crate::options::Options;
use crate::report::Report;
use vireo_sctp::{Config, Driver};

/// Runs a scenario against the core.
pub fn run(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    let open = |n: u32| Ok(vireo_sctp::bind(&config(options, n))?);
    run_with(options, &open, progress)
}

/// The endpoint of worker `n`: a client at one of the gNBs' addresses, with a fresh port for each association.
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
