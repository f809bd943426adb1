//! Second UPF on the core's machine, as its own `vireo upf` process.
//!
//! Both UPFs have the same address pool. The kernel's route to each UE selects the UPF.

use crate::Lab;
use crate::addresses::{N2, has_ipv6};
use crate::files::create;
use crate::options::{CoreOptions, UE_NETWORKS};
use crate::process::Process;
use std::path::Path;
use vireo_config::Failure;

/// Names of both UPFs in the core's configuration: that of the core's process, and the second one.
pub const NAMES: [&str; 2] = ["embedded", "second"];
/// Further keys of the embedded UPF's `[upf]`.
const OF_THE_FIRST: &str = "host-routes = true\n";
/// Sessions are counted individually, and a relocation transfers their quotas. No UE reaches a
/// quota.
const SLICES: &str = "[slice.default]\nsnssai = { sst = 1 }\ncount-sessions = true\nsession-quota = 1000000000\n";
const N4: &str = "127.0.0.10:8805";
const N3: &str = "192.168.127.3";
const CONFIG: &str = "/tmp/upf2.toml";
const LOG: &str = "/tmp/upf2.log";
const LAST_WORDS: usize = 15;

/// Returns the options of a core with both UPFs.
pub fn core_options() -> CoreOptions {
    CoreOptions {
        upf: OF_THE_FIRST.into(),
        slices: SLICES.into(),
        tables: format!("[[external-upf]]\nname = {:?}\nn4 = {N4:?}\n", NAMES[1]),
        ..CoreOptions::default()
    }
}

/// Starts the UPF. Its PFCP association with the core follows some time later.
pub fn start(lab: &Lab) -> Result<Process, Failure> {
    // The address may exist from an earlier run.
    lab.core.ip(&format!("address replace {N3}/24 dev {N2}"))?;
    let [v4, v6] = UE_NETWORKS;
    let v6 = if has_ipv6() { format!("ipv6-pool = {v6:?}\n") } else { String::new() };
    let text = format!(
        "[upf]\nn4 = {N4:?}\nn3 = [{N3:?}]\ntun = \"vireo1\"\nhost-routes = true\n\n[dnn.internet]\nipv4-pool = {v4:?}\n{v6}\n\
         [api]\nlisten = \"127.0.0.1:9091\"\n"
    );
    std::fs::write(CONFIG, text)?;
    let log = create(Path::new(LOG))?;
    let mut command = Process::this_program();
    command.args(["upf", "--config", CONFIG]);
    Ok(Process::start("upf", &lab.core, &mut command, Some(log))?)
}

/// Stops the UPF with SIGTERM.
pub fn stop(mut upf: Process) -> Result<(), Failure> {
    let status = upf.terminate()?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure(format!("the second UPF ended with {status}; it says:\n{}", upf.last_words(LAST_WORDS)))),
    }
}
