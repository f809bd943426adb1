//! Sessions as they are kept between requests: those of simple devices in less than a fifth of the room. What such a session shares
//! with others, its rules but for numbers and its owner, is kept once; it is put together again for whoever wants it.

use super::{Inactivity, Session};
use crate::upf::compile::SessionEntries;
use crate::upf::rules::{Matching, Rules, TunnelEnd};
use crate::upf::timer_wheel::TimerDue;
use smallvec::smallvec;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use vireo_datapath::{DownlinkId, Tunnel};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::{FSeid, NodeId};

/// Kinds of rules, and owners, that are kept once each; sessions of more kinds are kept whole.
const SHARED: usize = 64;

/// All sessions, by their SEIDs.
#[derive(Debug, Default)]
pub(in crate::upf) struct Sessions {
    kept: HashMap<u64, StoredForm>,
    shapes: Vec<Arc<Rules>>,
    owners: Vec<Arc<SessionCreator>>,
}

#[derive(Debug)]
enum StoredForm {
    Whole(Box<Session>),
    Simple(Box<CompactSession>),
}

/// Whose a session is.
#[derive(Debug, PartialEq, Eq)]
struct SessionCreator {
    node: NodeId,
    /// With the SEID left out.
    cp: FSeid,
}

/// What is a simple session's own.
#[derive(Debug)]
struct CompactSession {
    /// With [`CompactSession::teid`], [`CompactSession::ue`] and [`CompactSession::tunnel`] left out.
    shape: Arc<Rules>,
    owner: Arc<SessionCreator>,
    cp_seid: u64,
    ue: SessionAddress,
    /// The far end of its downlink tunnel, and the place of the FAR that has it.
    tunnel: Option<(Tunnel, u8)>,
    teid: Teid,
    downlink: DownlinkId,
    worker: u8,
    simple: bool,
}

/// A session to be looked at.
pub(in crate::upf) enum SessionRef<'a> {
    Kept(&'a Session),
    Made(Box<Session>),
}

impl Deref for SessionRef<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        match self {
            SessionRef::Kept(session) => session,
            SessionRef::Made(session) => session,
        }
    }
}

impl Sessions {
    /// With room for so many, so that a million sessions are never moved at once.
    pub(in crate::upf) fn with_capacity(sessions: usize) -> Self {
        Sessions { kept: HashMap::with_capacity(sessions), ..Sessions::default() }
    }

    pub(in crate::upf) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(in crate::upf) fn contains_key(&self, seid: &u64) -> bool {
        self.kept.contains_key(seid)
    }

    /// Which worker handles a session's packets.
    pub(in crate::upf) fn worker(&self, seid: u64) -> Option<u8> {
        match self.kept.get(&seid)? {
            StoredForm::Whole(session) => Some(session.worker),
            StoredForm::Simple(simple) => Some(simple.worker),
        }
    }

    /// When a session is to be looked at next.
    pub(in crate::upf) fn look(&self, seid: u64) -> Option<TimerDue> {
        match self.kept.get(&seid)? {
            StoredForm::Whole(session) => Some(session.look),
            StoredForm::Simple(_) => Some(TimerDue::default()),
        }
    }

