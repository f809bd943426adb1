//! E-RAB parameters between SMF part and eNB, forwarded by the AMF part.
//!
//! In EPS they take the place of the NGAP transfers ([`super::N2Sm`]). S1AP has no container for
//! them, so that the octets are of this build.

use super::context::{ForwardingEnds, SmContext, Tunnel};
use super::interface::{Acknowledgement, N2Sm, Output};
use super::n2;
use std::net::IpAddr;
use vireo_types::Teid;

/// Parameters of E-RAB to be Setup Item (TS 36.413 9.1.3.1): octets QCI, ARP priority level, TEID
/// and address of the S-GW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErabRequest {
    /// QCI, whose standardised values are those of 5QI (TS 23.501 5.7.4).
    pub qci: u8,
    /// ARP priority level, 1 to 15.
    pub arp_priority: u8,
    /// S-GW end of S1-U.
    pub tunnel: Tunnel,
}

impl ErabRequest {
    /// Decodes the octets of [`N2Sm::SetupRequest`].
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let [qci, arp_priority, tunnel @ ..] = octets else { return None };
        Some(ErabRequest { qci: *qci, arp_priority: *arp_priority, tunnel: ErabTunnel::decode(tunnel)? })
    }

    fn encode(&self) -> Vec<u8> {
        [&[self.qci, self.arp_priority], &tunnel_octets(self.tunnel)[..]].concat()
    }
}

/// Parameters of E-RAB to be Modified Item (TS 36.413 9.1.3.3): octets QCI and ARP priority level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErabQos {
    pub qci: u8,
    /// ARP priority level, 1 to 15.
    pub arp_priority: u8,
}

impl ErabQos {
    /// Decodes the octets of [`N2Sm::ModifyRequest`].
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let [qci, arp_priority] = *octets else { return None };
        Some(ErabQos { qci, arp_priority })
    }
}

/// eNB end of S1-U in E-RAB Setup Item (TS 36.413 9.1.3.2): octets TEID and Transport Layer
/// Address.
#[derive(Debug)]
pub struct ErabTunnel;

impl ErabTunnel {
    /// Encodes the octets of [`N2Sm::SetupResponse`] and [`N2Sm::PathSwitchRequest`].
    pub fn encode(teid: [u8; 4], address: &[u8]) -> Vec<u8> {
        [&teid, address].concat()
    }

    /// Decodes the octets; `None` without a usable address.
    pub fn decode(octets: &[u8]) -> Option<Tunnel> {
        let (teid, address) = octets.split_first_chunk::<4>()?;
        Some(Tunnel { address: n2::address(address)?, teid: Teid(u32::from_be_bytes(*teid)) })
    }
}

/// Returns a tunnel end in the octets of [`ErabTunnel`].
fn tunnel_octets(Tunnel { address, teid }: Tunnel) -> Vec<u8> {
    let address = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    ErabTunnel::encode(teid.0.to_be_bytes(), &address)
}

/// Tunnel ends of E-RAB Admitted Item (TS 36.413 9.1.5.5), each in the octets of [`ErabTunnel`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErabAdmission {
    /// End of S1-U at the target.
    pub tunnel: Vec<u8>,
    pub forwarding: ErabForwarding,
}

/// Tunnel ends for packets that the source forwards to the target (E-RABs Subject to Forwarding
/// Item, TS 36.413 9.1.5.2), each in the octets of [`ErabTunnel`]; empty = none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErabForwarding {
    pub downlink: Vec<u8>,
    pub uplink: Vec<u8>,
}

impl ErabAdmission {
    /// Encodes the octets of [`N2Sm::HandoverRequestAcknowledge`].
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        put_counted(&mut octets, &self.tunnel);
        self.forwarding.put(&mut octets);
        octets
    }

    /// Returns the end of S1-U, and the octets of [`ErabForwarding`].
    fn split(octets: &[u8]) -> Option<(Tunnel, &[u8])> {
        let (tunnel, forwarding) = take_counted(octets)?;
        Some((ErabTunnel::decode(tunnel)?, forwarding))
    }
}

impl ErabForwarding {
    /// Decodes the octets of [`N2Sm::HandoverCommand`].
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let (downlink, octets) = take_counted(octets)?;
        let (uplink, _) = take_counted(octets)?;
        Some(ErabForwarding { downlink: downlink.to_vec(), uplink: uplink.to_vec() })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_counted(out, &self.downlink);
        put_counted(out, &self.uplink);
    }
}

/// Appends octets with their number. A tunnel end has at most 24.
fn put_counted(out: &mut Vec<u8>, octets: &[u8]) {
    let octets = &octets[..octets.len().min(255)];
    out.push(octets.len() as u8);
    out.extend_from_slice(octets);
}

