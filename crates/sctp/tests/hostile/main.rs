//! Tests of the userspace driver with hostile and broken peers.
//!
//! They must not crash the driver, fill its memory, or affect other peers.

mod handmade;
#[allow(dead_code, reason = "the conformance suite needs all of it")]
#[path = "../conformance/sys.rs"]
mod sys;

use handmade::{ABORT, COOKIE_ECHO, Client, INIT, INIT_ACK, SACK, Server, chunk, data, seal};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Driver, MAX_MESSAGE, bind};

const PORT: u16 = 38412;

fn server(at: Ipv4Addr) -> Server {
    let config = Config { driver: Driver::UserspaceIp, addresses: vec![at.into()], port: PORT, ..Config::default() };
    Server::new(bind(&Config { listen: true, ..config }).expect("the suite needs root (raw sockets)"))
}

/// Checks that the server still serves a correct client.
fn is_well(server: &mut Server, at: Ipv4Addr, to: Ipv4Addr) {
    let (ups, messages) = (server.ups, server.messages.len());
    let mut client = Client::new(at, 9, to, PORT);
    client.associate(server);
    client.send(&[data(3, client.tsn, 1, 0, 60, b"well?")]);
    client.wait_for(SACK, server);
    server.poll_until("a message", |server| server.messages.len() > messages);
    assert_eq!((server.ups, server.messages.last()), (ups + 1, Some(&(1, 60, b"well?".to_vec()))));
}

/// A deterministic pseudo-random generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Returns the resident memory of this process in kilobytes.
fn resident_kb() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4
}

#[test]
fn handmade_client_is_served() {
    let (at, to) = (Ipv4Addr::new(127, 78, 1, 2), Ipv4Addr::new(127, 78, 1, 1));
    let mut server = server(to);
    is_well(&mut server, at, to);
    assert!(server.downs.is_empty());
}

#[test]
fn data_is_acknowledged_at_once() {
    let (at, to) = (Ipv4Addr::new(127, 78, 8, 2), Ipv4Addr::new(127, 78, 8, 1));
    let mut server = server(to);
    let mut client = Client::new(at, 7, to, PORT);
    client.associate(&mut server);
    // A delayed SACK takes 200 ms every time; an immediate one does so only on a loaded machine.
    let at_once = (0..10).any(|n| {
        let start = Instant::now();
        let tsn = client.tsn + u32::from(n);
        client.send(&[data(3, tsn, 5, n, 60, b"one")]);
        let sack = client.wait_for(SACK, &mut server);
        assert_eq!(sack[16..20], tsn.to_be_bytes(), "cumulative TSN");
        start.elapsed() < Duration::from_millis(100)
    });
    assert!(at_once, "no delayed acknowledgement");
    server.poll_until("up and a message", |server| !server.messages.is_empty());
    let assoc = server.last.expect("an association");
    server.endpoint.send(assoc, 5, 18, b"two").expect("send");
    let packet = client.wait_for(0, &mut server);
    assert_eq!(packet[13], 0b1011, "I (RFC 7053), and one whole message");
    assert_eq!(
        (&packet[20..22], &packet[24..28]),
        (&[0, 5][..], &[0, 0, 0, 18][..]),
        "stream and PPID in network order"
    );
}

#[test]
fn random_chunks_with_right_checksums_do_no_harm() {
    let (at, to) = (Ipv4Addr::new(127, 78, 2, 2), Ipv4Addr::new(127, 78, 2, 1));
    let mut server = server(to);
    let mut client = Client::new(at, 7, to, PORT);
    let mut random = Random(0x5eed);
    for round in 0..30_000 {
        client.tag = if random.below(2) == 0 { 0 } else { random.next() as u32 };
        let chunks: Vec<Vec<u8>> = (0..random.below(4))
            .map(|_| {
                let kind = if random.below(4) == 0 { random.next() as u8 } else { random.below(20) as u8 };
                let value: Vec<u8> = (0..random.below(80)).map(|_| random.next() as u8).collect();
                let mut chunk = chunk(kind, random.next() as u8, &value);
                if random.below(3) == 0 {
                    chunk[2..4].copy_from_slice(&(random.next() as u16 >> random.below(16)).to_be_bytes());
                }
                chunk
            })
            .collect();
        client.send(&chunks);
        if round % 16 == 0 {
            server.poll();
        }
    }
    is_well(&mut server, Ipv4Addr::new(127, 78, 2, 3), to);
    assert_eq!(server.ups, 1);
}

