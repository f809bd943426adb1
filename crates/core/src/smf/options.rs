//! Extended protocol configuration options (TS 24.008 10.5.6.3): requests of the UE and answers.
//!
//! Addresses are assigned by NAS and never by PPP. An address request inside IPCP is rejected there
//! (RFC 1661 5.4); DNS servers are sent (RFC 1877). PAP and CHAP are acknowledged without a check,
//! because the UE is already authenticated.

use super::n1;
use super::terms::SessionTerms;
use crate::config::{CoreConfig, DnnConfig};
use std::net::{IpAddr, Ipv4Addr};
use vireo_types::PduSessionType;
use vireo_wire::nas::{NasExtendedProtocolConfigurationOptions, Pco, PcoDirection, PcoEntry};

const P_CSCF_IPV6: u16 = 0x0001;
const DNS_IPV6: u16 = 0x0003;
/// MS Support of Network Requested Bearer Control in a request, Selected Bearer Control Mode in the
/// answer.
const BEARER_CONTROL: u16 = 0x0005;
/// Both sides control bearers, as always in EPS and 5GS.
const MS_AND_NETWORK: u8 = 2;
const P_CSCF_IPV4: u16 = 0x000c;
const DNS_IPV4: u16 = 0x000d;
const IPV4_LINK_MTU: u16 = 0x0010;
const PDU_SESSION_ID: u16 = 0x001a;
const S_NSSAI: u16 = 0x001b;
const QOS_RULES: u16 = 0x001c;
const SESSION_AMBR: u16 = 0x001d;
const QOS_FLOW_DESCRIPTIONS: u16 = 0x001f;
const IPCP: u16 = 0x8021;
const PAP: u16 = 0xc023;
const CHAP: u16 = 0xc223;
/// Spare bit of the first octet (TS 24.008 10.5.6.3). In a stored answer to a UE of EPS it marks
/// the extended IE. Release 0.2.0 reads such an answer, too: it sends the bit, which UEs ignore.
const EXTENDED: u8 = 0x08;

/// Returns the IE with this content.
pub(super) fn ie(octets: Vec<u8>) -> NasExtendedProtocolConfigurationOptions {
    NasExtendedProtocolConfigurationOptions::new(octets)
}

/// Marks an answer that is sent in the extended IE of EPS.
pub(super) fn mark_extended(answer: &mut [u8]) {
    if let Some(first) = answer.first_mut() {
        *first |= EXTENDED;
    }
}

/// Removes the mark of [`mark_extended`]. Returns true if the answer had it.
pub(super) fn remove_mark(answer: &mut [u8]) -> bool {
    let Some(first) = answer.first_mut() else { return false };
    let is_marked = *first & EXTENDED != 0;
    *first &= !EXTENDED;
    is_marked
}

/// Returns the PDU session identity that a UE of EPS assigns to its PDN connection.
pub(super) fn session_identity(requested: &NasExtendedProtocolConfigurationOptions) -> Option<u8> {
    let options = requested.pco(PcoDirection::Uplink)?;
    options.entry(PDU_SESSION_ID)?.contents.first().copied().filter(|psi| (1..=15).contains(psi))
}

/// Returns the parameters of the PDU session that a PDN connection becomes in 5G.
pub(super) fn session_parameters(terms: &SessionTerms, ebi: Option<u8>, config: &CoreConfig) -> Vec<PcoEntry> {
    let slice = [&n1::snssai(terms.snssai).value[..], &config.guami().plmn.nas()].concat();
    let entries = [
        (S_NSSAI, slice),
        (QOS_RULES, n1::default_rule()),
        (SESSION_AMBR, n1::session_ambr(terms).value.to_vec()),
        (QOS_FLOW_DESCRIPTIONS, n1::default_flow(terms.five_qi, ebi)),
    ];
    entries.into_iter().map(|(identifier, contents)| PcoEntry { identifier, contents }).collect()
}

