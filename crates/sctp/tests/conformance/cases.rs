//! Test cases that every driver must pass.

use crate::peer::{LIMIT, Message, Peer, World, client_config, connect, connected, idle, run, server_config, short};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use vireo_sctp::{Config, HandoffError, SendError};

const NGAP: u32 = 60;
const S1AP: u32 = 18;

/// Returns bytes that distinguish a message from every other.
fn payload(seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (seed.wrapping_mul(31) ^ at ^ (at >> 8)) as u8).collect()
}

pub(crate) fn connects_and_accepts(world: &dyn World) {
    let (server, client) = connected(world, 38412, |_| ());
    let (peer, streams) = server.up[&server.only()];
    assert_eq!(peer.ip(), world.address(2));
    assert_ne!(peer.port(), 0);
    assert_eq!(streams, 16);
    assert_eq!(client.up[&client.only()], (SocketAddr::new(world.address(1), 38412), 16));
    assert_eq!((server.endpoint.port(), client.endpoint.port()), (38412, 0));
    assert!(!server.endpoint.driver().is_empty());
}

pub(crate) fn streams_are_negotiated(world: &dyn World) {
    let mut server =
        Peer::new(world.bind(&Config { inbound_streams: 3, outbound_streams: 5, ..server_config(world, 38412) }));
    let mut client = Peer::new(world.bind(&Config { outbound_streams: 8, ..client_config(world) }));
    let assoc = connect(&mut server, &mut client, world.address(1), 38412);
    assert_eq!((server.up[&server.only()].1, client.up[&assoc].1), (5, 3));
    for stream in [0, 1, 2, 3, u16::MAX] {
        client.endpoint.send(assoc, stream, NGAP, &[1]).expect("send");
    }
    run(&mut [&mut server, &mut client], "five messages", LIMIT, |peers| peers[0].messages.len() == 5);
    let streams: Vec<u16> = server.messages.iter().map(|message| message.stream).collect();
    assert_eq!(streams.iter().filter(|stream| **stream == 0).count(), 1, "stream 0 is stream 0's alone: {streams:?}");
    assert!(streams.iter().all(|stream| *stream < 3), "{streams:?}");
}

pub(crate) fn messages_of_every_size_arrive_whole(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    let sizes =
        [1, 2, 3, 4, 100, 1000, 1400, 1448, 1452, 1460, 1468, 1500, 2000, 4096, 16_384, 60_000, 65_535, 65_537, 81_920];
    let sent: Vec<(u16, u32, Vec<u8>)> = (sizes.iter().enumerate())
        .map(|(n, size)| ((n % 16) as u16, if n % 2 == 0 { NGAP } else { S1AP }, payload(n, *size)))
        .collect();
    let (from, to) = (client.only(), server.only());
    for (stream, ppid, data) in &sent {
        client.endpoint.send(from, *stream, *ppid, data).expect("send");
        server.endpoint.send(to, *stream, *ppid, data).expect("send");
    }
    run(&mut [&mut server, &mut client], "all messages", LIMIT, |peers| {
        peers.iter().all(|peer| peer.messages.len() >= sizes.len())
    });
    for (peer, assoc) in [(&server, to), (&client, from)] {
        let mut got: Vec<_> = peer.messages.iter().map(|m| (m.assoc, m.stream, m.ppid, m.data.clone())).collect();
        let mut want: Vec<_> = sent.iter().map(|(s, p, d)| (assoc, *s, *p, d.clone())).collect();
        got.sort_by_key(|message| message.3.len());
        want.sort_by_key(|message| message.3.len());
        assert!(got == want, "what arrived is not what was sent");
    }
}

pub(crate) fn messages_out_of_bounds_are_refused(world: &dyn World) {
    let (_server, mut client) = connected(world, 38412, |_| ());
    let assoc = client.only();
    for data in [vec![], vec![0; vireo_sctp::MAX_MESSAGE + 1]] {
        assert!(matches!(client.endpoint.send(assoc, 0, NGAP, &data), Err(SendError::Io(_))), "{}", data.len());
    }
    let unknown = vireo_types::AssocId(u32::MAX);
    assert!(matches!(client.endpoint.send(unknown, 0, NGAP, &[1]), Err(SendError::NoAssociation)));
    client.endpoint.abort(unknown);
    client.endpoint.shutdown(unknown);
}

