//! Tests of the frame loop, closed by the bare programs, in separate network namespaces.

use super::*;
use std::process::Command;
use std::time::{Duration, Instant};
use vireo_types::Teid;

fn in_namespace(test: impl FnOnce() + Send) {
    // SAFETY: takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    let inside = || {
        // SAFETY: takes no pointers; the thread is our own.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", io::Error::last_os_error());
        for line in [
            "link add n3 type veth peer name ran",
            "link add n6 type veth peer name dn",
            "link set n3 up",
            "link set n6 up",
            "link set ran up",
            "link set dn up",
        ] {
            assert!(Command::new("ip").args(line.split(' ')).status().expect("ip, of iproute2").success(), "ip {line}");
        }
        test();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(inside).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn ends() -> LinkPairs {
    let of = |name| Interface::find(name).expect("it is there");
    LinkPairs { n3: of("n3"), n6: of("n6"), ran: of("ran"), dn: of("dn") }
}

fn packets() -> Packets {
    let mut teids = Teids::with(0, Teid(0x101));
    for session in 1..50 {
        assert!(teids.add(session, Teid(0x101 + session * 0x103)));
    }
    Packets {
        length: 128,
        gnb: Ipv4Addr::new(192, 0, 2, 9),
        upf: Ipv4Addr::new(192, 0, 2, 1),
        server: Ipv4Addr::new(198, 51, 100, 7),
        ue: Ipv4Addr::new(10, 0, 0, 2),
        teids,
        qfi: 1,
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Frames circulate in both directions until they are stopped, and then none remains.
#[test]
fn frames_go_round_until_they_are_told_to_end() {
    in_namespace(|| {
        let ends = ends();
        let bare = FrameLoop::bare(&ends, packets()).expect("it loads");
        let mut load = FrameLoop::load(&ends, packets()).expect("it loads");
        load.run(7, 1000).expect("a map");
        load.inject(Direction::Uplink, 7, 3).expect("sent");
        load.inject(Direction::Downlink, 7, 5).expect("sent");
        let counted = || load.counted().expect("a map");
        until("frames go round", || counted().uplink > 30_000 && counted().downlink > 30_000);
        assert_eq!(bare.counted().expect("a map").uplink, 0, "the bare programs count nothing");
        load.run(0, 0).expect("a map");
        until("they end", || {
            let before = load.counted().expect("a map");
            std::thread::sleep(Duration::from_millis(10));
            before == load.counted().expect("a map")
        });
    });
}

/// All frames of a source arrive.
#[test]
fn frames_of_a_source_end_in_a_sink() {
    in_namespace(|| {
        let ends = ends();
        let sink = FrameLoop::sink(&ends, packets()).expect("it loads");
        let load = FrameLoop::load(&ends, packets()).expect("it loads");
        let mut sources = [Direction::Uplink, Direction::Downlink].map(|way| load.source(way, 1000).expect("sockets"));
        for n in 1..=20 {
            sources[n % 2].send(64).expect("sent");
            until("they arrive", || sink.counted().expect("a map").unrelated >= n as u64 * 64);
        }
        // The interfaces may send some IPv6 packets themselves.
        assert!(sink.counted().expect("a map").unrelated < 20 * 64 + 64);
    });
}

/// The packets of the programs are valid and belong to the selected sessions.
#[test]
fn packets_are_of_the_sessions_asked_for() {
    in_namespace(|| {
        let (ends, packets) = (ends(), packets());
        let mut load = FrameLoop::load(&ends, packets.clone()).expect("it loads");
        load.run(40, 16).expect("a map");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..400 {
            let out = run(&mut load, "from_n6", &load_frame(&packets, Direction::Uplink));
            let packet = vireo_wire::gtpu::Packet::parse(&out[14 + 28..]).expect("GTP-U");
            let index = packet.teid.index() - 1;
            assert!((40..56).contains(&index) && packet.payload.len() == 128, "{index}");
            assert_eq!(packet.teid, packets.teids.teid(index), "with its own generation, if one was heard");
            assert_eq!((packets::sum(&out[14..34]), packets::sum(&packet.payload[..20])), (0xffff, 0xffff));
            assert_eq!(&packet.payload[12..16], &(packets.ue.to_bits() + index).to_be_bytes());
            seen.insert(index);
            let out = run(&mut load, "from_n3", &load_frame(&packets, Direction::Downlink));
            assert_eq!((out.len(), packets::sum(&out[14..34])), (14 + 128, 0xffff));
            let to = u32::from_be_bytes([out[30], out[31], out[32], out[33]]) - packets.ue.to_bits();
            assert!((40..56).contains(&to), "{to}");
        }
        assert_eq!(seen.len(), 16, "every session has its turn");
        assert_eq!(load.counted().expect("a map").uplink, 400);
    });
}

/// Returns a frame that a user plane sends: a packet on N6, a tunnelled one on N3.
fn load_frame(packets: &Packets, direction: Direction) -> Vec<u8> {
    let inner = match direction {
        Direction::Uplink => packets::ipv4_header(packets.ue, packets.server, 128),
        Direction::Downlink => packets::ipv4_header(packets.server, packets.ue, 128),
    };
    let mut frame = ethernet([2; 6], [4; 6]).to_vec();
    if direction == Direction::Downlink {
        frame.extend(packets::tunnel(packets.upf, packets.gnb, Teid(5), 1, 128).expect("short"));
    }
    frame.extend(inner);
    frame.extend([0; 108]);
    frame
}

fn run(circuit: &mut FrameLoop, program: &str, frame: &[u8]) -> Vec<u8> {
    use aya::programs::{TestRun, TestRunOptions};
    const REDIRECT: u32 = 4;
    let mut out = vec![0; frame.len() + 256];
    let program: &mut Xdp = circuit.bpf.program_mut(program).expect("there").try_into().expect("XDP");
    let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
    let result = program.test_run(options).expect("it runs");
    assert_eq!(result.return_value, REDIRECT);
    out.truncate(result.data_size_out as usize);
    out
}
