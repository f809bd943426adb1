//! Allocation of SCTP ports between processes.
//!
//! The kernel does not track SCTP ports of raw sockets. So each port in use is an abstract socket
//! name, which only one process of a network namespace can bind. The kernel releases it when the
//! process ends.

use crate::config::BindError;
use crate::sys::socket::claim_name;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// The dynamic ports (RFC 6335), for associations without a fixed port.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// A port that is reserved until the value is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) port: u16,
    _claims: Vec<OwnedFd>,
}

/// Claims a fixed port on every address. Over UDP (`shared` false) the UDP port is the claim.
pub(super) fn claim(addresses: impl Iterator<Item = IpAddr>, port: u16, shared: bool) -> Result<Lease, BindError> {
    let mut claims = Vec::new();
    for address in addresses.filter(|_| shared) {
        let claimed = claim_name(&format!("vireo/sctp/{address}/{port}")).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::PortInUse { address, port },
            _ => BindError::System { operation: "claiming the SCTP port", error },
        })?;
        claims.push(claimed);
    }
    Ok(Lease { port, _claims: claims })
}

/// Claims a free dynamic port from `next` on. `used` returns true for ports of this process.
pub(super) fn claim_dynamic(next: &mut u16, shared: bool, used: impl Fn(u16) -> bool) -> io::Result<Lease> {
    for _ in DYNAMIC {
        let port = (*next).max(*DYNAMIC.start());
        *next = if port == *DYNAMIC.end() { *DYNAMIC.start() } else { port + 1 };
        if used(port) {
            continue;
        }
        if !shared {
            return Ok(Lease { port, _claims: Vec::new() });
        }
        match claim_name(&format!("vireo/sctp/dynamic/{port}")) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
            Ok(claimed) => return Ok(Lease { port, _claims: vec![claimed] }),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn port_is_in_use_until_lease_is_dropped() {
        let on = |last: u8| std::iter::once(IpAddr::from(Ipv4Addr::new(192, 0, 2, last)));
        let lease = claim(on(1), 7, true).expect("free");
        let refused = claim(on(1), 7, true).expect_err("in use");
        assert!(matches!(refused, BindError::PortInUse { port: 7, .. }), "{refused}");
        claim(on(2), 7, true).expect("another address");
        drop(lease);
        claim(on(1), 7, true).expect("free again");
    }

    #[test]
    fn dynamic_ports_wrap_and_skip_used() {
        let mut next = 65_535;
        let first = claim_dynamic(&mut next, false, |_| false).expect("a port");
        let second = claim_dynamic(&mut next, false, |port| port == 49_152).expect("a port");
        assert_eq!((first.port, second.port, next), (65_535, 49_153, 49_154));
        claim_dynamic(&mut next, false, |_| true).expect_err("none is free");
    }
}
