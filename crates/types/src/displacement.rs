//! Peers that count as one machine, and the connection of them that makes room for another one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Returns the connection that makes room for another one: of the peer address with the most of
/// these, the oldest. `unknown` begins with the oldest and has the connections whose peer has not
/// shown who it is. So many connections of one machine keep no other machine away.
pub fn to_displace<K: Copy>(unknown: impl Iterator<Item = (K, Option<IpAddr>)>) -> Option<K> {
    let unknown: Vec<(K, Option<IpAddr>)> = unknown.map(|(key, address)| (key, address.map(machine_address))).collect();
    let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    unknown.iter().for_each(|(_, address)| *counts.entry(*address).or_default() += 1);
    let most = counts.values().copied().max()?;
    unknown.iter().find(|(_, address)| counts.get(address) == Some(&most)).map(|(key, _)| *key)
}

/// Returns the part of an address that a machine cannot choose: an IPv6 machine may have each
/// address of its network of 64 bits. Limits for one peer address count by it.
pub fn machine_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_network_counts_as_one_machine() {
        let machine = |text: &str| machine_address(text.parse().expect("an address")).to_string();
        assert_eq!(machine("2001:db8:0:7:a:b:c:d"), "2001:db8:0:7::");
        assert_eq!(machine("2001:db8:0:7::1"), machine("2001:db8:0:7:ffff::"));
        assert_ne!(machine("2001:db8:0:7::1"), machine("2001:db8:0:8::1"));
        assert_eq!((machine("192.0.2.1"), machine("::ffff:192.0.2.1")), ("192.0.2.1".into(), "192.0.2.1".into()));
    }

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
