//! Associations with control planes (TS 29.244 6.2): how they begin, and what ends with them.

use super::{ASSOCIATIONS, Association, HOSTS, Holder, Plane, Session, Upf};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use tracing::{info, warn};
use vireo_datapath::Use;
use vireo_types::Instant;
use vireo_wire::pfcp::{self, *};

impl Upf {
    /// A heartbeat with another Recovery Time Stamp than the association's says that the control plane has restarted
    /// and knows nothing of its sessions (TS 29.244 6.2.2, TS 23.527 4.3).
    pub(super) fn heartbeat(&mut self, from: SocketAddr, message: &Message<'_>, plane: &mut impl Plane) {
        let Ok(request) = HeartbeatRequest::parse(message) else { return };
        let restarted = self.associations.iter().find(|(_, association)| {
            association.address.ip() == from.ip() && association.recovery < request.recovery_time_stamp.0
        });
        if let Some(node_id) = restarted.map(|(node_id, _)| node_id.clone()) {
            warn!("the control plane at {from} has restarted: its sessions are removed");
            self.dissociate(&node_id, plane);
        }
    }

    /// A control plane sets an association up. Also says whether sessions that it wants kept are.
    pub(super) fn associate(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        plane: &mut impl Plane,
    ) -> (Cause, bool) {
        let request = match AssociationSetupRequest::parse(message) {
            Ok(request) => request,
            Err(error) => return (error.cause, false),
        };
        let recovery = request.recovery_time_stamp.0;
        let retention = request.session_retention;
        // A control plane that sets up again with the same time stamp has lost nothing: several of its hosts may do so
        // for the one Node ID they share. With another it has restarted, unless it says that it wants its sessions kept
        // (TS 29.244 6.2.6.2.2).
        let known = self.associations.get(&request.node_id).map(|association| association.recovery);
        match known {
            Some(before) if before != recovery && retention.is_none() => {
                info!("the control plane at {from} has restarted: its sessions are removed");
                self.dissociate(&request.node_id, plane);
            }
            Some(_) => {}
            None if self.associations.len() >= ASSOCIATIONS => return (Cause::NO_RESOURCES, false),
            None => info!("PFCP association with {from}"),
        }
        let new = || Association { address: from, hosts: SmallVec::new(), recovery, holder: None };
        let association = self.associations.entry(request.node_id).or_insert_with(new);
        if !association.hosts.contains(&from.ip()) {
            if association.hosts.len() >= HOSTS {
                return (Cause::NO_RESOURCES, false);
            }
            association.hosts.push(from.ip());
            plane.change(|tables, _| tables.set_peer(from.ip(), Use::ControlPlane, true));
        }
        (association.address, association.recovery) = (from, recovery);
        self.changed.iter_mut().for_each(|changed| changed.node = true);
        let retained = known.is_some() && retention.is_some();
        if let Some(retention) = retention {
            let from_these = retention.addresses.iter().copied().collect();
            association.holder = Some(Holder { address: from.ip(), from: from_these });
            // What was asked of the others is not answered by them any more.
            let hosts = association.hosts.clone();
            self.requests.readdress(|to| hosts.contains(&to.ip()), from.ip());
            info!("the control plane at {from} has the association now, its sessions are kept: {retained}");
        }
        (Cause::REQUEST_ACCEPTED, retained)
    }

    /// Where a session's reports go: to whoever made it, or has taken it over.
    pub(super) fn reported_to(&self, session: &Session) -> SocketAddr {
        let own = session.cp_address();
        let holder = self.associations.get(&session.node).and_then(|association| association.holder.as_ref());
        let address = holder.filter(|holder| holder.has(own)).map_or(own, |holder| holder.address);
        SocketAddr::new(address, pfcp::PORT)
    }

    /// Ends an association and its sessions.
    pub(super) fn dissociate(&mut self, node_id: &NodeId, plane: &mut impl Plane) -> Cause {
        let Some(association) = self.associations.remove(node_id) else {
            return Cause::NO_ESTABLISHED_ASSOCIATION;
        };
        self.note_node();
        for host in &association.hosts {
            plane.change(|tables, _| tables.set_peer(*host, Use::ControlPlane, false));
        }
        self.responses.forget(|from| association.hosts.contains(&from.ip()));
        self.remove_all(|session| session.node == *node_id, plane);
        Cause::REQUEST_ACCEPTED
    }

    /// Removes a session without a report.
    pub(super) fn remove(&mut self, seid: u64, plane: &mut impl Plane) {
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
    pub(super) fn same(&self, request: &SessionEstablishmentRequest, plane: &mut impl Plane) -> Option<u64> {
        let addresses = request.create_pdrs.iter().flat_map(|pdr| &pdr.pdi.ue_ip_addresses);
        let addresses = addresses.flat_map(|ue| [ue.ipv4.map(IpAddr::V4), ue.ipv6.map(IpAddr::V6)]).flatten();
        let mut there = addresses.filter_map(|address| plane.look(|tables| tables.session_at(address)));
        there.find(|seid| {
            let session = self.sessions.get(seid);
            session.is_some_and(|s| s.node == request.node_id && s.cp.seid == request.cp_f_seid.seid)
        })
    }

    /// Removes these sessions without a report.
    fn remove_all(&mut self, which: impl Fn(&Session) -> bool, plane: &mut impl Plane) {
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
        plane: &mut impl Plane,
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

    /// Whether an associated control plane sends from there.
    pub(in super::super) fn is_known(&self, from: SocketAddr) -> bool {
        self.associations.values().any(|association| association.hosts.contains(&from.ip()))
    }
}
