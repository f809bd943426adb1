//! Static addresses and UP security of `[dnn]`.

use crate::access::Dnn;
use crate::file::File;
use crate::problems::Problems;
use crate::values::{LocalAddress, Prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_core::config::StaticPools;
use vireo_core::subscription::{UpProtection, UpSecurity};

/// Returns the parts of the pools for static addresses.
pub(super) fn static_pools(dnn: &Dnn, key: &impl Fn(&str) -> String, problems: &mut Problems) -> StaticPools {
    let what = "the last part of the pool is allowed, such as \"10.45.128.0/17\" of \"10.45.0.0/16\"";
    let last = |Prefix(network, length): Prefix<Ipv4Addr>| {
        u32::from(network) | u32::MAX.checked_shr(length.into()).unwrap_or(0)
    };
    let is_end = |part: Prefix<Ipv4Addr>| {
        dnn.ipv4_pool.is_some_and(|pool| (pool.1..=30).contains(&part.1) && last(part) == last(pool))
    };
    problems.check(dnn.static_ipv4.is_none_or(is_end), &key("static-ipv4"), what);
    let what = "the last part of the pool is allowed, such as \"fd45:45:0:8000::/49\" of \"fd45:45::/48\"";
    let last = |Prefix(network, length): Prefix<Ipv6Addr>| {
        u128::from(network) | u128::MAX.checked_shr(length.into()).unwrap_or(0)
    };
    let is_end = |part: Prefix<Ipv6Addr>| {
        dnn.ipv6_pool.is_some_and(|pool| (pool.1..=64).contains(&part.1) && last(part) == last(pool))
    };
    problems.check(dnn.static_ipv6.is_none_or(is_end), &key("static-ipv6"), what);
    StaticPools { ipv4: dnn.static_ipv4.map(|n| (n.0, n.1)), ipv6: dnn.static_ipv6.map(|n| (n.0, n.1)) }
}

/// Returns true if the embedded UPF has IPv6 addresses only on N3.
pub(super) fn has_ipv6_n3(file: &File) -> bool {
    let is_ipv6 = |address: &LocalAddress| matches!(address, LocalAddress::Fixed(IpAddr::V6(_)));
    match &file.datapath.module[..] {
        [] => !file.upf.n3.is_empty() && file.upf.n3.iter().all(is_ipv6),
        modules => modules.iter().all(|module| module.n3_address.is_ipv6()),
    }
}

/// Returns the UP security policy; one of the two keys alone makes the other `preferred`.
pub(super) fn up_security(dnn: &Dnn) -> Option<UpSecurity> {
    let is_set = dnn.up_integrity.is_some() || dnn.up_confidentiality.is_some();
    is_set.then(|| UpSecurity {
        integrity: dnn.up_integrity.unwrap_or(UpProtection::Preferred),
        confidentiality: dnn.up_confidentiality.unwrap_or(UpProtection::Preferred),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;
    use crate::{Config, check};
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, String> {
        let file = parse(text, Env::prefixed("VIREO_TESTS_HAVE_NONE__"));
        file.and_then(|file| check::config(&file)).map_err(|problems| problems.join("\n"))
    }

    #[test]
    fn data_network_has_static_addresses_and_policy() {
        let config = load(
            r#"
            [dnn.x]
            ipv4-pool = "10.45.0.0/16"
            ipv6-pool = "fd45:45::/48"
            static-ipv4 = "10.45.192.0/18"
            static-ipv6 = "fd45:45:0:8000::/49"
            up-integrity = "required"
            "#,
        )
        .expect("right");
        let dnn = &config.core.dnns[0];
        let [ipv4, ipv6] = dnn.address_ranges().map(|range| range.expect("a pool"));
        assert_eq!((ipv4.size(), ipv4.index_of_ipv4([10, 45, 192, 0].into())), (0xc000 - 2, None));
        assert_eq!(ipv6.size(), 0x7fff);
        let (integrity, confidentiality) = (UpProtection::Required, UpProtection::Preferred);
        assert_eq!(dnn.up_security, Some(UpSecurity { integrity, confidentiality }));
        let pool = Some((Ipv4Addr::new(10, 45, 0, 0), 16));
        assert_eq!(config.upf.expect("a UPF").pools[0].ipv4, pool, "the UPF routes the whole pool");
    }

    #[test]
    fn n3_family_follows_its_addresses() {
        for (n3, expected) in [("'127.0.0.8'", false), ("'127.0.0.8', '2001:db8::1'", false), ("'2001:db8::1'", true)] {
            let config = load(&format!("upf.n3 = [{n3}]")).expect("right");
            assert_eq!(config.core.upfs[0].n3_ipv6, expected, "{n3}");
        }
    }

    #[test]
    fn static_addresses_end_their_pool() {
        for (text, expected) in [
            ("ipv4-pool = '10.0.0.0/8'\nstatic-ipv4 = '10.0.0.0/9'", "dnn.x.static-ipv4: the last part of the pool"),
            ("ipv6-pool = 'fd00::/48'\nstatic-ipv4 = '10.0.0.0/9'", "dnn.x.static-ipv4: the last part of the pool"),
            ("ipv6-pool = 'fd00::/48'\nstatic-ipv6 = 'fd00::/64'", "dnn.x.static-ipv6: the last part of the pool"),
            ("ipv4-pool = '10.0.0.0/8'\nup-integrity = 'yes'", "up-integrity"),
        ] {
            let error = load(&format!("[dnn.x]\n{text}\n")).expect_err("a bad value");
            assert!(error.contains(expected), "{error}");
        }
        assert!(load("[dnn.x]\nipv4-pool = '10.0.0.0/8'\nstatic-ipv4 = '10.0.0.0/8'\n").is_ok(), "all are static");
    }
}
