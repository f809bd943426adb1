//! Parsing and checking of the PDI of a PDR (TS 29.244 5.2.1A, 7.5.2.2).

use crate::machine::element_serde::optional;
use crate::machine::rules::{Matching, Refused, Rules, TunnelEnd, TunnelPackets};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use vireo_datapath::{ALL_FLOWS, Filter, Network};
use vireo_types::SessionAddress;
use vireo_wire::pfcp::*;

/// Maximum number of filters, and of routes behind the UE, in one PDR.
const FILTERS: usize = 32;

/// A parsed PDI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Detection {
    pub(crate) matching: Matching,
    /// The known addresses of the UE.
    pub(crate) ue: SessionAddress,
    /// Addresses that the UPF must choose (CHV4, CHV6).
    pub(crate) choose: AddressChoice,
    /// The QoS flow, if the PDI names exactly one.
    pub(crate) qfi: Option<u8>,
    /// Elements that few PDRs have.
    pub(crate) further: Option<Box<PdiExtras>>,
}

/// Address families that the UPF must choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressChoice {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
}

/// Elements that few PDRs have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PdiExtras {
    /// Any of these matches; an empty list matches every packet. The first element is the SDF
    /// Filter ID, by which another PDR may refer to the filter.
    pub(crate) filters: Vec<(Option<u32>, Filter)>,
    /// Networks behind the UE.
    pub(crate) framed: Vec<Network>,
    /// Data network of the addresses to choose.
    #[serde(with = "optional")]
    pub(crate) network_instance: Option<NetworkInstance>,
}

/// Parses a PDI. `rules` contains the PDRs whose filters it may refer to.
///
/// # Errors
///
/// Returns an error if the PDI has an unsupported element. A partly parsed PDI would match the
/// wrong packets.
pub(crate) fn detection(pdi: &Pdi, rules: &Rules, failed: Refused) -> Result<Detection, Refused> {
    if pdi.application_id.is_some() {
        return Err(Refused { error: Error { cause: Cause::UNKNOWN_APPLICATION, ..failed.error }, ..failed });
    }
    // no routing protocol announces the networks behind the UE
    if pdi.framed_routing.is_some_and(|routing| routing.0 != 0) {
        return Err(Refused::unsupported(FramedRouting::ID));
    }
    let (ue, choose) = ue_address(&pdi.ue_ip_addresses)?;
    let flows = pdi.qfis.iter().fold(0, |flows, qfi| flows | 1_u64 << (qfi.0 & 0x3f));
    let flows = if pdi.qfis.is_empty() { ALL_FLOWS } else { flows };
    let from_access = match pdi.source_interface {
        SourceInterface::ACCESS => true,
        SourceInterface::CORE | SourceInterface::N6_LAN | SourceInterface::CP_FUNCTION => false,
        _ => {
            let (cause, offending_ie) = (Cause::SERVICE_NOT_SUPPORTED, Some(SourceInterface::ID));
            return Err(Refused { error: Error { cause, offending_ie }, ..failed });
        }
    };
    let packets = TunnelPackets { from_access, lose_container: false };
    let matching = match pdi.f_teid {
        Some(FTeid::Choose { ipv4, ipv6, id }) => {
            Matching::Tunnel { end: TunnelEnd::Choose { ipv4, ipv6, id }, flows, packets }
        }
        Some(FTeid::Allocated { teid, .. }) => {
            Matching::Tunnel { end: TunnelEnd::ByControlPlane(teid), flows, packets }
        }
        None if from_access || pdi.source_interface == SourceInterface::CP_FUNCTION => {
            return Err(Error::conditional_missing(FTeid::ID).into());
        }
        None if ue == SessionAddress::default() && choose == AddressChoice::default() => {
            return Err(Error::conditional_missing(UeIpAddress::ID).into());
        }
        None => Matching::Downlink,
    };
    let qfi = if let [only] = pdi.qfis[..] { Some(only.0) } else { None };
    let further = further(pdi, ue, rules, choose != AddressChoice::default(), failed)?;
    Ok(Detection { matching, ue, choose, qfi, further })
}

