//! Interoperability test: usrsctp on the host against the kernel's SCTP in a guest.
//!
//! The guest is user-mode Linux, connected by a tap device. The two tests are the two ends.
//! `crates/sctp/tests/uml/run` (`make test-kernel-sctp`) starts both.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Driver, Endpoint, Event, SendError, bind};
use vireo_types::AssocId;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The guest has two addresses, and announces them in its INIT and INIT ACK.
const GUEST: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 2), Ipv4Addr::new(10, 78, 0, 3)];
const GUEST_PORT: u16 = 38412;
const HOST_PORT: u16 = 36412;
const LIMIT: Duration = Duration::from_secs(20);

/// PPID of commands to the guest. Messages with other PPIDs are echoed unchanged.
const ORDER: u32 = 999;
const CONNECT: &[u8] = b"connect to me";
const WHY: &[u8] = b"why did the last association end?";
const RESTARTS: &[u8] = b"how many associations were restarted?";
const END: &[u8] = b"end";

struct Peer {
    endpoint: Box<dyn Endpoint>,
    up: BTreeMap<AssocId, SocketAddr>,
    restarted: usize,
    downs: Vec<&'static str>,
    messages: Vec<(AssocId, u16, u32, Vec<u8>)>,
}

impl Peer {
    fn new(config: &Config) -> Self {
        let endpoint = bind(config).expect("bind");
        Self { endpoint, up: BTreeMap::new(), restarted: 0, downs: Vec::new(), messages: Vec::new() }
    }

    fn poll(&mut self) {
        let Self { endpoint, up, restarted, downs, messages } = self;
        let polled = endpoint.poll(Some(Duration::from_millis(1)), &mut |event| match event {
            Event::Up { assoc, peer, .. } => assert!(up.insert(assoc, peer).is_none()),
            Event::Down { assoc, reason } => {
                up.remove(&assoc);
                downs.push(reason);
            }
            Event::Restarted { .. } => *restarted += 1,
            Event::Message { assoc, stream, ppid, data } => messages.push((assoc, stream, ppid, data.to_vec())),
            _ => {}
        });
        polled.expect("poll");
    }

