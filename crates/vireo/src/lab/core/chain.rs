//! The core as a service-based chain: AMF, SMF and UPF, each a process of its own in the core's namespace.

use super::{CONFIG, Core, CoreOptions, LAST_WORDS};
use crate::cli::Failure;
use crate::lab::Lab;
use crate::lab::process::{self, Process};
use crate::status;
use std::collections::BTreeMap;
use std::fs::File;
use vireo_node::api::Status;

/// A function besides the AMF, which is the core's own process.
#[derive(Debug)]
pub(super) struct Function {
    role: &'static str,
    process: Process,
    api: &'static str,
}

/// SMF and UPF; the UPF first, so that the SMF finds it.
const ROLES: [(&str, &str); 2] = [("upf", "127.0.0.1:9092"), ("smf", "127.0.0.1:9091")];

impl Function {
    /// Starts those besides the AMF.
    pub(super) fn start_all(lab: &Lab, options: &CoreOptions, log: &File) -> Result<Vec<Self>, Failure> {
        ROLES.into_iter().map(|role| Function::start(lab, options, role, log)).collect()
    }

    fn start(
        lab: &Lab,
        options: &CoreOptions,
        (role, api): (&'static str, &'static str),
        log: &File,
    ) -> Result<Self, Failure> {
        let mut command = Process::this_program();
        command.args([role, "--config", CONFIG]).env("VIREO_API__LISTEN", api);
        let output = log.try_clone()?;
        let start = || Process::start(role, &lab.core, &mut command, Some(output));
        Ok(Function { role, process: process::on_processors(&options.processors, start)??, api })
    }

    /// What it says of itself.
    fn status(&self) -> Result<Status, Failure> {
        Ok(serde_json::from_str(&status::fetch(&format!("http://{}", self.api), "/status?limit=0")?)?)
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("ended early ({status})"))),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        Failure(format!("the {} {what}; its last words:\n{}", self.role, self.process.last_words(LAST_WORDS)))
    }

    /// Ends it in good order.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let status = self.process.terminate()?;
        if status.success() { Ok(()) } else { Err(self.failure(&format!("did not end in good order ({status})"))) }
    }
}

impl Core {
    /// Whether all functions of a chain answer, and the SMF has its UPF.
    pub(super) fn is_chain_ready(&self) -> bool {
        self.functions
            .iter()
            .all(|function| function.status().is_ok_and(|status| status.upfs.iter().all(|upf| upf.associated)))
    }

    /// What the user plane of a chain says of itself.
    pub(super) fn user_plane_of_chain(&self) -> Option<Result<Status, Failure>> {
        self.functions.iter().find(|function| function.role == "upf").map(Function::status)
    }

    /// Sessions that the SMF of a chain has.
    pub(crate) fn sessions_at_smf(&self) -> Result<usize, Failure> {
        let smf = self.functions.iter().find(|function| function.role == "smf");
        let smf = smf.ok_or_else(|| Failure("the core is one process: it has no SMF of its own".into()))?;
        Ok(smf.status()?.counts.sessions)
    }

    /// What the SMF of a chain that runs now has asked its database, by transaction and operation.
    pub(crate) fn state_operations(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let Some(smf) = self.functions.iter().find(|function| function.role == "smf") else {
            return Ok(BTreeMap::new());
        };
        Ok(state_operations(&status::fetch(&format!("http://{}", smf.api), "/metrics")?))
    }

    /// Kills a function of a chain, and starts it again at once.
    pub(crate) fn kill_function(&mut self, lab: &Lab, role: &str) -> Result<(), Failure> {
        let function = self.functions.iter_mut().find(|function| function.role == role);
        let function = function.ok_or_else(|| Failure(format!("the core has no {role} of its own")))?;
        // It is dead and reaped before another one has its addresses.
        function.process.kill()?;
        *function = Function::start(lab, &self.options, (function.role, function.api), &self.log)?;
        Ok(())
    }

    /// The functions of a chain, and the processes that these are.
    pub(crate) fn functions(&self) -> Vec<(&'static str, &Process)> {
        let others = self.functions.iter().map(|function| (function.role, &function.process));
        std::iter::once(("amf", &self.process)).chain(others).collect()
    }

    /// CPU time of its functions besides the AMF.
    pub(super) fn cpu_of_functions(&self) -> Result<std::time::Duration, Failure> {
        let mut sum = std::time::Duration::ZERO;
        for function in &self.functions {
            sum += function.process.cpu()?;
        }
        Ok(sum)
    }
}

/// The operations of a text in Prometheus' format that have been asked for, as `TRANSACTION.OPERATION`.
fn state_operations(text: &str) -> BTreeMap<String, u64> {
    let one = |line: &str| {
        let (labels, value) = line.strip_prefix("vireo_state_operations_total{")?.split_once("} ")?;
        let label = |name: &str| labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix('='));
        let (transaction, operation) = (label("transaction")?.trim_matches('"'), label("operation")?.trim_matches('"'));
        let value = value.trim().parse().ok().filter(|value| *value > 0)?;
        Some((format!("{transaction}.{operation}"), value))
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read() {
        let text = "vireo_state_operations_total{function=\"smf\",transaction=\"n1n2-transfer\",operation=\"read\"} 7\n\
                    vireo_state_operations_total{function=\"smf\",transaction=\"other\",operation=\"write\"} 0\n";
        assert_eq!(state_operations(text), BTreeMap::from([("n1n2-transfer.read".into(), 7)]));
    }
}
