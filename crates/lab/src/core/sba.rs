//! SBA mode of the lab: AMF, SMF and UPF as processes in the core's namespace.
//!
//! Optionally several AMFs run behind a balancer.

use super::Core;
use crate::Lab;
use crate::fabric::FABRIC_PORT;
use crate::files::{CONFIG, api};
use crate::options::CoreOptions;
use crate::process::LAST_WORDS;
use crate::process::{self, Process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vireo_config::Failure;
use vireo_fabric::identity::CertificateRole;
use vireo_ops::api::{Counts, Status};
use vireo_ops::sbi::Encoding;
use vireo_pki::{Authority, Files, NAME};

/// SBA process besides the AMF, which is the core's own process.
#[derive(Debug)]
pub(super) struct SbaProcess {
    role: &'static str,
    process: Process,
    api: String,
    /// Whether it was killed without a successor.
    killed: bool,
}

/// Roles of SMF and UPF with their API addresses. The UPF starts first, so that the SMF finds it.
const ROLES: [(&str, &str); 2] = [(UPF, "127.0.0.1:9092"), (SMF, "127.0.0.1:9091")];
const AMF: &str = "amf";
const SMF: &str = "smf";
const UPF: &str = "upf";

fn amf_host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 20 + number)
}

/// Returns the SBI address of one of several AMFs.
fn amf(number: u8) -> String {
    format!("{}:7777", amf_host(number))
}

/// Returns the configuration tables for several AMFs.
pub(crate) fn tables(amfs: u8) -> String {
    let all: Vec<String> = (0..amfs).map(amf).collect();
    // Many unoptimised processes are slow; slowness must not count as death.
    let misses = if cfg!(debug_assertions) { "misses = 20\n" } else { "" };
    format!("[cluster]\nbalancer = \"127.0.0.1:{FABRIC_PORT}\"\nhosts = {amfs}\n{misses}\n[sbi]\namf = {all:?}\n")
}

/// Directory of certificates and keys of TLS connections.
const CERTIFICATES: &str = "/tmp";

/// Creates a certificate authority and certificates of AMF and SMF.
pub(crate) fn certify() -> Result<(), Failure> {
    let authority = Authority::new()?;
    std::fs::write(Files::new(Path::new(CERTIFICATES), AMF).authorities, authority.certificate())?;
    for role in [CertificateRole::Amf, CertificateRole::Smf] {
        authority.member(Path::new(CERTIFICATES), role.name(), &[&role.uri(NAME)])?;
    }
    Ok(())
}

/// Returns the environment of a process, which overrides keys of its configuration file.
pub(super) fn environment(options: &CoreOptions, role: &str) -> Vec<(&'static str, OsString)> {
    let mut all = match options.sbi.encoding {
        Encoding::Json => Vec::new(),
        Encoding::Grpc => vec![("VIREO_SBI__ENCODING", "grpc".into())],
    };
    if options.sbi.secured && [AMF, SMF].contains(&role) {
        let Files { certificate, key, authorities } = Files::new(Path::new(CERTIFICATES), role);
        all.extend([
            ("VIREO_SBI__TLS__CERTIFICATE", certificate.into_os_string()),
            ("VIREO_SBI__TLS__KEY", key.into_os_string()),
            ("VIREO_SBI__TLS__AUTHORITIES", authorities.into_os_string()),
            ("VIREO_SBI__TLS__NAME", NAME.into()),
        ]);
    }
    all
}

impl SbaProcess {
    /// Starts the processes besides the AMF.
    pub(super) fn start_all(lab: &Lab, options: &CoreOptions, log: &File) -> Result<Vec<Self>, Failure> {
        ROLES.into_iter().map(|role| SbaProcess::start(lab, options, role, log)).collect()
    }