pub(crate) fn each_stream_keeps_its_order(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    let assoc = client.only();
    const EACH: usize = 400;
    let (mut sent, total) = (0, EACH * 16);
    while sent < total {
        let data = (sent as u32).to_be_bytes();
        match client.endpoint.send(assoc, (sent % 16) as u16, NGAP, &data) {
            Ok(()) => sent += 1,
            Err(SendError::Full) => {
                server.poll(Duration::ZERO);
                client.poll(Duration::ZERO);
            }
            Err(error) => panic!("{error}"),
        }
    }
    run(&mut [&mut server, &mut client], "6400 messages", 2 * LIMIT, |peers| peers[0].messages.len() >= total);
    let mut next: Vec<u32> = (0..16).collect();
    for Message { stream, data, .. } in &server.messages {
        let number = u32::from_be_bytes(data[..].try_into().expect("four bytes"));
        assert_eq!(number, next[usize::from(*stream)], "stream {stream}");
        next[usize::from(*stream)] += 16;
    }
}

pub(crate) fn several_peers_are_distinct(world: &dyn World) {
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    server.echo = true;
    let mut clients: Vec<Peer> = (2..6)
        .map(|n| Peer::new(world.bind(&Config { addresses: vec![world.address(n)], port: 38412, ..world.config() })))
        .collect();
    for client in &mut clients {
        connect(&mut server, client, world.address(1), 38412);
    }
    let addresses: BTreeSet<SocketAddr> = server.up.values().map(|(peer, _)| *peer).collect();
    let want: BTreeSet<SocketAddr> = (2..6).map(|n| SocketAddr::new(world.address(n), 38412)).collect();
    assert_eq!(addresses, want, "peers with one port each, on addresses of their own");
    for (n, client) in clients.iter_mut().enumerate() {
        let assoc = client.only();
        client.endpoint.send(assoc, 1, NGAP, &payload(n, 300)).expect("send");
    }
    for (n, client) in clients.iter_mut().enumerate() {
        run(&mut [&mut server, client], "an echo", LIMIT, |peers| !peers[1].messages.is_empty());
        assert_eq!(client.messages[0].data, payload(n, 300));
    }
}

pub(crate) fn hundred_associations_are_served(world: &dyn World) {
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    server.echo = true;
    let mut client = Peer::new(world.bind(&client_config(world)));
    let to = SocketAddr::new(world.address(1), 38412);
    let assocs: Vec<_> = (0..100).map(|_| client.endpoint.connect(to).expect("connect")).collect();
    run(&mut [&mut server, &mut client], "100 associations", 2 * LIMIT, |peers| {
        peers.iter().all(|peer| peer.up.len() == 100)
    });
    let peers: BTreeSet<_> = server.up.values().map(|(peer, _)| *peer).collect();
    assert_eq!(peers.len(), 100, "each association has a port of its own");
    for (n, assoc) in assocs.iter().enumerate() {
        client.endpoint.send(*assoc, 1, NGAP, &payload(n, 50)).expect("send");
    }
    run(&mut [&mut server, &mut client], "100 echoes", LIMIT, |peers| peers[1].messages.len() == 100);
    for (n, assoc) in assocs.iter().enumerate() {
        let message = client.messages.iter().find(|message| message.assoc == *assoc).expect("an echo");
        assert_eq!(message.data, payload(n, 50));
    }
}

pub(crate) fn too_many_associations_are_refused(world: &dyn World) {
    let mut server = Peer::new(world.bind(&Config { max_associations: 2, ..server_config(world, 38412) }));
    let mut client = Peer::new(world.bind(&client_config(world)));
    for _ in 0..2 {
        connect(&mut server, &mut client, world.address(1), 38412);
    }
    let third = client.endpoint.connect(SocketAddr::new(world.address(1), 38412)).expect("connect");
    run(&mut [&mut server, &mut client], "a refusal", LIMIT, |peers| peers[1].down.contains_key(&third));
    assert_eq!((server.ups.len(), server.up.len()), (2, 2), "the third was never told of");
    assert!(server.down.is_empty());
}

pub(crate) fn full_buffer_reports_full_then_writable(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |config| config.send_buffer = 256 << 10);
    let assoc = client.only();
    let mut sent = 0;
    let full = Instant::now();
    loop {
        match client.endpoint.send(assoc, 1, NGAP, &payload(sent, 8000)) {
            Ok(()) => sent += 1,
            Err(SendError::Full) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 10_000 && full.elapsed() < LIMIT, "the buffer is never full");
    }
    assert!(client.writable.is_empty());
    run(&mut [&mut server, &mut client], "room again", LIMIT, |peers| !peers[1].writable.is_empty());
    assert_eq!(client.writable, [assoc], "told once");
    client.endpoint.send(assoc, 1, NGAP, &payload(sent, 8000)).expect("there is room");
    sent += 1;
    run(&mut [&mut server, &mut client], "all messages", LIMIT, |peers| peers[0].messages.len() == sent);
    for (n, message) in server.messages.iter().enumerate() {
        assert!(message.data == payload(n, 8000), "message {n}");
    }
}

