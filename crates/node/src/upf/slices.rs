//! Slices of the user plane: selection, workers, and migration of users.
//!
//! The slice of a session is the one with the S-NSSAI that the control plane names. Without a match
//! it is the one with the session's data network, else the first. Within a slice, the worker with
//! the fewest users gets the session. User state exists once and is never copied: a migration only
//! changes the worker (`vireo_datapath::Owners`).

use super::compile::SessionEntries;
use super::state::{TablesAccess, Upf};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use vireo_datapath::{SliceWorkers, StatsHandle, Tables, Volume, WorkerLoad};
use vireo_ops::api::{
    MoveError, MoveRequest, MoveResult, SliceCounted, SliceStatus, SliceWorkerStatus, SlicesStatus, UserSelector,
};
use vireo_types::{Dnn, Snssai};
use vireo_wire::pfcp::{Message, MessageType, NetworkInstance, SessionEstablishmentRequest};

/// Configuration of a slice of the user plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSlice {
    pub name: String,
    /// S-NSSAI of the slice's sessions.
    pub snssai: Option<Snssai>,
    /// Data networks whose sessions belong to the slice if they name no known S-NSSAI.
    pub dnns: Vec<Dnn>,
    /// Packet threads of the slice, and their processors.
    pub workers: SliceWorkers,
}

/// Configuration of an IoT slice (`profile = "iot"`). It does not affect the choice of the worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeanSlice {
    /// S-NSSAI of the slice's sessions.
    pub snssai: Option<Snssai>,
    /// Data networks whose sessions belong to the slice if they name no S-NSSAI.
    pub dnns: Vec<Dnn>,
    /// True for the only slice: all sessions that name no S-NSSAI belong to it.
    pub alone: bool,
}

impl LeanSlice {
    /// Returns true if a new session belongs to one of these slices.
    pub(super) fn any_has(all: &[LeanSlice], request: &SessionEstablishmentRequest) -> bool {
        let mut networks = request.create_pdrs.iter().filter_map(|pdr| pdr.pdi.network_instance.as_ref());
        let network = networks.next();
        let dnns = |slice: &LeanSlice| network.is_some_and(|named| slice.dnns.iter().any(|dnn| named.is(dnn.as_str())));
        all.iter().any(|slice| match request.snssai {
            Some(id) => slice.snssai == Some(id.0),
            None => slice.alone || dnns(slice),
        })
    }
}

/// Maximum number of addresses in a migration request.
const ADDRESSES: u128 = 1 << 16;
/// Maximum number of users that migrate while the control plane waits.
const TOGETHER: usize = 256;

#[derive(Clone, Debug)]
struct Slice {
    config: DataSlice,
    /// Numbers of the slice's workers.
    workers: Range<u8>,
}

/// The sessions of a worker, unordered. Insertion and removal take constant time.
#[derive(Clone, Debug, Default)]
struct MemberVerifier {
    seids: Vec<u64>,
    places: HashMap<u64, u32>,
}

impl MemberVerifier {
    fn len(&self) -> usize {
        self.seids.len()
    }

    fn insert(&mut self, seid: u64) {
        if let Entry::Vacant(place) = self.places.entry(seid) {
            // there are at most 2^24 sessions
            place.insert(self.seids.len() as u32);
            self.seids.push(seid);
        }
    }

    /// Removes a session. The last one takes its position.
    fn remove(&mut self, seid: u64) {
        let Some(place) = self.places.remove(&seid) else { return };
        self.seids.swap_remove(place as usize);
        if let Some(moved) = self.seids.get(place as usize) {
            self.places.insert(*moved, place);
        }
    }
}

/// The slices and the assignment of users to their workers.
#[derive(Debug, Default)]
pub(super) struct Slices {
    all: Vec<Slice>,
    /// Sessions of each worker.
    members: Vec<MemberVerifier>,
    /// Number of users that migrated since the start, and how many of them the rebalancing
    /// migrated.
    moved: u64,
    rebalanced: u64,
}

/// Number of users of each worker of a slice.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceLoad {
    pub(super) name: String,
    /// Pairs of worker number and number of users.
    pub(super) workers: Vec<(u8, usize)>,
}

impl Slices {
    pub(super) fn new(configured: &[DataSlice]) -> Self {
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
        Slices { all, members: vec![MemberVerifier::default(); next.into()], moved: 0, rebalanced: 0 }
    }

