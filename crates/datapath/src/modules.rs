//! Modules of the user plane.
//!
//! A module is a part of one user plane with its own interfaces, N3 address, TEID range and
//! processors, for example one function of a network card. All modules share the tables. The module
//! of the receiving interface handles a packet, regardless of the module that assigned the
//! session's TEID.

use crate::os_setup::StartError;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use tracing::{info, warn};

/// Configuration of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// N3 address: in the F-TEIDs assigned for the module, and the source of its tunnels.
    pub n3: IpAddr,
    /// Ethernet interfaces on N3 and N6.
    pub interfaces: Vec<String>,
    /// Next hops of the uplink packets, at most one of each family, as
    /// [`crate::XdpConfig::next_hops`].
    pub next_hops: Vec<IpAddr>,
    /// Processors of the workers, one worker for each. Empty = one worker on any processor.
    pub cores: Vec<usize>,
}

impl Module {
    /// Returns the number of workers of a frame driver.
    pub(crate) fn workers(&self) -> usize {
        self.cores.len().max(1)
    }
}

/// Checks the modules: their addresses are N3 addresses, no interface is in two modules, and their
/// processors exist.
///
/// # Errors
///
/// Returns an error if one of these conditions does not hold.
pub(crate) fn check(modules: &[Module], n3: &[IpAddr]) -> Result<(), StartError> {
    for (number, module) in modules.iter().enumerate() {
        if !n3.contains(&module.n3) {
            return Err(StartError::N3NotLocal(module.n3));
        }
        let others = || modules[..number].iter();
        if let Some(name) = module.interfaces.iter().find(|name| others().any(|other| other.interfaces.contains(name)))
        {
            return Err(StartError::ModuleInterface(name.clone()));
        }
        let missing = |core: &&usize| !Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists();
        if let Some(core) = module.cores.iter().find(missing) {
            return Err(StartError::ModuleCore(*core));
        }
    }
    Ok(())
}

/// Moves the interrupts of the modules' interfaces to the processors of the modules. XDP programs
/// run on the processor of the interrupt.
pub(crate) fn move_interrupts(modules: &[Module]) {
    for module in modules.iter().filter(|module| !module.cores.is_empty()) {
        for name in &module.interfaces {
            match moved(Path::new("/sys/class/net"), Path::new("/proc/irq"), name, &module.cores) {
                0 => warn!(
                    "{name} has no interrupts that can be moved to the module's cores (a virtual link has none): its \
                     packets are handled where their sender runs, or as `ethtool` and /proc/irq say"
                ),
                count => info!("{count} interrupts of {name} go to the processors {:?}", module.cores),
            }
        }
    }
}

/// Moves the interrupts of an interface to the processors in turn. Returns the number of moved
/// interrupts.
fn moved(net: &Path, irqs: &Path, name: &str, cores: &[usize]) -> usize {
    let Ok(entries) = fs::read_dir(net.join(name).join("device/msi_irqs")) else { return 0 };
    let mut numbers: Vec<u32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let targets = numbers.iter().zip(cores.iter().cycle());
    targets
        .filter(|(irq, core)| fs::write(irqs.join(format!("{irq}/smp_affinity_list")), core.to_string()).is_ok())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_go_to_the_cores_in_turn() {
        let root = tempfile::tempdir().expect("a directory");
        let (net, irqs) = (root.path().join("net"), root.path().join("irq"));
        for irq in [40, 41, 42] {
            fs::create_dir_all(net.join("eth0/device/msi_irqs")).expect("made");
            fs::write(net.join(format!("eth0/device/msi_irqs/{irq}")), "msix").expect("made");
            fs::create_dir_all(irqs.join(irq.to_string())).expect("made");
        }
        assert_eq!(moved(&net, &irqs, "eth0", &[2, 3]), 3);
        let of = |irq: u32| fs::read_to_string(irqs.join(format!("{irq}/smp_affinity_list"))).expect("written");
        assert_eq!((of(40), of(41), of(42)), ("2".into(), "3".into(), "2".into()));
        assert_eq!(moved(&net, &irqs, "veth0", &[2]), 0);
    }

    #[test]
    fn what_modules_need_is_said() {
        let module = |n3: [u8; 4], name: &str, cores: &[usize]| Module {
            n3: n3.into(),
            interfaces: vec![name.to_owned()],
            next_hops: vec![],
            cores: cores.to_vec(),
        };
        let n3 = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let check = |modules: &[Module]| check(modules, &n3).err().map(|error| error.to_string());
        assert_eq!(check(&[module([192, 0, 2, 1], "a", &[0]), module([192, 0, 2, 2], "b", &[])]), None);
        let says = |modules: &[Module], text: &str| assert!(check(modules).is_some_and(|error| error.contains(text)));
        says(&[module([192, 0, 2, 1], "a", &[]), module([192, 0, 2, 2], "a", &[])], "interface a is in two modules");
        says(&[module([192, 0, 2, 3], "a", &[])], "192.0.2.3");
        says(&[module([192, 0, 2, 1], "a", &[9999])], "no processor 9999");
    }
}