#[test]
fn mutated_packets_do_no_harm() {
    let to = Ipv4Addr::new(127, 78, 3, 1);
    let mut server = server(to);
    let mut random = Random(0xfeed);
    let mut client = Client::new(Ipv4Addr::new(127, 78, 3, 2), 8, to, PORT);
    client.associate(&mut server);
    for round in 0..30_000_u32 {
        let payload: Vec<u8> = (0..random.below(120)).map(|_| random.next() as u8).collect();
        let tsn = client.tsn.wrapping_add(random.below(5) as u32).wrapping_sub(1);
        let stream = random.below(18) as u16;
        let flags = random.below(16) as u8;
        let sack = [tsn.to_be_bytes(), 65_536_u32.to_be_bytes(), [0, 1, 0, 1], [0, 2, 0, 3], [0; 4]].concat();
        let mut packet = match random.below(8) {
            0 => client.packet(&[chunk(SACK, 0, &sack)]),
            1 => client.packet(&[chunk(4, 0, &[0, 1, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8])]),
            2 => client.packet(&[client.init()]),
            3 => client.packet(&[chunk(COOKIE_ECHO, 0, &payload)]),
            4 => client.packet(&[chunk(random.next() as u8, flags, &payload)]),
            _ => client.packet(&[data(flags, tsn, stream, random.below(4) as u16, 60, &payload)]),
        };
        for _ in 0..random.below(3) {
            let at = 4 + random.below(packet.len() - 4);
            packet[at] = random.next() as u8;
        }
        packet.truncate(if random.below(10) == 0 { random.below(packet.len()) } else { packet.len() });
        seal(&mut packet);
        if packet.len() >= 16 {
            client.send_raw(&packet);
        }
        if round % 8 == 0 {
            server.poll();
        }
        if round % 500 == 499 {
            // Most associations have ended by then; continue with a fresh one.
            client = Client::new(Ipv4Addr::new(127, 78, 3, 2), 100 + (round / 500) as u16, to, PORT);
            client.associate(&mut server);
        }
    }
    is_well(&mut server, Ipv4Addr::new(127, 78, 3, 3), to);
}

#[test]
fn flood_of_inits_takes_no_memory() {
    let to = Ipv4Addr::new(127, 78, 4, 1);
    let mut server = server(to);
    is_well(&mut server, Ipv4Addr::new(127, 78, 4, 2), to);
    let mut grown = u64::MAX;
    for round in 0..4_u8 {
        let before = resident_kb();
        for n in 0..8000_u16 {
            let [high, low] = n.to_be_bytes();
            let client = Client::new(Ipv4Addr::new(127, 100 + round, high, low), 1000 + n, to, PORT);
            client.send(&[client.init()]);
            // Forged cookies must not need memory either.
            client.send(&[chunk(COOKIE_ECHO, 0, &[n as u8; 172])]);
            if n % 16 == 0 {
                server.poll();
            }
        }
        // Other tests of this process may increase it meanwhile, but not in each round.
        grown = grown.min(resident_kb().saturating_sub(before));
    }
    assert!(grown < 1024, "8000 INITs leave {grown} kB behind");
    assert_eq!(server.ups, 1);
    is_well(&mut server, Ipv4Addr::new(127, 78, 4, 3), to);
}

