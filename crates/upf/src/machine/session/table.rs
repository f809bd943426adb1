//! In-memory table of sessions.
//!
//! IoT sessions have a compact form of less than a fifth of the size. The table stores shared parts
//! once: rules without their identifiers, and owners. It rebuilds the full session for each access.

use super::{Inactivity, Session};
use crate::machine::entries::SessionEntries;
use crate::machine::rules::{Matching, Rules, TunnelEnd};
use crate::machine::timer_wheel::TimerDue;
use smallvec::smallvec;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use vireo_datapath::{DownlinkId, Tunnel};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::{FSeid, NodeId};

/// Maximum number of distinct shared rules, and of distinct owners. Sessions beyond that are stored
/// in full.
const SHARED: usize = 64;

/// All sessions, by SEID.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    stored: HashMap<u64, StoredForm>,
    shapes: Vec<Arc<Rules>>,
    owners: Vec<Arc<SessionCreator>>,
}

#[derive(Debug)]
enum StoredForm {
    Whole(Box<Session>),
    Simple(Box<CompactSession>),
}

/// Owner of a session.
#[derive(Debug, PartialEq, Eq)]
struct SessionCreator {
    node: NodeId,
    /// F-SEID with the SEID replaced by 0.
    cp: FSeid,
}

/// The parts of an IoT session that it does not share.
#[derive(Debug)]
struct CompactSession {
    /// Without [`CompactSession::teid`], [`CompactSession::ue`] and [`CompactSession::tunnel`].
    shape: Arc<Rules>,
    owner: Arc<SessionCreator>,
    cp_seid: u64,
    ue: SessionAddress,
    /// Remote end of the downlink tunnel, and the index of its FAR.
    tunnel: Option<(Tunnel, u8)>,
    teid: Teid,
    downlink: DownlinkId,
    worker: u8,
    simple: bool,
}

/// Read access to a session, stored or rebuilt.
pub(crate) enum SessionRef<'a> {
    Whole(&'a Session),
    Rebuilt(Box<Session>),
}

impl Deref for SessionRef<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        match self {
            SessionRef::Whole(session) => session,
            SessionRef::Rebuilt(session) => session,
        }
    }
}