pub(crate) fn shutdown_delivers_queued_messages(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    let (assoc, theirs) = (client.only(), server.only());
    for n in 0..60 {
        client.endpoint.send(assoc, n % 16, NGAP, &payload(n.into(), 5000)).expect("send");
    }
    client.endpoint.shutdown(assoc);
    assert!(
        matches!(client.endpoint.send(assoc, 0, NGAP, &[1]), Err(SendError::NoAssociation)),
        "no more after a shutdown"
    );
    run(&mut [&mut server, &mut client], "both down", LIMIT, |peers| peers.iter().all(|peer| peer.up.is_empty()));
    assert_eq!(server.messages.len(), 60);
    assert_eq!((client.down[&assoc], server.down[&theirs]), ("shut down", "shut down"));
    assert!(matches!(client.endpoint.send(assoc, 0, NGAP, &[1]), Err(SendError::NoAssociation)));
    connect(&mut server, &mut client, world.address(1), 38412);
}

pub(crate) fn abort_reports_reason_to_both_sides(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    let (assoc, theirs) = (client.only(), server.only());
    server.endpoint.abort(theirs);
    run(&mut [&mut server, &mut client], "both down", LIMIT, |peers| peers.iter().all(|peer| peer.up.is_empty()));
    assert_eq!((server.down[&theirs], client.down[&assoc]), ("aborted by this side", "aborted by the peer"));
    let assoc = connect(&mut server, &mut client, world.address(1), 38412);
    let theirs = server.only();
    client.endpoint.abort(assoc);
    assert!(matches!(client.endpoint.send(assoc, 0, NGAP, &[1]), Err(SendError::NoAssociation)));
    run(&mut [&mut server, &mut client], "both down", LIMIT, |peers| peers.iter().all(|peer| peer.up.is_empty()));
    assert_eq!((server.down[&theirs], client.down[&assoc]), ("aborted by the peer", "aborted by this side"));
    connect(&mut server, &mut client, world.address(1), 38412);
}

pub(crate) fn dropping_an_endpoint_aborts(world: &dyn World) {
    let (server, mut client) = connected(world, 38412, |_| ());
    let assoc = client.only();
    drop(server);
    run(&mut [&mut client], "down", LIMIT, |peers| peers[0].up.is_empty());
    assert_eq!(client.down[&assoc], "aborted by the peer");
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    connect(&mut server, &mut client, world.address(1), 38412);
    let theirs = server.only();
    drop(client);
    run(&mut [&mut server], "down", LIMIT, |peers| peers[0].up.is_empty());
    assert_eq!(server.down[&theirs], "aborted by the peer");
}

pub(crate) fn connect_without_server_fails(world: &dyn World) {
    let mut client = Peer::new(world.bind(&short(client_config(world))));
    let to = SocketAddr::new(world.silent_address(), 38412);
    let assoc = client.endpoint.connect(to).expect("connect starts");
    client.poll(Duration::from_millis(1));
    world.time_out();
    run(&mut [&mut client], "a failure", LIMIT, |peers| peers[0].down.contains_key(&assoc));
    assert_eq!((client.down[&assoc], client.ups.len()), ("no answer from the peer", 0));
}

pub(crate) fn dead_peer_ends_association(world: &dyn World) {
    let mut server = Peer::new(world.bind(&short(server_config(world, 38412))));
    let mut client = world.doomed(2, 0, SocketAddr::new(world.address(1), 38412));
    run(&mut [&mut server], "an association", LIMIT, |peers| {
        client.poll();
        !peers[0].up.is_empty()
    });
    let assoc = server.only();
    client.vanish();
    world.time_out();
    run(&mut [&mut server], "the peer given up", LIMIT, |peers| peers[0].up.is_empty());
    assert_eq!(server.down[&assoc], "the peer stopped answering");
}