/// Returns the answer to the UE's options, with `further` ones; empty if there is none.
pub(super) fn answer(
    requested: &NasExtendedProtocolConfigurationOptions,
    dnn: &DnnConfig,
    kind: PduSessionType,
    further: Vec<PcoEntry>,
) -> Vec<u8> {
    let Some(requested) = requested.pco(PcoDirection::Uplink) else {
        return Vec::new();
    };
    let ipv4 = kind != PduSessionType::Ipv6;
    let mut entries = Vec::new();
    let mut add = |identifier, contents| entries.push(PcoEntry { identifier, contents });
    let ipv6 = kind != PduSessionType::Ipv4;
    for (of_ipv6, of_ipv4, servers) in [(DNS_IPV6, DNS_IPV4, &dnn.dns), (P_CSCF_IPV6, P_CSCF_IPV4, &dnn.p_cscf)] {
        if requested.entry(of_ipv6).is_some() && ipv6 {
            for server in servers {
                if let IpAddr::V6(v6) = server {
                    add(of_ipv6, v6.octets().to_vec());
                }
            }
        }
        if requested.entry(of_ipv4).is_some() && ipv4 {
            ipv4_of(servers).for_each(|server| add(of_ipv4, server.octets().to_vec()));
        }
    }
    if requested.entry(BEARER_CONTROL).is_some() {
        add(BEARER_CONTROL, vec![MS_AND_NETWORK]);
    }
    if requested.entry(IPV4_LINK_MTU).is_some() && ipv4 {
        add(IPV4_LINK_MTU, dnn.mtu.to_be_bytes().to_vec());
    }
    for (protocol, reply) in [(IPCP, ipcp as fn(&[u8], &DnnConfig) -> _), (PAP, pap), (CHAP, chap)] {
        let packet = requested.entry(protocol).and_then(|entry| reply(&entry.contents, dnn));
        packet.into_iter().for_each(|packet| add(protocol, packet));
    }
    entries.extend(further);
    if entries.is_empty() {
        return Vec::new();
    }
    Pco::new(0, entries).to_bytes(PcoDirection::Downlink).unwrap_or_default()
}

fn ipv4_of(servers: &[IpAddr]) -> impl Iterator<Item = Ipv4Addr> {
    servers.iter().filter_map(|server| match server {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    })
}

/// PPP control packet (RFC 1661 5).
struct ControlPacket<'a> {
    code: u8,
    identifier: u8,
    data: &'a [u8],
}

/// Returns a PPP control packet whose length is valid.
fn packet(octets: &[u8]) -> Option<ControlPacket<'_>> {
    let (&[code, identifier, l1, l2], _) = octets.split_first_chunk()?;
    let data = octets.get(4..usize::from(u16::from_be_bytes([l1, l2])))?;
    Some(ControlPacket { code, identifier, data })
}

/// Returns the reply to an IPCP Configure-Request (RFC 1332). There is one round only. A
/// Configure-Nak with the DNS servers therefore precedes a Configure-Reject of unsupported options;
/// without either the reply is a Configure-Ack.
fn ipcp(octets: &[u8], dnn: &DnnConfig) -> Option<Vec<u8>> {
    const CONFIGURE_REQUEST: u8 = 1;
    let ControlPacket { code: CONFIGURE_REQUEST, identifier, mut data } = packet(octets)? else {
        return None;
    };
    let address = data;
    let (mut rejected, mut corrected) = (Vec::new(), Vec::new());
    while let [option, length, ..] = *data {
        let (this, rest) = data.split_at_checked(usize::from(length).max(2))?;
        data = rest;
        let server = match option {
            129 => ipv4_of(&dnn.dns).next(),
            131 => ipv4_of(&dnn.dns).nth(1),
            _ => None,
        };
        match server {
            None => rejected.extend_from_slice(this),
            Some(server) if this.get(2..) == Some(&server.octets()) => {}
            Some(server) => corrected.extend_from_slice(&[[option, 6].as_slice(), &server.octets()].concat()),
        }
    }
    let (code, content) = match (rejected.is_empty(), corrected.is_empty()) {
        (_, false) => (3, corrected.as_slice()),
        (false, true) => (4, rejected.as_slice()),
        (true, true) => (2, address),
    };
    reply(code, identifier, content)
}

/// Returns the reply to a PAP Authenticate-Request (RFC 1334 2.2): Authenticate-Ack with an empty
/// message.
fn pap(octets: &[u8], _: &DnnConfig) -> Option<Vec<u8>> {
    let ControlPacket { code: 1, identifier, .. } = packet(octets)? else {
        return None;
    };
    reply(2, identifier, &[0])
}

/// Returns the reply to a CHAP Response (RFC 1994 4.2): Success. The UE chooses the Challenge
/// itself and sends it along.
fn chap(octets: &[u8], _: &DnnConfig) -> Option<Vec<u8>> {
    let ControlPacket { code: 1 | 2, identifier, .. } = packet(octets)? else {
        return None;
    };
    reply(3, identifier, &[])
}

