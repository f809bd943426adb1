//! Clients in other processes, which can be killed abruptly.

use crate::peer::World;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use vireo_sctp::{Config, Driver, Event, bind};

/// A client that a test case kills.
pub(crate) trait Doomed {
    /// Lets the client run.
    fn poll(&mut self) {}
    /// Kills its process. (A kernel driver then still closes the association.)
    fn kill(self: Box<Self>);
    /// Simulates the failure of its machine.
    fn vanish(self: Box<Self>);
}

/// A process with one association.
pub(crate) struct Process {
    child: Child,
    driver: Driver,
    at: IpAddr,
}

impl Doomed for Process {
    fn kill(self: Box<Self>) {}

    fn vanish(self: Box<Self>) {
        if self.driver == Driver::Kernel {
            let length = if self.at.is_ipv4() { 32 } else { 128 };
            let address = format!("{}/{length}", self.at);
            let status = Command::new("ip").args(["address", "delete", &address, "dev", "lo"]).status();
            assert!(status.expect("ip").success(), "{address} could not be taken away");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const VARIABLE: &str = "VIREO_SCTP_DOOMED";

/// Starts a process that connects from the `n`th address and `port` of `world` to `to`, and stays.
pub(crate) fn spawn(world: &dyn World, n: u8, port: u16, to: SocketAddr) -> Process {
    let driver = match world.config().driver {
        Driver::UserspaceIp => "ip",
        Driver::UserspaceUdp => "udp",
        Driver::Kernel | Driver::Auto => "kernel",
    };
    let parameters = format!("{driver} {} {port} {to}", world.address(n));
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(["--exact", "doomed::process", "--ignored", "--nocapture"]);
    command.env(VARIABLE, parameters).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("a process");
    Process { child, driver: world.config().driver, at: world.address(n) }
}

/// The process that [`spawn`] starts, not a test.
#[test]
#[ignore = "only as a process of other tests"]
fn process() {
    let parameters = std::env::var(VARIABLE).expect("started by another test");
    let parts: Vec<&str> = parameters.split(' ').collect();
    let driver = match parts[0] {
        "ip" => Driver::UserspaceIp,
        "udp" => Driver::UserspaceUdp,
        _ => Driver::Kernel,
    };
    let addresses = vec![parts[1].parse().expect("an address")];
    let port = parts[2].parse().expect("a port");
    let mut endpoint = bind(&Config { driver, addresses, port, ..Config::default() }).expect("bind");
    endpoint.connect(parts[3].parse().expect("an address and port")).expect("connect");
    let mut down = false;
    while !down {
        endpoint.poll(None, &mut |event| down = matches!(event, Event::Down { .. })).expect("poll");
    }
}
