//! The entries of a session in the tables of the datapath.

use smallvec::SmallVec;
use vireo_datapath::{DownlinkId, Released, Tables, Volume, watch_for};
use vireo_types::{SessionAddress, Teid};

/// The datapath entries of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionEntries {
    pub(crate) uplinks: SmallVec<[Teid; 1]>,
    pub(crate) downlinks: SmallVec<[(SessionAddress, DownlinkId); 1]>,
    /// True if flow rules decide on the packets, because entries cannot hold the rules.
    pub(crate) flows: bool,
}

impl SessionEntries {
    /// Blocks the packets of all entries until the end of the change, so that their counters do not
    /// change.
    pub(crate) fn pause(&self, tables: &mut Tables) {
        tables.hold_packets(&self.uplinks, self.ids());
    }

    /// Removes all entries from the tables.
    pub(crate) fn remove(self, tables: &mut Tables, session: u64, released: &mut Released) {
        self.pause(tables);
        if self.flows {
            tables.set_flows(session, None, &self.uplinks, &self.ids(), released);
        }
        for teid in self.uplinks {
            tables.remove_uplink(teid);
        }
        for (_, id) in self.downlinks {
            tables.remove_downlink(id, released);
        }
    }

    /// Returns the number of packets of all entries in both directions.
    pub(crate) fn packets(&self, tables: &Tables) -> u64 {
        let up = self.uplinks.iter().map(|teid| tables.uplink_volume(*teid).packets);
        let down = self.downlinks.iter().map(|(_, id)| tables.downlink_volume(*id).packets);
        up.chain(down).sum()
    }

    /// Requests a datapath event after `volume` bytes, or cancels it.
    pub(crate) fn watch(&self, tables: &Tables, session: u64, volume: Option<u64>) {
        let watch = |counts: usize| watch_for(volume.unwrap_or(0), counts as u64);
        match self.flows {
            // a URR counts each direction
            true => tables.watch_meters(session, watch(2)),
            false => {
                let watch = watch(self.uplinks.len() + self.downlinks.len());
                tables.watch(&self.uplinks, self.downlinks.iter().map(|(_, id)| *id), watch);
            }
        }
    }

    /// Disables or enables the counters of the entries. Sessions with flow rules keep them enabled.
    pub(crate) fn set_lean(&self, tables: &Tables, lean: bool) {
        tables.set_lean(&self.uplinks, self.downlinks.iter().map(|(_, id)| *id), lean && !self.flows);
    }

    pub(crate) fn ids(&self) -> SmallVec<[DownlinkId; 2]> {
        self.downlinks.iter().map(|(_, id)| *id).collect()
    }

    /// Assigns the packets of the entries to a worker.
    pub(crate) fn assign_worker(&self, tables: &Tables, worker: u8) {
        tables.worker_map().assign(&self.uplinks, self.downlinks.iter().map(|(ue, _)| *ue), worker);
    }

    /// Returns the volume of each entry.
    pub(crate) fn volumes(&self, tables: &Tables) -> impl Iterator<Item = Volume> {
        let up = self.uplinks.iter().map(|teid| tables.uplink_volume(*teid));
        up.chain(self.downlinks.iter().map(|(_, id)| tables.downlink_volume(*id)))
    }
}

/// Returns true if two sessions have an address in common.
pub(crate) fn overlap(a: SessionAddress, b: SessionAddress) -> bool {
    a.ipv4.is_some() && a.ipv4 == b.ipv4 || a.ipv6_prefix.is_some() && a.ipv6_prefix == b.ipv6_prefix
}