pub(crate) fn dead_peer_returns_unacknowledged(world: &dyn World) {
    if !world.gives_back() {
        return;
    }
    for gives_up_itself in [false, true] {
        let mut server = Peer::new(world.bind(&short(server_config(world, 38412))));
        let mut client = world.doomed(2, 0, SocketAddr::new(world.address(1), 38412));
        run(&mut [&mut server], "an association", LIMIT, |peers| {
            client.poll();
            !peers[0].up.is_empty()
        });
        let assoc = server.only();
        let sent = |n: u16| Message { assoc, stream: n, ppid: NGAP, data: payload(n.into(), 100) };
        server.endpoint.send(assoc, 0, NGAP, b"for the living").expect("send");
        // The message is acknowledged, as far as the driver does so.
        let began = Instant::now();
        run(&mut [&mut server], "time passing", LIMIT, |_| {
            client.poll();
            began.elapsed() > Duration::from_millis(100)
        });
        client.vanish();
        for Message { stream, ppid, data, .. } in (1..4).map(sent) {
            server.endpoint.send(assoc, stream, ppid, &data).expect("send");
        }
        server.poll(Duration::ZERO);
        if gives_up_itself {
            server.endpoint.abort(assoc);
        } else {
            world.time_out();
        }
        run(&mut [&mut server], "the peer given up", LIMIT, |peers| peers[0].up.is_empty());
        server.unacknowledged.sort_by_key(|message| message.stream);
        assert_eq!(server.unacknowledged, (1..4).map(sent).collect::<Vec<_>>());
    }
}

pub(crate) fn restarted_peer_restarts_association(world: &dyn World) {
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    let to = SocketAddr::new(world.address(1), 38412);
    let mut client = world.doomed(2, 5000, to);
    run(&mut [&mut server], "an association", LIMIT, |peers| {
        client.poll();
        !peers[0].up.is_empty()
    });
    let first = server.only();
    assert_eq!(server.up[&first].0, SocketAddr::new(world.address(2), 5000));
    // A message to the dead peer must not reach its successor.
    client.kill();
    let _ = server.endpoint.send(first, 1, NGAP, b"for the dead");
    let mut client = world.doomed(2, 5000, to);
    run(&mut [&mut server], "a restart, or a new association", LIMIT, |peers| {
        client.poll();
        peers[0].restarted == [first] || peers[0].ups.len() == 2
    });
    let now = server.only();
    assert!(now == first || server.down.contains_key(&first), "one identifier, or the old one gone");
    server.endpoint.send(now, 1, NGAP, b"for the living").expect("send");
    server.endpoint.shutdown(now);
    run(&mut [&mut server], "a clean end", LIMIT, |peers| {
        client.poll();
        peers[0].up.is_empty()
    });
    assert_eq!(server.down[&now], "shut down", "the peer that came back answers");
}

pub(crate) fn idle_association_stays_up(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    idle(&mut [&mut server, &mut client], Duration::from_millis(2500));
    assert_eq!((server.up.len(), client.up.len()), (1, 1), "heartbeats keep it");
}

pub(crate) fn living_peer_answers_probe(world: &dyn World) {
    // Heartbeats are sent only on demand.
    let (mut server, mut client) = connected(world, 38412, |config| config.heartbeat = Duration::ZERO);
    let (assoc, theirs) = (client.only(), server.only());
    idle(&mut [&mut server, &mut client], Duration::from_millis(50));
    assert!(server.alive.is_empty() && client.alive.is_empty());
    for times in 1..3 {
        // Several probes may be in progress.
        server.endpoint.probe(theirs);
        server.endpoint.probe(theirs);
        client.endpoint.probe(assoc);
        run(&mut [&mut server, &mut client], "signs of life", LIMIT, |peers| {
            peers.iter().all(|peer| peer.alive.len() == times)
        });
    }
    assert_eq!((server.alive, client.alive), (vec![theirs; 2], vec![assoc; 2]));
    client.endpoint.probe(vireo_types::AssocId(u32::MAX));
    assert_eq!((server.down.len(), client.down.len()), (0, 0));
}

pub(crate) fn dead_peer_answers_no_probe(world: &dyn World) {
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    let mut client = world.doomed(2, 0, SocketAddr::new(world.address(1), 38412));
    run(&mut [&mut server], "an association", LIMIT, |peers| {
        client.poll();
        !peers[0].up.is_empty()
    });
    let assoc = server.only();
    client.vanish();
    let began = Instant::now();
    run(&mut [&mut server], "time passing", LIMIT, |peers| {
        assert!(peers[0].alive.is_empty());
        began.elapsed() > Duration::from_millis(300)
    });
    server.endpoint.probe(assoc);
    let began = Instant::now();
    run(&mut [&mut server], "time passing", LIMIT, |_| began.elapsed() > Duration::from_millis(300));
    assert!(server.alive.is_empty(), "the peer is dead");
}

pub(crate) fn second_association_with_same_ports_is_refused(world: &dyn World) {
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    let mut client = Peer::new(world.bind(&Config { port: 4000, ..client_config(world) }));
    let assoc = connect(&mut server, &mut client, world.address(1), 38412);
    client.endpoint.connect(SocketAddr::new(world.address(1), 38412)).expect_err("there is one already");
    client.endpoint.send(assoc, 0, NGAP, &[1]).expect("the first is not hurt");
    run(&mut [&mut server, &mut client], "a message", LIMIT, |peers| peers[0].messages.len() == 1);
}

