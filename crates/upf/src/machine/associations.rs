//! Associations with control planes (TS 29.244 6.2): setup, binding and release.

use super::supervision::{Contest, Supervision};
use super::{Association, HOSTS, Line, Session, SessionHolder, Upf};
use crate::machine::control_planes::Permit;
use crate::machine::settings::Timestamps;
use crate::machine::tables_access::TablesAccess;
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use tracing::{info, warn};
use vireo_datapath::Use;
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{self, *};

/// Time for which an association without sessions is kept when others need its place.
const UNUSED_ASSOCIATION_RETENTION: Duration = Duration::from_secs(60);

/// Result of an Association Setup Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// A response is due. `retained` is true if the sessions are retained as requested.
    Answer { cause: Cause, retained: bool },
    /// The response is deferred until the bound address of the Node ID proves alive or dead.
    Waits,
}

impl Setup {
    pub(crate) fn refused(cause: Cause) -> Self {
        Setup::Answer { cause, retained: false }
    }
}

/// Returns true if a Recovery Time Stamp is later than another. Stamps are serial numbers, which
/// wrap in 2036.
fn is_later(stamp: u32, than: u32) -> bool {
    (stamp.wrapping_sub(than) as i32) > 0
}

impl Upf {
    /// Handles the Recovery Time Stamp of a heartbeat. A later one than the association's means
    /// that the control plane has restarted without its sessions (TS 29.244 6.2.2, TS 23.527 4.3).
    /// A heartbeat names no node: if several share an address, only an Association Setup Request
    /// reports the restart.
    pub(crate) fn heartbeat(&mut self, from: SocketAddr, stamp: u32, now: Timestamps, plane: &mut impl TablesAccess) {
        let mut here = self.associations.iter().filter(|(_, association)| association.address.ip() == from.ip());
        let (Some((node_id, association)), None) = (here.next(), here.next()) else { return };
        if is_later(stamp, association.recovery) {
            let node_id = node_id.clone();
            self.on_restart(from, &node_id, now, plane);
        }
    }

    fn on_restart(&mut self, from: SocketAddr, node_id: &NodeId, now: Timestamps, plane: &mut impl TablesAccess) {
        if let Some(suppressed) = self.lines.admit(Line::Restarted, from.ip(), now.instant) {
            warn!(control_plane = %from, node = ?node_id, suppressed, "control plane restarted, removing its sessions");
        }
        self.dissociate(node_id, plane);
    }

