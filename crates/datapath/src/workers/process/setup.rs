//! Start message of a worker process.
//!
//! It carries the memory of the tables, the sockets and the rings as descriptors, and describes
//! them.

use crate::engine::access::table;
use crate::engine::arrays::{Arrays, ArraysConfig};
use crate::engine::index::{self, LARGEST_ARRAY};
use crate::engine::limits::Limits;
use crate::engine::locking::Locking;
use crate::engine::table_memory::TableMemory;
use crate::engine::tables::Tables;
use crate::network::Pool;
use crate::start_error::StartError;
use crate::sys::shared::Shared;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors of one message. The kernel permits at most 253.
const DESCRIPTORS: usize = 128;
/// Maximum length of one message in bytes.
const MAX_MESSAGE_OCTETS: usize = 16 << 10;

/// Part of a [`Pool`] that packets need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PacketPool {
    ipv4: Option<(Ipv4Addr, u8)>,
    ipv6: Option<(Ipv6Addr, u8)>,
    mtu: u16,
    isolated: bool,
}

/// Description of the descriptors, which follow in this order:
/// 1. those of [`TableFds`]
/// 2. the punt channel and its bells
/// 3. the stop signal
/// 4. a queue of the TUN device
/// 5. the sockets
/// 6. those of frames
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerSetup {
    /// Index of the worker slot.
    pub(crate) worker_slot: usize,
    /// Number of worker slots.
    pub(crate) worker_slots: usize,
    /// Number of entries of the tables.
    pub(crate) entries: usize,
    pub(crate) pools: Vec<PacketPool>,
    /// G-PDUs of a tunnel come from its own peer only ([`Limits::own_peer_only`]).
    pub(crate) own_peer_only: bool,
    /// Addresses of the sockets.
    pub(crate) n3: Vec<IpAddr>,
    /// Longest packet that sockets receive, in octets.
    pub(crate) slot: usize,
    /// Processor of the worker.
    pub(crate) core: Option<usize>,
    /// If set, the worker reads frames instead of the sockets.
    pub(crate) frames: Option<FrameSetup>,
}

/// Setup of a worker that reads frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrameSetup {
    pub(crate) interfaces: Vec<String>,
    /// N3 addresses, starting with the worker's.
    pub(crate) n3: Vec<IpAddr>,
    pub(crate) next_hops: Vec<IpAddr>,
}

/// Descriptors of the memory of the tables.
#[derive(Debug)]
pub(crate) struct TableFds {
    uplinks: OwnedFd,
    downlinks: OwnedFd,
    addresses: OwnedFd,
    worker_slots: OwnedFd,
    access: OwnedFd,
}

/// Creates tables with arrays that other processes can map, and with `worker_slots` slots.
pub(crate) fn tables(pools: Vec<Pool>, limits: Limits, worker_slots: usize) -> Result<(Tables, TableFds), StartError> {
    let ranges = index::ranges(&pools, LARGEST_ARRAY);
    let (uplinks, of_uplinks) = Shared::in_file(limits.bounded())?;
    let (downlinks, of_downlinks) = Shared::in_file(limits.bounded())?;
    let (addresses, of_addresses) = Shared::in_file(index::entries(&ranges))?;
    let (worker_slots, of_worker_slots) = Shared::in_file(worker_slots)?;
    let (access, of_access) = Shared::in_file(table::LINES)?;
    let memory = TableMemory { uplinks, downlinks, addresses, cells: Shared::private(0), worker_slots, access };
    let files = TableFds {
        uplinks: of_uplinks,
        downlinks: of_downlinks,
        addresses: of_addresses,
        worker_slots: of_worker_slots,
        access: of_access,
    };
    Ok((Tables::over(memory, ranges, pools, limits, None), files))
}

impl TableFds {
    /// Returns the descriptors in sending order.
    pub(crate) fn all(&self) -> [BorrowedFd<'_>; 5] {
        [&self.uplinks, &self.downlinks, &self.addresses, &self.worker_slots, &self.access].map(AsFd::as_fd)
    }
}

