//! N3 sockets: binding, and the choice of the socket that sends.

use crate::start_error::StartError;
use crate::sys::udp::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use vireo_wire::gtpu;

/// Sends by the socket of one of these sources, otherwise by the first socket of the address
/// family.
pub(crate) fn send(sockets: &[Socket], sources: [Option<IpAddr>; 2], to: SocketAddr, datagram: &[u8]) -> bool {
    let from = sources.into_iter().flatten().find(|source| source.is_ipv4() == to.is_ipv4());
    let own = from.and_then(|from| sockets.iter().position(|socket| socket.local == from));
    match own.or_else(|| position(sockets, to)) {
        Some(n) => sockets[n].send_to(to, datagram).is_ok(),
        None => false,
    }
}

#[inline]
pub(crate) fn position(sockets: &[Socket], to: SocketAddr) -> Option<usize> {
    sockets.iter().position(|socket| socket.local.is_ipv4() == to.is_ipv4())
}

/// Binds a socket to the GTP-U port of each address. With `shared`, several sockets may have it.
///
/// # Errors
///
/// Returns an error if an address is not local or its port is in use.
pub(crate) fn bind(addresses: &[IpAddr], shared: bool) -> Result<Arc<[Socket]>, StartError> {
    let bound = addresses.iter().map(|address| {
        Socket::bind(SocketAddr::new(*address, gtpu::PORT), shared).map_err(|source| match source.kind() {
            io::ErrorKind::AddrNotAvailable => StartError::N3NotLocal(*address),
            io::ErrorKind::AddrInUse => StartError::N3InUse(*address),
            _ => StartError::N3 { address: *address, source },
        })
    });
    bound.collect()
}