    /// Handles an Association Setup Request.
    pub(crate) fn associate(
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
            None if !self.make_room_for(from.ip(), now, plane) => {
                self.stats.refused_associations += 1;
                if let Some(suppressed) = self.lines.admit(Line::NoRoom, from.ip(), now.instant) {
                    warn!(control_plane = %from, suppressed, "too many PFCP associations; see upf.associations.max");
                }
                return Setup::refused(Cause::NO_RESOURCES);
            }
            _ => {}
        }
        self.bind(from, request, now, plane)
    }

    /// Handles a setup for a Node ID that is bound to another address; it never deletes sessions.
    ///
    /// The setup retains the sessions if it has the same time stamp, or Session Retention
    /// Information. The bound address must then prove that it is alive, else the new address
    /// replaces it. So another balancer of a cluster, or another SMF of a set, takes over.
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

    pub(crate) fn refuse_setup(&mut self, from: SocketAddr, node_id: &NodeId, reason: &str, now: Timestamps) -> Setup {
        self.stats.refused_associations += 1;
        if let Some(suppressed) = self.lines.admit(Line::Refused, from.ip(), now.instant) {
            warn!(control_plane = %from, node = ?node_id, reason, suppressed,
                "PFCP association refused; see upf.control-planes");
        }
        Setup::refused(Cause::REQUEST_REJECTED)
    }

    /// Returns true if an address may have one more association. Removes the oldest unused
    /// association if all are in use.
    fn make_room_for(&mut self, address: IpAddr, now: Timestamps, plane: &mut impl TablesAccess) -> bool {
        let limits = &self.settings.associations;
        let own = self.associations.values().filter(|association| association.address.ip() == address).count();
        if own >= limits.max_per_address {
            return false;
        }
        if self.associations.len() < limits.max {
            return true;
        }
        let unused = |(_, association): &(&NodeId, &Association)| {
            !association.used && now.instant.since(association.supervision.last_heard) > UNUSED_ASSOCIATION_RETENTION
        };
        let oldest = self.associations.iter().filter(unused).min_by_key(|(_, other)| other.supervision.last_heard);
        let node_id = oldest.map(|(node_id, _)| node_id.clone());
        node_id.is_some_and(|node_id| self.dissociate(&node_id, plane).is_accepted())
    }

    /// Binds the association to this address.
    pub(crate) fn bind(
        &mut self,
        from: SocketAddr,
        request: AssociationSetupRequest,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> Setup {
        let recovery = request.recovery_time_stamp.0;
        let retention = request.session_retention;
        // A setup with the same time stamp shows that the control plane has lost nothing. Several
        // of its hosts may set up an association for the Node ID that they share. A different stamp
        // means a restart, unless the control plane asks to retain its sessions (TS 29.244
        // 6.2.6.2.2).
        let known = self.associations.get(&request.node_id).map(|association| association.recovery);
        match known {
            Some(before) if before != recovery && retention.is_none() => {
                self.on_restart(from, &request.node_id, now, plane);
            }
            Some(_) => {}
            None => {
                if let Some(suppressed) = self.lines.admit(Line::Associated, from.ip(), now.instant) {
                    info!(control_plane = %from, node = ?request.node_id, suppressed, "PFCP association set up");
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
        association.supervision.on_message(now.instant);
        if moved {
            // The new address may answer heartbeats although the old one did not, or vice versa.
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
            // The other hosts do not answer their pending requests.
            let hosts = association.hosts.clone();
            self.requests.readdress(|to| hosts.contains(&to.ip()), from.ip());
            if let Some(suppressed) = self.lines.admit(Line::TakenOver, from.ip(), now.instant) {
                info!(control_plane = %from, retained, suppressed, "PFCP association taken over");
            }
        }
        Setup::Answer { cause: Cause::REQUEST_ACCEPTED, retained }
    }

    /// Returns the destination of a session's reports: the host that created the session or has
    /// taken it over. Only addresses of the control plane are eligible. Another host would
    /// attribute the report to a session of its own.
    pub(crate) fn reported_to(&self, session: &Session) -> SocketAddr {
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

    /// Removes an association and its sessions.
    pub(crate) fn dissociate(&mut self, node_id: &NodeId, plane: &mut impl TablesAccess) -> Cause {
        let Some(association) = self.associations.remove(node_id) else {
            return Cause::NO_ESTABLISHED_ASSOCIATION;
        };
        self.contests -= usize::from(association.contest.is_some());
        self.mark_node_changed();
        for host in &association.hosts {
            plane.change(|tables, _| tables.set_peer(*host, Use::ControlPlane, false));
        }
        self.responses.forget(|from| association.hosts.contains(&from.ip()));
        if association.used {
            self.remove_all(|node, _| node == node_id, plane);
        }
        Cause::REQUEST_ACCEPTED
    }

    /// Removes a session without a report.
    pub(crate) fn remove(&mut self, seid: u64, plane: &mut impl TablesAccess) {
        let Some(session) = self.sessions.remove(&seid) else { return };
        self.mark_changed(seid);
        // the time is irrelevant for removed peers
        self.paths.change(&session.peers(), &[], Instant(0));
        self.slices.remove_user(session.worker, seid);
        session.chosen.into_iter().for_each(|chosen| self.addresses.release(chosen));
        session.remove_host_routes(plane);
        plane.change(|tables, released| session.records.clone().remove(tables, seid, released));
    }

    /// Returns the session that an establishment request repeats: it has the same addresses and the
    /// same F-SEID. An F-SEID names one session (TS 29.244 5.6.2), so the control plane has not
    /// received the first response. Hosts of one Node ID share the SEIDs, whatever their addresses.
    pub(crate) fn same(&self, request: &SessionEstablishmentRequest, plane: &mut impl TablesAccess) -> Option<u64> {
        let addresses = request.create_pdrs.iter().flat_map(|pdr| &pdr.pdi.ue_ip_addresses);
        let addresses = addresses.flat_map(|ue| [ue.ipv4.map(IpAddr::V4), ue.ipv6.map(IpAddr::V6)]).flatten();
        let mut there = addresses.filter_map(|address| plane.read(|tables| tables.session_at(address)));
        there.find(|seid| self.sessions.owner(*seid) == Some((&request.node_id, request.cp_f_seid.seid)))
    }

    /// Removes the sessions of matching owners and FQ-CSIDs without reports.
    fn remove_all(&mut self, which: impl Fn(&NodeId, &[FqCsid]) -> bool, plane: &mut impl TablesAccess) {
        let gone: Vec<(u64, Box<Session>)> = self.sessions.take(which);
        gone.iter().for_each(|(_, session)| session.remove_host_routes(plane));
        // in several changes: other packets must not wait for a million removals
        for sessions in gone.chunks(64) {
            plane.change(|tables, released| {
                for (seid, session) in sessions {
                    session.records.clone().remove(tables, *seid, released);
                }
            });
        }
        for (seid, session) in &gone {
            self.mark_changed(*seid);
            self.slices.remove_user(session.worker, *seid);
            session.chosen.into_iter().for_each(|chosen| self.addresses.release(chosen));
            // the time is irrelevant for removed peers
            self.paths.change(&session.peers(), &[], Instant(0));
        }
    }

    /// Removes the sessions of the FQ-CSIDs that a part of the control plane has lost (TS 29.244
    /// 7.4.6, TS 23.527 4.4).
    pub(crate) fn delete_sets(
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
        let named = |node: &NodeId, sets: &[FqCsid]| {
            let is_named = |set: &FqCsid| request.fq_csids.iter().any(|named| named.names(set));
            *node == request.node_id && sets.iter().any(is_named)
        };
        self.remove_all(named, plane);
        Ok(())
    }

    /// Returns the cause for a request of an unsupported type.
    pub(crate) fn unserved(&self, from: SocketAddr) -> Cause {
        if self.is_known(from) { Cause::SERVICE_NOT_SUPPORTED } else { Cause::NO_ESTABLISHED_ASSOCIATION }
    }

    /// Returns true if the session exists and belongs to no control plane with this source address.
    pub(crate) fn is_session_of_others(&self, from: SocketAddr, seid: u64) -> bool {
        self.sessions.owner(seid).is_some_and(|(node, _)| !self.is_peer(from, node))
    }

    /// Returns true if an associated control plane uses this source address.
    pub(crate) fn is_known(&self, from: SocketAddr) -> bool {
        self.associations.values().any(|association| association.hosts.contains(&from.ip()))
    }
}
