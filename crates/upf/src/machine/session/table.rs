//! In-memory table of sessions.
//!
//! A session with one tunnel, one UE address and no timer has a compact form of less than a fifth
//! of the size. The table stores shared parts once: rules without their identifiers, and owners. It
//! rebuilds the full session for each access.

use super::{Inactivity, Session};
use crate::machine::entries::SessionEntries;
use crate::machine::rules::{Matching, Pdr, Rules, TunnelEnd};
use crate::machine::timer_wheel::TimerDue;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::smallvec;
use std::ops::Deref;
use std::sync::Arc;
use vireo_datapath::{DownlinkId, Tunnel};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::{FSeid, FqCsid, NodeId};

/// Maximum number of distinct shared rules, and of distinct owners. Sessions beyond that are stored
/// in full.
const SHARED: usize = 64;
/// Number of distinct shared rules at which only sessions of IoT slices add others: a control plane
/// may choose other rule IDs for each session.
const ADDED: usize = SHARED / 2;

/// All sessions, by SEID. The UPF chooses the SEIDs.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    stored: FxHashMap<u64, StoredForm>,
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

/// A session in compact form: the parts that it does not share.
#[derive(Debug)]
struct CompactSession {
    /// All identifiers in it are 0.
    shape: Arc<Rules>,
    owner: Arc<SessionCreator>,
    cp_seid: u64,
    own: RuleIdentifiers,
    downlink: DownlinkId,
    worker: u8,
    simple: bool,
}

/// Identifiers in the rules of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RuleIdentifiers {
    ue: SessionAddress,
    /// True if the uplink rule names the address too.
    in_uplink: bool,
    teid: Teid,
    /// Remote end of the downlink tunnel, and the index of its FAR.
    tunnel: Option<(Tunnel, u8)>,
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
        Sessions { stored: FxHashMap::with_capacity_and_hasher(sessions, FxBuildHasher), ..Sessions::default() }
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

    /// Returns the Node ID of the control plane that owns a session, and its SEID there.
    pub(crate) fn owner(&self, seid: u64) -> Option<(&NodeId, u64)> {
        match self.stored.get(&seid)? {
            StoredForm::Whole(session) => Some((&session.node, session.cp.seid)),
            StoredForm::Simple(simple) => Some((&simple.owner.node, simple.cp_seid)),
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
        let form = match self.compact(session) {
            Ok(simple) => StoredForm::Simple(Box::new(simple)),
            Err(session) => StoredForm::Whole(session),
        };
        self.stored.insert(seid, form);
    }

    pub(crate) fn remove(&mut self, seid: &u64) -> Option<Box<Session>> {
        Some(match self.stored.remove(seid)? {
            StoredForm::Whole(session) => session,
            StoredForm::Simple(simple) => simple.whole(),
        })
    }

    /// Removes and returns the sessions of matching owners and FQ-CSIDs.
    pub(crate) fn take(&mut self, which: impl Fn(&NodeId, &[FqCsid]) -> bool) -> Vec<(u64, Box<Session>)> {
        let meant = |_: &u64, form: &mut StoredForm| match form {
            StoredForm::Whole(session) => which(&session.node, &session.sets),
            StoredForm::Simple(simple) => which(&simple.owner.node, &[]),
        };
        let gone = self.stored.extract_if(meant);
        let whole = |form| match form {
            StoredForm::Whole(session) => session,
            StoredForm::Simple(simple) => CompactSession::whole(&simple),
        };
        gone.map(|(seid, form)| (seid, whole(form))).collect()
    }

    /// Returns the compact form of a session, or the session if it has none.
    fn compact(&mut self, mut session: Box<Session>) -> Result<CompactSession, Box<Session>> {
        let Session { cp, node, rules, records, chosen, dnn, sets, inactivity, worker, simple, timer } = &mut *session;
        let plain = chosen.is_none() && dnn.is_none() && sets.is_empty() && inactivity.limit.is_none();
        let is_shared = plain && !records.flows && *timer == TimerDue::default() && rules.urrs.is_empty();
        let (&[teid], &[(ue, downlink)]) = (&records.uplinks[..], &records.downlinks[..]) else { return Err(session) };
        let Some(own) = RuleIdentifiers::find(rules, teid, ue).filter(|_| is_shared) else { return Err(session) };
        let owner = SessionCreator { node: node.clone(), cp: FSeid { seid: 0, ..*cp } };
        let (cp_seid, worker, simple) = (cp.seid, *worker, *simple);
        let room = if simple { SHARED } else { ADDED };
        let Ok(owner) = shared(&mut self.owners, owner, room) else { return Err(session) };
        own.remove_from(rules);
        match shared(&mut self.shapes, std::mem::take(rules), room) {
            Ok(shape) => Ok(CompactSession { shape, owner, cp_seid, own, downlink, worker, simple }),
            Err(shape) => {
                *rules = shape;
                own.add_to(rules);
                Err(session)
            }
        }
    }
}

