//! E-RAB parameters between SMF part and eNB, forwarded by the AMF part.
//!
//! In EPS they take the place of the NGAP transfers ([`super::N2Sm`]). S1AP has no container for
//! them, so that the octets are of this build.

use super::context::{SmContext, Tunnel};
use super::interface::{N2Sm, Output};
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
        let Tunnel { address, teid } = self.tunnel;
        let address = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        [&[self.qci, self.arp_priority], &ErabTunnel::encode(teid.0.to_be_bytes(), &address)[..]].concat()
    }
}

/// eNB end of S1-U in E-RAB Setup Item (TS 36.413 9.1.3.2): octets TEID and Transport Layer
/// Address.
#[derive(Debug)]
pub struct ErabTunnel;

impl ErabTunnel {
    /// Encodes the octets of [`N2Sm::SetupResponse`].
    pub fn encode(teid: [u8; 4], address: &[u8]) -> Vec<u8> {
        [&teid, address].concat()
    }

    /// Decodes the octets; `None` without a usable address.
    pub(super) fn decode(octets: &[u8]) -> Option<Tunnel> {
        let (teid, address) = octets.split_first_chunk::<4>()?;
        Some(Tunnel { address: n2::address(address)?, teid: Teid(u32::from_be_bytes(*teid)) })
    }
}

/// Builds the request for the E-RAB of a session. `None` before the UPF has allocated its tunnel.
pub(super) fn setup_request(sm: &SmContext) -> Option<Output> {
    let request =
        ErabRequest { qci: sm.terms.five_qi, arp_priority: sm.terms.arp_priority.clamp(1, 15), tunnel: sm.uplink? };
    Some(Output::N2(N2Sm::SetupRequest, request.encode()))
}

/// Builds the release of the E-RAB, which has no parameters.
pub(super) fn release_command() -> Option<Output> {
    Some(Output::N2(N2Sm::ReleaseCommand, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
