//! Both ends of a connection, with and without TLS.

use super::super::TlsPeerError;
use super::super::frame::decode;
use super::*;
use crate::identity::TlsConfig;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_pki::{Authority, Files, NAME};

const WITHIN: Duration = Duration::from_secs(10);

/// Returns the security of a member with these roles; with none, it does not check its own
/// certificate.
fn security(files: &Files, own: &[Role]) -> Security {
    let config = TlsConfig {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        authorities: files.authorities.clone(),
        name: NAME.into(),
    };
    Security::load(Some(&config), own).unwrap()
}

/// Returns the connecting and the accepting end.
fn ends(connects: &Security, takes: &Security) -> [Stream; 2] {
    between((connects, Role::Host), (takes, Role::Balancer), (&[Role::Balancer], &[Role::Host]))
}

/// Returns two ends with their own roles and the roles that they expect.
fn between(
    (connects, connecting): (&Security, Role),
    (takes, taking): (&Security, Role),
    expected: (&'static [Role], &'static [Role]),
) -> [Stream; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connecting = Stream::connect(listener.local_addr().unwrap(), connects, connecting, expected.0).unwrap();
    let (socket, _) = listener.accept().unwrap();
    [connecting, Stream::accepted(socket, takes, taking, expected.1).unwrap()]
}

/// Sends and reads once at an end; returns the received messages.
fn exchange(end: &mut Stream) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut came = Vec::new();
    let read = end.fill();
    while let Some(frame) = end.frame()? {
        came.push(decode::<Vec<u8>>(frame)?);
    }
    read?;
    end.flush()?;
    Ok(came)
}

/// Returns the errors with which each end refuses the other.
fn refusals(connects: &Security, takes: &Security) -> [FrameError; 2] {
    ended(ends(connects, takes))
}

fn ended(ends: [Stream; 2]) -> [FrameError; 2] {
    let (mut said, until) = ([None, None], Instant::now() + WITHIN);
    let mut ends = ends.map(Some);
    while said.iter().any(Option::is_none) {
        assert!(Instant::now() < until, "{said:?}");
        for (there, said) in ends.iter_mut().zip(&mut said) {
            let Some(end) = there else { continue };
            match exchange(end) {
                Ok(came) => assert!(came.is_empty(), "nothing is heard of a stranger"),
                Err(error) => (*said, *there) = (Some(error), None),
            }
        }
    }
    said.map(Option::unwrap)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns the name of the certificate of a role.
fn shown(role: Role) -> &'static str {
    match role {
        Role::Host | Role::Peer => "host",
        Role::Balancer => "balancer",
        Role::Controller => "controller",
    }
}

fn files(authority: &Authority, at: &Path, role: &str) -> Files {
    authority.member(at, role, &[&format!("vireo://{NAME}/{role}")]).unwrap()
}

fn member(authority: &Authority, at: &Path, role: Role) -> Security {
    security(&files(authority, at, shown(role)), &[role])
}

#[test]
fn much_goes_both_ways_at_once_and_arrives_whole() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let tls = [Role::Host, Role::Balancer].map(|role| member(&authority, at.path(), role));
    for [connects, takes] in [tls, [Security::default(), Security::default()]] {
        let mut ends = ends(&connects, &takes);
        // More than the sockets buffer: each side waits for the other to read.
        let messages: Vec<Vec<u8>> = (1..=12_u8).map(|n| vec![n; 80_000 * usize::from(n)]).collect();
        for end in &mut ends {
            messages.iter().for_each(|message| assert!(end.put(message) > message.len()));
        }
        let (mut came, until) = ([Vec::new(), Vec::new()], Instant::now() + WITHIN);
        while came.iter().any(|came| came.len() < messages.len()) {
            assert!(Instant::now() < until, "{:?}", came.map(|came| came.len()));
            for (end, came) in ends.iter_mut().zip(&mut came) {
                came.extend(exchange(end).unwrap());
            }
        }
        assert!(came.iter().all(|came| *came == messages));
        assert_eq!(ends.each_ref().map(Stream::role), [Some(Role::Balancer), Some(Role::Host)]);
        let until = Instant::now() + WITHIN;
        while ends.iter().any(|end| end.unsent() > 0 || end.has_unwritten()) {
            assert!(Instant::now() < until);
            ends.iter_mut().for_each(|end| assert!(exchange(end).unwrap().is_empty()));
        }
    }
}

#[test]
fn foreign_authority_is_refused_at_both_ends() {
    let (at, elsewhere) = (directory(), directory());
    let (ours, others) = (Authority::new().unwrap(), Authority::new().unwrap());
    let good = member(&ours, at.path(), Role::Balancer);
    let stranger = member(&others, elsewhere.path(), Role::Host);
    // The connecting side checks the other certificate first, and sends an alert.
    let [connecting, taking] = refusals(&stranger, &good);
    assert!(connecting.to_string().contains("none of cluster.tls.authorities"), "{connecting}");
    assert!(taking.to_string().contains("does not take this member's certificate"), "{taking}");
    // A member that trusts the other authority is refused itself.
    let authorities = files(&ours, at.path(), "host").authorities;
    let careless = Files { authorities, ..files(&others, elsewhere.path(), "host") };
    let [connecting, taking] = refusals(&security(&careless, &[Role::Host]), &good);
    assert!(taking.to_string().contains("none of cluster.tls.authorities"), "{taking}");
    assert!(connecting.to_string().contains("does not take this member's certificate"), "{connecting}");
    assert!(connecting.is_permanent() && taking.is_permanent());
}

