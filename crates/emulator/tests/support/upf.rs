//! User plane for tests.
//!
//! It answers echoes and Router Solicitations in the tunnels of the scripted network.

use super::Network;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vireo_types::Teid;
use vireo_wire::gtpu::{self, MessageType, Packet, PduSession};

/// Packet handling of the user plane.
#[derive(Clone, Copy, PartialEq)]
pub enum Upf {
    Answers,
    /// Drops the first of every three packets.
    Loses,
    /// Answers with damaged packets.
    Damages,
    Silent,
}

/// Serves packets until `stop` is set.
pub fn serve(address: Ipv4Addr, mode: Upf, network: &Mutex<Network>, stop: &Arc<AtomicBool>) {
    let socket = UdpSocket::bind((address, gtpu::PORT)).expect("a loopback address of this test alone");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut buffer = [0; 2048];
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let packet = Packet::parse(&buffer[..length]).expect("the gNB's GTP-U parses");
        assert_eq!(packet.kind, MessageType::GPdu);
        assert_eq!(packet.pdu_session, Some(PduSession::Uplink { qfi: 1 }));
        // The packet may overtake the gNB's set-up response.
        let mut routes = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_micros(100));
            network.lock().expect("no panic").routes.get(&packet.teid.0).copied()
        });
        let (gnb, teid) = routes.by_ref().take(10_000).flatten().next().expect("a tunnel that was set up");
        count += 1;
        if mode == Upf::Silent || (mode == Upf::Loses && count % 3 == 1) {
            continue;
        }
        let mut answer = answer(packet.payload, packet.teid.0 as u16);
        if mode == Upf::Damages {
            let last = answer.len() - 1;
            answer[last] ^= 1;
        }
        let header = gtpu::g_pdu_header(Teid(teid), PduSession::Downlink { qfi: 1, rqi: false }, answer.len());
        let mut frame = header.expect("short").to_vec();
        frame.extend(answer);
        socket.send_to(&frame, (gnb, gtpu::PORT)).expect("loopback takes it");
    }
}

fn answer(packet: &[u8], number: u16) -> Vec<u8> {
    let mut answer = packet.to_vec();
    if packet[0] >> 4 == 6 && packet[40] == 133 {
        return advertisement(&packet[8..24], number);
    }
    let (addresses, transport, icmp) = if packet[0] >> 4 == 4 { (12..20, 20, 1) } else { (8..40, 40, 58) };
    let half = addresses.len() / 2;
    let protocol = if transport == 20 { packet[9] } else { packet[6] };
    answer[addresses].rotate_left(half);
    if protocol == icmp {
        let request = u32::from(answer[transport]);
        let reply = if transport == 20 { 0 } else { 129 };
        answer[transport] = reply as u8;
        let sum = u32::from(!u16::from_be_bytes([answer[transport + 2], answer[transport + 3]]));
        let sum = sum + (0xffff - (request << 8)) + (reply << 8);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        answer[transport + 2..transport + 4].copy_from_slice(&sum.to_be_bytes());
    } else {
        answer[transport..transport + 4].rotate_left(2);
    }
    answer
}

fn advertisement(to: &[u8], number: u16) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 48, 58, 255];
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend(to);
    packet.extend([134, 0, 0, 0, 64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend([3, 4, 64, 0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut words = (packet.len() as u64 - 40) + 58;
    for pair in packet[8..].chunks(2) {
        words += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    while words > 0xffff {
        words = (words & 0xffff) + (words >> 16);
    }
    packet[42..44].copy_from_slice(&(!words as u16).to_be_bytes());
    packet
}
