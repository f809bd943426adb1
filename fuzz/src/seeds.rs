//! Seeds: the golden messages of tests/reference, and short scripts.

use super::input::script;
use std::sync::LazyLock;
use vireo_types::Seid;

/// Parses a file of tests/reference: a name and hexadecimal octets on each line.
fn parsed(text: &str) -> Vec<(String, Vec<u8>)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(pair).collect()
}

fn pair(line: &str) -> Option<(String, Vec<u8>)> {
    let (name, digits) = line.split_once(' ')?;
    let octet = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    Some((name.to_owned(), (0..digits.len()).step_by(2).map_while(octet).collect()))
}

fn golden() -> &'static [(String, Vec<u8>)] {
    static GOLDEN: LazyLock<Vec<(String, Vec<u8>)>> =
        LazyLock::new(|| parsed(include_str!("../../tests/reference/golden.txt")));
    &GOLDEN
}

/// Returns the content of tests/reference/security.txt.
pub fn security() -> &'static [(String, Vec<u8>)] {
    static SECURITY: LazyLock<Vec<(String, Vec<u8>)>> =
        LazyLock::new(|| parsed(include_str!("../../tests/reference/security.txt")));
    &SECURITY
}

fn is_nas(octets: &[u8]) -> bool {
    matches!(octets.first(), Some(0x7e | 0x2e))
}

/// Returns NGAP PDUs.
pub fn ngap() -> Vec<Vec<u8>> {
    golden().iter().map(|(_, octets)| octets).filter(|octets| !is_nas(octets)).cloned().collect()
}

/// Returns unprotected NAS messages.
pub fn nas() -> Vec<Vec<u8>> {
    golden().iter().map(|(_, octets)| octets).filter(|octets| is_nas(octets)).cloned().collect()
}

/// Returns the golden NAS message of this number, modulo their count.
pub fn nth_nas(number: usize) -> Vec<u8> {
    static NAS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(nas);
    NAS[number % NAS.len()].clone()
}

/// Returns a NAS message by its name.
pub fn named(name: &str) -> Vec<u8> {
    golden().iter().find(|(n, _)| n == name).map(|(_, octets)| octets.clone()).expect("a message of golden.txt")
}

/// Returns protected messages after three octets of NAS COUNT.
pub fn nas_protected() -> Vec<Vec<u8>> {
    let protected = security().iter().filter_map(|(name, octets)| {
        let count: u32 = name.rsplit_once('-')?.1.parse().ok()?;
        Some([&count.to_be_bytes()[1..], octets].concat())
    });
    protected.collect()
}

/// Returns 5GS mobile identities.
pub fn identity() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = security().iter().filter(|(n, _)| n.starts_with("suci")).map(|(_, o)| o.clone()).collect();
    // SUCI with the null scheme, 5G-GUTI, 5G-S-TMSI, IMEISV, none, and a SUCI in NAI form.
    for digits in [
        "0199f907f0ff00000000000010",
        "f299f907020043deadbeef",
        "f40043deadbeef",
        "4573806121856151f1",
        "00",
        "11747970653120",
    ] {
        seeds.extend(pair(&format!("x {digits}")).map(|(_, octets)| octets));
    }
    seeds
}

/// Returns EAP packets: those of the golden NAS messages, where they are last or before ABBA.
pub fn eap() -> Vec<Vec<u8>> {
    let packet = |(name, octets): &(String, Vec<u8>)| {
        let at = octets.windows(2).position(|octets| octets == [0x78, 0])? + 3;
        let length = usize::from(*octets.get(at - 1)?);
        octets.get(at..at + length).filter(|_| name.contains("-EAP")).map(<[u8]>::to_vec)
    };
    golden().iter().filter_map(packet).collect()
}

/// Returns PFCP datagrams: requests and answers of a session, a heartbeat, an association and a
/// report.
pub fn pfcp() -> Vec<Vec<u8>> {
    let digits = [
        "2001000c00000100006000045a5b5c5d",
        "2005001a00000200003c000500c0a8000100600004e1e2e3e400590001ff",
        "2138001b000000000000000100000600002700010100530006003800020001",
    ];
    let mut seeds: Vec<Vec<u8>> = digits.iter().filter_map(|d| pair(&format!("x {d}"))).map(|(_, o)| o).collect();
    let sent: Vec<Vec<u8>> = session().iter().flat_map(|seed| super::session::sent(seed)).collect();
    seeds.extend(sent.iter().map(|request| super::session::pfcp_answer(request, &[], Seid(1))));
    seeds.extend(sent);
    seeds.sort();
    seeds.dedup();
    seeds
}

