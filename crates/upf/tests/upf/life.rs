use crate::world::*;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vireo_upf::{Fanout, FrameIo, FramesConfig, UpfConfig, UpfError, XdpConfig, XdpMode};
use vireo_wire::gtpu;

/// Set for the process that only runs a UPF, with address translation.
const CHILD: &str = "VIREO_TEST_UPF";

/// Drivers that [`CHILD`] may select instead.
const DRIVERS: [&str; 3] = ["xdp", "af-packet", "af-xdp"];

/// Enables XDP in generic mode, so that the other ends of the interfaces need no driver support.
fn on_xdp(config: UpfConfig) -> UpfConfig {
    let interfaces = vec!["n3".to_owned(), "n6".to_owned()];
    UpfConfig { xdp: Some(XdpConfig { interfaces, mode: XdpMode::Generic, ..XdpConfig::default() }), ..config }
}

/// Returns the configuration of a driver with programs in the kernel.
pub(crate) fn by(driver: &str) -> UpfConfig {
    let frames = |io| {
        let interfaces = vec!["n3".to_owned(), "n6".to_owned()];
        UpfConfig { frames: Some(FramesConfig { interfaces, io, ..FramesConfig::default() }), ..config() }
    };
    match driver {
        "xdp" => on_xdp(config()),
        "af-packet" => frames(FrameIo::AfPacket(Fanout::Hash)),
        _ => frames(FrameIo::AfXdp(XdpMode::Generic)),
    }
}

fn nat() -> UpfConfig {
    UpfConfig { nat: true, ..config() }
}

/// Not a test: the process that [`Killed`] runs in the UPF's namespace.
#[test]
#[ignore = "a process of other tests"]
fn upf_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let kind = std::env::var(CHILD).expect("text");
    let _upf = start(&if DRIVERS.contains(&&*kind) { by(&kind) } else { nat() }).expect("started");
    println!("\nready");
    loop {
        std::thread::park();
    }
}

/// A UPF in a separate process.
struct Killed(Child);

impl Killed {
    fn start(w: &World) -> Self {
        Killed::start_with(w, "nat")
    }

    fn start_with(w: &World, kind: &str) -> Self {
        let exe = std::env::current_exe().expect("this program");
        let mut child = Command::new("ip")
            .args(["netns", "exec", &w.name("upf")])
            .arg(exe)
            .args(["--exact", "life::upf_process", "--ignored", "--nocapture"])
            .env(CHILD, kind)
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        assert!(output.lines().map_while(Result::ok).any(|line| line == "ready"), "the process has started");
        Killed(child)
    }

    fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn address_translation_ends_with_upf() {
    let mut w = World::new();
    w.run("dn", "ip route del 10.45.0.0/16");
    let upf = w.start(nat()).expect("started");
    let (_, teid) = w.active_session();
    w.ping(teid, 1);
    let rules = w.run("upf", "nft list tables");
    assert!(rules.contains("table inet vireo"), "{rules}");
    upf.stop();
    assert_eq!(w.run("upf", "nft list tables"), "");
}

/// Uplink packets leave their tunnels in the XDP program and pass through the kernel's stack. The
/// sockets driver forwards the replies.
#[test]
fn address_translation_works_with_xdp() {
    let mut w = World::new();
    w.run("dn", "ip route del 10.45.0.0/16");
    w.run("upf", "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.n3.rp_filter=0");
    let upf = w.start(on_xdp(nat())).expect("started");
    let (_, teid) = w.active_session();
    let before = w.counters("upf", TUN)[0];
    (1..4).for_each(|n| w.ping(teid, n));
    assert_eq!(upf.stats().packets.uplink.packets, 3);
    assert_eq!(w.counters("upf", TUN)[0], before, "no packet was written to the TUN device by us");
    upf.stop();
    assert_eq!(w.run("upf", "nft list tables"), "");
}

#[test]
fn remains_of_killed_upf_are_replaced() {
    let mut w = World::new();
    let killed = Killed::start(&w);
    let (_, teid) = w.active_session();
    w.ping(teid, 1);
    killed.kill();
    assert!(!w.run("upf", "ip -o link").contains(TUN), "the device goes with its process");

    let upf = w.start(nat()).expect("started again");
    let (_, teid) = w.active_session();
    w.ping(teid, 2);
    let rules = w.run("upf", "nft list table inet vireo");
    assert_eq!(rules.matches("masquerade").count(), 2, "one for each family, not one for each start: {rules}");
    upf.stop();
    assert_eq!(w.run("upf", "nft list tables"), "");

    // a start without address translation also removes leftovers
    Killed::start(&w).kill();
    let upf = w.start(config()).expect("started");
    assert_eq!(w.run("upf", "nft list tables"), "");
    drop(upf);
}

#[test]
fn upf_killed_under_load_leaves_no_program() {
    DRIVERS.into_iter().for_each(killed_under_load);
}

fn killed_under_load(driver: &str) {
    let mut w = World::new();
    let killed = Killed::start_with(&w, driver);
    let (_, teid) = w.active_session();
    w.ping(teid, 1);
    let programs = |w: &World| w.run("upf", "ip link show").matches("xdp").count();
    assert!(programs(&w) >= 2 || driver == "af-packet", "{driver}: {}", w.run("upf", "ip link show"));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                w.tunnel_up(teid, &echo(UE, HOST, 2));
            }
        });
        // The process is killed while packets flow in both directions.
        (0..50).for_each(|_| drop(w.tunnel_down()));
        killed.kill();
        ended.store(true, Relaxed);
    });
    assert_eq!(programs(&w), 0, "{driver}: {}", w.run("upf", "ip link show"));
    // answers in flight, and ICMP errors of the kernel since
    w.gnb.set_read_timeout(Some(std::time::Duration::from_millis(100))).expect("set");
    while w.gnb.recv(&mut [0; 2048]).is_ok() {}
    w.gnb.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("set");
    // the kernel receives frames again
    let socket = w.inside("upf", || soon(|| UdpSocket::bind((UPF, gtpu::PORT))));
    socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("set");
    w.tunnel_up(teid, &echo(UE, HOST, 3));
    socket.recv(&mut [0; 2048]).unwrap_or_else(|error| panic!("{driver}: {error}"));
    drop(socket);
    let upf = w.start(by(driver)).expect("started again");
    let (_, teid) = w.active_session();
    w.ping(teid, 4);
    upf.stop();
    assert_eq!(programs(&w), 0);
}

