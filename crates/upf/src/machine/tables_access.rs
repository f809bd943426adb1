//! Access of the state machine to the tables of the datapath.

use vireo_datapath::{Memory, Released, Tables, TablesHandle};
use vireo_types::SessionAddress;

/// Access to the tables of the datapath.
pub(crate) trait TablesAccess {
    /// Changes the tables. Packets that the change releases leave before any later packet.
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R;

    /// Reads the tables.
    fn read<R>(&mut self, read: impl FnOnce(&Tables) -> R) -> R;

    /// Adds or removes the host route of a UE.
    fn set_host_route(&mut self, ue: SessionAddress, is_set: bool);
}

impl TablesAccess for &TablesHandle {
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        TablesHandle::change(self, change)
    }

    fn read<R>(&mut self, read: impl FnOnce(&Tables) -> R) -> R {
        TablesHandle::read(self, read)
    }

    fn set_host_route(&mut self, ue: SessionAddress, is_set: bool) {
        TablesHandle::set_host_route(self, ue, is_set);
    }
}

impl TablesAccess for Memory {
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        Memory::change(self, change)
    }

    fn read<R>(&mut self, read: impl FnOnce(&Tables) -> R) -> R {
        read(&self.tables)
    }

    fn set_host_route(&mut self, _: SessionAddress, _: bool) {}
}