impl WorkerSetup {
    /// Maps the tables from the first descriptors.
    pub(super) fn arrays(&self, files: &mut impl Iterator<Item = OwnedFd>) -> io::Result<Arrays> {
        let pool =
            |&PacketPool { ipv4, ipv6, mtu, isolated }: &PacketPool| Pool { ipv4, ipv6, mtu, dns: vec![], isolated };
        let pools: Vec<_> = self.pools.iter().map(pool).collect();
        let ranges = index::ranges(&pools, LARGEST_ARRAY);
        let memory = TableMemory {
            uplinks: Shared::mapped(next(files)?.as_fd(), self.entries)?,
            downlinks: Shared::mapped(next(files)?.as_fd(), self.entries)?,
            addresses: Shared::mapped(next(files)?.as_fd(), index::entries(&ranges))?,
            worker_slots: Shared::mapped(next(files)?.as_fd(), self.worker_slots)?,
            access: Shared::mapped(next(files)?.as_fd(), table::LINES)?,
            cells: Shared::private(0),
        };
        let config = ArraysConfig { ranges, pools, locking: Locking::Fine, own_peer_only: self.own_peer_only };
        let (arrays, _) = Arrays::new(memory, config, None);
        Ok(arrays)
    }

    /// Returns the pools in the form of the message.
    pub(crate) fn pools(pools: &[Pool]) -> Vec<PacketPool> {
        let packet_pool = |&Pool { ipv4, ipv6, mtu, isolated, .. }: &Pool| PacketPool { ipv4, ipv6, mtu, isolated };
        pools.iter().map(packet_pool).collect()
    }

    /// Returns the encoded message.
    pub(crate) fn octets(&self) -> io::Result<Vec<u8>> {
        let octets = postcard::to_stdvec(self).map_err(io::Error::other)?;
        match octets.len() <= MAX_MESSAGE_OCTETS {
            true => Ok(octets),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "too many pools and addresses")),
        }
    }
}

/// Returns the next descriptor.
pub(super) fn next(files: &mut impl Iterator<Item = OwnedFd>) -> io::Result<OwnedFd> {
    files.next().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a descriptor is missing"))
}

/// Sends a setup message with its descriptors.
pub(super) fn send(line: BorrowedFd<'_>, setup: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many sockets for one worker"));
    }
    rustix::net::sendmsg(line, &[IoSlice::new(setup)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a setup message. Returns `None` if the sender has closed the connection.
pub(super) fn receive(line: BorrowedFd<'_>) -> io::Result<Option<(WorkerSetup, Vec<OwnedFd>)>> {
    let mut octets = vec![0; MAX_MESSAGE_OCTETS];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut octets)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = rustix::io::retry_on_intr(|| rustix::net::recvmsg(line, into, &mut ancillary, flags))?.bytes;
    if length == 0 {
        return Ok(None);
    }
    let files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => vec![],
    });
    let files = files.collect();
    let setup = postcard::from_bytes(&octets[..length]).map_err(io::Error::other)?;
    Ok(Some((setup, files)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALL_FLOWS, Rate, UplinkRule};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use vireo_types::{SessionAddress, Teid};

    #[test]
    fn tables_are_mapped_from_setup_message() {
        let pools = vec![Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() }];
        let limits = Limits { records: 8, ..Limits::default() };
        let (mut tables, files) = tables(pools.clone(), limits, 3).expect("memory");
        let setup = WorkerSetup {
            worker_slot: 1,
            worker_slots: 3,
            entries: 8,
            pools: WorkerSetup::pools(&pools),
            own_peer_only: false,
            n3: vec!["192.0.2.1".parse().expect("one")],
            slot: 2048,
            core: None,
            frames: None,
        };
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair");
        send(ours.as_fd(), &setup.octets().expect("short"), &files.all()).expect("sent");
        let (got, sent) = receive(theirs.as_fd()).expect("received").expect("setup");
        assert_eq!((&got, sent.len()), (&setup, 5));
        let arrays = got.arrays(&mut sent.into_iter()).expect("mapped");
        let ue = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 3)), ipv6_prefix: None };
        let rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED };
        let teid = tables.add_uplink(None, rule).expect("room");
        assert_eq!(arrays.uplinks[teid.index() as usize].teid(), teid, "what one side writes the other reads");
        assert_ne!(teid, Teid(0));
        assert_eq!((arrays.quiescence.worker_slots.len(), arrays.pools.len()), (3, 1));
        drop(ours);
        assert!(receive(theirs.as_fd()).expect("received").is_none());
    }
}
