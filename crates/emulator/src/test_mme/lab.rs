//! Scripted MME behind a memory SCTP endpoint, with a user plane that answers echoes over S1-U.

use super::{Behaviour, Mme};
use crate::{Error, NGAP_PORT, Options, Report, S1AP_PORT, enb, gnb, run_with};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vireo_sctp::{Config, Endpoint, Event, memory};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, MessageType, Packet};

pub(crate) const CORE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Function that takes a PDU of a RAN node and returns the PDUs to send back.
pub(crate) type Handler<'a> = &'a (dyn Fn(&[u8]) -> Vec<Vec<u8>> + Sync);

/// MME on a memory network.
pub(crate) struct MmeLab {
    sctp: memory::Network,
    pub(crate) mme: Mutex<Mme>,
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl MmeLab {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        MmeLab { sctp: memory::Network::new(), mme: Mutex::new(Mme::new(behaviour)) }
    }

    /// Runs the emulator against the MME. Serves S1-U if the run sends user packets.
    pub(crate) fn run(&self, options: &Options) -> Result<Report, Error> {
        self.run_beside(options, &|_| Vec::new())
    }

    /// Runs the emulator against the MME and an AMF, which answers the NGAP PDUs.
    pub(crate) fn run_beside(&self, options: &Options, amf: Handler<'_>) -> Result<Report, Error> {
        let stop = AtomicBool::new(false);
        let mme = |pdu: &[u8]| self.mme.lock().expect("no panic").receive(pdu);
        let upf = self.mme.lock().expect("no panic").behaviour.upf;
        let (s1, ng) = (self.listen(S1AP_PORT), self.listen(NGAP_PORT));
        std::thread::scope(|scope| {
            scope.spawn(|| serve(s1, enb::PPID, &mme, &stop));
            scope.spawn(|| serve(ng, gnb::PPID, amf, &stop));
            if options.has_traffic() {
                scope.spawn(|| self.serve_s1u(upf, &stop));
            }
            let open = |n: u32| {
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 1, n as u8));
                Ok(self.sctp.bind(&Config { addresses: vec![address], ..Config::default() })?)
            };
            let _stop = StopOnDrop(&stop);
            run_with(options, &open, &mut |_| {})
        })
    }

    fn listen(&self, port: u16) -> Box<dyn Endpoint> {
        let config = Config { addresses: vec![CORE.into()], port, listen: true, ..Config::default() };
        self.sctp.bind(&config).expect("the address is free")
    }

    fn serve_s1u(&self, address: Ipv4Addr, stop: &AtomicBool) {
        let socket = UdpSocket::bind((address, gtpu::PORT)).expect("a loopback address of this test alone");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let mut buffer = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            let Ok(length) = socket.recv(&mut buffer) else { continue };
            let packet = Packet::parse(&buffer[..length]).expect("the eNB's GTP-U parses");
            assert_eq!((packet.kind, packet.pdu_session), (MessageType::GPdu, None));
            // The packet may overtake the eNB's set-up response.
            let mut routes = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_micros(100));
                self.mme.lock().expect("no panic").routes.get(&packet.teid.0).copied()
            });
            let (enb, teid) = routes.by_ref().take(10_000).flatten().next().expect("a tunnel that was set up");
            let answer = echo_reply(packet.payload);
            let mut frame = gtpu::plain_g_pdu_header(Teid(teid), answer.len()).expect("short").to_vec();
            frame.extend(answer);
            socket.send_to(&frame, (enb, gtpu::PORT)).expect("loopback takes it");
        }
    }
}

/// Answers the PDUs of one protocol until `stop` is set.
fn serve(mut endpoint: Box<dyn Endpoint>, protocol: u32, handle: Handler<'_>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut answers = Vec::new();
        let mut sink = |event: Event<'_>| match event {
            Event::Message { assoc, stream, ppid, data } if ppid == protocol => {
                answers.extend(handle(data).into_iter().map(|pdu| (assoc, stream, pdu)));
            }
            _ => {}
        };
        endpoint.poll(Some(Duration::from_millis(20)), &mut sink).expect("memory does not fail");
        for (assoc, stream, pdu) in answers {
            let _ = endpoint.send(assoc, stream, protocol, &pdu);
        }
    }
}

/// Returns the reply to an ICMP echo request over IPv4.
fn echo_reply(request: &[u8]) -> Vec<u8> {
    let mut reply = request.to_vec();
    assert_eq!((reply[0], reply[9], reply[20]), (0x45, 1, 8), "an ICMP echo request");
    reply[12..20].rotate_left(4);
    reply[20] = 0;
    // RFC 1624: the type has become 0, so the checksum grows by 0x0800.
    let sum = u32::from(u16::from_be_bytes([reply[22], reply[23]])) + 0x0800;
    let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
    reply[22..24].copy_from_slice(&sum.to_be_bytes());
    reply
}
