//! What `GET /slices` says and `POST /slices/move` asks, as plain data.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The slices of a user plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlicesStatus {
    /// Users that were moved since the start.
    pub moved: u64,
    /// Those of them that went to a worker with less to do by themselves (`datapath.rebalance`).
    #[serde(default)]
    pub rebalanced: u64,
    /// In their order; none = the user plane is not divided.
    pub slices: Vec<SliceStatus>,
}

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceStatus {
    /// Its name.
    pub name: String,
    /// Its S-NSSAI, as `SST` or `SST-SD`.
    pub snssai: Option<String>,
    /// Sessions that its workers handle.
    pub users: u64,
    /// Its packet threads.
    pub workers: Vec<SliceWorkerStatus>,
    /// What its users' records have counted, if that is asked for: they are all looked at for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<SliceCounted>,
}

/// What the sessions that a slice has now have carried in both directions, wherever they were before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceCounted {
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub octets: u64,
}

/// The query of `GET /slices`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SlicesQuery {
    /// Whether what users' records have counted is wanted.
    pub(super) counts: bool,
}

/// A packet thread of a slice. Packets and octets are those that it has forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceWorkerStatus {
    /// Among the workers of all slices.
    pub number: u8,
    /// The processor that it runs on, if it is bound to one.
    pub core: Option<usize>,
    /// Sessions that it handles.
    pub users: u64,
    /// From the RAN to the data network.
    pub uplink_packets: u64,
    /// Octets of them.
    pub uplink_bytes: u64,
    /// From the data network to the RAN.
    pub downlink_packets: u64,
    /// Octets of them.
    pub downlink_bytes: u64,
    /// Dropped, for whatever reason.
    pub dropped_packets: u64,
}

/// Who is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserSelector {
    /// The session of this SEID of the UPF.
    Seid(u64),
    /// The sessions of these addresses, from the first to the last; IPv6 addresses stand for their /64.
    Addresses(IpAddr, IpAddr),
    /// So many users of a slice, or all.
    Slice {
        /// Its name.
        name: String,
        /// How many at most.
        count: Option<usize>,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRequest {
    /// Who.
    pub who: UserSelector,
    /// The slice that they go to.
    pub to: String,
    /// Which of its workers, from 0; none = each to the one with the fewest users.
    pub worker: Option<u8>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveResult {
    /// Users that were meant.
    pub users: u64,
    /// Those that had another worker before.
    pub moved: u64,
}

/// Why nobody was moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// There is nowhere to move to.
    #[error("this user plane has no slices: give them workers (slice.NAME.data-workers in its configuration)")]
    NoSlices,
    /// Another name.
    #[error("there is no slice {name}: this user plane has {known}")]
    UnknownSlice {
        /// As it was named.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Another number.
    #[error("slice {slice} has {workers} workers, which are counted from 0: name one of them, or none")]
    UnknownWorker {
        /// The slice.
        slice: String,
        /// How many it has.
        workers: usize,
    },
    /// The session is not there.
    #[error("no session here has that address or number: `vireo status` shows the sessions of a core")]
    NoUser,
    /// Not a range.
    #[error("a range goes from an address to a higher one of the same family, as in 10.45.0.2-10.45.0.99")]
    Range,
    /// Too many addresses.
    #[error("a range of up to 65,536 addresses is moved at a time: move parts of it, or the slice")]
    TooWide,
}

/// The query of `POST /slices/move`: one of `seid`, `address`, `slice` says who.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveQuery {
    seid: Option<u64>,
    address: Option<IpAddr>,
    /// With `address`, where a range ends.
    last: Option<IpAddr>,
    slice: Option<String>,
    count: Option<usize>,
    to: String,
    worker: Option<u8>,
}

impl TryFrom<MoveQuery> for MoveRequest {
    type Error = &'static str;

    fn try_from(query: MoveQuery) -> Result<Self, &'static str> {
        let MoveQuery { seid, address, last, slice, count, to, worker } = query;
        let who = match (seid, address, slice) {
            (Some(seid), None, None) if last.is_none() && count.is_none() => UserSelector::Seid(seid),
            (None, Some(first), None) if count.is_none() => UserSelector::Addresses(first, last.unwrap_or(first)),
            (None, None, Some(name)) if last.is_none() => UserSelector::Slice { name, count },
            _ => return Err("say who by one of seid, address (to last), or slice (so many: count)"),
        };
        Ok(MoveRequest { who, to, worker })
    }
}
