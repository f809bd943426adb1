//! Associations with control planes (TS 29.244 6.2): how they begin, to which addresses they are bound, and what ends
//! with them.

use super::supervision::{Contest, Supervision};
use super::{Association, HOSTS, Line, Session, SessionHolder, TablesAccess, Timestamps, Upf};
use crate::upf::control_planes::Permit;
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use tracing::{info, warn};
use vireo_datapath::Use;
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{self, *};

/// How long an association that never had a session keeps its place when others need one.
const UNUSED: Duration = Duration::from_secs(60);

/// What becomes of an Association Setup Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// It is answered; `retained`: the sessions that it wants kept are.
    Answer { cause: Cause, retained: bool },
    /// It is answered when the address that the Node ID is bound to has, or has not, shown that it is there.
    Waits,
}

impl Setup {
    pub(super) fn refused(cause: Cause) -> Self {
        Setup::Answer { cause, retained: false }
    }
}

/// Returns true if a Recovery Time Stamp is later than another: serial numbers, which wrap in 2036.
fn is_later(stamp: u32, than: u32) -> bool {
    (stamp.wrapping_sub(than) as i32) > 0
}

impl Upf {
    /// A heartbeat with a later Recovery Time Stamp than the association's says that the control plane has restarted
    /// and knows nothing of its sessions (TS 29.244 6.2.2, TS 23.527 4.3). It names no node: where several are at one
    /// address, an Association Setup Request has to.
    pub(super) fn heartbeat(&mut self, from: SocketAddr, stamp: u32, now: Timestamps, plane: &mut impl TablesAccess) {
        let mut here = self.associations.iter().filter(|(_, association)| association.address.ip() == from.ip());
        let (Some((node_id, association)), None) = (here.next(), here.next()) else { return };
        if is_later(stamp, association.recovery) {
            let node_id = node_id.clone();
            self.restarted(from, &node_id, now, plane);
        }
    }

    fn restarted(&mut self, from: SocketAddr, node_id: &NodeId, now: Timestamps, plane: &mut impl TablesAccess) {
        if let Some(left_out) = self.lines.admit(Line::Restarted, from.ip(), now.instant) {
            warn!(control_plane = %from, node = ?node_id, left_out, "control plane restarted, removing its sessions");
        }
        self.dissociate(node_id, plane);
    }

