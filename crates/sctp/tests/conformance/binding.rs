//! Tests of binding: wildcard addresses, and the errors of refused configurations.

use crate::peer::{LIMIT, Peer, brisk, connect, run};
use crate::sys;
use std::net::{IpAddr, Ipv4Addr};
use vireo_sctp::{BindError, Config, Driver, Endpoint, bind};

/// Tests a server and a client on every address of a namespace, over both families.
fn every_address(driver: Driver) {
    sys::namespace();
    sys::ip(&["address add 10.77.0.1/32 dev lo".into(), "address add fd00::1/128 dev lo nodad".into()]);
    let config = brisk(Config { driver, ..Config::default() });
    let mut server =
        Peer::new(bind(&Config { port: 38412, listen: true, ..config.clone() }).expect("raw sockets need root"));
    server.echo = true;
    let mut client = Peer::new(bind(&Config { udp_local_port: 0, ..config }).expect("bind"));
    for (n, to) in ["10.77.0.1", "127.0.0.1", "fd00::1", "::1"].into_iter().enumerate() {
        let to: IpAddr = to.parse().expect("an address");
        let assoc = connect(&mut server, &mut client, to, 38412);
        client.endpoint.send(assoc, 1, 60, to.to_string().as_bytes()).expect("send");
        run(&mut [&mut server, &mut client], "an echo", LIMIT, |peers| peers[1].messages.len() > n);
        assert_eq!((client.messages[n].assoc, &client.messages[n].data[..]), (assoc, to.to_string().as_bytes()));
        assert_eq!(client.up[&assoc].0.ip(), to);
    }
}

#[test]
fn every_address_over_ip() {
    every_address(Driver::UserspaceIp);
}

#[test]
fn every_address_over_udp() {
    every_address(Driver::UserspaceUdp);
}

#[test]
#[ignore = "make test-kernel-sctp"]
fn every_address_by_the_kernel() {
    every_address(Driver::Kernel);
}

fn refused(config: &Config) -> BindError {
    match bind(config) {
        Err(error) => error,
        Ok(endpoint) => panic!("bound by {}", endpoint.driver()),
    }
}

fn at(last: u8) -> Config {
    Config { driver: Driver::UserspaceIp, addresses: vec![Ipv4Addr::new(127, 79, 0, last).into()], ..Config::default() }
}

/// Retries an action while a forked child of another test has not executed its program yet.
///
/// Until then the child has copies of the descriptors that are closed here.
fn soon<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let tried =
        std::iter::repeat_with(|| act().inspect_err(|_| std::thread::sleep(std::time::Duration::from_millis(20))));
    tried.take(100).find(Result::is_ok).expect("free again").expect("ok")
}

#[test]
fn port_is_free_after_endpoint_drop() {
    let config = Config { port: 38412, listen: true, ..at(1) };
    let first = bind(&config).expect("bind");
    let error = refused(&config);
    assert!(matches!(error, BindError::PortInUse { port: 38412, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "SCTP port 38412 of 127.79.0.1 is in use: stop the other process or choose another port"
    );
    drop(first);
    soon(|| bind(&config));
    let udp = Config { driver: Driver::UserspaceUdp, ..config };
    let _first = bind(&udp).expect("bind");
    let error = refused(&Config { port: 1, ..udp });
    assert!(matches!(error, BindError::UdpPortInUse { port: 9899, .. }), "{error}");
}

#[test]
fn bind_errors_name_cause() {
    let elsewhere = Config { addresses: vec![Ipv4Addr::new(192, 0, 2, 1).into()], ..at(1) };
    assert!(matches!(refused(&elsewhere), BindError::NoSuchAddress(_)));
    for (key, config) in [
        ("port", Config { listen: true, ..at(2) }),
        ("streams", Config { outbound_streams: 0, ..at(2) }),
        ("path_mtu", Config { path_mtu: 100, ..at(2) }),
        ("send_buffer", Config { send_buffer: 1, ..at(2) }),
        ("rto_max", Config { rto_max: std::time::Duration::ZERO, ..at(2) }),
        ("max_associations", Config { max_associations: 0, ..at(2) }),
    ] {
        let error = refused(&config);
        assert!(matches!(&error, BindError::Invalid { key: named, .. } if *named == key), "{error}");
    }
    if !std::path::Path::new("/proc/net/sctp").exists() {
        let kernel = Config { driver: Driver::Kernel, ..at(2) };
        assert!(matches!(refused(&kernel), BindError::NoKernelSctp(_)));
        let auto = bind(&Config { driver: Driver::Auto, ..at(2) }).expect("usrsctp needs root only");
        assert!(auto.driver().contains("this kernel has no SCTP"), "{}", auto.driver());
    }
}

#[test]
fn process_has_room_for_many_endpoints() {
    let endpoints: Vec<Box<dyn Endpoint>> =
        (0..60).map(|last| bind(&Config { port: 38412, listen: true, ..at(100 + last) }).expect("bind")).collect();
    assert_eq!(endpoints.len(), 60);
}