    fn start(lab: &Lab, options: &CoreOptions, (role, api): (&'static str, &str), log: &File) -> Result<Self, Failure> {
        let mut command = Process::this_program();
        command.args([role, "--config", CONFIG]);
        if let Some(database) = options.database_of_upf.as_ref().filter(|_| role == UPF) {
            command.env("VIREO_STATE__DATABASE", database);
        }
        SbaProcess::start_as(lab, options, role, api, command, log)
    }

    /// Starts one of several AMFs.
    pub(super) fn start_amf(lab: &Lab, options: &CoreOptions, number: u8, log: &File) -> Result<Self, Failure> {
        let mut command = Process::this_program();
        command.args([AMF, "--join", "--config", CONFIG]);
        command.env("VIREO_SBI__LISTEN", amf(number)).env("VIREO_CLUSTER__LISTEN", format!("{}:0", amf_host(number)));
        SbaProcess::start_as(lab, options, AMF, &format!("{}:9090", amf_host(number)), command, log)
    }

    fn start_as(
        lab: &Lab,
        options: &CoreOptions,
        role: &'static str,
        api: &str,
        mut command: Command,
        log: &File,
    ) -> Result<Self, Failure> {
        command.env("VIREO_API__LISTEN", api).envs(environment(options, role));
        let output = log.try_clone()?;
        let start = || Process::start(role, &lab.core, &mut command, Some(output));
        let process = process::on_processors(&options.processors, start)??;
        Ok(SbaProcess { role, process, api: api.to_owned(), killed: false })
    }

    /// Returns the status of the process.
    fn status(&self) -> Result<Status, Failure> {
        Ok(serde_json::from_str(&api(&format!("http://{}", self.api))?.fetch("/status?limit=0")?)?)
    }

    /// Returns an error if the process has ended unexpectedly.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match self.process.exit_status()?.filter(|_| !self.killed) {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("ended early ({status})"))),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        Failure(format!("the {} {what}; its last words:\n{}", self.role, self.process.last_words(LAST_WORDS)))
    }

    /// Stops the process with SIGTERM.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        if self.killed {
            return Ok(());
        }
        let status = self.process.terminate()?;
        if status.success() { Ok(()) } else { Err(self.failure(&format!("did not end in good order ({status})"))) }
    }
}

impl Core {
    /// Returns true if all SBA processes answer and the SMF is associated with its UPF.
    pub(super) fn is_sba_ready(&self) -> bool {
        self.sba_processes
            .iter()
            .all(|process| process.status().is_ok_and(|status| status.upfs.iter().all(|upf| upf.associated)))
    }

    /// Returns the status of the user plane in SBA mode.
    pub(super) fn sba_user_plane(&self) -> Option<Result<Status, Failure>> {
        self.sba_processes.iter().find(|process| process.role == UPF).map(SbaProcess::status)
    }

    /// Returns the number of sessions at the SMF.
    pub(crate) fn sessions_at_smf(&self) -> Result<usize, Failure> {
        let smf = self.sba_processes.iter().find(|process| process.role == SMF);
        let smf = smf.ok_or_else(|| Failure("the core is one process: it has no SMF of its own".into()))?;
        Ok(smf.status()?.counts.sessions)
    }

    /// Returns the database operations of the running processes, by transaction and operation. Keys
    /// of AMF and UPF have the name as prefix.
    pub fn state_operations(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let mut all = BTreeMap::new();
        if self.sba_processes.is_empty() {
            return Ok(all);
        }
        for url in self.apis() {
            for (name, count) in state_operations(&api(&url)?.fetch("/metrics")?) {
                *all.entry(name).or_default() += count;
            }
        }
        Ok(all)
    }

    /// Returns the API URLs of the running processes.
    fn apis(&self) -> impl Iterator<Item = String> {
        let others = self.sba_processes.iter().filter(|process| !process.killed);
        std::iter::once(self.url().to_owned()).chain(others.map(|process| format!("http://{}", process.api)))
    }

    /// Returns the time that the running processes waited for their database, summed over all
    /// operations. Operations sent together count individually.
    pub fn state_time(&self) -> Result<Duration, Failure> {
        self.apis().map(|url| Ok(state_time(&api(&url)?.fetch("/metrics")?))).sum()
    }

    /// Kills a process and restarts it at once.
    pub fn kill_sba_process(&mut self, lab: &Lab, role: &str) -> Result<(), Failure> {
        let process = self.sba_processes.iter_mut().find(|process| process.role == role);
        let process = process.ok_or_else(|| Failure(format!("the core has no {role} of its own")))?;
        // The killed process is reaped before its successor uses the same addresses.
        process.process.kill()?;
        *process = SbaProcess::start(lab, &self.options, (process.role, &process.api.clone()), &self.log)?;
        Ok(())
    }

    /// Starts the AMFs, if several are configured.
    pub(super) fn start_amfs(&mut self, lab: &Lab) -> Result<(), Failure> {
        for number in 0..self.options.amfs {
            self.sba_processes.push(SbaProcess::start_amf(lab, &self.options, number, &self.log)?);
        }
        Ok(())
    }

