//! TUN device of the user plane, with its addresses and routes.

use crate::network::Pool;
use crate::start_error::StartError;
use crate::sys::netlink::{self, Netlink};
use crate::sys::tun::Tun;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tracing::info;

/// Returns the first address of a pool's network, which the machine itself uses.
fn gateway_v4(network: Ipv4Addr, length: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    Ipv4Addr::from_bits((network.to_bits() & mask) + 1)
}

fn gateway_v6(network: Ipv6Addr, length: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    Ipv6Addr::from_bits((network.to_bits() & mask) + 1)
}

/// Network of a pool in one address family, with the link MTU in octets.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolNetwork {
    pub(super) network: IpAddr,
    pub(super) length: u8,
    mtu: u16,
}

/// Returns the networks of the pools.
///
/// # Errors
///
/// Returns an error if the size of a pool is not supported.
pub(super) fn networks(pools: &[Pool]) -> Result<Vec<PoolNetwork>, StartError> {
    let mut networks = vec![];
    for pool in pools {
        if let Some((network, length)) = pool.ipv4 {
            if !(8..=30).contains(&length) {
                return Err(StartError::Pool(format!("{network}/{length}")));
            }
            let mask = u32::MAX << (32 - length);
            let network = Ipv4Addr::from_bits(network.to_bits() & mask).into();
            networks.push(PoolNetwork { network, length, mtu: pool.mtu });
        }
        if let Some((network, length)) = pool.ipv6 {
            if !(16..=64).contains(&length) {
                return Err(StartError::Pool(format!("{network}/{length}")));
            }
            let mask = u128::MAX << (128 - length);
            let network = Ipv6Addr::from_bits(network.to_bits() & mask).into();
            networks.push(PoolNetwork { network, length, mtu: pool.mtu });
        }
    }
    Ok(networks)
}

/// Creates the TUN device with `queues` queues, its addresses and its routes. With `shared`,
/// another user plane may have routes of the pools.
pub(crate) fn create(name: &str, queues: usize, pools: &[Pool], shared: bool) -> Result<Vec<Tun>, StartError> {
    let networks = networks(pools)?;
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => StartError::TunPermission(name.to_owned()),
        io::ErrorKind::NotFound => StartError::NoTun,
        io::ErrorKind::ResourceBusy => StartError::TunInUse(name.to_owned()),
        // The name belongs to an interface of another kind.
        io::ErrorKind::InvalidInput if netlink::index_of(name).is_ok() => StartError::TunInUse(name.to_owned()),
        _ => StartError::Tun { name: name.to_owned(), source: error },
    };
    if netlink::index_of(name).is_ok() {
        return Err(StartError::TunInUse(name.to_owned()));
    }
    let queues: Vec<Tun> =
        (0..queues).map(|_| Tun::open(name, queues > 1)).collect::<Result<_, _>>().map_err(refused)?;
    let kernel = Netlink::open().map_err(refused)?;
    let index = netlink::index_of(name).map_err(refused)?;
    let mtu = networks.iter().map(|network| network.mtu).max().unwrap_or(1400);
    // Containers often disable IPv6 for every device. The device belongs to this process. A failure
    // shows below.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "0");
    kernel.up(index, mtu.into()).map_err(refused)?;
    for PoolNetwork { network, length, mtu } in networks {
        let gateway = match network {
            IpAddr::V4(v4) => gateway_v4(v4, length).into(),
            IpAddr::V6(v6) => gateway_v6(v6, length).into(),
        };
        let pool = format!("{network}/{length}");
        let source = |source: io::Error| match source.raw_os_error() {
            // The kernel would not refuse an IPv4 address of the same device with these errors.
            Some(libc::EACCES | libc::EAFNOSUPPORT | libc::EOPNOTSUPP) if network.is_ipv6() => {
                StartError::NoIpv6(pool.clone())
            }
            _ => StartError::Route { pool: pool.clone(), name: name.to_owned(), source },
        };
        kernel.address(index, gateway).map_err(source)?;
        match kernel.route(index, network, length, mtu.into()) {
            Err(error) if shared && error.raw_os_error() == Some(libc::EEXIST) => {
                info!("{network}/{length} is routed to another device: packets come here by the routes of single UEs");
            }
            routed => routed.map_err(source)?,
        }
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_is_first_address_of_network() {
        assert_eq!(gateway_v4(Ipv4Addr::new(10, 45, 3, 7), 16), Ipv4Addr::new(10, 45, 0, 1));
        assert_eq!(gateway_v4(Ipv4Addr::new(10, 45, 3, 7), 30), Ipv4Addr::new(10, 45, 3, 5));
        let network: Ipv6Addr = "2001:db8:45:7::".parse().expect("an address");
        assert_eq!(gateway_v6(network, 48), "2001:db8:45::1".parse::<Ipv6Addr>().expect("an address"));
    }

    #[test]
    fn invalid_pool_sizes_are_refused() {
        let v4 = |length| networks(&[Pool { ipv4: Some((Ipv4Addr::new(10, 45, 1, 1), length)), ..Pool::default() }]);
        assert!(v4(31).is_err() && v4(7).is_err() && v4(0).is_err());
        assert_eq!(v4(16).expect("a pool")[0].network, IpAddr::V4(Ipv4Addr::new(10, 45, 0, 0)));
        let v6 = |length| networks(&[Pool { ipv6: Some((Ipv6Addr::LOCALHOST, length)), ..Pool::default() }]);
        assert!(v6(65).is_err() && v6(15).is_err() && v6(48).is_ok());
    }
}
