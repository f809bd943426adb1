//! Slices of the user plane: selection, workers and their users.
//!
//! The slice of a session is the one with the S-NSSAI that the control plane names. Without a match
//! it is the one with the session's data network, else the first. Within a slice, the worker with
//! the fewest users gets the session.

use crate::config::{DataSlice, LeanSlice};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use vireo_datapath::WorkerLoad;
use vireo_ops::api::{MoveError, SliceStatus, SliceWorkerStatus, SlicesStatus};
use vireo_wire::pfcp::{NetworkInstance, SessionEstablishmentRequest};

/// Maximum number of users that migrate while the control plane waits.
pub(super) const USERS_AT_ONCE: usize = 256;

impl LeanSlice {
    /// Returns true if a new session belongs to one of these slices.
    pub(crate) fn any_has(all: &[LeanSlice], request: &SessionEstablishmentRequest) -> bool {
        let mut networks = request.create_pdrs.iter().filter_map(|pdr| pdr.pdi.network_instance.as_ref());
        let network = networks.next();
        let dnns = |slice: &LeanSlice| network.is_some_and(|named| slice.dnns.iter().any(|dnn| named.is(dnn.as_str())));
        all.iter().any(|slice| match request.snssai {
            Some(id) => slice.snssai == Some(id.0),
            None => slice.is_only_slice || dnns(slice),
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Slice {
    config: DataSlice,
    /// Numbers of the slice's workers.
    pub(super) workers: Range<u8>,
}

/// The sessions of a worker, unordered. Insertion and removal take constant time.
#[derive(Clone, Debug, Default)]
struct UserSet {
    seids: Vec<u64>,
    /// Positions in `seids`, by SEID.
    positions: HashMap<u64, u32>,
}

impl UserSet {
    fn len(&self) -> usize {
        self.seids.len()
    }

    fn insert(&mut self, seid: u64) {
        if let Entry::Vacant(position) = self.positions.entry(seid) {
            // there are at most 2^24 sessions
            position.insert(self.seids.len() as u32);
            self.seids.push(seid);
        }
    }

    /// Removes a session. The last one takes its position.
    fn remove(&mut self, seid: u64) {
        let Some(position) = self.positions.remove(&seid) else { return };
        self.seids.swap_remove(position as usize);
        if let Some(moved) = self.seids.get(position as usize) {
            self.positions.insert(*moved, position);
        }
    }
}

/// The slices and the assignment of users to their workers.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    all: Vec<Slice>,
    /// Sessions of each worker.
    members: Vec<UserSet>,
    /// Number of users that migrated since the start, and how many of them the rebalancing
    /// migrated.
    pub(super) moved: u64,
    rebalanced: u64,
}

/// Number of users of each worker of a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceLoad {
    pub(crate) name: String,
    /// Pairs of worker number and number of users.
    pub(crate) workers: Vec<(u8, usize)>,
}

impl Slices {
    pub(crate) fn new(configured: &[DataSlice]) -> Self {
        let mut next = 0_u8;
        let all: Vec<Slice> = configured
            .iter()
            .map(|config| {
                let first = next;
                // the datapath refuses to start with more workers than are possible
                next = first.saturating_add(u8::try_from(config.workers.workers).unwrap_or(u8::MAX));
                Slice { config: config.clone(), workers: first..next }
            })
            .collect();
        Slices { all, members: vec![UserSet::default(); next.into()], moved: 0, rebalanced: 0 }
    }

    /// Returns the worker for a new session; 0 without slices.
    pub(crate) fn choose(&self, request: &SessionEstablishmentRequest) -> u8 {
        let named = request.snssai.and_then(|id| self.all.iter().find(|slice| slice.config.snssai == Some(id.0)));
        let by_network = || {
            let mut networks = request.create_pdrs.iter().filter_map(|pdr| pdr.pdi.network_instance.as_ref());
            let of = |network: &NetworkInstance| {
                self.all.iter().find(|slice| slice.config.dnns.iter().any(|dnn| network.is(dnn.as_str())))
            };
            networks.find_map(of)
        };
        let slice = named.or_else(by_network).or(self.all.first());
        slice.map_or(0, |slice| self.least(&slice.workers))
    }

    /// Returns the worker number if the worker exists, else 0.
    pub(crate) fn existing_worker(&self, worker: u8) -> u8 {
        if usize::from(worker) < self.members.len() { worker } else { 0 }
    }

    /// Returns the index of the slice that has this worker.
    pub(crate) fn slice_of_worker(&self, worker: u8) -> Option<usize> {
        self.all.iter().position(|slice| slice.workers.contains(&worker))
    }

    /// Returns the worker with the fewest users.
    pub(super) fn least(&self, workers: &Range<u8>) -> u8 {
        workers.clone().min_by_key(|worker| self.users(*worker)).unwrap_or(workers.start)
    }

    /// Returns the number of users for each worker of each slice.
    pub(crate) fn users_by_worker(&self) -> Vec<SliceLoad> {
        let workers = |slice: &Slice| slice.workers.clone().map(|worker| (worker, self.users(worker))).collect();
        let load = |slice: &Slice| SliceLoad { name: slice.config.name.clone(), workers: workers(slice) };
        self.all.iter().map(load).collect()
    }

    /// Counts users that the rebalancing has migrated.
    pub(crate) fn count_rebalanced(&mut self, users: u64) {
        self.rebalanced += users;
    }

    pub(super) fn users(&self, worker: u8) -> usize {
        self.members.get(usize::from(worker)).map_or(0, UserSet::len)
    }

    pub(crate) fn add_user(&mut self, worker: u8, seid: u64) {
        if let Some(members) = self.members.get_mut(usize::from(worker)) {
            members.insert(seid);
        }
    }

    pub(crate) fn remove_user(&mut self, worker: u8, seid: u64) {
        if let Some(members) = self.members.get_mut(usize::from(worker)) {
            members.remove(seid);
        }
    }

    /// Returns at most 256 of a worker's sessions, those before this position, and their first
    /// position. A caller that continues from there misses no session that stays, although others
    /// are added and removed meanwhile.
    pub(super) fn users_before(&self, worker: u8, position: usize) -> (Vec<u64>, usize) {
        let Some(members) = self.members.get(usize::from(worker)) else { return (vec![], 0) };
        let end = position.min(members.len());
        let start = end.saturating_sub(USERS_AT_ONCE);
        (members.seids[start..end].to_vec(), start)
    }

    pub(super) fn find(&self, name: &str) -> Result<&Slice, MoveError> {
        if self.all.is_empty() {
            return Err(MoveError::NoSlices);
        }
        self.all.iter().find(|slice| slice.config.name == name).ok_or_else(|| MoveError::UnknownSlice {
            name: name.to_owned(),
            known: self.all.iter().map(|slice| slice.config.name.clone()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns the target workers of a migration.
    pub(super) fn target(&self, to: &str, worker: Option<u8>) -> Result<Range<u8>, MoveError> {
        let slice = self.find(to)?;
        match worker {
            None => Ok(slice.workers.clone()),
            Some(n) => match slice.workers.start.checked_add(n).filter(|number| slice.workers.contains(number)) {
                Some(number) => Ok(number..number + 1),
                None => Err(MoveError::UnknownWorker { slice: to.to_owned(), workers: slice.workers.len() }),
            },
        }
    }

    /// Returns the status of the slices; `loads` has one element for each worker.
    pub(crate) fn status(&self, loads: &[WorkerLoad]) -> SlicesStatus {
        let worker = |config: &DataSlice, first: u8, number: u8| {
            let load = loads.get(usize::from(number)).copied().unwrap_or_default();
            SliceWorkerStatus {
                number,
                core: config.workers.cores.get(usize::from(number - first)).copied(),
                users: self.users(number) as u64,
                uplink_packets: load.uplink.packets,
                uplink_bytes: load.uplink.octets,
                downlink_packets: load.downlink.packets,
                downlink_bytes: load.downlink.octets,
                dropped_packets: load.dropped,
            }
        };
        let slice = |slice: &Slice| {
            let workers: Vec<_> =
                slice.workers.clone().map(|number| worker(&slice.config, slice.workers.start, number)).collect();
            SliceStatus {
                name: slice.config.name.clone(),
                snssai: slice.config.snssai.map(|snssai| snssai.to_string()),
                users: workers.iter().map(|worker| worker.users).sum(),
                workers,
                counted: None,
            }
        };
        SlicesStatus { moved: self.moved, rebalanced: self.rebalanced, slices: self.all.iter().map(slice).collect() }
    }
}