/// Returns Flow Descriptions and Framed-Routes.
pub fn flow_description() -> Vec<Vec<u8>> {
    let texts = [
        "permit out ip from any to assigned",
        "permit out 17 from 198.51.100.0/24 53,5353-5400 to assigned 1024-65535",
        "permit out 58 from ff02::2/128 to assigned",
        "permit in tcp from 10.45.0.2 to any 80",
        "192.168.9.0/24 10.45.0.2 1",
        "2001:db8:9::/48 :: 1",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Returns GTP-U datagrams: a G-PDU with a PDU session container, echo, error indication, end
/// marker.
pub fn gtpu() -> Vec<Vec<u8>> {
    let digits = [
        "34ff0010000001010000008501100100450000080000000040110000",
        "320100040000000000010000",
        "32020006000000000001000000e00",
        "361a00100000000000010000100000010185000047f000001",
        "30fe000000000101",
    ];
    digits.iter().filter_map(|d| pair(&format!("x {d}"))).map(|(_, octets)| octets).collect()
}

/// Returns packets: UDP from 10.45.0.2 to 198.51.100.7 and back, an ICMPv6 router solicitation, an
/// echo request.
pub fn user_plane() -> Vec<Vec<u8>> {
    let up = [0x45, 0, 0, 0x1c, 0, 0, 0, 0, 64, 17, 0, 0, 10, 45, 0, 2, 198, 51, 100, 7, 0x30, 0x39, 0, 7, 0, 8, 0, 0];
    let down =
        [0x45, 0, 0, 0x1c, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 7, 10, 45, 0, 2, 0, 7, 0x30, 0x39, 0, 8, 0, 0];
    let mut solicitation = vec![0x60, 0, 0, 0, 0, 8, 58, 255, 0xfe, 0x80];
    solicitation.extend([0; 13]);
    solicitation.extend([5, 0xff, 2]);
    solicitation.extend([0; 13]);
    solicitation.extend([2, 133, 0, 0x7b, 0x31, 0, 0, 0, 0]);
    let echo = [0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0];
    let scripts = [script(&[(1, &up), (3, &down), (0, &echo)]), script(&[(1, &solicitation), (2, &down)])];
    // Each with a session of entries alone, and with flow rules.
    scripts.iter().flat_map(|script| [0, 1].map(|flows| [&[flows], &script[..]].concat())).collect()
}

/// Returns scripts: a session is set up, idle, active again and released.
pub fn session() -> Vec<Vec<u8>> {
    let request = named("PDUSessionEstablishmentRequest");
    let response = [0, 3, 0xe0, 127, 0, 0, 9, 0x0a, 0x0b, 0x0c, 0x0d, 0, 1];
    let release = named("PDUSessionReleaseRequest");
    let complete = named("PDUSessionReleaseComplete");
    let set_up: &[(u8, &[u8])] = &[(0, &request), (13, &[]), (1, &response), (13, &[])];
    let idle: &[(u8, &[u8])] = &[(5, &[]), (13, &[]), (4, &[]), (1, &response), (13, &[])];
    let gone: &[(u8, &[u8])] = &[(0, &release), (13, &[]), (3, &[0]), (0, &complete), (13, &[])];
    vec![
        script(&[set_up, gone].concat()),
        script(&[set_up, idle, gone].concat()),
        script(&[set_up, &[(6, &[39]), (11, &[20]), (11, &[20]), (7, &[]), (9, &[])]].concat()),
    ]
}

/// Returns scripts of a RAN node: set-up, updates, resets and messages for others.
pub fn ran_node() -> Vec<Vec<u8>> {
    let setup = named("NGSetupRequest");
    let others = [
        "RANConfigurationUpdate",
        "AMFConfigurationUpdateAcknowledge-failed",
        "NGReset-interface",
        "NGReset-part",
        "ErrorIndication",
        "UplinkNASTransport",
        "HandoverRequired",
        "NGResetAcknowledge",
        "PathSwitchRequest",
    ];
    let other = |name: &&str| script(&[(0, &setup), (0, &named(name)), (0, &setup)]);
    others.iter().map(other).chain([script(&[(0, &named("InitialUEMessage"))])]).collect()
}

/// Returns the number of a golden NAS message, as a step expects it.
fn number(name: &str) -> [u8; 1] {
    let names = golden().iter().filter(|(_, octets)| is_nas(octets)).map(|(name, _)| name);
    [names.take_while(|n| n.as_str() != name).count() as u8]
}

/// Returns scripts of a UE that registers, establishes a session, goes idle, returns and leaves,
/// and of failures.
pub fn core_step() -> Vec<Vec<u8>> {
    use super::engine::step as s;
    let [null, profile_a, guti] = ["null", "A", "GUTI"].map(|n| number(&format!("RegistrationRequest-{n}")));
    let [complete, registered, transport, service, deregister, status] = [
        "SecurityModeComplete",
        "RegistrationComplete",
        "ULNASTransport",
        "ServiceRequest",
        "DeregistrationRequest-UE",
        "Status",
    ]
    .map(number);
    let [identity, synch, mac] =
        ["IdentityResponse-SUCI", "AuthenticationFailure-synch", "AuthenticationFailure-MAC"].map(number);
    let keys: &[(u8, &[u8])] = &[(s::VECTOR, &[]), (s::RESPONSE, &[]), (s::NEW_CONTEXT, &complete)];
    let set_up: &[(u8, &[u8])] = &[(s::CONTEXT_SET_UP, &[]), (s::UPLINK_GOLDEN, &registered)];
    let begin: &[(u8, &[u8])] = &[(s::INITIAL_GOLDEN, &null)];
    let register = [begin, keys, set_up].concat();
    let session: &[(u8, &[u8])] =
        &[(s::UPLINK_GOLDEN, &transport), (s::UPF_ANSWER, &[]), (s::SESSION_SET_UP, &[]), (s::UPF_ANSWER, &[])];
    let idle: &[(u8, &[u8])] = &[(s::RELEASE_REQUEST, &[]), (s::UPF_ANSWER, &[]), (s::RELEASE_COMPLETE, &[])];
    let back: &[(u8, &[u8])] = &[(s::INITIAL_PROTECTED, &service), (s::UPF_ANSWER, &[]), (s::CONTEXT_SET_UP, &[])];
    let leave: &[(u8, &[u8])] = &[(s::UPLINK_GOLDEN, &deregister), (s::UPF_ANSWER, &[]), (s::RELEASE_COMPLETE, &[])];
    let failing: &[(u8, &[u8])] = &[
        (s::INITIAL_GOLDEN, &guti),
        (s::UPLINK_GOLDEN, &identity),
        (s::VECTOR, &[]),
        (s::UPLINK_GOLDEN, &mac),
        (s::UPLINK_GOLDEN, &identity),
        (s::VECTOR, &[]),
        (s::UPLINK_GOLDEN, &synch),
    ];
    let [eap_synch, eap_reject] =
        ["synchronization", "reject"].map(|n| number(&format!("AuthenticationResponse-EAP-{n}")));
    let eap_keys: &[(u8, &[u8])] = &[(s::VECTOR, &[1]), (s::RESPONSE, &[1]), (s::NEW_CONTEXT, &complete)];
    let eap_failing: &[(u8, &[u8])] = &[
        (s::VECTOR, &[1]),
        (s::UPLINK_GOLDEN, &eap_synch),
        (s::VECTOR, &[1]),
        (s::TIME, &[7]),
        (s::UPLINK_GOLDEN, &eap_reject),
    ];
    let silent: &[(u8, &[u8])] = &[(s::TIME, &[7]), (s::TIME, &[7]), (s::TIME, &[7]), (s::TIME, &[7]), (s::TIME, &[7])];
    let refused: &[(u8, &[u8])] = &[(s::INITIAL_GOLDEN, &profile_a), (s::NO_VECTOR, &[1])];
    let lost: &[(u8, &[u8])] = &[(s::UPF_LOST, &[]), (s::DEREGISTER, &[1])];
    let turned_away: &[(u8, &[u8])] =
        &[(s::CONGESTED, &service), (s::UPF_ANSWER, &[]), (s::RELEASE_COMPLETE, &[]), (s::CONGESTED, &guti)];
    let reused: &[(u8, &[u8])] = &[(s::RAN_ID_REUSED, &[]), (s::UPF_ANSWER, &[])];
    let superseded: &[(u8, &[u8])] = &[(s::SUPERSEDED, &[]), (s::UPF_SILENT, &[])];
    vec![
        script(&[&register, session, idle, back, leave].concat()),
        script(&[&register, session, lost, silent].concat()),
        script(&[failing, keys, set_up, &[(s::UPLINK_GOLDEN, &status), (s::LOST, &[])]].concat()),
        script(&[begin, silent].concat()),
        script(&[begin, eap_keys, set_up, session, idle, back, leave].concat()),
        script(&[begin, eap_failing].concat()),
        script(&[refused, &[(s::RELEASE_COMPLETE, &[])]].concat()),
        script(&[&register, session, superseded, silent].concat()),
        script(&[&register, session, idle, turned_away].concat()),
        script(&[&register, session, reused, back, leave].concat()),
    ]
}

/// Returns subscriber files.
pub fn subscribers() -> Vec<Vec<u8>> {
    const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
    const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
    let csv = format!(
        "imsi,k,opc,amf,sst,sd,dnn,types,uplink_bps,downlink_bps,five_qi,arp_priority,ipv4\n\
         999700000000001,{K},{OPC},8000,1,,internet,ipv4;ipv6,1000000,2000000,9,8,10.45.0.9\n\
         # a comment\n999700000000002,{K},{OPC},8000,3,0000ab,internet,ipv4,,,,,\n"
    );
    let short = format!("imsi,k,op\n001010000000001,{K},{OPC}\n");
    let json = format!("[{{\"imsi\":\"999700000000001\",\"k\":\"{K}\",\"opc\":\"{OPC}\",\"amf\":\"8000\"}}]");
    [csv, short, json].map(String::into_bytes).to_vec()
}