    pub(in crate::upf) fn get(&self, seid: &u64) -> Option<SessionRef<'_>> {
        match self.kept.get(seid)? {
            StoredForm::Whole(session) => Some(SessionRef::Kept(session)),
            StoredForm::Simple(simple) => Some(SessionRef::Made(simple.whole())),
        }
    }

    /// Changes a session.
    pub(in crate::upf) fn change<R>(&mut self, seid: &u64, change: impl FnOnce(&mut Session) -> R) -> Option<R> {
        if let StoredForm::Whole(session) = self.kept.get_mut(seid)? {
            return Some(change(session));
        }
        let mut session = self.remove(seid)?;
        let result = change(&mut session);
        self.insert(*seid, session);
        Some(result)
    }

    pub(in crate::upf) fn insert(&mut self, seid: u64, session: Box<Session>) {
        let kept = match self.simple(&session) {
            Some(simple) => StoredForm::Simple(Box::new(simple)),
            None => StoredForm::Whole(session),
        };
        self.kept.insert(seid, kept);
    }

    pub(in crate::upf) fn remove(&mut self, seid: &u64) -> Option<Box<Session>> {
        Some(match self.kept.remove(seid)? {
            StoredForm::Whole(session) => session,
            StoredForm::Simple(simple) => simple.whole(),
        })
    }

    /// Takes those out that are meant.
    pub(in crate::upf) fn take(&mut self, which: impl Fn(&Session) -> bool) -> Vec<(u64, Box<Session>)> {
        let meant = |_: &u64, kept: &mut StoredForm| match kept {
            StoredForm::Whole(session) => which(session),
            StoredForm::Simple(simple) => which(&simple.whole()),
        };
        let gone = self.kept.extract_if(meant);
        let whole = |kept| match kept {
            StoredForm::Whole(session) => session,
            StoredForm::Simple(simple) => CompactSession::whole(&simple),
        };
        gone.map(|(seid, kept)| (seid, whole(kept))).collect()
    }

    /// What is a session's own, if it is a simple one.
    fn simple(&mut self, session: &Session) -> Option<CompactSession> {
        let Session { cp, node, rules, records, chosen, dnn, sets, inactivity, worker, simple, look } = session;
        // In tests all that can be, so that whatever is done to sessions is done to such ones.
        let kind = *simple || cfg!(test);
        let plain = kind && chosen.is_none() && dnn.is_none() && sets.is_empty() && inactivity.limit.is_none();
        let (&[teid], &[(ue, downlink)]) = (&records.uplinks[..], &records.downlinks[..]) else { return None };
        if !plain || records.flows || *look != TimerDue::default() || !rules.urrs.is_empty() {
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

/// The one of `all` that is the same, which it becomes if there is none.
fn shared<T: PartialEq>(all: &mut Vec<Arc<T>>, one: T) -> Option<Arc<T>> {
    if let Some(same) = all.iter().find(|other| ***other == one) {
        return Some(Arc::clone(same));
    }
    if all.len() >= SHARED {
        // those that nobody has any more make room
        all.retain(|other| Arc::strong_count(other) > 1);
    }
    (all.len() < SHARED).then(|| {
        all.push(Arc::new(one));
        Arc::clone(&all[all.len() - 1])
    })
}

/// Rules without what is a session's own, and the tunnel that they had; `None` where more than that is.
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
    /// The session as whoever wants it knows it.
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
            look: TimerDue::default(),
        })
    }
}

#[cfg(test)]
impl Sessions {
    /// Whether a session is kept as one of simple devices.
    pub(in crate::upf) fn is_small(&self, seid: u64) -> bool {
        matches!(self.kept.get(&seid), Some(StoredForm::Simple(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simple_session_takes_less_than_a_fifth_of_the_room() {
        let (small, whole) = (size_of::<CompactSession>(), size_of::<Session>());
        assert!(small <= 112 && whole > 5 * small, "{small} of {whole} octets");
    }

    #[test]
    fn what_nobody_has_any_more_makes_room_for_others() {
        let mut all = vec![];
        let first = shared(&mut all, 0).expect("room");
        assert!((1..SHARED).all(|n| shared(&mut all, n).is_some()));
        assert!(Arc::ptr_eq(&first, &shared(&mut all, 0).expect("it is there")));
        assert_eq!(shared(&mut all, SHARED).map(|one| *one), Some(SHARED), "all but the first are nobody's");
        let held: Vec<_> = (SHARED + 1..).map_while(|n| shared(&mut all, n)).collect();
        assert_eq!(held.len(), SHARED - 1, "beside the first");
    }
}