/// Retries an action for up to 2 s. A forked child of another test holds copies of closed
/// descriptors until it runs its program.
fn soon<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let tried =
        std::iter::repeat_with(|| act().inspect_err(|_| std::thread::sleep(std::time::Duration::from_millis(20))));
    tried.take(100).find(Result::is_ok).expect("free again").expect("ok")
}

#[test]
fn failed_start_names_reason_and_cleans_up() {
    let w = World::new();
    let fails = |change: &dyn Fn(&mut UpfConfig)| {
        let mut config = config();
        change(&mut config);
        w.start(config).expect_err("must not start").to_string()
    };
    let elsewhere = Ipv4Addr::new(192, 0, 2, 77);
    let words = fails(&|c| c.n3 = vec![elsewhere.into()]);
    assert!(words.contains("192.0.2.77 is not an address of this machine"), "{words}");
    let words = fails(&|c| c.n4 = (elsewhere, 8805).into());
    assert!(words.contains("N4 address 192.0.2.77 is not an address of this machine"), "{words}");
    let words = fails(&|c| c.n4.set_ip(Ipv4Addr::UNSPECIFIED.into()));
    assert!(words.contains("one address of this machine"), "{words}");
    let words = fails(&|c| c.n3.clear());
    assert!(words.contains("no N3 address"), "{words}");
    let words = fails(&|c| c.tun = "n6".to_owned());
    assert!(words.contains("the interface n6 is in use"), "{words}");
    let words = fails(&|c| c.pools[0].ipv4 = Some((Ipv4Addr::new(10, 45, 0, 0), 31)));
    assert!(words.contains("10.45.0.0/31"), "{words}");
    let words = fails(&|c| {
        let mut other = c.pools[0].clone();
        (other.ipv4, other.ipv6) = (Some((Ipv4Addr::new(10, 45, 128, 0), 17)), None);
        c.pools.push(other);
    });
    assert!(words.contains("10.45.0.0/16 and 10.45.128.0/17 overlap"), "{words}");
    let words = fails(&|c| c.pools[0].ipv4 = Some((Ipv4Addr::new(198, 51, 100, 0), 24)));
    assert!(words.contains("198.51.100.0/24"), "{words}");

    let upf = w.start(config()).expect("nothing is left in the way");
    assert!(matches!(w.start(config()), Err(UpfError::N4InUse(_))));
    let words = fails(&|c| c.n4.set_port(8806));
    assert!(words.contains("UDP port 2152 of 192.0.2.1 is in use"), "{words}");
    drop(upf);
    let denied = || {
        let exe = std::env::current_exe().expect("this program");
        let output = Command::new("setpriv")
            .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"])
            .arg(exe)
            .args(["--exact", "life::upf_process", "--ignored", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("setpriv (package util-linux)");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // The kernel removes the device of the last process shortly after its exit.
    let mut words = w.inside("upf", denied);
    for _ in 0..50 {
        if !words.contains("TunInUse") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        words = w.inside("upf", denied);
    }
    assert!(words.contains("TunPermission"), "{words}");
}
