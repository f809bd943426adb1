//! Machines of hosts: replicas go to other machines than their owner's.

use super::super::machine_label::MachineLabel;
use super::Controller;
use crate::placement::balance::HostId;
use crate::placement::balance::machines::MachineIndex;
use crate::placement::balance::ring::WeightedHost;
use std::collections::BTreeSet;

impl Controller {
    /// Stores the machine of a host. The next map puts replicas accordingly. Returns true if the
    /// host is known and its machine was not.
    pub fn set_machine(&mut self, host: HostId, machine: MachineLabel) -> bool {
        let Some(known) = self.hosts.get_mut(&host) else { return false };
        let is_new = known.machine.as_ref() != Some(&machine);
        known.machine = Some(machine);
        if is_new {
            self.settled = false;
        }
        is_new
    }

    /// Returns the machines of the hosts that have a label.
    pub fn machines(&self) -> Vec<(HostId, MachineLabel)> {
        self.hosts.iter().filter_map(|(id, host)| Some((*id, host.machine.clone()?))).collect()
    }

    /// Adopts the machines that the previous controller has stored.
    pub(super) fn adopt_machines(&mut self, machines: Vec<(HostId, MachineLabel)>) {
        for (host, machine) in machines {
            self.set_machine(host, machine);
        }
    }

    /// Returns the hosts of the next map with their weights and machines. A host that drains has no
    /// weight, a cordoned one accepts no bucket.
    pub(super) fn weighted_hosts(&self, hosts: impl Iterator<Item = HostId>, leaving: &[HostId]) -> Vec<WeightedHost> {
        let machine = |host: &HostId| self.hosts.get(host)?.machine.as_ref();
        let labels: BTreeSet<&MachineLabel> = self.hosts.keys().filter_map(machine).collect();
        let index = |host: &HostId| {
            let label = machine(host)?;
            // There are fewer labels than host IDs, which are 16 bits.
            Some(MachineIndex(labels.iter().position(|known| *known == label)? as u16))
        };
        let weight = |host: &HostId| if leaving.contains(host) { 0.0 } else { self.weight(*host) };
        let accepts = |host: &HostId| !self.cordon.hosts.contains(host);
        let weighted =
            |host| WeightedHost { host, weight: weight(&host), machine: index(&host), accepts: accepts(&host) };
        hosts.map(weighted).collect()
    }
}