    /// Returns the counts of each of several AMFs, zero for killed ones.
    pub(super) fn counts_of_amfs(&self) -> Result<Vec<Counts>, Failure> {
        let amfs = self.sba_processes.iter().filter(|process| process.role == AMF);
        amfs.map(|amf| if amf.killed { Ok(Counts::default()) } else { Ok(amf.status()?.counts) }).collect()
    }

    /// Kills the one of several AMFs with the most UEs. The other AMFs take over these UEs.
    pub fn kill_amf(&mut self) -> Result<(), Failure> {
        let counts = self.counts_of_amfs()?;
        let most = counts.iter().enumerate().max_by_key(|(_, counts)| counts.ues).map(|(number, _)| number);
        let mut amfs = self.sba_processes.iter_mut().filter(|process| process.role == AMF);
        let amf = most.and_then(|number| amfs.nth(number)).ok_or_else(|| Failure("there is one AMF alone".into()))?;
        amf.process.kill()?;
        amf.killed = true;
        Ok(())
    }

    /// Stops the AMFs with SIGTERM.
    pub(super) fn stop_amfs(&mut self) -> Result<(), Failure> {
        let (amfs, others) = std::mem::take(&mut self.sba_processes).into_iter().partition(|f| f.role == AMF);
        self.sba_processes = others;
        let amfs: Vec<SbaProcess> = amfs;
        amfs.into_iter().try_for_each(SbaProcess::stop)
    }

    /// Returns the SBA processes with their roles.
    pub fn sba_processes(&self) -> Vec<(&'static str, &Process)> {
        let others = self.sba_processes.iter().map(|process| (process.role, &process.process));
        let first = if self.options.amfs > 0 { "balancer" } else { AMF };
        std::iter::once((first, &self.process)).chain(others).collect()
    }

    /// Returns the CPU time of the processes besides the AMF.
    pub(super) fn cpu_of_sba_processes(&self) -> Result<Duration, Failure> {
        let mut sum = Duration::ZERO;
        for process in self.sba_processes.iter().filter(|process| !process.killed) {
            sum += process.process.cpu()?;
        }
        Ok(sum)
    }
}

/// Returns the operation counts in a Prometheus text as `TRANSACTION.OPERATION`. Counts of other
/// functions than the SMF have keys `FUNCTION.TRANSACTION.OPERATION`.
fn state_operations(text: &str) -> BTreeMap<String, u64> {
    let one = |line: &str| {
        let (labels, value) = line.strip_prefix("vireo_database_operations_total{")?.split_once("} ")?;
        let label = |name: &str| labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix('='));
        let (transaction, operation) = (label("transaction")?.trim_matches('"'), label("operation")?.trim_matches('"'));
        let value = value.trim().parse().ok().filter(|value| *value > 0)?;
        let nf = match label("function")?.trim_matches('"') {
            "smf" => String::new(),
            other => format!("{other}."),
        };
        Some((format!("{nf}{}.{operation}", transaction.replace('_', "-")), value))
    };
    text.lines().filter_map(one).collect()
}

/// Returns the time of all operations in a Prometheus text.
fn state_time(text: &str) -> Duration {
    let of = |line: &str| {
        let (_, value) = line.strip_prefix("vireo_database_operation_seconds_total{")?.split_once("} ")?;
        value.trim().parse::<f64>().ok()
    };
    Duration::from_secs_f64(text.lines().filter_map(of).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_time_sums_operations() {
        let text = "vireo_database_operation_seconds_total{function=\"smf\",operation=\"read\"} 0.25\n\
                    vireo_database_operations_total{function=\"smf\",operation=\"read\"} 100\n\
                    vireo_database_operation_seconds_total{function=\"smf\",operation=\"write\"} 1.5\n";
        assert_eq!(state_time(text), Duration::from_millis(1750));
    }

    #[test]
    fn operations_are_read() {
        let text = "vireo_database_operations_total{function=\"smf\",transaction=\"n1n2_transfer\",operation=\"read\"} 7\n\
                    vireo_database_operations_total{function=\"upf\",transaction=\"other\",operation=\"write\"} 2\n\
                    vireo_database_operations_total{function=\"smf\",transaction=\"other\",operation=\"write\"} 0\n";
        let expected = [("n1n2-transfer.read".into(), 7), ("upf.other.write".into(), 2)];
        assert_eq!(state_operations(text), BTreeMap::from(expected));
    }
}
