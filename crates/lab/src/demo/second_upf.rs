//! `--upfs 2`: a second UPF on the core's machine, as its own `vireo upf` process.
//!
//! Both UPFs have the same address pool. The kernel's route to each UE selects the UPF.

use crate::Lab;
use crate::addresses::N2;
use crate::files::create;
use crate::process::Process;
use std::path::Path;
use vireo_config::Failure;

/// Name of the UPF in the core's configuration.
pub(super) const NAME: &str = "second";
/// Further keys of the embedded UPF's `[upf]`.
pub(super) const OF_THE_FIRST: &str = "host-routes = true\n";
/// Sessions are counted individually, and a relocation transfers their quotas. No UE reaches a
/// quota.
pub(super) const SLICES: &str =
    "[slice.default]\nsnssai = { sst = 1 }\ncount-sessions = true\nsession-quota = 1000000000\n";
const N4: &str = "127.0.0.10:8805";
const N3: &str = "192.168.127.3";
const CONFIG: &str = "/tmp/upf2.toml";
const LOG: &str = "/tmp/upf2.log";
const LAST_WORDS: usize = 15;

/// Returns the configuration table of the UPF in the core.
pub(super) fn table() -> String {
    format!("[[external-upf]]\nname = {NAME:?}\nn4 = {N4:?}\n")
}

/// Starts the UPF. Its PFCP association with the core follows some time later.
pub(super) fn start(lab: &Lab, networks: &[&str]) -> Result<Process, Failure> {
    lab.core.ip(&format!("address add {N3}/24 dev {N2}"))?;
    let v6 = networks.get(1).map(|network| format!("ipv6-pool = {network:?}\n")).unwrap_or_default();
    let text = format!(
        "[upf]\nn4 = {N4:?}\nn3 = [{N3:?}]\ntun = \"vireo1\"\nhost-routes = true\n\n[dnn.internet]\nipv4-pool = {:?}\n{v6}\n\
         [api]\nlisten = \"127.0.0.1:9091\"\n",
        networks[0]
    );
    std::fs::write(CONFIG, text)?;
    let log = create(Path::new(LOG))?;
    let mut command = Process::this_program();
    command.args(["upf", "--config", CONFIG]);
    Ok(Process::start("upf", &lab.core, &mut command, Some(log))?)
}

/// Stops the UPF with SIGTERM.
pub(super) fn stop(mut upf: Process) -> Result<(), Failure> {
    let status = upf.terminate()?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure(format!("the second UPF ended with {status}; it says:\n{}", upf.last_words(LAST_WORDS)))),
    }
}