impl Sessions {
    /// Creates a table with this capacity, so that it is never reallocated with a million sessions.
    pub(crate) fn with_capacity(sessions: usize) -> Self {
        Sessions { stored: HashMap::with_capacity(sessions), ..Sessions::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    pub(crate) fn contains_key(&self, seid: &u64) -> bool {
        self.stored.contains_key(seid)
    }

    /// Returns the worker that handles a session's packets.
    pub(crate) fn worker(&self, seid: u64) -> Option<u8> {
        match self.stored.get(&seid)? {
            StoredForm::Whole(session) => Some(session.worker),
            StoredForm::Simple(simple) => Some(simple.worker),
        }
    }

    /// Returns when a session's timer fires.
    pub(crate) fn timer(&self, seid: u64) -> Option<TimerDue> {
        match self.stored.get(&seid)? {
            StoredForm::Whole(session) => Some(session.timer),
            StoredForm::Simple(_) => Some(TimerDue::default()),
        }
    }

    pub(crate) fn get(&self, seid: &u64) -> Option<SessionRef<'_>> {
        match self.stored.get(seid)? {
            StoredForm::Whole(session) => Some(SessionRef::Whole(session)),
            StoredForm::Simple(simple) => Some(SessionRef::Rebuilt(simple.whole())),
        }
    }

    /// Calls `change` with a session.
    pub(crate) fn change<R>(&mut self, seid: &u64, change: impl FnOnce(&mut Session) -> R) -> Option<R> {
        if let StoredForm::Whole(session) = self.stored.get_mut(seid)? {
            return Some(change(session));
        }
        let mut session = self.remove(seid)?;
        let result = change(&mut session);
        self.insert(*seid, session);
        Some(result)
    }

    pub(crate) fn insert(&mut self, seid: u64, session: Box<Session>) {
        let form = match self.simple(&session) {
            Some(simple) => StoredForm::Simple(Box::new(simple)),
            None => StoredForm::Whole(session),
        };
        self.stored.insert(seid, form);
    }

    pub(crate) fn remove(&mut self, seid: &u64) -> Option<Box<Session>> {
        Some(match self.stored.remove(seid)? {
            StoredForm::Whole(session) => session,
            StoredForm::Simple(simple) => simple.whole(),
        })
    }

    /// Removes and returns the matching sessions.
    pub(crate) fn take(&mut self, which: impl Fn(&Session) -> bool) -> Vec<(u64, Box<Session>)> {
        let meant = |_: &u64, form: &mut StoredForm| match form {
            StoredForm::Whole(session) => which(session),
            StoredForm::Simple(simple) => which(&simple.whole()),
        };
        let gone = self.stored.extract_if(meant);
        let whole = |form| match form {
            StoredForm::Whole(session) => session,
            StoredForm::Simple(simple) => CompactSession::whole(&simple),
        };
        gone.map(|(seid, form)| (seid, whole(form))).collect()
    }

    /// Returns the compact form of a session, if it has one.
    fn simple(&mut self, session: &Session) -> Option<CompactSession> {
        let Session { cp, node, rules, records, chosen, dnn, sets, inactivity, worker, simple, timer } = session;
        // Tests use it for all sessions that allow it, to cover every operation.
        let kind = *simple || cfg!(test);
        let plain = kind && chosen.is_none() && dnn.is_none() && sets.is_empty() && inactivity.limit.is_none();
        let (&[teid], &[(ue, downlink)]) = (&records.uplinks[..], &records.downlinks[..]) else { return None };
        if !plain || records.flows || *timer != TimerDue::default() || !rules.urrs.is_empty() {
            return None;
        }
        let (shape, tunnel) = shape(rules, teid, ue)?;
        let owner = SessionCreator { node: node.clone(), cp: FSeid { seid: 0, ..*cp } };
        Some(CompactSession {
            shape: shared(&mut self.shapes, shape)?,
            owner: shared(&mut self.owners, owner)?,
            cp_seid: cp.seid,
            ue,
            tunnel,
            teid,
            downlink,
            worker: *worker,
            simple: *simple,
        })
    }
}

/// Returns the element of `all` equal to `one`, which is added if absent. Returns `None` if there
/// is no room.
fn shared<T: PartialEq>(all: &mut Vec<Arc<T>>, one: T) -> Option<Arc<T>> {
    if let Some(same) = all.iter().find(|other| ***other == one) {
        return Some(Arc::clone(same));
    }
    if all.len() >= SHARED {
        // unreferenced elements make room
        all.retain(|other| Arc::strong_count(other) > 1);
    }
    (all.len() < SHARED).then(|| {
        all.push(Arc::new(one));
        Arc::clone(&all[all.len() - 1])
    })
}

/// Returns the rules without the parts of the session, and its tunnel. Returns `None` if other
/// parts differ.
fn shape(rules: &Rules, teid: Teid, ue: SessionAddress) -> Option<(Rules, Option<(Tunnel, u8)>)> {
    let mut shape = rules.clone();
    let (mut ups, mut downs) = (0, 0);
    for pdr in &mut shape.pdrs {
        match &mut pdr.detection.matching {
            Matching::Tunnel { end: TunnelEnd::Ours { teid: own, .. }, .. } if *own == teid => {
                *own = Teid(0);
                ups += 1;
            }
            Matching::Downlink if pdr.detection.ue == ue => {
                pdr.detection.ue = SessionAddress::default();
                downs += 1;
            }
            _ => return None,
        }
    }
    let mut tunnels = (0..).zip(&mut shape.fars).filter(|(_, far)| far.tunnel.is_some());
    let tunnel = tunnels.next().and_then(|(n, far)| Some((far.tunnel.take()?, n)));
    let plain = (ups, downs) == (1, 1) && tunnels.next().is_none();
    plain.then_some((shape, tunnel))
}

impl CompactSession {
    /// Rebuilds the full session.
    fn whole(&self) -> Box<Session> {
        let mut rules = (*self.shape).clone();
        for pdr in &mut rules.pdrs {
            match &mut pdr.detection.matching {
                Matching::Tunnel { end: TunnelEnd::Ours { teid, .. }, .. } => *teid = self.teid,
                _ => pdr.detection.ue = self.ue,
            }
        }
        if let Some((tunnel, n)) = self.tunnel
            && let Some(far) = rules.fars.get_mut(usize::from(n))
        {
            far.tunnel = Some(tunnel);
        }
        Box::new(Session {
            cp: FSeid { seid: self.cp_seid, ..self.owner.cp },
            node: self.owner.node.clone(),
            rules,
            records: SessionEntries {
                uplinks: smallvec![self.teid],
                downlinks: smallvec![(self.ue, self.downlink)],
                flows: false,
            },
            chosen: None,
            dnn: None,
            sets: Box::default(),
            inactivity: Inactivity::default(),
            worker: self.worker,
            simple: self.simple,
            timer: TimerDue::default(),
        })
    }
}

#[cfg(test)]
impl Sessions {
    /// Returns true if a session is stored in compact form.
    pub(crate) fn is_small(&self, seid: u64) -> bool {
        matches!(self.stored.get(&seid), Some(StoredForm::Simple(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_session_takes_a_fifth_of_the_memory() {
        let (small, whole) = (size_of::<CompactSession>(), size_of::<Session>());
        assert!(small <= 112 && whole > 5 * small, "{small} of {whole} octets");
    }

    #[test]
    fn unused_shape_is_replaced() {
        let mut all = vec![];
        let first = shared(&mut all, 0).expect("room");
        assert!((1..SHARED).all(|n| shared(&mut all, n).is_some()));
        assert!(Arc::ptr_eq(&first, &shared(&mut all, 0).expect("it is there")));
        assert_eq!(shared(&mut all, SHARED).map(|one| *one), Some(SHARED), "all but the first are nobody's");
        let held: Vec<_> = (SHARED + 1..).map_while(|n| shared(&mut all, n)).collect();
        assert_eq!(held.len(), SHARED - 1, "beside the first");
    }
}