pub(crate) fn wake_ends_wait(world: &dyn World) {
    let mut server = world.bind(&server_config(world, 38412));
    let waker = server.waker();
    let start = Instant::now();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        waker.wake();
    });
    assert_eq!(server.poll(Some(LIMIT), &mut |event| panic!("{event:?}")).expect("poll"), 0);
    let waited = start.elapsed();
    thread.join().expect("the waker");
    assert!(waited >= Duration::from_millis(40) && waited < LIMIT / 2, "{waited:?}");
    let waited = Instant::now();
    server.poll(Some(Duration::from_millis(30)), &mut |event| panic!("{event:?}")).expect("poll");
    assert!(waited.elapsed() >= Duration::from_millis(29), "one wake ends one wait");
}

pub(crate) fn watched_descriptors_are_reported(world: &dyn World) {
    let mut server = Peer::new(world.bind(&server_config(world, 38412)));
    let (mut write, read) = std::os::unix::net::UnixStream::pair().expect("a pair");
    server.endpoint.watch(read.as_raw_fd(), u64::MAX - 1).expect("watch");
    server.poll(Duration::from_millis(5));
    assert!(server.readable.is_empty());
    std::io::Write::write_all(&mut write, b"x").expect("write");
    server.poll(LIMIT);
    assert_eq!(server.readable, [u64::MAX - 1]);
    server.poll(LIMIT);
    assert_eq!(server.readable.len(), 2, "level-triggered");
}

pub(crate) fn garbage_is_ignored(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    let to = SocketAddr::new(world.address(1), 38412);
    let mut random = 0x1234_5678_u32;
    for n in 0..2000 {
        let bytes: Vec<u8> = (0..n % 200)
            .map(|_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 24) as u8
            })
            .collect();
        if !world.garbage(to, &bytes) {
            return;
        }
        if n % 50 == 0 {
            server.poll(Duration::ZERO);
        }
    }
    idle(&mut [&mut server, &mut client], Duration::from_millis(50));
    let assoc = client.only();
    client.endpoint.send(assoc, 0, NGAP, b"still here").expect("send");
    run(&mut [&mut server, &mut client], "a message", LIMIT, |peers| peers[0].messages.len() == 1);
    assert_eq!((server.ups.len(), server.down.len()), (1, 0));
}

pub(crate) fn adopted_endpoint_continues_associations(world: &dyn World) {
    let (mut server, mut client) = connected(world, 38412, |_| ());
    let (from, to) = (client.only(), server.only());
    let handover = match server.endpoint.snapshot() {
        Err(HandoffError::InProcess) if !world.hands_over() => return,
        other => other.expect("it is handed over"),
    };
    // A handoff that is not continued has no effect on the association.
    drop(world.adopt(&server_config(world, 38412), handover));
    client.endpoint.send(from, 0, NGAP, &[1]).expect("send");
    run(&mut [&mut server, &mut client], "the first goes on", LIMIT, |peers| peers[0].messages.len() == 1);

    // A message that arrives while no process reads the socket.
    client.endpoint.send(from, 1, NGAP, &[2]).expect("send");
    let next = world.adopt(&server_config(world, 38412), server.endpoint.snapshot().expect("it is handed over"));
    let next = Peer { up: std::mem::take(&mut server.up), ..Peer::new(next) };
    let before = std::mem::replace(&mut server, next);
    before.endpoint.detach();
    run(&mut [&mut server, &mut client], "what was on its way", LIMIT, |peers| peers[0].messages.len() == 1);
    assert_eq!((server.messages[0].assoc, &server.messages[0].data[..]), (to, &[2][..]));
    server.endpoint.send(to, 1, NGAP, &payload(3, 60_000)).expect("send");
    run(&mut [&mut server, &mut client], "an answer", LIMIT, |peers| peers[1].messages.len() == 1);
    assert_eq!(client.messages[0].data, payload(3, 60_000));
    assert!(client.restarted.is_empty() && client.down.is_empty() && client.ups.len() == 1);

    let mut other = Peer::new(world.bind(&client_config(world)));
    connect(&mut server, &mut other, world.address(1), 38412);
    assert!(server.up.len() == 2 && server.ups[0] != to);
    server.endpoint.shutdown(to);
    run(&mut [&mut server, &mut client], "its end", LIMIT, |peers| peers.iter().all(|peer| peer.down.len() == 1));
}
