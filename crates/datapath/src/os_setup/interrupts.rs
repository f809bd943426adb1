//! Placement of the interrupts of network cards on processors.

use std::fs;
use std::path::Path;
use tracing::{info, warn};

/// Moves the interrupts of the interfaces of a module to its processors. XDP programs run on the
/// processor of the interrupt.
pub(crate) fn move_interrupts(interfaces: &[String], cores: &[usize]) {
    if !cores.is_empty() {
        for name in interfaces {
            match move_to_cores(Path::new("/sys/class/net"), Path::new("/proc/irq"), name, cores) {
                0 => warn!(
                    "{name} has no interrupts that can be moved to the module's cores (a virtual link has none): its \
                     packets are handled where their sender runs, or as `ethtool` and /proc/irq say"
                ),
                count => info!("{count} interrupts of {name} go to the processors {cores:?}"),
            }
        }
    }
}

/// Moves the interrupts of an interface to the processors in turn. Returns the number of moved
/// interrupts.
fn move_to_cores(net: &Path, irqs: &Path, name: &str, cores: &[usize]) -> usize {
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
        assert_eq!(move_to_cores(&net, &irqs, "eth0", &[2, 3]), 3);
        let of = |irq: u32| fs::read_to_string(irqs.join(format!("{irq}/smp_affinity_list"))).expect("written");
        assert_eq!((of(40), of(41), of(42)), ("2".into(), "3".into(), "2".into()));
        assert_eq!(move_to_cores(&net, &irqs, "veth0", &[2]), 0);
    }
}