    fn poll_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < LIMIT, "never happened: {what} (ended so far: {:?})", self.downs);
            self.poll();
        }
    }

    fn connect(&mut self, to: SocketAddr) -> AssocId {
        let assoc = self.endpoint.connect(to).expect("connect");
        self.poll_until("an association", |peer| peer.up.contains_key(&assoc));
        assoc
    }

    /// Sends one message, and polls while the buffer is full.
    fn answer(&mut self, assoc: AssocId, stream: u16, ppid: u32, data: &[u8]) {
        loop {
            match self.endpoint.send(assoc, stream, ppid, data) {
                Err(SendError::Full) => self.poll(),
                Err(SendError::Io(error)) => panic!("{error}"),
                Ok(()) | Err(SendError::NoAssociation) => return,
            }
        }
    }

    fn request(&mut self, assoc: AssocId, order: &[u8]) -> String {
        self.messages.clear();
        self.endpoint.send(assoc, 0, ORDER, order).expect("send");
        self.poll_until("an answer", |peer| !peer.messages.is_empty());
        String::from_utf8_lossy(&self.messages[0].3).into_owned()
    }

    /// Sends messages and checks that they are echoed.
    fn echo(&mut self, assoc: AssocId, messages: &[(u16, u32, Vec<u8>)]) {
        self.messages.clear();
        let mut sent = 0;
        let start = Instant::now();
        while self.messages.len() < messages.len() {
            assert!(start.elapsed() < LIMIT, "{} of {} came back", self.messages.len(), messages.len());
            while let Some((stream, ppid, data)) = messages.get(sent) {
                match self.endpoint.send(assoc, *stream, *ppid, data) {
                    Ok(()) => sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.poll();
        }
        for stream in 0..16 {
            let got = self.messages.iter().filter(|message| message.1 == stream).map(|message| (message.2, &message.3));
            let want = messages.iter().filter(|message| message.0 == stream).map(|message| (message.1, &message.2));
            assert!(got.eq(want), "stream {stream}");
        }
    }
}

fn sizes() -> Vec<(u16, u32, Vec<u8>)> {
    let sizes = [1, 3, 100, 1000, 1447, 1448, 1449, 1452, 1456, 1460, 1500, 3000, 9000, 30_000, 60_000, 65_535];
    (0..64_usize)
        .map(|n| {
            let data = (0..sizes[n % sizes.len()]).map(|at| (n ^ at ^ (at >> 8)) as u8).collect();
            ((n * 7 % 16) as u16, if n % 2 == 0 { 60 } else { 18 }, data)
        })
        .collect()
}

/// The guest: echoes messages and executes commands.
#[test]
#[ignore = "one of two ends: make test-kernel-sctp"]
fn guest() {
    let addresses: Vec<IpAddr> = GUEST.map(IpAddr::from).to_vec();
    let base = Config { driver: Driver::Kernel, addresses, ..Config::default() };
    let mut server = Peer::new(&Config { port: GUEST_PORT, listen: true, ..base.clone() });
    let mut client = Peer::new(&base);
    loop {
        let mut connect = false;
        for peer in [&mut server, &mut client] {
            peer.poll();
            for (assoc, stream, ppid, data) in std::mem::take(&mut peer.messages) {
                match (ppid, &data[..]) {
                    (ORDER, END) => return,
                    (ORDER, WHY) => {
                        let cause = *peer.downs.last().expect("one ended");
                        peer.answer(assoc, stream, ppid, cause.as_bytes());
                    }
                    (ORDER, RESTARTS) => {
                        let restarts = peer.restarted.to_string();
                        peer.answer(assoc, stream, ppid, restarts.as_bytes());
                    }
                    (ORDER, CONNECT) => connect = true,
                    _ => peer.answer(assoc, stream, ppid, &data),
                }
            }
        }
        if connect {
            client.endpoint.connect(SocketAddr::from((HOST, HOST_PORT))).expect("connect");
        }
    }
}

/// A usrsctp client in another process, killed on drop without closing its association.
struct Doomed(Child);

impl Doomed {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
        command.args(["--exact", "doomed", "--ignored", "--nocapture"]).stdout(Stdio::piped());
        Self(command.spawn().expect("a process"))
    }

    fn wait_until_up(&mut self) {
        let output = BufReader::new(self.0.stdout.take().expect("a pipe"));
        assert!(output.lines().any(|line| line.expect("text").ends_with("up")), "it did not come up");
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that [`Doomed`] starts.
#[test]
#[ignore = "only as a process of another test"]
fn doomed() {
    let addresses = vec![HOST.into()];
    let mut client = Peer::new(&Config { driver: Driver::UserspaceIp, addresses, port: 5000, ..Config::default() });
    client.connect(SocketAddr::from((GUEST[0], GUEST_PORT)));
    println!("up");
    loop {
        client.poll();
    }
}

/// The host end of the test.
#[test]
#[ignore = "the other end: make test-kernel-sctp"]
fn host() {
    let to = SocketAddr::from((GUEST[0], GUEST_PORT));
    // Long timeouts: the guest may still be booting.
    let patient = Config { init_retries: 15, rto_max: Duration::from_secs(1), ..Config::default() };
    let config = Config { driver: Driver::UserspaceIp, addresses: vec![HOST.into()], ..patient };
    let mut client = Peer::new(&config);

    println!("usrsctp over raw IP to the kernel");
    // The connect is refused while the guest has its address but not yet its server.
    let start = Instant::now();
    let assoc = loop {
        let assoc = client.endpoint.connect(to).expect("connect");
        let downs = client.downs.len();
        client.poll_until("an answer", |peer| peer.up.contains_key(&assoc) || peer.downs.len() > downs);
        if client.up.contains_key(&assoc) {
            break assoc;
        }
        assert!(start.elapsed() < LIMIT, "{:?}", client.downs);
    };
    client.downs.clear();
    assert_eq!(client.up[&assoc], to);
    client.echo(assoc, &sizes());

    println!("one message at a time, none waits for a delayed acknowledgement");
    let start = Instant::now();
    for n in 0..200_u8 {
        client.echo(assoc, &[(u16::from(n % 16), 60, vec![n; 300])]);
    }
    let each = start.elapsed() / 200;
    println!("{each:?} an echo");
    assert!(each < Duration::from_millis(50), "{each:?}");

    println!("a shutdown by the host");
    client.endpoint.shutdown(assoc);
    client.poll_until("down", |peer| peer.up.is_empty());
    assert_eq!(client.downs, ["shut down"]);

    println!("an abort by the host");
    let assoc = client.connect(to);
    client.echo(assoc, &sizes()[..20]);
    client.endpoint.abort(assoc);
    client.poll_until("down", |peer| peer.downs.len() == 2);
    let assoc = client.connect(to);
    assert_eq!(client.request(assoc, WHY), "aborted by the peer");

    println!("a client that is killed and comes back at the same port");
    for _ in 0..2 {
        let mut doomed = Doomed::start();
        doomed.wait_until_up();
    }
    assert_eq!(client.request(assoc, RESTARTS), "1");

    println!("the kernel to usrsctp over raw IP, from a port with two addresses");
    let mut server = Peer::new(&Config { port: HOST_PORT, listen: true, ..config.clone() });
    client.endpoint.send(assoc, 0, ORDER, CONNECT).expect("send");
    let start = Instant::now();
    while server.up.is_empty() {
        assert!(start.elapsed() < LIMIT, "the guest does not connect");
        client.poll();
        server.poll();
    }
    let back = *server.up.keys().next().expect("one");
    assert!(GUEST.contains(&match server.up[&back].ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("{ip}"),
    }));
    server.echo(back, &sizes());
    server.endpoint.shutdown(back);
    server.poll_until("down", |peer| peer.up.is_empty());
    assert_eq!(server.downs, ["shut down"]);

    println!("usrsctp over UDP to the kernel");
    let mut over_udp = Peer::new(&Config { driver: Driver::UserspaceUdp, ..config });
    let encapsulated = over_udp.connect(to);
    over_udp.echo(encapsulated, &sizes());
    over_udp.endpoint.shutdown(encapsulated);
    over_udp.poll_until("down", |peer| peer.up.is_empty());
    assert_eq!(over_udp.downs, ["shut down"]);

    println!("the end");
    client.endpoint.send(assoc, 0, ORDER, END).expect("send");
    client.poll_until("the guest's end", |peer| peer.up.is_empty());
}
