//! Two ends of a connection, with TLS and without.

use super::super::authority::{Authority, Files, NAME};
use super::super::frame::decode;
use super::super::{Insecure, TlsConfig};
use super::*;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(10);

fn security(files: &Files) -> Security {
    let config = TlsConfig {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        authorities: files.authorities.clone(),
        name: NAME.into(),
    };
    Security::load(Some(&config)).unwrap()
}

/// The end that connects and the one that takes it.
fn ends(connects: &Security, takes: &Security) -> [Stream; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = Stream::connect(address, connects, Role::Host, &[Role::Balancer]).unwrap();
    let (socket, _) = listener.accept().unwrap();
    [connecting, Stream::accepted(socket, takes, Role::Balancer, &[Role::Host]).unwrap()]
}

/// Sends and reads at an end, a piece; the messages that came.
fn turn(end: &mut Stream) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut came = Vec::new();
    let read = end.fill();
    while let Some(frame) = end.frame()? {
        came.push(decode::<Vec<u8>>(frame)?);
    }
    read?;
    end.flush()?;
    Ok(came)
}

/// What each end says in the end of the other, who does not talk to it.
fn refusals(connects: &Security, takes: &Security) -> [FrameError; 2] {
    let mut ends = ends(connects, takes);
    let (mut said, until) = ([None, None], Instant::now() + WITHIN);
    while said.iter().any(Option::is_none) {
        assert!(Instant::now() < until, "{said:?}");
        for (end, said) in ends.iter_mut().zip(&mut said).filter(|(_, said)| said.is_none()) {
            match turn(end) {
                Ok(came) => assert_eq!((came.len(), end.role()), (0, None), "nothing is heard of a stranger"),
                Err(error) => *said = Some(error),
            }
        }
    }
    said.map(Option::unwrap)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn member(authority: &Authority, at: &Path, member: &str, name: &str) -> Security {
    security(&authority.member(at, member, name).unwrap())
}

#[test]
fn much_goes_both_ways_at_once_and_arrives_whole() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let tls = [member(&authority, at.path(), "one", NAME), member(&authority, at.path(), "two", NAME)];
    for [connects, takes] in [tls, [Security::default(), Security::default()]] {
        let mut ends = ends(&connects, &takes);
        // More than the sockets and what is between them take: either waits for the other to read.
        let messages: Vec<Vec<u8>> = (1..=12_u8).map(|n| vec![n; 80_000 * usize::from(n)]).collect();
        for end in &mut ends {
            messages.iter().for_each(|message| assert!(end.put(message) > message.len()));
        }
        let (mut came, until) = ([Vec::new(), Vec::new()], Instant::now() + WITHIN);
        while came.iter().any(|came| came.len() < messages.len()) {
            assert!(Instant::now() < until, "{:?}", came.map(|came| came.len()));
            for (end, came) in ends.iter_mut().zip(&mut came) {
                came.extend(turn(end).unwrap());
            }
        }
        assert!(came.iter().all(|came| *came == messages));
        assert_eq!(ends.each_ref().map(Stream::role), [Some(Role::Balancer), Some(Role::Host)]);
        let until = Instant::now() + WITHIN;
        while ends.iter().any(|end| end.unsent() > 0 || end.wants_room()) {
            assert!(Instant::now() < until);
            ends.iter_mut().for_each(|end| assert!(turn(end).unwrap().is_empty()));
        }
    }
}

#[test]
fn who_is_of_another_authority_or_of_another_name_is_refused_at_both_ends() {
    let (at, ours, others) = (directory(), Authority::new().unwrap(), Authority::new().unwrap());
    let good = member(&ours, at.path(), "good", NAME);
    let stranger = member(&others, at.path(), "stranger", NAME);
    // Who connects sees the other's certificate first, and tells it by an alert.
    let [connecting, taking] = refusals(&stranger, &good);
    assert!(connecting.to_string().contains("none of cluster.tls.authorities"), "{connecting}");
    assert!(taking.to_string().contains("does not take this member's certificate"), "{taking}");
    // One that takes the other's authority is not taken itself.
    let mut careless = others.member(at.path(), "careless", NAME).unwrap();
    careless.authorities = ours.member(at.path(), "other", NAME).unwrap().authorities;
    let [connecting, taking] = refusals(&security(&careless), &good);
    assert!(taking.to_string().contains("none of cluster.tls.authorities"), "{taking}");
    assert!(connecting.to_string().contains("does not take this member's certificate"), "{connecting}");

    // An authority that takes both, whose certificates say another name.
    let unnamed = member(&ours, at.path(), "unnamed", "smf.vireo.test");
    let [connecting, taking] = refusals(&unnamed, &good);
    assert!(taking.to_string().contains("for another name than cluster.tls.name"), "{taking}");
    assert!(connecting.to_string().contains("does not take this member's certificate"), "{connecting}");
    let [connecting, taking] = refusals(&good, &unnamed);
    assert!(connecting.to_string().contains("for another name than cluster.tls.name"), "{connecting}");
    assert!(taking.to_string().contains("does not take this member's certificate"), "{taking}");
    assert!(connecting.stays() && taking.stays());
}

#[test]
fn a_member_without_tls_and_one_with_it_say_what_helps() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let (plain, tls) = (Security::default(), member(&authority, at.path(), "one", NAME));
    for [with, without] in [refusals(&tls, &plain), {
        let [plain, tls] = refusals(&plain, &tls);
        [tls, plain]
    }] {
        assert!(matches!(with, FrameError::Insecure(Insecure::Plain)), "{with}");
        assert!(with.to_string().contains("set cluster.tls there too"), "{with}");
        assert!(matches!(without, FrameError::Greeting(GreetingError::Tls)), "{without}");
        assert!(without.to_string().contains("set cluster.tls here"), "{without}");
    }
}

#[test]
fn something_else_ends_it() {
    let (at, authority) = (directory(), Authority::new().unwrap());
    let tls = member(&authority, at.path(), "one", NAME);
    for security in [tls, Security::default()] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut end = Stream::accepted(socket, &security, Role::Balancer, &[Role::Host]).unwrap();
        std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\nHost: me\r\n\r\n").unwrap();
        let until = Instant::now() + WITHIN;
        let error = loop {
            assert!(Instant::now() < until);
            match turn(&mut end) {
                Ok(came) => assert!(came.is_empty()),
                Err(error) => break error,
            }
        };
        assert!(error.stays(), "{error}");
    }
}
