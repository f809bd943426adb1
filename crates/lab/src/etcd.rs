//! The etcd server of the lab, whose data last as long as the lab.
//!
//! It runs in its own namespace, so that its ports are free, with its data in the lab's own `/tmp`.

use crate::fabric::NodeRole;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use vireo_config::Failure;

/// Client address for controllers.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(NodeRole::Etcd.address()), 2379);
/// Peer address, unused: the server is alone.
const PEERS: &str = "http://127.0.0.1:2380";
const DATA: &str = "/tmp/etcd";

/// Returns an error unless etcd is installed.
pub(crate) fn check() -> Result<(), Failure> {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure(
            "this needs etcd, which is not installed: run `scripts/setup cluster`, or install the package etcd-server"
                .into(),
        )),
        Err(error) => Err(Failure(format!("this needs etcd, which does not start: {error}"))),
    }
}

/// Returns the command that starts etcd.
pub(crate) fn command() -> Command {
    let mut command = Command::new("etcd");
    let clients = format!("http://{ADDRESS}");
    command.args(["--name", "lab", "--data-dir", DATA, "--logger", "zap", "--log-level", "warn"]);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", PEERS, "--initial-advertise-peer-urls", PEERS]);
    command.args(["--initial-cluster", &format!("lab={PEERS}")]);
    command
}
