//! Checks of the addresses in requests against those of the UPF.

use crate::config::N3;
use crate::machine::rules::{Far, Matching, Pdr, Refused, Rules, TunnelEnd};
use crate::machine::settings::Settings;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_datapath::Network;
use vireo_types::SessionAddress;
use vireo_wire::pfcp::*;

/// Checks that the tunnel ends that the control plane has allocated have addresses of the UPF.
///
/// # Errors
///
/// Returns an error for an F-TEID of another node: no packet would reach this UPF by it.
pub(crate) fn check_tunnel_ends<'a>(
    mut pdrs: impl Iterator<Item = (PdrId, &'a Pdi)>,
    settings: &Settings,
) -> Result<(), Refused> {
    let is_foreign = |(_, pdi): &(PdrId, &Pdi)| {
        let Some(FTeid::Allocated { ipv4, ipv6, .. }) = pdi.f_teid else { return false };
        let mut addresses = ipv4.map(IpAddr::V4).into_iter().chain(ipv6.map(IpAddr::V6));
        addresses.any(|address| !settings.n3_addresses.contains(&address))
    };
    match pdrs.find(is_foreign) {
        None => Ok(()),
        Some((pdr, _)) => Err(Refused::named(Cause::RULE_FAILURE, FTeid::ID, FailedRuleId::Pdr(pdr.0))),
    }
}

/// Checks the addresses of all rules of a session.
///
/// # Errors
///
/// Returns an error
///
/// - if the UPF has no N3 address of a family that a tunnel end requests,
/// - if a UE has an address of the UPF,
/// - if a framed route is in none of the configured networks,
/// - if packets are to leave in a tunnel to the UPF itself.
pub(crate) fn check_rules(rules: &Rules, n3: N3, settings: &Settings) -> Result<(), Refused> {
    for pdr in &rules.pdrs {
        let rule = FailedRuleId::Pdr(pdr.id);
        if !has_family(pdr, n3) {
            return Err(Refused::named(Cause::INVALID_F_TEID_ALLOCATION, FTeid::ID, rule));
        }
        if is_own(pdr.detection.ue, settings) {
            return Err(Error::incorrect(UeIpAddress::ID).into());
        }
        let mut framed = pdr.detection.further.iter().flat_map(|further| &further.framed);
        if let Some(network) = framed.find(|network| !is_routed(network, settings)) {
            let ie = if network.address.is_ipv4() { FramedRoute::ID } else { FramedIpv6Route::ID };
            return Err(Refused::named(Cause::RULE_FAILURE, ie, rule));
        }
    }
    match rules.fars.iter().find(|far| leads_back(far, settings)) {
        Some(far) => Err(Refused::named(Cause::RULE_FAILURE, OuterHeaderCreation::ID, FailedRuleId::Far(far.id))),
        None => Ok(()),
    }
}

/// Returns true if the tunnel of a FAR leads to this UPF.
///
/// A RAN node that names such an end has packets for its UE return as packets of any UE, and two
/// UEs exchange one packet for as long as it has hops. Tunnels that relay to each other would pass
/// it on without end: each hop has a new outer header.
fn leads_back(far: &Far, settings: &Settings) -> bool {
    far.tunnel.is_some_and(|tunnel| settings.n3_addresses.contains(&tunnel.address))
}

/// Returns true if the UPF has an N3 address of a family that the tunnel end requests (TS 29.244
/// 8.2.3).
fn has_family(pdr: &Pdr, n3: N3) -> bool {
    match pdr.detection.matching {
        Matching::Tunnel { end: TunnelEnd::Choose { ipv4, ipv6, .. }, .. } => {
            ipv4 && n3.ipv4.is_some() || ipv6 && n3.ipv6.is_some()
        }
        _ => true,
    }
}

/// Returns true if the UPF has an address of the UE on N3, N4 or N6. On N6 that is the first of
/// each pool, and the network itself is not an address.
fn is_own(ue: SessionAddress, settings: &Settings) -> bool {
    let own = || settings.n3_addresses.iter().copied().chain([settings.address]);
    let is_in_prefix =
        |prefix: Ipv6Addr| own().any(|address| matches!(address, IpAddr::V6(v6) if first_half(v6) == prefix));
    let is_at_start = |ipv4: Ipv4Addr| {
        let mut pools = settings.pools.iter().filter_map(|pool| pool.ipv4);
        pools.any(|(network, _)| ipv4.to_bits().wrapping_sub(network.to_bits()) <= 1)
    };
    let is_first = |prefix: Ipv6Addr| settings.pools.iter().any(|pool| pool.ipv6.is_some_and(|(v6, _)| v6 == prefix));
    ue.ipv4.is_some_and(|v4| own().any(|address| address == v4) || is_at_start(v4))
        || ue.ipv6_prefix.is_some_and(|prefix| is_in_prefix(prefix) || is_first(prefix))
}

fn first_half(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)
}

/// Returns true if the kernel routes the whole network to the UPF.
fn is_routed(network: &Network, settings: &Settings) -> bool {
    let pools = settings.pools.iter().flat_map(|pool| {
        let v4 = pool.ipv4.map(|(address, length)| (IpAddr::V4(address), length));
        v4.into_iter().chain(pool.ipv6.map(|(address, length)| (IpAddr::V6(address), length)))
    });
    let mut routed = pools.chain(settings.framed.iter().copied());
    routed.any(|(address, length)| network.length >= length && Network { address, length }.contains(network.address))
}