#[test]
fn cookie_is_valid_for_its_address_only() {
    let (at, to) = (Ipv4Addr::new(127, 78, 5, 2), Ipv4Addr::new(127, 78, 5, 1));
    let mut server = server(to);
    let client = Client::new(at, 7, to, PORT);
    client.send(&[client.init()]);
    let answer = client.wait_for(INIT_ACK, &mut server);
    let cookie = answer[36..].to_vec();
    let mut thief = Client::new(Ipv4Addr::new(127, 78, 5, 3), 7, to, PORT);
    thief.tag = u32::from_be_bytes(answer[16..20].try_into().expect("a tag"));
    thief.send(&[chunk(COOKIE_ECHO, 0, &cookie)]);
    for _ in 0..50 {
        server.poll();
    }
    assert_eq!(server.ups, 0);
}

#[test]
fn further_addresses_of_peer_are_accepted() {
    let (at, to) = (Ipv4Addr::new(127, 78, 9, 2), Ipv4Addr::new(127, 78, 9, 1));
    let mut server = server(to);
    let mut client = Client::new(at, 7, to, PORT);
    client.associate(&mut server);
    let mut further = Client::new(Ipv4Addr::new(127, 78, 9, 3), 7, to, PORT);
    further.tag = client.tag;
    further.send(&[data(3, client.tsn, 1, 0, 60, b"from here")]);
    client.wait_for(SACK, &mut server);
    server.poll_until("a message", |server| !server.messages.is_empty());
    assert_eq!(server.messages, [(1, 60, b"from here".to_vec())]);
    // With another tag the packet is from an unknown peer, which gets an ABORT.
    further.tag ^= 1;
    further.send(&[data(3, client.tsn + 1, 1, 1, 60, b"from nowhere")]);
    further.wait_for(ABORT, &mut server);
    assert_eq!((server.messages.len(), server.downs.len()), (1, 0));
}

#[test]
fn message_without_end_ends_association() {
    let (at, to) = (Ipv4Addr::new(127, 78, 6, 2), Ipv4Addr::new(127, 78, 6, 1));
    let mut server = server(to);
    let mut client = Client::new(at, 7, to, PORT);
    client.associate(&mut server);
    // One message that just fits, then one that does not.
    for (size, last) in [(MAX_MESSAGE, true), (MAX_MESSAGE + 1400, false)] {
        let (mut left, mut first) = (size, true);
        while left > 0 {
            let part = left.min(1400);
            left -= part;
            let flags = if first { 2 } else { 0 } | u8::from(left == 0 && last);
            client.send(&[data(flags, client.tsn, 0, u16::from(!last), 60, &vec![9; part])]);
            client.tsn += 1;
            first = false;
            server.poll();
        }
    }
    client.wait_for(ABORT, &mut server);
    server.poll_until("down", |server| !server.downs.is_empty());
    assert_eq!(server.downs, ["the peer sent a message that is too long"]);
    assert_eq!(server.messages, [(0, 60, vec![9; MAX_MESSAGE])]);
    is_well(&mut server, Ipv4Addr::new(127, 78, 6, 3), to);
}

#[test]
fn misaddressed_packets_get_no_answer() {
    let (at, to) = (Ipv4Addr::new(127, 78, 7, 2), Ipv4Addr::new(127, 78, 7, 1));
    let mut server = server(to);
    let other = Client::new(at, 7, to, PORT + 1);
    other.send(&[other.init()]);
    let client = Client::new(at, 7, to, PORT);
    let mut packet = client.packet(&[client.init()]);
    packet[9] ^= 1;
    client.send_raw(&packet);
    for _ in 0..20 {
        server.poll();
    }
    assert_eq!(sys::RawSocket::new(at).receive(), None);
    assert_eq!(client.init()[0], INIT);
    client.send(&[client.init()]);
    client.wait_for(INIT_ACK, &mut server);
}