/// All connections of the fabric: connecting and accepting role, and the expected roles of each.
type ConnectionRoles = ((Role, Role), (&'static [Role], &'static [Role]));
const CONNECTIONS: [ConnectionRoles; 4] = [
    ((Role::Host, Role::Controller), (&[Role::Controller], &[Role::Host, Role::Balancer])),
    ((Role::Balancer, Role::Controller), (&[Role::Controller], &[Role::Host, Role::Balancer])),
    ((Role::Host, Role::Balancer), (&[Role::Balancer], &[Role::Host])),
    ((Role::Peer, Role::Peer), (&[Role::Peer], &[Role::Peer])),
];

#[test]
fn each_pair_of_roles_takes_its_own_and_no_other() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let all = ["controller", "balancer", "host", "amf", "smf", "upf"];
    let has: Vec<(&str, Security)> =
        all.iter().map(|role| (*role, security(&files(&authority, at.path(), role), &[]))).collect();
    let of = |role: Role| has.iter().find(|(name, _)| *name == shown(role)).map(|(_, security)| security).unwrap();
    for ((connects, takes), expected) in CONNECTIONS {
        let mut ends = between((of(connects), connects), (of(takes), takes), expected);
        let until = Instant::now() + WITHIN;
        while ends.iter().any(|end| end.role().is_none()) {
            assert!(Instant::now() < until, "{connects:?} to {takes:?}");
            ends.iter_mut().for_each(|end| drop(exchange(end).unwrap()));
        }
        for (name, thief) in &has {
            // Connects with another certificate, with any greeting.
            if *name != shown(connects) {
                let [connecting, taking] = ended(between((thief, connects), (of(takes), takes), expected));
                let refused = format!("the certificate of the peer is for {name} in cluster {NAME}");
                let is_other = expected.1.iter().any(|role| shown(*role) == *name);
                match is_other {
                    // Its certificate is one of the expected ones, but it greets with another role.
                    true => assert!(matches!(taking, FrameError::Greeting(GreetingError::Certificate(_))), "{taking}"),
                    false => {
                        assert!(taking.to_string().contains(&refused), "{name} as {connects:?}: {taking}");
                        let alert = connecting.to_string();
                        assert!(
                            alert.contains("does not take this member's certificate (CertificateUnknown)"),
                            "{alert}"
                        );
                    }
                }
            }
            // Accepts connections with another certificate.
            if *name != shown(takes) {
                let [connecting, taking] = ended(between((of(connects), connects), (thief, takes), expected));
                let refused = format!("the certificate of the peer is for {name} in cluster {NAME}");
                assert!(connecting.to_string().contains(&refused), "{name} as {takes:?}: {connecting}");
                assert!(taking.to_string().contains("does not take this member's certificate"), "{taking}");
            }
        }
    }
}

#[test]
fn tls_mismatch_error_names_remedy() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let (plain, tls) = (Security::default(), member(&authority, at.path(), Role::Balancer));
    for [with, without] in [refusals(&tls, &plain), {
        let [plain, tls] = refusals(&plain, &tls);
        [tls, plain]
    }] {
        assert!(matches!(with, FrameError::Insecure(TlsPeerError::Plain)), "{with}");
        assert!(with.to_string().contains("set cluster.tls there too"), "{with}");
        assert!(matches!(without, FrameError::Greeting(GreetingError::Tls)), "{without}");
        assert!(without.to_string().contains("set cluster.tls here"), "{without}");
    }
}

#[test]
fn something_else_ends_it() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let tls = member(&authority, at.path(), Role::Balancer);
    for security in [tls, Security::default()] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut end = Stream::accepted(socket, &security, Role::Balancer, &[Role::Host]).unwrap();
        std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\nHost: me\r\n\r\n").unwrap();
        let until = Instant::now() + WITHIN;
        let error = loop {
            assert!(Instant::now() < until);
            match exchange(&mut end) {
                Ok(came) => assert!(came.is_empty()),
                Err(error) => break error,
            }
        };
        assert!(error.is_permanent(), "{error}");
    }
}

#[test]
fn strangers_of_largest_address_make_room() {
    let (listener, plain) = (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), Security::default());
    let accept = |from: u8| {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, from), 0)).into()).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let accepted = Stream::accepted(listener.accept().unwrap().0, &plain, Role::Balancer, &[Role::Host]);
        (socket, accepted.unwrap())
    };
    let mut ends: Vec<_> = [2, 3, 3, 4, 3].map(accept).into();
    let greeting = Greeting::new(Role::Host).encode();
    ends[1].0.send(&greeting).unwrap();
    let until = Instant::now() + WITHIN;
    while ends[1].1.role().is_none() {
        assert!(Instant::now() < until, "no greeting");
        assert!(exchange(&mut ends[1].1).unwrap().is_empty());
    }
    let mut streams: Vec<_> = ends.iter().map(|(_, stream)| stream).enumerate().collect();
    for displaced in [2, 0, 3, 4] {
        assert_eq!(to_displace(streams.iter().copied()), Some(displaced));
        streams.retain(|(n, _)| *n != displaced);
    }
    assert_eq!(to_displace(streams.iter().copied()), None, "a member");
}
