//! Start message of a worker process.
//!
//! It carries the memory of the tables, the sockets and the rings as descriptors, and describes
//! them.

use super::WorkerSlot;
use crate::access::table;
use crate::fast::{Arrays, Locking};
use crate::index::{self, Addresses};
use crate::os_setup::StartError;
use crate::sys::shared::Shared;
use crate::tables::{LARGEST, Limits, Pool, TableMemory, Tables};
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
const LONGEST: usize = 16 << 10;

/// A pool as far as packets need it: networks, link MTU, and whether its UEs are isolated.
type PoolRange = (Option<(Ipv4Addr, u8)>, Option<(Ipv6Addr, u8)>, u16, bool);

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
    pub(crate) seat: usize,
    pub(crate) seats: usize,
    /// Number of entries of the tables.
    pub(crate) records: usize,
    pub(crate) pools: Vec<PoolRange>,
    /// See [`Limits::own_peer_only`].
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
    seats: OwnedFd,
    access: OwnedFd,
}

/// Creates tables with arrays that other processes can map, and with `seats` worker slots.
pub(crate) fn tables(pools: Vec<Pool>, limits: Limits, seats: usize) -> Result<(Tables, TableFds), StartError> {
    let ranges = index::ranges(&pools, LARGEST);
    let (uplinks, of_uplinks) = Shared::in_file(limits.bounded())?;
    let (downlinks, of_downlinks) = Shared::in_file(limits.bounded())?;
    let (addresses, of_addresses) = Shared::in_file(index::entries(&ranges))?;
    let (seats, of_seats) = Shared::in_file(seats)?;
    let (access, of_access) = Shared::in_file(table::LINES)?;
    let memories = TableMemory { uplinks, downlinks, addresses, cells: Shared::private(0), seats, access };
    let files = TableFds {
        uplinks: of_uplinks,
        downlinks: of_downlinks,
        addresses: of_addresses,
        seats: of_seats,
        access: of_access,
    };
    Ok((Tables::over(memories, ranges, pools, limits, None), files))
}

impl TableFds {
    /// Returns the descriptors in sending order.
    pub(crate) fn all(&self) -> [BorrowedFd<'_>; 5] {
        [&self.uplinks, &self.downlinks, &self.addresses, &self.seats, &self.access].map(AsFd::as_fd)
    }
}

impl WorkerSetup {
    /// Maps the tables from the first descriptors.
    pub(super) fn arrays(&self, files: &mut impl Iterator<Item = OwnedFd>) -> io::Result<Arrays> {
        let pool = |&(ipv4, ipv6, mtu, isolated): &PoolRange| Pool { ipv4, ipv6, mtu, dns: vec![], isolated };
        let pools: Vec<_> = self.pools.iter().map(pool).collect();
        let ranges = index::ranges(&pools, LARGEST);
        let uplinks = Shared::mapped(next(files)?.as_fd(), self.records)?;
        let downlinks = Shared::mapped(next(files)?.as_fd(), self.records)?;
        let addresses = Shared::mapped(next(files)?.as_fd(), index::entries(&ranges))?;
        let seats: Shared<WorkerSlot> = Shared::mapped(next(files)?.as_fd(), self.seats)?;
        let access = Shared::mapped(next(files)?.as_fd(), table::LINES)?;
        let addresses = Addresses::new(ranges, addresses);
        let mut arrays = Arrays::new(uplinks, downlinks, addresses, pools, (Locking::Fine, None), (seats, access));
        arrays.checks.own_peer_only = self.own_peer_only;
        Ok(arrays)
    }

    /// Returns the pools in the form of the message.
    pub(crate) fn pools(pools: &[Pool]) -> Vec<PoolRange> {
        pools.iter().map(|pool| (pool.ipv4, pool.ipv6, pool.mtu, pool.isolated)).collect()
    }

    /// Returns the encoded message.
    pub(crate) fn octets(&self) -> io::Result<Vec<u8>> {
        let octets = postcard::to_stdvec(self).map_err(io::Error::other)?;
        match octets.len() <= LONGEST {
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
pub(super) fn send(line: BorrowedFd<'_>, orders: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many sockets for one worker"));
    }
    rustix::net::sendmsg(line, &[IoSlice::new(orders)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a setup message. Returns `None` if the sender has closed the connection.
pub(super) fn receive(line: BorrowedFd<'_>) -> io::Result<Option<(WorkerSetup, Vec<OwnedFd>)>> {
    let mut octets = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut octets)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = rustix::io::retry_on_intr(|| rustix::net::recvmsg(line, into, &mut beside, flags))?.bytes;
    if length == 0 {
        return Ok(None);
    }
    let files = beside.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => vec![],
    });
    let files = files.collect();
    let orders = postcard::from_bytes(&octets[..length]).map_err(io::Error::other)?;
    Ok(Some((orders, files)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALL_FLOWS, Rate, UplinkRule};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use vireo_types::{SessionAddress, Teid};

    #[test]
    fn the_tables_are_mapped_by_what_is_sent() {
        let pools = vec![Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() }];
        let limits = Limits { records: 8, ..Limits::default() };
        let (mut tables, files) = tables(pools.clone(), limits, 3).expect("memory");
        let orders = WorkerSetup {
            seat: 1,
            seats: 3,
            records: 8,
            pools: WorkerSetup::pools(&pools),
            own_peer_only: false,
            n3: vec!["192.0.2.1".parse().expect("one")],
            slot: 2048,
            core: None,
            frames: None,
        };
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair");
        send(ours.as_fd(), &orders.octets().expect("short"), &files.all()).expect("sent");
        let (got, sent) = receive(theirs.as_fd()).expect("received").expect("orders");
        assert_eq!((&got, sent.len()), (&orders, 5));
        let arrays = got.arrays(&mut sent.into_iter()).expect("mapped");
        let ue = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 3)), ipv6_prefix: None };
        let rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED };
        let teid = tables.add_uplink(None, rule).expect("room");
        assert_eq!(arrays.uplinks[teid.index() as usize].teid(), teid, "what one side writes the other reads");
        assert_ne!(teid, Teid(0));
        assert_eq!((arrays.quiet.seats.len(), arrays.pools.len()), (3, 1));
        drop(ours);
        assert!(receive(theirs.as_fd()).expect("received").is_none());
    }
}