fn further(
    pdi: &Pdi,
    ue: SessionAddress,
    rules: &Rules,
    choose: bool,
    failed: Refused,
) -> Result<Option<Box<PdiExtras>>, Refused> {
    let mut further = PdiExtras::default();
    if pdi.sdf_filters.len() > FILTERS || pdi.framed_routes.len() + pdi.framed_ipv6_routes.len() > FILTERS {
        return Err(Refused::cause(Cause::NO_RESOURCES));
    }
    for ie in &pdi.sdf_filters {
        let mut filter = filter(ie, rules).ok_or(failed)?;
        let own = |network: Network| ue.ipv4.is_some_and(|own| network.contains(own.into()));
        if ue.ipv6_prefix.is_none() && filter.local.is_some_and(own) {
            // the UE of a single-address session has this address on all packets
            filter.local = None;
        }
        if filter == Filter::default() {
            // every packet matches, so the other filters have no effect
            further.filters.clear();
            break;
        }
        further.filters.push((ie.id, filter));
    }
    let routes = pdi.framed_routes.iter().map(|route| &route.0);
    for text in routes.chain(pdi.framed_ipv6_routes.iter().map(|route| &route.0)) {
        let (address, length) = text.as_str().and_then(framed_network).ok_or(failed)?;
        further.framed.push(Network { address, length });
    }
    if choose {
        further.network_instance.clone_from(&pdi.network_instance);
    }
    Ok((further != PdiExtras::default()).then(|| Box::new(further)))
}

/// Parses a filter. One with only an ID refers to the filter of another PDR (BID, TS 29.244 8.2.5).
fn filter(ie: &SdfFilter, rules: &Rules) -> Option<Filter> {
    let says_more = ie.traffic_class.is_some() || ie.spi.is_some() || ie.flow_label.is_some();
    if ie.flow_description.is_none() && !says_more {
        let named = |(id, _): &&(Option<u32>, Filter)| id.is_some() && *id == ie.id;
        let all = rules.pdrs.iter().filter_map(|pdr| pdr.detection.further.as_ref());
        return all.flat_map(|further| &further.filters).find(named).map(|(_, filter)| filter.clone());
    }
    let mut filter = Filter {
        traffic_class: ie.traffic_class.map(|both| ((both >> 8) as u8, both as u8)),
        spi: ie.spi,
        flow_label: ie.flow_label,
        ..Filter::default()
    };
    if let Some(text) = &ie.flow_description {
        let flow = FlowDescription::parse(text.as_str()?)?;
        let network = |end: &FlowEnd| end.network.map(|(address, length)| Network { address, length });
        filter.protocol = flow.protocol;
        filter.remote = network(&flow.remote);
        filter.remote_ports = FlowDescription::ranges(&flow.remote);
        filter.local = network(&flow.local);
        filter.local_ports = FlowDescription::ranges(&flow.local);
    }
    Some(filter)
}

fn ue_address(ies: &[UeIpAddress]) -> Result<(SessionAddress, AddressChoice), Refused> {
    let (mut ue, mut choose) = (SessionAddress::default(), AddressChoice::default());
    for ie in ies {
        // the UP Function Features announce neither
        if ie.delegation_bits.is_some() || ie.prefix_length.is_some_and(|length| length != 64) {
            return Err(Refused::unsupported(UeIpAddress::ID));
        }
        choose.ipv4 |= ie.choose_ipv4 && ie.ipv4.is_none();
        choose.ipv6 |= ie.choose_ipv6 && ie.ipv6.is_none();
        let prefix = ie.ipv6.map(|v6| Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64));
        ue = SessionAddress { ipv4: ie.ipv4.or(ue.ipv4), ipv6_prefix: prefix.or(ue.ipv6_prefix) };
    }
    match ue.ipv4.is_some_and(is_impossible) || ue.ipv6_prefix.is_some_and(is_impossible_prefix) {
        true => Err(Error::incorrect(UeIpAddress::ID).into()),
        false => Ok((ue, choose)),
    }
}

/// Returns true if no host can have the address: "this network", loopback, link-local, multicast
/// and broadcast (RFC 6890).
fn is_impossible(ipv4: Ipv4Addr) -> bool {
    let is_this_network = ipv4.octets()[0] == 0;
    is_this_network || ipv4.is_loopback() || ipv4.is_link_local() || ipv4.is_multicast() || ipv4.is_broadcast()
}

/// The same for a prefix of 64 bits. That of the unspecified and the loopback address is zero.
fn is_impossible_prefix(prefix: Ipv6Addr) -> bool {
    prefix.is_unspecified() || prefix.is_multicast() || prefix.is_unicast_link_local()
}
