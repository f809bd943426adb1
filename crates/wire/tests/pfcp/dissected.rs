//! Decoding of Vireo's PFCP messages by tshark.

use crate::samples;
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns a capture of link type 101 (raw IP) with each payload as a UDP datagram between two PFCP
/// ports.
fn pcap<'a>(payloads: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_535_u32.to_le_bytes());
    file.extend(101_u32.to_le_bytes());
    for payload in payloads {
        let length = 28 + payload.len() as u32;
        file.extend([0; 8]);
        file.extend(length.to_le_bytes());
        file.extend(length.to_le_bytes());
        file.extend([0x45, 0]);
        file.extend((length as u16).to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        file.extend([0x22, 0x65, 0x22, 0x65]);
        file.extend((length as u16 - 20).to_be_bytes());
        file.extend([0, 0]);
        file.extend(payload);
    }
    file
}

fn tshark(capture: &[u8], options: &[&str]) -> String {
    let mut child = Command::new("tshark")
        .args(["-r", "-"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark is installed (`make setup`)");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(capture).expect("tshark reads its input");
    drop(input);
    let output = child.wait_with_output().expect("tshark ends");
    assert!(output.status.success(), "tshark failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tshark_names_every_message_and_finds_no_fault() {
    let messages = samples::all();
    let capture = pcap(messages.iter().map(|(_, octets)| octets));
    let text = tshark(&capture, &["-V"]);
    for fault in ["Malformed", "Expert Info (Error", "Expert Info (Warn", "Unknown IE", "not dissected"] {
        assert!(!text.contains(fault), "{fault}: {text}");
    }
    let frames: Vec<&str> = text.split("Packet Forwarding Control Protocol").skip(1).collect();
    assert_eq!(frames.len(), messages.len());
    for (frame, (kind, _)) in frames.iter().zip(&messages) {
        let name = kind.name().expect("known").replace("Association", "PFCP Association");
        let named = frame.lines().find(|line| line.contains("Message Type:")).unwrap_or_default();
        let number = format!("({})", kind.0);
        assert!(named.ends_with(&number), "{name}: {named}");
        let words = |text: &str| text.to_lowercase().replace("pfcp ", "").replace(' ', "");
        assert!(words(named).contains(&words(&name)), "{name}: {named}");
    }
}

/// Checks values beside the structure: fields as decoded by tshark from the richest messages.
#[test]
fn dissected_values_equal_written_values() {
    let messages = samples::all();
    let text = tshark(&pcap(messages.iter().map(|(_, octets)| octets)), &["-V"]);
    let has = |kind: &str, lines: &[&str]| {
        let frame = text
            .split("Packet Forwarding Control Protocol")
            .find(|frame| frame.contains(&format!("Message Type: {kind}")))
            .unwrap_or_else(|| panic!("no {kind} in {text}"));
        for line in lines {
            assert!(frame.contains(line), "{kind} without {line:?}: {frame}");
        }
    };
    has("PFCP Session Establishment Request", ESTABLISHMENT);
    has("PFCP Session Modification Request", MODIFICATION);
    has("PFCP Session Report Request", REPORT);
    has("PFCP Session Report Response", RESPONSE);
    has("PFCP Association Setup Response", SETUP);
    has("PFCP Association Update Request", UPDATE);
}

const ESTABLISHMENT: &[&str] = &[
    "SEID: 0x0102030405060708",
    "Node ID : IPv4 address: 192.0.2.1",
    "F-SEID : SEID: 0x0102030405060708, IPv4 192.0.2.1",
    "Choose Id: 05",
    "S/D: Destination IP address",
    "IPv6 address: 2001:db8:0:1::",
    "Network Instance : internet",
    "Outer Header Removal : GTP-U/UDP/IP",
    "Flow Description: permit out ip from 198.51.100.0/24 to assigned",
    "Mask field: 0xfc",
    "SDF Filter ID: 77",
    "3GPP Interface Type: N3 3GPP Access (11)",
    "NOCP (Notify the CP function): True",
    "VOLQU (Volume Quota): True",
    "Downlink Volume: 900000",
    "Time Quota : 7200 s",
    "DL Gate: CLOSED (1)",
    "DL MBR: 1000000",
    "UL GBR: 32",
    "QFI: 0x09",
    "RQI: True",
    "Paging Policy Indicator (PPI): 3",
    "Averaging Window: 2000",
    "Downlink Data Notification Delay : 200 ms",
    "Suggested Buffering Packets Count : 64 packets",
    "PDN Type : IPv4V6",
    "User Plane Inactivity Timer: 900s",
    "IMSI: 999700000000001",
    "NAI: ue@example.org",
    "APN/DNN: internet",
    "SD: 0000ab",
    "RAT Type : NR",
    "Recovery Time Stamp : Aug  2, 2023 21:20:00.000000000 UTC",
];
const MODIFICATION: &[&str] = &[
    "IPv4 192.0.2.1, IPv6 ::1",
    "Remove BAR : [Grouped IE]: BAR ID: 1",
    "Outer Header Creation Description: GTP-U/UDP/IPv4  (256)",
    "TEID: 0x0a0b0c0d",
    "IPv4 Address: 192.0.2.3",
    "SNDEM (Send End Marker Packets): True",
    "UL Gate: CLOSED (1)",
    "QAURR (Query All URRs): True",
    "Update BAR (Session Modification Request)",
];
const REPORT: &[&str] = &[
    "ERIR (Error Indication Report): True",
    "USAR (Usage Report): True",
    "DLDR (Downlink Data Report): True",
    "F-TEID : TEID: 0x0a0b0c0d, IPv4 192.0.2.3",
    "Paging Policy Indication: 46",
    "UR-SEQN: 4",
    "Uplink Number of Packets: 1",
    "Duration Measurement : 100 s",
    "End Time : Aug  2, 2023 21:23:20.000000000 UTC",
];
const SETUP: &[&str] = &["FQDN: upf1.example.org", "FTUP: Supported", "EMPU: Supported", "UEIP: Supported"];
const UPDATE: &[&str] = &["SARR", "Timer unit: value is incremented in multiples of 1 minute", "Timer value: 2"];
const RESPONSE: &[&str] =
    &["DROBU (Drop Buffered Packets): True", "DL Buffering Duration : 60 min", "Packet Count: 300"];