    /// Returns the worker for a new session; 0 without slices.
    pub(super) fn choose(&self, request: &SessionEstablishmentRequest) -> u8 {
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
    pub(super) fn known(&self, worker: u8) -> u8 {
        if usize::from(worker) < self.members.len() { worker } else { 0 }
    }

    /// Returns the index of the slice that has this worker.
    pub(super) fn place_of(&self, worker: u8) -> Option<usize> {
        self.all.iter().position(|slice| slice.workers.contains(&worker))
    }

    /// Returns the worker with the fewest users.
    fn least(&self, workers: &Range<u8>) -> u8 {
        workers.clone().min_by_key(|worker| self.users(*worker)).unwrap_or(workers.start)
    }

    /// Returns the number of users for each worker of each slice.
    pub(super) fn users_by_worker(&self) -> Vec<SliceLoad> {
        let workers = |slice: &Slice| slice.workers.clone().map(|worker| (worker, self.users(worker))).collect();
        let load = |slice: &Slice| SliceLoad { name: slice.config.name.clone(), workers: workers(slice) };
        self.all.iter().map(load).collect()
    }

    /// Counts users that the rebalancing has migrated.
    pub(super) fn count_rebalanced(&mut self, users: u64) {
        self.rebalanced += users;
    }

    fn users(&self, worker: u8) -> usize {
        self.members.get(usize::from(worker)).map_or(0, MemberVerifier::len)
    }

    pub(super) fn joins(&mut self, worker: u8, seid: u64) {
        if let Some(members) = self.members.get_mut(usize::from(worker)) {
            members.insert(seid);
        }
    }

    pub(super) fn leaves(&mut self, worker: u8, seid: u64) {
        if let Some(members) = self.members.get_mut(usize::from(worker)) {
            members.remove(seid);
        }
    }

    /// Returns at most 256 of a worker's sessions, those before this position, and their first
    /// position. A caller that continues from there misses no session that stays, although others
    /// are added and removed meanwhile.
    fn before(&self, worker: u8, place: usize) -> (Vec<u64>, usize) {
        let Some(members) = self.members.get(usize::from(worker)) else { return (vec![], 0) };
        let end = place.min(members.len());
        let start = end.saturating_sub(TOGETHER);
        (members.seids[start..end].to_vec(), start)
    }

    fn find(&self, name: &str) -> Result<&Slice, MoveError> {
        if self.all.is_empty() {
            return Err(MoveError::NoSlices);
        }
        self.all.iter().find(|slice| slice.config.name == name).ok_or_else(|| MoveError::UnknownSlice {
            name: name.to_owned(),
            known: self.all.iter().map(|slice| slice.config.name.clone()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns the target workers of a migration.
    fn target(&self, to: &str, worker: Option<u8>) -> Result<Range<u8>, MoveError> {
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
    pub(super) fn status(&self, loads: &[WorkerLoad]) -> SlicesStatus {
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

impl SessionEntries {
    /// Assigns the packets of the entries to a worker.
    pub(super) fn give(&self, tables: &Tables, worker: u8) {
        tables.worker_map().assign(&self.uplinks, self.downlinks.iter().map(|(ue, _)| *ue), worker);
    }

    /// Returns the volume of each entry.
    fn volumes(&self, tables: &Tables) -> impl Iterator<Item = Volume> {
        let up = self.uplinks.iter().map(|teid| tables.uplink_volume(*teid));
        up.chain(self.downlinks.iter().map(|(_, id)| tables.downlink_volume(*id)))
    }
}

/// Returns each address of a range; for IPv6 the prefix of each /64.
fn each(first: IpAddr, last: IpAddr) -> Result<Vec<IpAddr>, MoveError> {
    let (from, to) = match (first, last) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (u128::from(from.to_bits()), u128::from(to.to_bits())),
        (IpAddr::V6(from), IpAddr::V6(to)) => (from.to_bits() >> 64, to.to_bits() >> 64),
        _ => return Err(MoveError::Range),
    };
    if from > to {
        return Err(MoveError::Range);
    }
    if to - from >= ADDRESSES {
        return Err(MoveError::TooWide);
    }
    let address = |n: u128| match first {
        IpAddr::V4(_) => IpAddr::V4((n as u32).into()),
        IpAddr::V6(_) => IpAddr::V6((n << 64).into()),
    };
    Ok((from..=to).map(address).collect())
}

impl Upf {
    /// Returns the index of the slice that a request concerns. Returns `None` if the request is
    /// invalid or concerns no session.
    pub(super) fn slice_of(&self, datagram: &[u8]) -> Option<usize> {
        let message = Message::new(datagram).ok()?;
        let worker = match message.message_type() {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                let request = SessionEstablishmentRequest::parse(&message).ok()?;
                self.slices.choose(&request)
            }
            _ => self.sessions.worker(message.seid())?,
        };
        self.slices.place_of(worker)
    }

    /// Assigns the packets of these sessions to workers. Returns how many sessions changed their
    /// worker.
    fn hand_over(&mut self, seids: &[u64], to: &Range<u8>, plane: &mut impl TablesAccess) -> u64 {
        let mut moved = 0;
        let Upf { sessions, slices, .. } = self;
        plane.look(|tables| {
            for seid in seids {
                // the session has ended meanwhile, or already has a target worker
                if sessions.worker(*seid).is_none_or(|worker| to.contains(&worker)) {
                    continue;
                }
                let worker = slices.least(to);
                let before = sessions.change(seid, |session| {
                    session.records.give(tables, worker);
                    std::mem::replace(&mut session.worker, worker)
                });
                before.into_iter().for_each(|before| slices.leaves(before, *seid));
                slices.joins(worker, *seid);
                moved += 1;
            }
        });
        slices.moved += moved;
        moved
    }

    /// Adds the volume of the sessions' entries to `sum`.
    fn counted(&self, seids: &[u64], view: &StatsHandle, mut sum: SliceCounted) -> SliceCounted {
        view.read(|tables| {
            for session in seids.iter().filter_map(|seid| self.sessions.get(seid)) {
                for volume in session.records.volumes(tables) {
                    (sum.packets, sum.octets) = (sum.packets + volume.packets, sum.octets + volume.octets);
                }
            }
        });
        sum
    }

    /// Returns the sessions of these addresses.
    fn at(&self, addresses: &[IpAddr], plane: &mut impl TablesAccess) -> Vec<u64> {
        let mut found: Vec<u64> =
            plane.look(|tables| addresses.iter().filter_map(|one| tables.session_at(*one)).collect());
        found.dedup();
        found.retain(|seid| self.sessions.contains_key(seid));
        found
    }
}

/// Returns the status of the slices. `with` lends the state machine for a limited number of users
/// at a time, because other threads wait for it. Counters of users that come or go meanwhile may be
/// missing or counted twice.
pub(super) fn status(view: &StatsHandle, counts: bool, mut with: impl FnMut(&mut dyn FnMut(&Upf))) -> SlicesStatus {
    let mut status = SlicesStatus::default();
    with(&mut |upf| status = upf.slices.status(&view.loads()));
    for slice in status.slices.iter_mut().filter(|_| counts) {
        let mut sum = SliceCounted::default();
        for worker in &slice.workers {
            let mut place = usize::MAX;
            while place > 0 {
                with(&mut |upf| {
                    let (some, start) = upf.slices.before(worker.number, place);
                    sum = upf.counted(&some, view, sum);
                    place = start;
                });
            }
        }
        slice.counted = Some(sum);
    }
    status
}

/// Migrates users, a limited number at a time. `with` lends the state machine and the tables, for
/// which other threads wait.
pub(super) fn move_users<P: TablesAccess>(
    order: &MoveRequest,
    mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
) -> Result<MoveResult, MoveError> {
    let mut to = Err(MoveError::NoSlices);
    with(&mut |upf, _| to = upf.slices.target(&order.to, order.worker));
    let to = to?;
    let (mut users, mut moved) = (0, 0);
    match &order.users {
        UserSelector::Seid(seid) => with(&mut |upf, plane| {
            users += u64::from(upf.sessions.contains_key(seid));
            moved += upf.hand_over(&[*seid], &to, plane);
        }),
        UserSelector::Addresses(first, last) => {
            for some in each(*first, *last)?.chunks(TOGETHER) {
                with(&mut |upf, plane| {
                    let found = upf.at(some, plane);
                    users += found.len() as u64;
                    moved += upf.hand_over(&found, &to, plane);
                });
            }
        }
        UserSelector::Slice { name, count } => return move_slice(name, count.unwrap_or(usize::MAX), &to, with),
    }
    if users == 0 { Err(MoveError::NoUser) } else { Ok(MoveResult { users, moved }) }
}

/// Migrates at most `count` users of a slice.
fn move_slice<P: TablesAccess>(
    name: &str,
    count: usize,
    to: &Range<u8>,
    mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
) -> Result<MoveResult, MoveError> {
    let mut found = Err(MoveError::NoSlices);
    with(&mut |upf, _| {
        let users = |worker: u8| (worker, upf.slices.users(worker));
        found = upf.slices.find(name).map(|slice| slice.workers.clone().map(users).collect::<Vec<_>>());
    });
    let workers = found?;
    let users = workers.iter().map(|(_, users)| users).sum::<usize>().min(count);
    let (mut left, mut moved) = (users, 0);
    for (worker, had) in workers.into_iter().filter(|(worker, _)| !to.contains(worker)) {
        let (gone, own) = move_from(worker, had.min(left), to, &mut with);
        (left, moved) = (left - gone, moved + own);
    }
    Ok(MoveResult { users: users as u64, moved })
}

/// Migrates at most `users` users of a worker, a limited number at a time. Returns how many it
/// examined and how many changed their worker.
pub(super) fn move_from<P: TablesAccess>(
    worker: u8,
    users: usize,
    to: &Range<u8>,
    mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
) -> (usize, u64) {
    let (mut left, mut moved) = (users, 0);
    // sessions that start meanwhile are appended, so they may migrate in place of older ones
    while left > 0 {
        let mut gone = 0;
        with(&mut |upf, plane| {
            let (some, _) = upf.slices.before(worker, usize::MAX);
            let some = &some[some.len().saturating_sub(left)..];
            gone = some.len();
            moved += upf.hand_over(some, to, plane);
        });
        if gone == 0 {
            break;
        }
        left -= gone;
    }
    (users - left, moved)
}
