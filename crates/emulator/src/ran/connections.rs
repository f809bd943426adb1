//! Table of a RAN node's UE connections.

use super::{ConnectionId, NOBODY, Tunnel};
use std::collections::VecDeque;
use vireo_types::RanUeNgapId;

/// Number of remembered ended connections of each kind.
const ENDED: usize = 4096;

const FREE: u32 = u32::MAX;

/// NG or S1 connection of a UE.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) owner: u32,
    generation: u8,
    /// Association of the connection.
    pub(crate) by: u8,
    /// AMF-UE-NGAP-ID or MME-UE-S1AP-ID, once the core has assigned it.
    pub(crate) core_id: Option<u64>,
    pub(crate) tunnels: Vec<Tunnel>,
    /// The UE has left without signalling.
    pub(crate) abandoned: bool,
}

impl Connection {
    /// Drops the tunnel of the first session.
    pub(crate) fn lose_tunnel(&mut self) -> Option<Tunnel> {
        (!self.tunnels.is_empty()).then(|| self.tunnels.remove(0))
    }
}

/// Reason for which a message does not belong to a connection.
pub(crate) enum Mismatch {
    /// The identifiers do not belong together, or belong to no UE.
    Unknown,
    /// The connection has ended, and its UE had abandoned it.
    Late,
}

/// UE connections of one RAN node. Layout of an identifier: index 24 bits, generation 8 bits, so
/// that a late message of an earlier use is recognised.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Connection>,
    free: Vec<u32>,
    /// Ended connections that had been abandoned, oldest first. Messages that cross their end are
    /// no violation of the core.
    ended: VecDeque<ConnectionId>,
    /// Ended connections that the core has released, with its identifier, oldest first.
    released: VecDeque<(ConnectionId, u64)>,
}

impl Connections {
    /// Returns the number of connected UEs.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Removes all connections.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.released.clear();
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let connection = self.slots.get((id.0 >> 8) as usize)?;
        (connection.owner != FREE && connection.generation == id.0 as u8).then_some(connection)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.slots.get_mut((id.0 >> 8) as usize)?;
        (connection.owner != FREE && connection.generation == id.0 as u8).then_some(connection)
    }

    /// Returns all connections, including free ones.
    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut()
    }

    /// Returns the tunnels of a UE.
    pub(crate) fn tunnels(&self, id: ConnectionId) -> &[Tunnel] {
        self.get(id).map_or(&[], |connection| &connection.tunnels)
    }

    /// Returns the connection with this identifier of the core.
    pub(crate) fn by_core_id(&self, core_id: u64) -> Option<ConnectionId> {
        self.iter().find(|(_, connection)| connection.core_id == Some(core_id)).map(|(id, _)| id)
    }

    fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let used = (0u32..).zip(&self.slots).filter(|(_, connection)| connection.owner != FREE);
        used.map(|(index, connection)| (RanUeNgapId(index << 8 | u32::from(connection.generation)), connection))
    }

    /// Returns true if the UE of this connection left without signalling, also after the connection
    /// ended.
    pub(crate) fn is_abandoned(&self, id: ConnectionId) -> bool {
        self.get(id).map_or_else(|| self.ended.contains(&id), |connection| connection.abandoned)
    }

    /// Adds a connection of `owner` on association `by`.
    pub(crate) fn allocate(&mut self, owner: u32, by: u8) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            let connection =
                Connection { owner: FREE, generation: 0, by: 0, core_id: None, tunnels: Vec::new(), abandoned: false };
            self.slots.push(connection);
            self.slots.len() as u32 - 1
        });
        let connection = &mut self.slots[index as usize];
        (connection.owner, connection.by) = (owner, by);
        connection.core_id = None;
        connection.abandoned = false;
        RanUeNgapId(index << 8 | u32::from(connection.generation))
    }

    /// Checks the two identifiers of UE-associated signalling. Stores the core's identifier from
    /// its first message (TS 38.413 10.6, TS 36.413 10.6). Returns the owner of the connection, and
    /// true if this message makes the release of an abandoned connection possible.
    pub(crate) fn identify(&mut self, core_id: u64, id: ConnectionId) -> Result<(u32, bool), Mismatch> {
        if self.get(id).is_none() && self.is_abandoned(id) {
            return Err(Mismatch::Late);
        }
        let connection = self.get_mut(id).ok_or(Mismatch::Unknown)?;
        if connection.core_id.is_some_and(|known| known != core_id) {
            return Err(Mismatch::Unknown);
        }
        let first = connection.core_id.replace(core_id).is_none();
        if connection.abandoned { Ok((NOBODY, first)) } else { Ok((connection.owner, false)) }
    }

    /// Removes a connection. Returns its owner.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<u32> {
        let connection = self.get_mut(id)?;
        let owner = std::mem::replace(&mut connection.owner, FREE);
        connection.generation = connection.generation.wrapping_add(1);
        connection.tunnels.clear();
        if connection.abandoned {
            if self.ended.len() >= ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(id);
        }
        self.free.push(id.0 >> 8);
        Some(owner)
    }

    /// Removes a connection that the core releases. Returns its owner.
    pub(crate) fn release(&mut self, core_id: u64, id: ConnectionId) -> Option<u32> {
        let owner = self.remove(id)?;
        if self.released.len() >= ENDED {
            self.released.pop_front();
        }
        self.released.push_back((id, core_id));
        Some(owner)
    }

    /// Returns true if the core has released this connection. It may release it once more: a core
    /// without the connection answers each late message about it by a release, and two messages may
    /// cross the first one.
    pub(crate) fn is_released(&self, core_id: u64, id: ConnectionId) -> bool {
        self.released.contains(&(id, core_id))
    }

    /// Abandons these connections of an association, or all.
    pub(crate) fn abandon_by(&mut self, by: u8, ids: Option<&[ConnectionId]>) {
        let of: Vec<_> = self.iter().filter(|(_, connection)| connection.by == by).map(|(id, _)| id).collect();
        for id in of.into_iter().filter(|id| ids.is_none_or(|ids| ids.contains(id))) {
            if let Some(connection) = self.get_mut(id) {
                connection.abandoned = true;
            }
        }
    }

    /// Removes the connections of an association. Returns their owners.
    pub(crate) fn remove_by(&mut self, by: u8) -> Vec<u32> {
        let ids: Vec<_> = self.iter().filter(|(_, connection)| connection.by == by).map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Removes all connections. Returns their owners.
    pub(crate) fn remove_all(&mut self) -> Vec<u32> {
        let ids: Vec<_> = self.iter().map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}