    /// A control plane sets an association up.
    pub(super) fn associate(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> Setup {
        let request = match AssociationSetupRequest::parse(message) {
            Ok(request) => request,
            Err(error) => return Setup::refused(error.cause),
        };
        let permit = self.settings.associations.permit(from.ip(), &request.node_id);
        if permit == Permit::Refused {
            return self.refuse_setup(from, &request.node_id, "address not allowed for this Node ID", now);
        }
        let known = self.associations.get(&request.node_id).map(|association| association.hosts.contains(&from.ip()));
        match known {
            Some(false) if permit != Permit::Named => {
                return self.contend(from, message.sequence(), request, now, plane);
            }
            None if !self.has_room_for(from.ip(), now, plane) => {
                self.stats.refused_associations += 1;
                if let Some(left_out) = self.lines.admit(Line::NoRoom, from.ip(), now.instant) {
                    warn!(control_plane = %from, left_out, "too many PFCP associations; see upf.associations.max");
                }
                return Setup::refused(Cause::NO_RESOURCES);
            }
            _ => {}
        }
        self.bind(from, request, now, plane)
    }

    /// A Node ID that is bound to another address is asked for. Nothing is deleted by it. If the sessions are to stay (the
    /// same time stamp, or Session Retention Information), the address that has them is asked for a sign of life, and the
    /// new one takes its place if none comes: so the next balancer of a cluster or SMF of a set goes on.
    fn contend(
        &mut self,
        from: SocketAddr,
        sequence: u32,
        request: AssociationSetupRequest,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> Setup {
        let Some(association) = self.associations.get_mut(&request.node_id) else {
            return Setup::refused(Cause::REQUEST_REJECTED);
        };
        let keeps = request.session_retention.is_some() || association.recovery == request.recovery_time_stamp.0;
        if !keeps {
            return self.refuse_setup(from, &request.node_id, "Node ID is bound to another address", now);
        }
        if association.supervision.silent_since.is_some() {
            return self.bind(from, request, now, plane);
        }
        if association.contest.is_none() {
            association.contest = Some(Box::new(Contest::new(from, sequence, request, now.instant)));
            self.contests += 1;
        }
        Setup::Waits
    }

    pub(super) fn refuse_setup(&mut self, from: SocketAddr, node_id: &NodeId, reason: &str, now: Timestamps) -> Setup {
        self.stats.refused_associations += 1;
        if let Some(left_out) = self.lines.admit(Line::Refused, from.ip(), now.instant) {
            warn!(control_plane = %from, node = ?node_id, reason, left_out,
                "PFCP association refused; see upf.control-planes");
        }
        Setup::refused(Cause::REQUEST_REJECTED)
    }

    /// Whether an address may have one more association. One that was never used makes room for it.
    fn has_room_for(&mut self, address: IpAddr, now: Timestamps, plane: &mut impl TablesAccess) -> bool {
        let limits = &self.settings.associations;
        let own = self.associations.values().filter(|association| association.address.ip() == address).count();
        if own >= limits.max_per_address {
            return false;
        }
        if self.associations.len() < limits.max {
            return true;
        }
        let unused = |(_, association): &(&NodeId, &Association)| {
            !association.used && now.instant.since(association.supervision.heard) > UNUSED
        };
        let oldest = self.associations.iter().filter(unused).min_by_key(|(_, other)| other.supervision.heard);
        let node_id = oldest.map(|(node_id, _)| node_id.clone());
        node_id.is_some_and(|node_id| self.dissociate(&node_id, plane).is_accepted())
    }

    /// The association is with that address from now on.
    pub(super) fn bind(
        &mut self,
        from: SocketAddr,
        request: AssociationSetupRequest,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> Setup {
        let recovery = request.recovery_time_stamp.0;
        let retention = request.session_retention;
        // A control plane that sets up again with the same time stamp has lost nothing: several of its hosts may do so
        // for the one Node ID they share. With another it has restarted, unless it says that it wants its sessions kept
        // (TS 29.244 6.2.6.2.2).
        let known = self.associations.get(&request.node_id).map(|association| association.recovery);
        match known {
            Some(before) if before != recovery && retention.is_none() => {
                self.restarted(from, &request.node_id, now, plane);
            }
            Some(_) => {}
            None => {
                if let Some(left_out) = self.lines.admit(Line::Associated, from.ip(), now.instant) {
                    info!(control_plane = %from, node = ?request.node_id, left_out, "PFCP association set up");
                }
            }
        }
        let new = || Association {
            address: from,
            hosts: SmallVec::new(),
            recovery,
            holder: None,
            used: false,
            supervision: Supervision::new(now.instant),
            contest: None,
        };
        let association = self.associations.entry(request.node_id).or_insert_with(new);
        if !association.hosts.contains(&from.ip()) {
            if association.hosts.len() >= HOSTS {
                let gone = association.hosts.remove(0);
                plane.change(|tables, _| tables.set_peer(gone, Use::ControlPlane, false));
            }
            association.hosts.push(from.ip());
            plane.change(|tables, _| tables.set_peer(from.ip(), Use::ControlPlane, true));
        }
        let moved = association.address.ip() != from.ip();
        (association.address, association.recovery) = (from, recovery);
        association.supervision.heard_at(now.instant);
        if moved {
            // The other address may answer heartbeats where this one does not.
            association.supervision = Supervision::new(now.instant);
        }
        if association.contest.take().is_some() {
            self.contests -= 1;
        }
        self.changed.iter_mut().for_each(|changed| changed.node = true);
        let retained = known.is_some() && retention.is_some();
        if let Some(retention) = retention {
            let from_these = retention.addresses.iter().copied().collect();
            association.holder = Some(SessionHolder { address: from.ip(), from: from_these });
            // What was asked of the others is not answered by them any more.
            let hosts = association.hosts.clone();
            self.requests.readdress(|to| hosts.contains(&to.ip()), from.ip());
            if let Some(left_out) = self.lines.admit(Line::TakenOver, from.ip(), now.instant) {
                info!(control_plane = %from, retained, left_out, "PFCP association taken over");
            }
        }
        Setup::Answer { cause: Cause::REQUEST_ACCEPTED, retained }
    }

    /// Where a session's reports go: to whoever made it, or has taken it over. Only to addresses of the control plane: a
    /// report to another one would look there as if it were about a session of its own.
    pub(super) fn reported_to(&self, session: &Session) -> SocketAddr {
        let own = session.cp_address();
        let address = self.associations.get(&session.node).map_or(own, |association| {
            let named = || self.settings.associations.permit(own, &session.node) == Permit::Named;
            match &association.holder {
                Some(holder) if holder.has(own) => holder.address,
                _ if association.hosts.contains(&own) || named() => own,
                _ => association.address.ip(),
            }
        });
        SocketAddr::new(address, pfcp::PORT)
    }

    /// Ends an association and its sessions.
    pub(super) fn dissociate(&mut self, node_id: &NodeId, plane: &mut impl TablesAccess) -> Cause {
        let Some(association) = self.associations.remove(node_id) else {
            return Cause::NO_ESTABLISHED_ASSOCIATION;
        };
        self.contests -= usize::from(association.contest.is_some());
        self.note_node();
        for host in &association.hosts {
            plane.change(|tables, _| tables.set_peer(*host, Use::ControlPlane, false));
        }
        self.responses.forget(|from| association.hosts.contains(&from.ip()));
        if association.used {
            self.remove_all(|session| session.node == *node_id, plane);
        }
        Cause::REQUEST_ACCEPTED
    }

    /// Removes a session without a report.
    pub(super) fn remove(&mut self, seid: u64, plane: &mut impl TablesAccess) {
        let Some(session) = self.sessions.remove(&seid) else { return };
        self.note(seid);
        // when does not matter to peers that are left
        self.paths.change(&session.peers(), &[], Instant(0));
        self.slices.leaves(session.worker, seid);
        session.chosen.into_iter().for_each(|chosen| self.addresses.give_back(chosen));
        session.lead_away(plane);
        plane.change(|tables, released| session.records.clone().remove(tables, seid, released));
    }

    /// The session that a control plane wants to set up anew: it has the addresses, and is known to the control plane by the
    /// same F-SEID. That names one session (TS 29.244 5.6.2), so the control plane has not heard of this one; hosts of one
    /// Node ID give out SEIDs together, whatever their addresses.
    pub(super) fn same(&self, request: &SessionEstablishmentRequest, plane: &mut impl TablesAccess) -> Option<u64> {
        let addresses = request.create_pdrs.iter().flat_map(|pdr| &pdr.pdi.ue_ip_addresses);
        let addresses = addresses.flat_map(|ue| [ue.ipv4.map(IpAddr::V4), ue.ipv6.map(IpAddr::V6)]).flatten();
        let mut there = addresses.filter_map(|address| plane.look(|tables| tables.session_at(address)));
        there.find(|seid| {
            let session = self.sessions.get(seid);
            session.is_some_and(|s| s.node == request.node_id && s.cp.seid == request.cp_f_seid.seid)
        })
    }

    /// Removes these sessions without a report.
    fn remove_all(&mut self, which: impl Fn(&Session) -> bool, plane: &mut impl TablesAccess) {
        let gone: Vec<(u64, Box<Session>)> = self.sessions.take(which);
        gone.iter().for_each(|(_, session)| session.lead_away(plane));
        // not all in one change: packets of others must not wait for a million removals
        for sessions in gone.chunks(64) {
            plane.change(|tables, released| {
                for (seid, session) in sessions {
                    session.records.clone().remove(tables, *seid, released);
                }
            });
        }
        for (seid, session) in &gone {
            self.note(*seid);
            self.slices.leaves(session.worker, *seid);
            session.chosen.into_iter().for_each(|chosen| self.addresses.give_back(chosen));
            // when does not matter to peers that are left
            self.paths.change(&session.peers(), &[], Instant(0));
        }
    }

    /// Ends the sessions of sets that a part of the control plane has lost (TS 29.244 7.4.6, TS 23.527 4.4).
    pub(super) fn delete_sets(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        plane: &mut impl TablesAccess,
    ) -> Result<(), Error> {
        let request = SessionSetDeletionRequest::parse(message)?;
        if !self.is_peer(from, &request.node_id) {
            return Err(Error { cause: Cause::NO_ESTABLISHED_ASSOCIATION, offending_ie: None });
        }
        if request.fq_csids.is_empty() {
            return Err(Error::conditional_missing(FqCsid::ID));
        }
        if !request.fq_csids.iter().all(FqCsid::is_sound) {
            return Err(Error::incorrect(FqCsid::ID));
        }
        let named = |session: &Session| {
            let mut sets = session.sets.iter();
            session.node == request.node_id && sets.any(|set| request.fq_csids.iter().any(|named| named.names(set)))
        };
        self.remove_all(named, plane);
        Ok(())
    }

    /// The answer to a request of a kind that is not served.
    pub(super) fn unserved(&self, from: SocketAddr) -> Cause {
        if self.is_known(from) { Cause::SERVICE_NOT_SUPPORTED } else { Cause::NO_ESTABLISHED_ASSOCIATION }
    }

    /// Whether there is such a session, and it is of none of the control planes that send from there.
    pub(in super::super) fn is_session_of_others(&self, from: SocketAddr, seid: u64) -> bool {
        self.sessions.get(&seid).is_some_and(|session| !self.is_peer(from, &session.node))
    }

    /// Whether an associated control plane sends from there.
    pub(in super::super) fn is_known(&self, from: SocketAddr) -> bool {
        self.associations.values().any(|association| association.hosts.contains(&from.ip()))
    }
}
