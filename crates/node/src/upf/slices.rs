//! Slices of the user plane: of which one a session is, who its workers are, and moving users from one to another.
//!
//! A session is of the slice that the control plane names (S-NSSAI), else of the one whose data network it uses, else
//! of the first. Within a slice it goes to the worker with the fewest users. The state of a user exists once and stays
//! where it is: a move changes who handles it (`vireo_datapath::Owners`).

use super::compile::SessionEntries;
use super::state::{TablesAccess, Upf};
use crate::api::{
    MoveError, MoveRequest, MoveResult, SliceCounted, SliceStatus, SliceWorkerStatus, SlicesStatus, UserSelector,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use vireo_datapath::{SliceWorkers, StatsHandle, Tables, Volume, WorkerLoad};
use vireo_types::{Dnn, Snssai};
use vireo_wire::pfcp::{Message, MessageType, NetworkInstance, SessionEstablishmentRequest};

/// A slice of the user plane, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSlice {
    /// Its name.
    pub name: String,
    /// Sessions with this S-NSSAI are of it.
    pub snssai: Option<Snssai>,
    /// So are those of these data networks, if they name no S-NSSAI that is known.
    pub dnns: Vec<Dnn>,
    /// Packet threads of its own, and their processors.
    pub workers: SliceWorkers,
}

/// A slice of simple devices (`profile = "iot"`): by whatever workers they are handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeanSlice {
    /// Sessions with this S-NSSAI are of it.
    pub snssai: Option<Snssai>,
    /// So are those of these data networks, if they name no S-NSSAI.
    pub dnns: Vec<Dnn>,
    /// It is the only slice: so are all that name no S-NSSAI.
    pub alone: bool,
}

impl LeanSlice {
    /// Whether a new session is of one of these.
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

/// Addresses that are looked for one by one.
const ADDRESSES: u128 = 1 << 16;
/// Users that are moved while the control plane waits.
const TOGETHER: usize = 256;

#[derive(Clone, Debug)]
struct Slice {
    config: DataSlice,
    /// Numbers of its workers.
    workers: Range<u8>,
}

/// The sessions of a worker, in no order.
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
            // there are 2^24 sessions at the most
            place.insert(self.seids.len() as u32);
            self.seids.push(seid);
        }
    }

    /// The last one takes its place.
    fn remove(&mut self, seid: u64) {
        let Some(place) = self.places.remove(&seid) else { return };
        self.seids.swap_remove(place as usize);
        if let Some(moved) = self.seids.get(place as usize) {
            self.places.insert(*moved, place);
        }
    }
}

/// The slices with what is known of their users.
#[derive(Debug, Default)]
pub(super) struct Slices {
    all: Vec<Slice>,
    /// Sessions of each worker, in no order: found, added and taken away without a look at the others.
    members: Vec<MemberVerifier>,
    /// Users that were moved since the start, and those of them that went to a worker with less to do by themselves.
    moved: u64,
    rebalanced: u64,
}

/// The users of a slice's workers.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceLoad {
    pub(super) name: String,
    /// Numbers of its workers and their users.
    pub(super) workers: Vec<(u8, usize)>,
}

impl Slices {
    pub(super) fn new(configured: &[DataSlice]) -> Self {
        let mut next = 0_u8;
        let all: Vec<Slice> = configured
            .iter()
            .map(|config| {
                let first = next;
                // more than there may be are refused when the datapath starts
                next = first.saturating_add(u8::try_from(config.workers.workers).unwrap_or(u8::MAX));
                Slice { config: config.clone(), workers: first..next }
            })
            .collect();
        Slices { all, members: vec![MemberVerifier::default(); next.into()], moved: 0, rebalanced: 0 }
    }

    /// The worker for a new session; 0 where there are no slices.
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

    /// The worker of this number, if there is one.
    pub(super) fn known(&self, worker: u8) -> u8 {
        if usize::from(worker) < self.members.len() { worker } else { 0 }
    }