fn take_counted(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = octets.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

/// Encodes the octets of [`N2Sm::HandoverRequired`]: Direct Forwarding Path Availability (TS 36.413
/// 9.2.3.15).
pub fn erab_to_move(has_direct_path: bool) -> Vec<u8> {
    vec![has_direct_path.into()]
}

/// Returns true if the octets of [`erab_to_move`] have a direct path.
pub(super) fn has_direct_path(octets: &[u8]) -> bool {
    octets == [1]
}

/// Decodes the octets of [`N2Sm::HandoverRequestAcknowledge`].
pub(super) fn handover_acknowledge(octets: &[u8]) -> Option<Acknowledgement> {
    let (tunnel, command) = ErabAdmission::split(octets)?;
    let ErabForwarding { downlink, uplink } = ErabForwarding::decode(command).unwrap_or_default();
    let forwarding = ForwardingEnds { downlink: ErabTunnel::decode(&downlink), uplink: ErabTunnel::decode(&uplink) };
    // Not an address that no RAN node has: a source with a direct path sends there.
    let downlink = if forwarding.downlink.is_some() { downlink } else { Vec::new() };
    let uplink = if forwarding.uplink.is_some() { uplink } else { Vec::new() };
    let mut command = Vec::new();
    ErabForwarding { downlink, uplink }.put(&mut command);
    Some(Acknowledgement { tunnel, forwarding, command })
}

/// Returns the octets of [`N2Sm::HandoverCommand`] with the S-GW's tunnel ends for forwarded
/// packets.
pub(super) fn command_with_forwarding(ends: ForwardingEnds) -> Vec<u8> {
    let mut octets = Vec::new();
    let [downlink, uplink] = [ends.downlink, ends.uplink].map(|end| end.map(tunnel_octets).unwrap_or_default());
    ErabForwarding { downlink, uplink }.put(&mut octets);
    octets
}

/// Returns the octets of [`N2Sm::HandoverCommand`] if no packets are forwarded.
pub(super) fn command_without_forwarding() -> Vec<u8> {
    let mut octets = Vec::new();
    ErabForwarding::default().put(&mut octets);
    octets
}

/// Returns the octets of [`N2Sm::PathSwitchAcknowledge`]: the S-GW end of S1-U if it is new.
pub(super) fn path_switch_acknowledge(uplink: Option<Tunnel>) -> Vec<u8> {
    uplink.map(tunnel_octets).unwrap_or_default()
}

/// Builds the request for the E-RAB of a session. `None` before the UPF has allocated its tunnel.
pub(super) fn setup_request(sm: &SmContext) -> Option<Output> {
    let request =
        ErabRequest { qci: sm.terms.five_qi, arp_priority: sm.terms.arp_priority.clamp(1, 15), tunnel: sm.uplink? };
    Some(Output::N2(N2Sm::SetupRequest, request.encode()))
}

/// Builds the modification of the E-RAB to the present QoS of the bearer.
pub(super) fn modify_request(sm: &SmContext) -> Option<Output> {
    Some(Output::N2(N2Sm::ModifyRequest, vec![sm.terms.five_qi, sm.terms.arp_priority.clamp(1, 15)]))
}

/// Builds the release of the E-RAB, which has no parameters.
pub(super) fn release_command() -> Option<Output> {
    Some(Output::N2(N2Sm::ReleaseCommand, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admitted_erab_is_tunnel_and_forwarding() {
        let tunnel = Tunnel { address: "10.0.0.1".parse().expect("an address"), teid: Teid(7) };
        let other = Tunnel { teid: Teid(8), ..tunnel };
        for (downlink, uplink) in [(Some(tunnel), None), (Some(tunnel), Some(other)), (None, Some(other))] {
            let [down, up] = [downlink, uplink].map(|end| end.map(tunnel_octets).unwrap_or_default());
            let forwarding = ErabForwarding { downlink: down, uplink: up };
            let octets = ErabAdmission { tunnel: tunnel_octets(tunnel), forwarding: forwarding.clone() }.encode();
            let Acknowledgement { tunnel: there, forwarding: ends, command } =
                handover_acknowledge(&octets).expect("an admission");
            assert_eq!((there, ErabForwarding::decode(&command)), (tunnel, Some(forwarding)));
            assert_eq!(ends, ForwardingEnds { downlink, uplink });
            assert_eq!(command_with_forwarding(ends), command);
            assert_eq!(handover_acknowledge(&octets[..8]), None);
            assert_eq!(ErabForwarding::decode(&command[..command.len() - 1]), None);
        }
    }

    #[test]
    fn unusable_ends_are_not_forwarded() {
        let [good, bad] = [[10_u8, 0, 0, 1], [224, 0, 0, 1]].map(|address| ErabTunnel::encode([0, 0, 0, 7], &address));
        let admission = |tunnel: &Vec<u8>, downlink: &Vec<u8>| {
            let forwarding = ErabForwarding { downlink: downlink.clone(), uplink: Vec::new() };
            handover_acknowledge(&ErabAdmission { tunnel: tunnel.clone(), forwarding }.encode())
        };
        assert_eq!((ErabTunnel::decode(&bad), admission(&bad, &good)), (None, None));
        let acknowledgement = admission(&good, &bad).expect("a tunnel");
        assert_eq!(acknowledgement.forwarding, ForwardingEnds::default());
        assert_eq!(ErabForwarding::decode(&acknowledgement.command), Some(ErabForwarding::default()));
        let mapped = std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
        for address in [[0; 16], mapped] {
            assert_eq!(ErabTunnel::decode(&ErabTunnel::encode([0, 0, 0, 7], &address)), None);
        }
    }

    #[test]
    fn erab_parameters_roundtrip_is_exact() {
        for address in ["10.0.0.1", "2001:db8::1"] {
            let tunnel = Tunnel { address: address.parse().expect("an address"), teid: Teid(0x0102_0304) };
            let request = ErabRequest { qci: 9, arp_priority: 8, tunnel };
            let octets = request.encode();
            assert_eq!(ErabRequest::decode(&octets), Some(request));
            assert_eq!(ErabTunnel::decode(&octets[2..]), Some(tunnel));
            assert_eq!((ErabRequest::decode(&octets[..5]), ErabTunnel::decode(&octets[2..5])), (None, None));
        }
    }
}