/// Returns the element of `all` equal to `one`. Adds it if it is absent and `all` has fewer than
/// `room` elements, else returns `one`.
fn shared<T: PartialEq>(all: &mut Vec<Arc<T>>, one: T, room: usize) -> Result<Arc<T>, T> {
    if let Some(same) = all.iter().find(|other| ***other == one) {
        return Ok(Arc::clone(same));
    }
    if all.len() >= room {
        // unreferenced elements make room
        all.retain(|other| Arc::strong_count(other) > 1);
    }
    if all.len() >= room {
        return Err(one);
    }
    all.push(Arc::new(one));
    Ok(Arc::clone(&all[all.len() - 1]))
}

impl RuleIdentifiers {
    /// Returns the identifiers in rules. Returns `None` if the rules have others.
    fn find(rules: &Rules, teid: Teid, ue: SessionAddress) -> Option<Self> {
        let (mut up, mut down) = (None, None);
        for Pdr { detection, .. } in &rules.pdrs {
            let place = match detection.matching {
                Matching::Tunnel { end: TunnelEnd::Ours { teid: own, .. }, .. } if own == teid => &mut up,
                Matching::Downlink if detection.ue == ue => &mut down,
                _ => return None,
            };
            if place.replace(detection.ue).is_some() {
                return None;
            }
        }
        let in_uplink = up.zip(down)?.0 != SessionAddress::default();
        let mut tunnels = (0..).zip(&rules.fars).filter_map(|(n, far)| Some((far.tunnel?, n)));
        let tunnel = tunnels.next();
        let is_plain = tunnels.next().is_none() && (!in_uplink || up == Some(ue));
        is_plain.then_some(RuleIdentifiers { ue, in_uplink, teid, tunnel })
    }

    /// Replaces the identifiers by zeros.
    fn remove_from(&self, rules: &mut Rules) {
        self.set(rules, SessionAddress::default(), Teid(0), None);
    }

    /// Sets the identifiers in rules without.
    fn add_to(&self, rules: &mut Rules) {
        self.set(rules, self.ue, self.teid, self.tunnel.map(|(tunnel, _)| tunnel));
    }

    fn set(&self, rules: &mut Rules, ue: SessionAddress, own: Teid, remote: Option<Tunnel>) {
        for Pdr { detection, .. } in &mut rules.pdrs {
            let is_downlink = detection.matching == Matching::Downlink;
            if let Matching::Tunnel { end: TunnelEnd::Ours { teid, .. }, .. } = &mut detection.matching {
                *teid = own;
            }
            if is_downlink || self.in_uplink {
                detection.ue = ue;
            }
        }
        if let Some((_, n)) = self.tunnel
            && let Some(far) = rules.fars.get_mut(usize::from(n))
        {
            far.tunnel = remote;
        }
    }
}

impl CompactSession {
    /// Rebuilds the full session.
    fn whole(&self) -> Box<Session> {
        let mut rules = (*self.shape).clone();
        self.own.add_to(&mut rules);
        Box::new(Session {
            cp: FSeid { seid: self.cp_seid, ..self.owner.cp },
            node: self.owner.node.clone(),
            rules,
            records: SessionEntries {
                uplinks: smallvec![self.own.teid],
                downlinks: smallvec![(self.own.ue, self.downlink)],
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
        let mut add = |n: usize, room| shared(&mut all, n, room);
        let first = add(0, SHARED).expect("room");
        assert!((1..SHARED).all(|n| add(n, SHARED).is_ok()));
        assert!(Arc::ptr_eq(&first, &add(0, SHARED).expect("it is there")));
        assert_eq!(add(SHARED, SHARED).map(|one| *one), Ok(SHARED), "all but the first are nobody's");
        let held: Vec<_> = (SHARED + 1..).map_while(|n| add(n, SHARED).ok()).collect();
        assert_eq!(held.len(), SHARED - 1, "beside the first");
    }

    #[test]
    fn shapes_leave_room_for_iot_sessions() {
        let mut all = vec![];
        let held: Vec<_> = (0..).map_while(|n| shared(&mut all, n, ADDED).ok()).collect();
        assert_eq!(held.len(), ADDED);
        let more: Vec<_> = (ADDED..).map_while(|n| shared(&mut all, n, SHARED).ok()).collect();
        assert_eq!(more.len(), SHARED - ADDED);
        assert!(shared(&mut all, 0, ADDED).is_ok(), "what is there is shared");
    }
}
