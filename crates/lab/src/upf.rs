//! UPF of the lab: `vireo upf` as a process, with an associated control plane.

use crate::Interrupt;
use crate::files::create;
use crate::netns::Netns;
use crate::process::{self, Process};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_traffic::pfcp::{ControlPlane, PfcpError};

/// PFCP address of the UPF.
pub const N4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)), 8805);
const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const CONFIG: &str = "/tmp/upf.toml";
const LOG: &str = "/tmp/upf.log";
const START_WITHIN: Duration = Duration::from_secs(30);
const LAST_WORDS: usize = 15;

/// Running UPF.
#[derive(Debug)]
pub struct Upf {
    pub process: Process,
    /// Control plane whose association the UPF has accepted.
    pub plane: ControlPlane,
}

impl Upf {
    /// Starts the UPF in a namespace, which must also be that of the calling thread, on these
    /// processors. `[upf] n4` of the configuration must be [`N4`].
    pub fn start(netns: &Netns, processors: &[usize], config: &str, interrupt: &Interrupt) -> Result<Self, Failure> {
        std::fs::write(CONFIG, config)?;
        let log = create(Path::new(LOG))?;
        let mut command = Process::this_program();
        command.args(["upf", "--config", CONFIG]);
        let start = || Process::start("upf", netns, &mut command, Some(log));
        let mut process = process::on_processors(processors, start)??;
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if let Some(status) = process.exit_status()? {
                return Err(Failure(format!("the UPF ended ({status}); it says:\n{}", process.last_words(LAST_WORDS))));
            }
            interrupt.check()?;
            match ControlPlane::associate(CONTROL_PLANE, 0, N4) {
                Ok(plane) => return Ok(Upf { process, plane }),
                Err(PfcpError::Silent(_)) if Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stops the UPF with SIGTERM.
    pub fn stop(mut self) -> Result<(), Failure> {
        let status = self.process.terminate()?;
        if status.success() {
            return Ok(());
        }
        Err(Failure(format!("the UPF ended with {status}; it says:\n{}", self.process.last_words(LAST_WORDS))))
    }
}
