//! Choice of the connection that makes room for another one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Returns the connection that makes room for another one: of the peer address with the most of
/// these, the oldest. `unknown` begins with the oldest and has the connections whose peer has not
/// shown who it is. So many connections of one machine keep no other machine away.
pub fn to_displace<K: Copy>(unknown: impl Iterator<Item = (K, Option<IpAddr>)>) -> Option<K> {
    let unknown: Vec<(K, Option<IpAddr>)> = unknown.map(|(key, address)| (key, address.map(machine))).collect();
    let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    unknown.iter().for_each(|(_, address)| *counts.entry(*address).or_default() += 1);
    let most = counts.values().copied().max()?;
    unknown.iter().find(|(_, address)| counts.get(address) == Some(&most)).map(|(key, _)| *key)
}

/// Returns what a machine cannot choose of its address: an IPv6 host may have each address of its
/// network of 64 bits.
fn machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_with_most_connections_makes_room() {
        let peers = ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "2001:db8::2", "2001:db8:0:1::1", "2001:db8::3"];
        let mut unknown: Vec<(usize, Option<IpAddr>)> =
            peers.iter().map(|peer| peer.parse().ok()).chain([None]).enumerate().collect();
        for displaced in [1, 0, 3, 2, 4, 5, 6] {
            assert_eq!(to_displace(unknown.iter().copied()), Some(displaced));
            unknown.retain(|(key, _)| *key != displaced);
        }
        assert_eq!(to_displace(unknown.into_iter()), None);
    }
}
