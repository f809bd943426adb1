//! Decoding of Vireo's GTP-U messages by tshark, for every message type.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};

/// Returns a capture of link type 101 (raw IP) with each payload as a UDP datagram between two
/// GTP-U ports.
fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
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
        file.extend([0x08, 0x68, 0x08, 0x68]);
        file.extend((length as u16 - 20).to_be_bytes());
        file.extend([0, 0]);
        file.extend(payload);
    }
    file
}

fn messages() -> Vec<Vec<u8>> {
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    // an empty IPv4 packet: 20 octets of header, protocol 59 (no next header)
    let inner: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 45, 0, 2, 192, 0, 2, 9];
    let g_pdu = |session| {
        let mut bytes = vec![0; gtpu::G_PDU_HEADER];
        bytes.extend(inner);
        let end = bytes.len();
        let start = gtpu::prepend_g_pdu(&mut bytes, gtpu::G_PDU_HEADER, end, Teid(0x0100_0207), session).expect("room");
        bytes[start..].to_vec()
    };
    vec![
        g_pdu(Some(PduSession::Uplink { qfi: 9 })),
        g_pdu(Some(PduSession::Downlink { qfi: 5, rqi: true })),
        g_pdu(None),
        gtpu::echo_request(&mut buffer, 0x0102).expect("room").to_vec(),
        gtpu::echo_response(&mut buffer, 0x0102).expect("room").to_vec(),
        gtpu::error_indication_message(&mut buffer, 3, Teid(0xdead), Ipv4Addr::new(192, 0, 2, 7).into())
            .expect("room")
            .to_vec(),
        gtpu::end_marker(&mut buffer, Teid(77)).expect("room").to_vec(),
        gtpu::extension_headers_notification(&mut buffer, 4).expect("room").to_vec(),
    ]
}

#[test]
fn tshark_reads_every_message_as_it_was_meant() {
    let fields = [
        "gtp.message",
        "gtp.teid",
        "gtp.ext_hdr.pdu_ses_con.pdu_type",
        "gtp.ext_hdr.pdu_ses_con.qos_flow_id",
        "gtp.ext_hdr.pdu_ses_cont.rqi",
        "gtp.seq_number",
        "gtp.recovery",
        "gtp.teid_data",
        "gtp.gsn_ipv4",
        "_ws.malformed",
        "_ws.expert.severity",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", "-", "-T", "fields", "-E", "separator=;", "-E", "occurrence=l"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let mut child = tshark
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tshark runs: `make setup` installs it");
    child.stdin.take().expect("piped").write_all(&pcap(&messages())).expect("tshark reads the capture");
    let output = child.wait_with_output().expect("tshark ends");
    // newer releases write booleans as words
    let text = String::from_utf8_lossy(&output.stdout).replace("True", "1");
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "0xff;0x01000207;1;9;;;;;;;",
        "0xff;0x01000207;0;5;1;;;;;;",
        "0xff;0x01000207;;;;;;;;;",
        "0x01;0x00000000;;;;0x0102;;;;;",
        "0x02;0x00000000;;;;0x0102;0;;;;",
        "0x1a;0x00000000;;;;0x0003;;0x0000dead;192.0.2.7;;",
        "0xfe;0x0000004d;;;;;;;;;",
        "0x1f;0x00000000;;;;0x0004;;;;;",
    ];
    assert_eq!(lines, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
