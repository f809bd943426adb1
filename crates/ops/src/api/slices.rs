//! Data types of `GET /slices` and `POST /slices/move`.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The slices of a user plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlicesStatus {
    /// User moves since the start.
    pub moved: u64,
    /// User moves since the start that the load balancing of `datapath.rebalance` initiated;
    /// included in `moved`.
    #[serde(default)]
    pub rebalanced: u64,
    /// In the order of the configuration; empty = the user plane is not divided.
    pub slices: Vec<SliceStatus>,
}

/// Status of one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceStatus {
    pub name: String,
    /// S-NSSAI, as `SST` or `SST-SD`.
    pub snssai: Option<String>,
    /// Sessions that the slice's workers handle.
    pub users: u64,
    /// Data workers of the slice.
    pub workers: Vec<SliceWorkerStatus>,
    /// Traffic counts of the slice's users. Only on request, because it reads every user's entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<SliceCounted>,
}

/// Traffic of the sessions that are in the slice at present, in both directions. It includes their
/// traffic before they moved to this slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceCounted {
    pub packets: u64,
    /// Sum of packet sizes in bytes.
    pub octets: u64,
}

/// Query of `GET /slices`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SlicesQuery {
    /// If true, the answer contains [`SliceStatus::counted`].
    pub(super) counts: bool,
}

/// Status of a data worker of a slice. Packets and bytes count forwarded traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceWorkerStatus {
    /// Index among the workers of all slices.
    pub number: u8,
    /// CPU to which the worker is bound, if any.
    pub core: Option<usize>,
    /// Sessions that the worker handles.
    pub users: u64,
    /// From the RAN to the data network.
    pub uplink_packets: u64,
    pub uplink_bytes: u64,
    /// From the data network to the RAN.
    pub downlink_packets: u64,
    pub downlink_bytes: u64,
    /// Packets dropped for any reason.
    pub dropped_packets: u64,
}

/// The users to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserSelector {
    /// The session with this UP F-SEID value.
    Seid(u64),
    /// The sessions with the addresses from the first to the last. IPv6 addresses select their /64.
    Addresses(IpAddr, IpAddr),
    /// Users of a slice.
    Slice {
        name: String,
        /// Maximum of users to move; `None` = all.
        count: Option<usize>,
    },
}

/// A request to move users to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRequest {
    /// The users to move.
    pub users: UserSelector,
    /// Name of the target slice.
    pub to: String,
    /// Worker in the target slice, from 0; `None` = for each user the worker with the fewest users.
    pub worker: Option<u8>,
}

/// Result of a [`MoveRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveResult {
    /// Users that the selector matched.
    pub users: u64,
    /// Users that changed their worker.
    pub moved: u64,
}

/// Reasons why no user is moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The user plane is not divided into slices.
    #[error("this user plane has no slices: give them workers (slice.NAME.data-workers in its configuration)")]
    NoSlices,
    /// No slice has this name.
    #[error("there is no slice {name}: this user plane has {known}")]
    UnknownSlice {
        /// Name in the request.
        name: String,
        /// Names of the existing slices.
        known: String,
    },
    /// The slice has no worker of this number.
    #[error("slice {slice} has {workers} workers, which are counted from 0: name one of them, or none")]
    UnknownWorker {
        /// Name of the slice.
        slice: String,
        /// Number of workers of the slice.
        workers: usize,
    },
    /// The selector matches no session.
    #[error("no session here has that address or number: `vireo status` shows the sessions of a core")]
    NoUser,
    /// The address range is invalid.
    #[error("a range goes from an address to a higher one of the same family, as in 10.45.0.2-10.45.0.99")]
    Range,
    /// The address range has too many addresses.
    #[error("a range of up to 65,536 addresses is moved at a time: move parts of it, or the slice")]
    TooWide,
}

/// Query of `POST /slices/move`. Exactly one of `seid`, `address` and `slice` selects the users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveQuery {
    seid: Option<u64>,
    address: Option<IpAddr>,
    /// Last address of a range that starts at `address`.
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
        let users = match (seid, address, slice) {
            (Some(seid), None, None) if last.is_none() && count.is_none() => UserSelector::Seid(seid),
            (None, Some(first), None) if count.is_none() => UserSelector::Addresses(first, last.unwrap_or(first)),
            (None, None, Some(name)) if last.is_none() => UserSelector::Slice { name, count },
            _ => return Err("say who by one of seid, address (to last), or slice (so many: count)"),
        };
        Ok(MoveRequest { users, to, worker })
    }
}
