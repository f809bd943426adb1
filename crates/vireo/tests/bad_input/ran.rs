//! Test end of an association: it sends arbitrary octets and returns the answers.

use crate::core::{Core, SCTP_PORT};
use crate::messages;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Driver, Endpoint, Event, SendError, Waker};
use vireo_types::AssocId;
use vireo_wire::ngap::{NGAP_PDU, NGAPPDU, NgapPduKind};

pub(crate) const NGAP: u32 = 60;
const S1AP: u32 = 18;
/// SCTP port of S1.
const S1_PORT: u16 = 36412;
/// Maximum wait for an answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// Time without messages that counts as silence.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// One association with the core. A separate thread polls it, so that it stays alive while the test
/// does other work.
pub(crate) struct Ran {
    commands: SyncSender<(u16, u32, Vec<u8>)>,
    received: Receiver<Received>,
    waker: Waker,
    up: bool,
    ppid: u32,
    record: Option<File>,
}

/// Opens the file for the independent witnesses (tests/reference). It receives every message of the
/// core in hexadecimal, with its stream, one per line. Load tests do not record.
fn record() -> Option<File> {
    let is_load = std::thread::current().name().is_some_and(|name| name.starts_with("load::"));
    let path = std::env::var_os("VIREO_WITNESS_OUT").filter(|_| !is_load)?;
    Some(File::options().create(true).append(true).open(path).expect("the file of VIREO_WITNESS_OUT can be written"))
}

fn is_load(octets: &[u8]) -> bool {
    let kind = NGAP_PDU::decode(octets).map(|pdu| pdu.kind());
    matches!(kind, Ok(NgapPduKind::Initiating_OverloadStart | NgapPduKind::Initiating_OverloadStop))
}

/// Report of the polling thread.
enum Received {
    Up,
    Message(u16, u32, Vec<u8>),
    Down,
}

/// Maximum number of queued messages in each direction.
const QUEUE: usize = 1 << 17;

impl Ran {
    /// Opens an association without NG Setup.
    pub(crate) fn connect(core: &Core) -> Self {
        Ran::connect_from(core, Ipv4Addr::LOCALHOST)
    }

    /// Opens an association from another address.
    fn connect_from(core: &Core, address: Ipv4Addr) -> Self {
        Ran::connect_to(core, address, (core.udp_port, SCTP_PORT), NGAP)
    }

    /// Opens an association with a UDP and an SCTP port of the core.
    fn connect_to(core: &Core, address: Ipv4Addr, (udp_port, port): (u16, u16), ppid: u32) -> Self {
        let config = Config {
            driver: Driver::UserspaceUdp,
            addresses: vec![address.into()],
            udp_local_port: 0,
            udp_remote_port: udp_port,
            ..Config::default()
        };
        let mut endpoint = vireo_sctp::bind(&config).expect("an SCTP endpoint");
        let assoc = endpoint.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("an association");
        let (commands, todo) = sync_channel(QUEUE);
        let (events, received) = sync_channel(QUEUE);
        let waker = endpoint.waker();
        std::thread::spawn(move || poll(endpoint, assoc, &todo, &events));
        // The witnesses read NGAP.
        let record = record().filter(|_| ppid == NGAP);
        let mut ran = Ran { commands, received, waker, up: false, ppid, record };
        let deadline = Instant::now() + ANSWER;
        while !ran.up {
            assert!(Instant::now() < deadline, "no association:\n{}", core.log());
            ran.next(Duration::from_millis(20));
        }
        ran
    }

    /// Opens an association and performs NG Setup as gNB number `gnb`.
    pub(crate) fn set_up(core: &Core, gnb: u32) -> Self {
        Ran::set_up_from(core, gnb, Ipv4Addr::LOCALHOST)
    }

    /// Opens an association with S1 at this UDP port of the core, and performs S1 Setup.
    pub(crate) fn set_up_s1(core: &Core, udp_port: u16, address: Ipv4Addr) -> Self {
        let mut ran = Ran::connect_to(core, address, (udp_port, S1_PORT), S1AP);
        ran.send(0, &messages::s1_setup());
        ran.expect_s1("S1 Setup", [0x20, 17]);
        ran
    }

    /// Waits for a message of S1 with these first octets.
    pub(crate) fn expect_s1(&mut self, what: &str, head: [u8; 2]) {
        let mut others = Vec::new();
        while let Some((_, octets)) = self.next(ANSWER) {
            if octets.starts_with(&head) {
                return;
            }
            others.push(hex::encode(octets));
        }
        panic!("{what}: no answer (association up: {}), only {others:?}", self.up);
    }

    /// As `set_up`, from another address.
    pub(crate) fn set_up_from(core: &Core, gnb: u32, address: Ipv4Addr) -> Self {
        let mut ran = Ran::connect_from(core, address);
        ran.send(0, &messages::ng_setup(gnb));
        ran.expect("NG Setup", |pdu| pdu.kind() == NgapPduKind::Successful_NGSetup);
        ran
    }