fn reply(code: u8, identifier: u8, content: &[u8]) -> Option<Vec<u8>> {
    // The length of a configuration option has one octet.
    let length = u8::try_from(content.len() + 4).ok()?;
    Some([&[code, identifier, 0, length], content].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StaticPools;

    fn network() -> DnnConfig {
        DnnConfig {
            name: "internet".parse().expect("a DNN"),
            slices: Vec::new(),
            types: vec![PduSessionType::Ipv4v6],
            ipv4_pool: None,
            ipv6_pool: None,
            dns: ["8.8.8.8", "2001:4860:4860::8888", "8.8.4.4"].map(|a| a.parse().expect("an address")).to_vec(),
            p_cscf: ["192.0.2.9", "2001:db8::9"].map(|a| a.parse().expect("an address")).to_vec(),
            mtu: 1400,
            static_pools: StaticPools::default(),
            up_security: None,
        }
    }

    fn options_for(octets: &str, kind: PduSessionType) -> String {
        hex::encode(answer(&ie(hex::decode(octets).expect("hex")), &network(), kind, Vec::new()))
    }

    #[test]
    fn dns_and_mtu_are_sent_only_on_usable_request() {
        let request = "80000300000d00001000000a00";
        let (v4, v6) = ("000d0408080808000d0408080404001002", "000310200148604860000000000000000088");
        assert_eq!(options_for(request, PduSessionType::Ipv4), format!("80{v4}0578"));
        assert_eq!(options_for(request, PduSessionType::Ipv6), format!("80{v6}88"));
        assert_eq!(options_for(request, PduSessionType::Ipv4v6), format!("80{v6}88{v4}0578"));
        assert_eq!(options_for("80000a00", PduSessionType::Ipv4), "");
    }

    /// TS 24.008 10.5.6.3: containers 0001 and 000C.
    #[test]
    fn p_cscfs_are_sent_only_on_usable_request() {
        let request = "80000100000c00";
        let (v4, v6) = ("000c04c0000209", "00011020010db8000000000000000000000009");
        assert_eq!(options_for(request, PduSessionType::Ipv4), format!("80{v4}"));
        assert_eq!(options_for(request, PduSessionType::Ipv6), format!("80{v6}"));
        assert_eq!(options_for(request, PduSessionType::Ipv4v6), format!("80{v6}{v4}"));
        assert_eq!(options_for("80000c00", PduSessionType::Ipv6), "");
    }

    /// TS 24.008 10.5.6.3: container 0005.
    #[test]
    fn bearer_control_mode_answers_its_indicator() {
        assert_eq!(options_for("80000500", PduSessionType::Ipv6), "8000050102");
    }

    #[test]
    fn ppp_inside_gets_the_reply_of_its_protocol() {
        // IPCP Configure-Request 7 for both DNS servers, then with the right ones, then with an
        // address too.
        assert_eq!(
            options_for("8080211001070010810600000000830600000000", PduSessionType::Ipv4),
            "8080211003070010810608080808830608080404"
        );
        assert_eq!(options_for("8080210a0108000a810608080808", PduSessionType::Ipv4), "8080210a0208000a810608080808");
        assert_eq!(options_for("8080210a0109000a030600000000", PduSessionType::Ipv4), "8080210a0409000a030600000000");
        // PAP Authenticate-Request 3 of user "a" with password "b"; CHAP Response 5.
        assert_eq!(options_for("80c02308010300080161", PduSessionType::Ipv4), "");
        assert_eq!(
            options_for("80c0230801030008016101 62".replace(' ', "").as_str(), PduSessionType::Ipv4),
            "80c023050203000500"
        );
        assert_eq!(options_for("80c2230402050004", PduSessionType::Ipv4), "80c2230403050004");
    }

    #[test]
    fn mark_of_extended_ie_leaves_options() {
        let mut answer = [0x80, 0, 0x10, 2, 0x05, 0x78];
        let usual = answer;
        assert!(!remove_mark(&mut answer));
        mark_extended(&mut answer);
        assert_ne!(answer, usual);
        assert!(remove_mark(&mut answer) && answer == usual);
        mark_extended(&mut []);
        assert!(!remove_mark(&mut []));
    }

    #[test]
    fn broken_options_are_answered_by_none() {
        for octets in
            ["80", "800003", "8080210401", "8080210801070008810000ff", "80802104010700ff", "8080210601070006ff00"]
        {
            let answer = options_for(octets, PduSessionType::Ipv4v6);
            assert!(answer.is_empty() || answer.starts_with("808021"), "{octets}: {answer}");
        }
    }
}
