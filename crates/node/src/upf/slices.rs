//! Slices of the user plane: of which one a session is, who its workers are, and moving users from one to another.
//!
//! A session is of the slice that the control plane names (S-NSSAI), else of the one whose data network it uses, else
//! of the first. Within a slice it goes to the worker with the fewest users. The state of a user exists once and stays
//! where it is: a move changes who handles it (`vireo_datapath::Owners`).

use super::plan::Records;
use super::session::Session;
use super::state::{Plane, Upf};
use crate::api::{Move, MoveError, Moved, SliceCounted, SliceStatus, SliceWorkerStatus, SlicesStatus, Who};
use std::net::IpAddr;
use std::ops::Range;
use vireo_datapath::{SliceWorkers, Tables, View, Volume, WorkerLoad};
use vireo_types::{Dnn, Snssai};
use vireo_wire::pfcp::{NetworkInstance, SessionEstablishmentRequest};

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

/// The slices with what is known of their users.
#[derive(Debug, Default)]
pub(super) struct Slices {
    all: Vec<Slice>,
    /// Sessions of each worker.
    users: Vec<u64>,
    /// Users that were moved since the start.
    moved: u64,
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
        Slices { all, users: vec![0; next.into()], moved: 0 }
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

    /// The worker with the fewest users.
    fn least(&self, workers: &Range<u8>) -> u8 {
        workers.clone().min_by_key(|worker| self.users.get(usize::from(*worker))).unwrap_or(workers.start)
    }

    pub(super) fn joins(&mut self, worker: u8) {
        if let Some(users) = self.users.get_mut(usize::from(worker)) {
            *users += 1;
        }
    }

    pub(super) fn leaves(&mut self, worker: u8) {
        if let Some(users) = self.users.get_mut(usize::from(worker)) {
            *users = users.saturating_sub(1);
        }
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
                users: self.users.get(usize::from(number)).copied().unwrap_or(0),
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
        SlicesStatus { moved: self.moved, slices: self.all.iter().map(slice).collect() }
    }
}

impl Records {
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
    /// The sessions that are meant.
    fn whom(&self, who: &Who, plane: &mut impl Plane) -> Result<Vec<u64>, MoveError> {
        let found: Vec<u64> = match who {
            Who::Seid(seid) => vec![*seid],
            Who::Addresses(first, last) => {
                let all = each(*first, *last)?;
                let mut found: Vec<u64> =
                    plane.look(|tables| all.into_iter().filter_map(|one| tables.session_at(one)).collect());
                found.dedup();
                found
            }
            Who::Slice { name, count } => {
                let workers = &self.slices.find(name)?.workers;
                let of = |(seid, worker): (&u64, u8)| workers.contains(&worker).then_some(*seid);
                let all = self.sessions.iter().filter_map(|(seid, session)| of((seid, session.worker)));
                all.take(count.unwrap_or(usize::MAX)).collect()
            }
        };
        let known: Vec<u64> = found.into_iter().filter(|seid| self.sessions.contains_key(seid)).collect();
        match (known.is_empty(), who) {
            (true, Who::Seid(_) | Who::Addresses(..)) => Err(MoveError::NoUser),
            _ => Ok(known),
        }
    }

    /// Hands the packets of these sessions to workers; gives how many had another before.
    fn hand_over(&mut self, seids: &[u64], to: &Range<u8>, plane: &mut impl Plane) -> u64 {
        let mut moved = 0;
        let Upf { sessions, slices, .. } = self;
        plane.look(|tables| {
            for seid in seids {
                // one that has ended meanwhile is nobody's
                let Some(session) = sessions.get_mut(seid) else { continue };
                if to.contains(&session.worker) {
                    continue;
                }
                let worker = slices.least(to);
                session.records.give(tables, worker);
                slices.leaves(std::mem::replace(&mut session.worker, worker));
                slices.joins(worker);
                moved += 1;
            }
        });
        slices.moved += moved;
        moved
    }

    /// How the slices are, if there are any.
    pub(super) fn slices_status(&self, view: &View, counts: bool) -> SlicesStatus {
        let mut status = self.slices.status(&view.loads());
        if !counts {
            return status;
        }
        view.look(|tables| {
            for (slice, status) in self.slices.all.iter().zip(&mut status.slices) {
                let users = self.sessions.values().filter(|session| slice.workers.contains(&session.worker));
                let add = |mut sum: SliceCounted, session: &Session| {
                    for volume in session.records.volumes(tables) {
                        (sum.packets, sum.octets) = (sum.packets + volume.packets, sum.octets + volume.octets);
                    }
                    sum
                };
                status.counted = Some(users.fold(SliceCounted::default(), |sum, session| add(sum, session)));
            }
        });
        status
    }

    /// Begins a move: the sessions that are meant, and the workers that they go to.
    pub(super) fn begin_move(&self, order: &Move, plane: &mut impl Plane) -> Result<(Vec<u64>, Range<u8>), MoveError> {
        let to = self.slices.target(&order.to, order.worker)?;
        Ok((self.whom(&order.who, plane)?, to))
    }
}

/// Moves users, some at a time: `with` lends the state machine and the tables, for which others wait.
pub(super) fn move_users<P: Plane>(
    order: &Move,
    mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
) -> Result<Moved, MoveError> {
    let mut begun = Err(MoveError::NoUser);
    with(&mut |upf, plane| begun = upf.begin_move(order, plane));
    let (seids, to) = begun?;
    let mut moved = 0;
    for some in seids.chunks(TOGETHER) {
        with(&mut |upf, plane| moved += upf.hand_over(some, &to, plane));
    }
    Ok(Moved { users: seids.len() as u64, moved })
}