    /// Sends a PDU or arbitrary octets.
    pub(crate) fn send(&mut self, stream: u16, octets: &[u8]) {
        self.send_as(stream, self.ppid, octets);
    }

    /// Sends octets with any PPID.
    pub(crate) fn send_as(&mut self, stream: u16, ppid: u32, octets: &[u8]) {
        self.commands.send((stream, ppid, octets.to_vec())).expect("the association's thread runs");
        self.waker.wake();
    }

    /// Returns the next message within `wait`: its stream and octets. It skips overload messages
    /// (TS 38.413 8.7.6, 8.7.7), which the core sends under load and which answer nothing.
    pub(crate) fn next(&mut self, wait: Duration) -> Option<(u16, Vec<u8>)> {
        let deadline = Instant::now() + wait;
        let is_ngap = self.ppid == NGAP;
        std::iter::from_fn(|| self.any(deadline)).find(|(_, octets)| !(is_ngap && is_load(octets)))
    }

    /// Returns any message until the deadline.
    fn any(&mut self, deadline: Instant) -> Option<(u16, Vec<u8>)> {
        loop {
            match self.received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Received::Message(stream, ppid, octets)) => {
                    assert_eq!(ppid, self.ppid, "the core sends NGAP with PPID 60, S1AP with 18");
                    if let Some(file) = &mut self.record {
                        file.write_all(format!("{stream} {}\n", hex::encode(&octets)).as_bytes()).expect("room");
                    }
                    return Some((stream, octets));
                }
                Ok(Received::Up) => {
                    self.up = true;
                    return None;
                }
                Ok(Received::Down) => self.up = false,
                Err(_) => return None,
            }
        }
    }

    /// Returns the next message, which must exist, have no faults and satisfy `wanted`.
    pub(crate) fn expect(&mut self, what: &str, wanted: impl Fn(&NGAPPDU<'_>) -> bool) -> NGAPPDU<'static> {
        let (_, octets) =
            self.next(ANSWER).unwrap_or_else(|| panic!("{what}: no answer (association up: {})", self.up));
        let pdu = NGAP_PDU::decode(&octets).unwrap_or_else(|e| panic!("{what}: {e} in {octets:02x?}"));
        let deviations = pdu.check().unwrap_or_else(|e| panic!("{what}: {e} in {octets:02x?}"));
        assert!(deviations.is_empty(), "{what}: {deviations:?} in {pdu}");
        assert!(wanted(&pdu), "{what}: the answer is {pdu}, {octets:02x?}");
        pdu
    }

    /// Returns all messages until the core is silent.
    pub(crate) fn receive_until_silent(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next(SILENCE)).map(|(_, octets)| octets).collect()
    }

    /// Returns all messages received so far.
    pub(crate) fn receive_pending(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next(Duration::ZERO)).map(|(_, octets)| octets).collect()
    }

    /// Checks that nothing arrives for a while and that the association stays up.
    pub(crate) fn assert_silent(&mut self, what: &str) {
        let rest: Vec<_> =
            self.receive_until_silent().iter().map(|octets| format!("{:?}", NGAP_PDU::decode(octets))).collect();
        assert!(rest.is_empty(), "{what}: {rest:?}");
        self.assert_up(what);
    }

    /// Checks that the association ends.
    pub(crate) fn assert_down(&mut self, what: &str) {
        let deadline = Instant::now() + ANSWER;
        while self.up {
            assert!(Instant::now() < deadline, "{what}: the association is still there");
            self.next(Duration::from_millis(20));
        }
    }

    /// Checks that the association stays up.
    pub(crate) fn assert_up(&mut self, what: &str) {
        assert!(self.up, "{what}: the association is gone");
    }
}

/// Polls until the owner drops the association; then aborts it.
fn poll(
    mut endpoint: Box<dyn Endpoint>,
    assoc: AssocId,
    todo: &Receiver<(u16, u32, Vec<u8>)>,
    events: &SyncSender<Received>,
) {
    let mut waiting: Option<(u16, u32, Vec<u8>)> = None;
    loop {
        loop {
            let next = match waiting.take() {
                Some(next) => next,
                None => match todo.try_recv() {
                    Ok(next) => next,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return endpoint.abort(assoc),
                },
            };
            if matches!(endpoint.send(assoc, next.0, next.1, &next.2), Err(SendError::Full)) {
                waiting = Some(next);
                break;
            }
        }
        let mut gone = false;
        let mut sink = |event: Event<'_>| {
            let event = match event {
                Event::Up { assoc: which, .. } if which == assoc => Received::Up,
                Event::Down { assoc: which, .. } if which == assoc => Received::Down,
                Event::Message { assoc: which, stream, ppid, data } if which == assoc => {
                    Received::Message(stream, ppid, data.to_vec())
                }
                _ => return,
            };
            gone |= events.send(event).is_err();
        };
        if endpoint.poll(Some(Duration::from_millis(5)), &mut sink).is_err() || gone {
            return;
        }
    }
}
