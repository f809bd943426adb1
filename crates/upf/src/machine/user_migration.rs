//! Migration of users between the workers of slices.
//!
//! User state exists once and is never copied: a migration only changes the worker
//! (`vireo_datapath::WorkerMap`).

use crate::machine::Upf;
use crate::machine::slices::USERS_AT_ONCE;
use crate::machine::tables_access::TablesAccess;
use std::net::IpAddr;
use std::ops::Range;
use vireo_datapath::StatsHandle;
use vireo_ops::api::{MoveError, MoveRequest, MoveResult, SliceCounted, SlicesStatus, UserSelector};
use vireo_wire::pfcp::{Message, MessageType, SessionEstablishmentRequest};

/// Maximum number of addresses in a migration request.
const RANGE_ADDRESSES: u128 = 1 << 16;
/// Returns each address of a range; for IPv6 the prefix of each /64.
fn addresses_in_range(first: IpAddr, last: IpAddr) -> Result<Vec<IpAddr>, MoveError> {
    let (from, to) = match (first, last) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (u128::from(from.to_bits()), u128::from(to.to_bits())),
        (IpAddr::V6(from), IpAddr::V6(to)) => (from.to_bits() >> 64, to.to_bits() >> 64),
        _ => return Err(MoveError::Range),
    };
    if from > to {
        return Err(MoveError::Range);
    }
    if to - from >= RANGE_ADDRESSES {
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
    pub(crate) fn slice_of(&self, datagram: &[u8]) -> Option<usize> {
        let message = Message::new(datagram).ok()?;
        let worker = match message.message_type() {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                let request = SessionEstablishmentRequest::parse(&message).ok()?;
                self.slices.choose(&request)
            }
            _ => self.sessions.worker(message.seid())?,
        };
        self.slices.slice_of_worker(worker)
    }

    /// Assigns the packets of these sessions to workers. Returns how many sessions changed their
    /// worker.
    fn migrate(&mut self, seids: &[u64], to: &Range<u8>, plane: &mut impl TablesAccess) -> u64 {
        let mut moved = 0;
        let Upf { sessions, slices, .. } = self;
        plane.read(|tables| {
            for seid in seids {
                // the session has ended meanwhile, or already has a target worker
                if sessions.worker(*seid).is_none_or(|worker| to.contains(&worker)) {
                    continue;
                }
                let worker = slices.least(to);
                let before = sessions.change(seid, |session| {
                    session.records.assign_worker(tables, worker);
                    std::mem::replace(&mut session.worker, worker)
                });
                before.into_iter().for_each(|before| slices.remove_user(before, *seid));
                slices.add_user(worker, *seid);
                moved += 1;
            }
        });
        slices.moved += moved;
        moved
    }

    /// Adds the volume of the sessions' entries to `sum`.
    fn add_volume(&self, seids: &[u64], view: &StatsHandle, mut sum: SliceCounted) -> SliceCounted {
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
    fn sessions_at(&self, addresses: &[IpAddr], plane: &mut impl TablesAccess) -> Vec<u64> {
        let mut found: Vec<u64> =
            plane.read(|tables| addresses.iter().filter_map(|one| tables.session_at(*one)).collect());
        found.dedup();
        found.retain(|seid| self.sessions.contains_key(seid));
        found
    }
}

/// Returns the status of the slices. `with` lends the state machine for a limited number of users
/// at a time, because other threads wait for it. Counters of users that come or go meanwhile may be
/// missing or counted twice.
pub(crate) fn status(view: &StatsHandle, counts: bool, mut with: impl FnMut(&mut dyn FnMut(&Upf))) -> SlicesStatus {
    let mut status = SlicesStatus::default();
    with(&mut |upf| status = upf.slices.status(&view.loads()));
    for slice in status.slices.iter_mut().filter(|_| counts) {
        let mut sum = SliceCounted::default();
        for worker in &slice.workers {
            let mut place = usize::MAX;
            while place > 0 {
                with(&mut |upf| {
                    let (some, start) = upf.slices.users_before(worker.number, place);
                    sum = upf.add_volume(&some, view, sum);
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
pub(crate) fn move_users<P: TablesAccess>(
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
            moved += upf.migrate(&[*seid], &to, plane);
        }),
        UserSelector::Addresses(first, last) => {
            for some in addresses_in_range(*first, *last)?.chunks(USERS_AT_ONCE) {
                with(&mut |upf, plane| {
                    let found = upf.sessions_at(some, plane);
                    users += found.len() as u64;
                    moved += upf.migrate(&found, &to, plane);
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
pub(crate) fn move_from<P: TablesAccess>(
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
            let (some, _) = upf.slices.users_before(worker, usize::MAX);
            let some = &some[some.len().saturating_sub(left)..];
            gone = some.len();
            moved += upf.migrate(some, to, plane);
        });
        if gone == 0 {
            break;
        }
        left -= gone;
    }
    (users - left, moved)
}
