//! Start of missing hosts: the controller requests one at a time and waits until it has joined.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time within which a requested host must join before another is requested; doubled after each
/// failure.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_JOIN_TIMEOUT: Duration = Duration::from_secs(600);
/// Environment variable with the wanted number of hosts, for the started program.
const HOSTS: &str = "VIREO_HOSTS";

/// Launcher of hosts.
pub(super) trait HostLauncher: std::fmt::Debug {
    /// Starts one more host, for a total of `hosts`.
    fn start(&mut self, hosts: usize) -> io::Result<()>;
}

/// Launcher that runs a program: a host, or a client of an orchestrator.
#[derive(Debug)]
pub(super) struct ProgramLauncher {
    command: Vec<String>,
    /// Started processes that have not ended.
    running: Vec<Child>,
}

impl ProgramLauncher {
    pub(super) fn new(command: Vec<String>) -> Self {
        ProgramLauncher { command, running: Vec::new() }
    }

    /// Reaps ended processes.
    fn reap(&mut self) {
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                if !status.success() {
                    tracing::warn!(pid = child.id(), %status, "scaling.start failed");
                }
                false
            }
            Err(_) => false,
        });
    }
}

impl HostLauncher for ProgramLauncher {
    fn start(&mut self, hosts: usize) -> io::Result<()> {
        self.reap();
        let Some((program, arguments)) = self.command.split_first() else { return Ok(()) };
        let child = Command::new(program).args(arguments).env(HOSTS, hosts.to_string()).stdin(Stdio::null()).spawn()?;
        tracing::info!(pid = child.id(), hosts, "starting a missing host");
        self.running.push(child);
        Ok(())
    }
}

/// Requests missing hosts from a launcher.
#[derive(Debug)]
pub(super) struct HostProvisioner {
    launcher: Box<dyn HostLauncher>,
    /// Pending request: its deadline and the number of missing hosts at that time; `within`:
    /// timeout of the next one.
    pending: Option<(Instant, usize)>,
    within: Duration,
}

impl HostProvisioner {
    pub(super) fn new(launcher: Box<dyn HostLauncher>) -> Self {
        HostProvisioner { launcher, pending: None, within: JOIN_TIMEOUT }
    }

    /// Requests a host if some are missing: `all` hosts are wanted.
    pub(super) fn request_missing(&mut self, (all, missing): (usize, usize), now: Instant) {
        if let Some((deadline, before)) = self.pending {
            if missing >= before && now < deadline {
                return;
            }
            let joined = missing < before;
            self.within = if joined { JOIN_TIMEOUT } else { (self.within * 2).min(MAX_JOIN_TIMEOUT) };
            self.pending = None;
        }
        if missing == 0 {
            return;
        }
        if let Err(error) = self.launcher.start(all) {
            tracing::error!(%error, "host not started; check scaling.start");
        }
        self.pending = Some((now + self.within, missing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Default)]
    struct Fake(Arc<Mutex<Vec<usize>>>);

    impl HostLauncher for Fake {
        fn start(&mut self, hosts: usize) -> io::Result<()> {
            self.0.lock().unwrap().push(hosts);
            Ok(())
        }
    }

    #[test]
    fn hosts_are_requested_one_by_one_with_backoff() {
        let pending = Arc::new(Mutex::new(Vec::new()));
        let mut provisioner = HostProvisioner::new(Box::new(Fake(Arc::clone(&pending))));
        let begin = Instant::now();
        let mut at = |seconds: u64, counts: (usize, usize)| {
            provisioner.request_missing(counts, begin + Duration::from_secs(seconds));
            pending.lock().unwrap().len()
        };
        assert_eq!(at(0, (3, 0)), 0);
        assert_eq!((at(1, (3, 2)), at(2, (3, 2))), (1, 1), "the first has not joined yet");
        assert_eq!((at(3, (3, 1)), at(4, (3, 0))), (2, 2));
        assert_eq!(at(5, (4, 1)), 3);
        assert_eq!((at(24, (4, 1)), at(26, (4, 1))), (3, 4), "it has not come");
        assert_eq!((at(60, (4, 1)), at(67, (4, 1))), (4, 5), "nor has the next, which had twice the time");
        assert_eq!(pending.lock().unwrap()[..], [3, 3, 4, 4, 4]);
    }

    #[test]
    fn program_receives_number_of_hosts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        let script = format!("echo $VIREO_HOSTS > {}", file.display());
        let mut program = ProgramLauncher::new(vec!["sh".into(), "-c".into(), script]);
        program.start(7).unwrap();
        program.running.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
        assert_eq!(std::fs::read_to_string(file).unwrap().trim(), "7");
        program.reap();
        assert!(program.running.is_empty());
        let missing = ProgramLauncher::new(vec!["/nonexistent/vireo".into()]).start(1);
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