    /// The place of the slice that a worker is of.
    pub(super) fn place_of(&self, worker: u8) -> Option<usize> {
        self.all.iter().position(|slice| slice.workers.contains(&worker))
    }

    /// The worker with the fewest users.
    fn least(&self, workers: &Range<u8>) -> u8 {
        workers.clone().min_by_key(|worker| self.users(*worker)).unwrap_or(workers.start)
    }

    /// Of each slice.
    pub(super) fn users_by_worker(&self) -> Vec<SliceLoad> {
        let workers = |slice: &Slice| slice.workers.clone().map(|worker| (worker, self.users(worker))).collect();
        let load = |slice: &Slice| SliceLoad { name: slice.config.name.clone(), workers: workers(slice) };
        self.all.iter().map(load).collect()
    }

    /// So many users have gone to a worker with less to do.
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

    /// Some of a worker's sessions, those before this place: who goes on where they end misses none that stays, though
    /// others come and go.
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

    /// The workers that a move leads to.
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

    /// How the slices are; `loads` are those of their workers.
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
    /// Hands their packets to a worker.
    pub(super) fn give(&self, tables: &Tables, worker: u8) {
        tables.owners().give(&self.uplinks, self.downlinks.iter().map(|(ue, _)| *ue), worker);
    }

    /// What each of them has carried.
    fn volumes(&self, tables: &Tables) -> impl Iterator<Item = Volume> {
        let up = self.uplinks.iter().map(|teid| tables.uplink_volume(*teid));
        up.chain(self.downlinks.iter().map(|(_, id)| tables.downlink_volume(*id)))
    }
}

/// Each address of a range, a prefix for each /64.
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
    /// The place of the slice whose users a request is for; `None` if it is for no session, or is no sound one.
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

    /// Hands the packets of these sessions to workers; gives how many had another before.
    fn hand_over(&mut self, seids: &[u64], to: &Range<u8>, plane: &mut impl TablesAccess) -> u64 {
        let mut moved = 0;
        let Upf { sessions, slices, .. } = self;
        plane.look(|tables| {
            for seid in seids {
                // one that has ended meanwhile is nobody's
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

    /// What some sessions' records have counted.
    fn counted(&self, seids: &[u64], view: &StatsHandle, mut sum: SliceCounted) -> SliceCounted {
        view.look(|tables| {
            for session in seids.iter().filter_map(|seid| self.sessions.get(seid)) {
                for volume in session.records.volumes(tables) {
                    (sum.packets, sum.octets) = (sum.packets + volume.packets, sum.octets + volume.octets);
                }
            }
        });
        sum
    }

    /// Which of some addresses' sessions are there.
    fn at(&self, addresses: &[IpAddr], plane: &mut impl TablesAccess) -> Vec<u64> {
        let mut found: Vec<u64> =
            plane.look(|tables| addresses.iter().filter_map(|one| tables.session_at(*one)).collect());
        found.dedup();
        found.retain(|seid| self.sessions.contains_key(seid));
        found
    }
}

/// How the slices are, if there are any. Users are looked at some at a time: `with` lends the state machine, for which others
/// wait. Of users that come or go meanwhile the counts may be there or not, or twice.
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

/// Moves users, some at a time: `with` lends the state machine and the tables, for which others wait.
pub(super) fn move_users<P: TablesAccess>(
    order: &MoveRequest,
    mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
) -> Result<MoveResult, MoveError> {
    let mut to = Err(MoveError::NoSlices);
    with(&mut |upf, _| to = upf.slices.target(&order.to, order.worker));
    let to = to?;
    let (mut users, mut moved) = (0, 0);
    match &order.who {
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

/// Moves so many users of a slice.
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

/// Moves so many users of a worker, some at a time; gives how many were looked at and how many had another worker before.
pub(super) fn move_from<P: TablesAccess>(
    worker: u8,
    users: usize,
    to: &Range<u8>,
    mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
) -> (usize, u64) {
    let (mut left, mut moved) = (users, 0);
    // those that come meanwhile are of the worker as it is then
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
