use super::*;
use std::net::UdpSocket;
use std::time::Duration as Span;

/// An [`Endpoint`] over loopback: the association, a request and its response.
#[test]
fn shell_sends_and_receives_datagrams() {
    let upf = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    upf.set_read_timeout(Some(Span::from_secs(5))).expect("a timeout");
    let upf_address = upf.local_addr().expect("bound");
    let config = Config::new(upf_address.ip(), vec![upf_address], RecoveryTimeStamp(1), 0);
    let mut shell = Endpoint::bind("127.0.0.1:0".parse().expect("an address"), config, None).expect("loopback");
    let mut seen = Vec::new();
    let mut buffer = [0; 1_500];
    let mut poll = |shell: &mut Endpoint, events: usize| {
        let deadline = std::time::Instant::now() + Span::from_secs(5);
        while seen.len() < events && std::time::Instant::now() < deadline {
            shell.poll(Instant(1), &mut |event| seen.push(format!("{event:?}"))).expect("a good socket");
            std::thread::sleep(Span::from_millis(1));
        }
        seen.clone()
    };
    poll(&mut shell, 0);
    shell.poll(Instant(1), &mut |_| {}).expect("a good socket");
    let (length, from) = upf.recv_from(&mut buffer).expect("the setup request");
    assert_eq!(from, shell.address());
    let sequence = view(&buffer[..length]).sequence();
    upf.send_to(&setup_response(Cause::REQUEST_ACCEPTED, STARTED, sequence), from).expect("sent");
    assert!(poll(&mut shell, 1)[0].starts_with("UpfUp"));
    shell.submit(Instant(2), upf_address, Some(1), seid(1), &deletion(), &mut |_| {}).expect("sent");
    shell.flush();
    let (length, _) = upf.recv_from(&mut buffer).expect("the deletion request");
    let sequence = view(&buffer[..length]).sequence();
    upf.send_to(&deletion_response(Cause::REQUEST_ACCEPTED, 0, sequence), from).expect("sent");
    assert!(poll(&mut shell, 2)[1].starts_with("Deliver"));
    assert_eq!((shell.unsent(), shell.counters().outstanding), (0, 0));
}

/// Only an endpoint that others may take over from has a UPF recognise repeats.
#[test]
fn only_shared_endpoint_repeats_requests() {
    #[derive(Debug)]
    struct Upf(SocketAddr, std::sync::mpsc::SyncSender<bool>);

    impl InProcess for Upf {
        fn address(&self) -> SocketAddr {
            self.0
        }

        fn exchange(&self, _: SocketAddr, _: &[u8], may_repeat: bool, _: &mut dyn FnMut(Vec<u8>)) {
            self.1.send(may_repeat).expect("a test that receives");
        }
    }

    for shared in [false, true] {
        let upf: SocketAddr = "127.0.0.1:8805".parse().expect("an address");
        let (sender, received) = std::sync::mpsc::sync_channel(1);
        let config = Config { shared, ..Config::new(upf.ip(), vec![upf], RecoveryTimeStamp(1), 0) };
        let direct = Box::new(Upf(upf, sender));
        let mut shell =
            Endpoint::bind("127.0.0.1:0".parse().expect("an address"), config, Some(direct)).expect("loopback");
        shell.poll(Instant(1), &mut |_| {}).expect("a good socket");
        assert_eq!(received.try_recv(), Ok(shared), "with the setup request");
    }
}
