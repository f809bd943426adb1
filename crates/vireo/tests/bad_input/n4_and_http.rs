//! Bad input at the other interfaces: N4 (TS 29.244) and HTTP.

use crate::assert_serves_another;
use crate::core::Core;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

fn request(socket: &UdpSocket, datagram: &[u8]) -> Option<Vec<u8>> {
    socket.send(datagram).expect("it is sent");
    let mut answer = [0; 2048];
    socket.recv(&mut answer).ok().map(|length| answer[..length].to_vec())
}

#[test]
fn pfcp_of_strangers_harms_no_ue() {
    let mut core = Core::start(4, "");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.connect((Ipv4Addr::LOCALHOST, core.n4_port)).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    // Noise, every prefix of a message, and a wrong length: no answer is due (7.6.1).
    let report = hex::decode("2138001b000000000000000100000600002700010100530006003800020001").expect("octets");
    for end in 0..report.len() {
        socket.send(&report[..end]).expect("it is sent");
    }
    for n in 0..500_u32 {
        let noise: Vec<u8> = (0..n % 97).map(|i| (i * 31 + n * 17) as u8).collect();
        socket.send(&noise).expect("it is sent");
    }
    while socket.recv(&mut [0; 2048]).is_ok() {}
    // The core answers a heartbeat of any sender (6.2.2). For an unknown version it names its own
    // (7.6.2).
    let heartbeat = hex::decode("2001000c00000700006000045a5b5c5d").expect("octets");
    let answer = request(&socket, &heartbeat).expect("a Heartbeat Response");
    assert_eq!((answer[1], &answer[4..7]), (2, &heartbeat[4..7]));
    let later = hex::decode("4001000c00000800006000045a5b5c5d").expect("octets");
    let answer = request(&socket, &later).expect("a Version Not Supported Response");
    assert_eq!((answer[0] >> 5, answer[1]), (1, 11));
    // A report of a UPF that is not associated: cause 72, no established PFCP association (8.2.1).
    let answer = request(&socket, &report).expect("a Session Report Response");
    assert_eq!(answer[1], 57, "a Session Report Response: {answer:02x?}");
    assert!(answer.windows(5).any(|ie| ie == [0, 19, 0, 1, 72]), "{answer:02x?}");
    assert_serves_another(&mut core, 1);
}

#[test]
fn http_interface_survives_garbage() {
    let mut core = Core::start(4, "");
    let requests: [&[u8]; 6] = [
        b"",
        b"\0\xff\xfe nonsense\r\n\r\n",
        b"GET /status?limit=99999999999999999999 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /status?reveal_supi=maybe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ];
    // Idle open connections must not block others.
    let idle: Vec<_> = (0..64).map(|_| TcpStream::connect(core.api).expect("a connection")).collect();
    for request in requests {
        let mut stream = TcpStream::connect(core.api).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        stream.write_all(request).expect("it is sent");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.take(4096).read_to_end(&mut answer);
        let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
        assert!(line.is_empty() || !line.contains(" 200 "), "{line} answers {:?}", String::from_utf8_lossy(request));
    }
    assert_eq!(core.count("gnbs"), 0);
    drop(idle);
    assert_serves_another(&mut core, 1);
}
