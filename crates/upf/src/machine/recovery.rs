//! State of the UPF that survives a restart: sessions, associations and identity.
//!
//! A restarted UPF continues with them. For control planes it is the same UPF (TS 23.527 4.2), with
//! an unchanged Recovery Time Stamp.

use super::supervision::Supervision;
use super::{Association, SessionHolder, Upf};
use crate::machine::dirty::DirtyState;
use crate::machine::element_serde::{element, elements};
use crate::machine::exchange::{Answered, Outgoing};
use crate::machine::session::Session;
use crate::machine::settings::Timestamps;
use crate::machine::tables_access::TablesAccess;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use tracing::warn;
use vireo_datapath::Use;
use vireo_wire::pfcp::*;

/// First byte of the node's record. Another value belongs to a release with other fields.
const FORMAT: u8 = 3;
/// Identity and associations of the UPF.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredNode {
    /// Number of the incarnation, from 0.
    life: u32,
    /// Recovery Time Stamp of the UPF.
    recovery: u32,
    associations: Vec<StoredAssociation>,
}

/// A stored association.
#[derive(Debug, Serialize, Deserialize)]
struct StoredAssociation {
    #[serde(with = "element")]
    node: NodeId,
    address: SocketAddr,
    hosts: Vec<IpAddr>,
    recovery: u32,
    holder: Option<StoredHolder>,
    /// True if the control plane has ever answered a heartbeat of the UPF.
    answers: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredHolder {
    address: IpAddr,
    #[serde(with = "elements")]
    from: Vec<CpPfcpEntityIpAddress>,
}

impl StoredNode {
    /// Decodes a record; `None` for another format.
    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        let (format, octets) = octets.split_first()?;
        if *format == FORMAT { postcard::from_bytes(octets).ok() } else { None }
    }

    /// Encodes the record.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_extend(self, vec![FORMAT]).ok()
    }

    /// Returns the node for the next incarnation.
    pub(crate) fn after_restart(self) -> Self {
        StoredNode { life: self.life.wrapping_add(1), ..self }
    }
}

/// A stored session, with its SEID and its last answered request.
pub(crate) type Written = (u64, Box<Session>, Option<Answered>);

impl Upf {
    /// Starts to record changes.
    pub(crate) fn note_changes(&mut self) {
        self.changed = Some(DirtyState::default());
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changed(&mut self) -> DirtyState {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn mark_changed(&mut self, seid: u64) {
        self.changed.iter_mut().for_each(|changed| changed.sessions.push(seid));
    }

    pub(crate) fn mark_node_changed(&mut self) {
        self.changed.iter_mut().for_each(|changed| changed.node = true);
    }

    /// Restores the stored state. Sessions that cannot be restored are marked as changed.
    pub(crate) fn resume(
        &mut self,
        node: StoredNode,
        mut sessions: Vec<Written>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) {
        (self.settings.started, self.life) = (node.recovery, node.life);
        plane.change(|tables, _| tables.begin_life(node.life));
        let highest = sessions.iter().map(|(seid, ..)| *seid as u32).max().unwrap_or(0);
        self.seids.continue_after(highest.into());
        for StoredAssociation { node, address, hosts, recovery, holder, answers } in node.associations {
            for host in &hosts {
                plane.change(|tables, _| tables.set_peer(*host, Use::ControlPlane, true));
            }
            let holder = holder.map(|StoredHolder { address, from }| SessionHolder { address, from });
            let mut supervision = Supervision::new(now.instant);
            supervision.answers = answers;
            let hosts = hosts.into();
            let (used, contest) = (false, None);
            self.associations
                .insert(node, Association { address, hosts, recovery, holder, used, supervision, contest });
        }
        let chosen: Vec<_> = sessions.iter().filter_map(|(_, session, _)| session.chosen).collect();
        self.addresses.mark_assigned(&chosen);
        // this order restores the assignment of tunnels to entries
        sessions.sort_by_key(|(_, session, _)| session.first_teid());
        for (seid, session, answered) in sessions {
            if !self.associations.contains_key(&session.node) || !self.restore(seid, session, now, plane) {
                self.mark_changed(seid);
                continue;
            }
            answered.into_iter().for_each(|answered| self.responses.restore(answered, now.instant));
        }
    }

    /// Restores a session. Returns true if that was possible.
    fn restore(
        &mut self,
        seid: u64,
        mut session: Box<Session>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> bool {
        session.worker = self.slices.existing_worker(session.worker);
        if let Err(refused) = session.install(seid, &self.settings, &mut self.addresses, plane) {
            warn!("stored session not restored: {:?}", refused.error);
            return false;
        }
        self.add_session(seid, session, now);
        true
    }

    /// Adopts a loaded session, or restores it if it does not exist.
    pub(crate) fn adopt(&mut self, written: Written, now: Timestamps, plane: &mut impl TablesAccess) {
        let (seid, session, answered) = written;
        if !self.sessions.contains_key(&seid) {
            if self.associations.contains_key(&session.node) && self.restore(seid, session, now, plane) {
                answered.into_iter().for_each(|answered| self.responses.restore(answered, now.instant));
            }
            return;
        }
        if self.sessions.change(&seid, |own| own.adopt(*session)) == Some(false) {
            warn!("session record changed by another writer; packets use the state of this process");
        }
    }

    /// Encodes identity and associations.
    pub(crate) fn encode_node(&self) -> Option<Vec<u8>> {
        let known = |(node, association): (&NodeId, &Association)| {
            let Association { address, hosts, recovery, holder, supervision, .. } = association;
            let holder = holder.as_ref();
            let holder =
                holder.map(|SessionHolder { address, from }| StoredHolder { address: *address, from: from.clone() });
            let (address, hosts, recovery, answers) = (*address, hosts.to_vec(), *recovery, supervision.answers);
            StoredAssociation { node: node.clone(), address, hosts, recovery, holder, answers }
        };
        let associations = self.associations.iter().map(known).collect();
        StoredNode { life: self.life, recovery: self.settings.started, associations }.encode()
    }

    /// Starts the first incarnation of a UPF with a store.
    pub(crate) fn begin(&mut self, plane: &mut impl TablesAccess) {
        plane.change(|tables, _| tables.begin_life(self.life));
    }

    /// Returns an unused SEID for the next session.
    pub(crate) fn reserve(&mut self) -> u64 {
        self.seids.draw(|seid| self.sessions.contains_key(&seid))
    }

    /// Sets the SEID of the next session, which was reserved.
    pub(crate) fn set_next_seid(&mut self, seid: u64) {
        self.reserved = Some(seid);
    }

    /// Returns true if the identical request was answered.
    pub(crate) fn has_answered(&self, from: SocketAddr, sequence: u32, datagram: &[u8], now: Timestamps) -> bool {
        self.responses.find(self.response_key(from), sequence, datagram, now.instant).is_some()
    }

    /// Returns the answered request with this sequence number.
    pub(crate) fn stored_response(&self, from: SocketAddr, sequence: u32) -> Option<Answered> {
        self.responses.stored_response(self.response_key(from), sequence)
    }

    /// Removes a session without recording the change.
    #[cfg(test)]
    pub(crate) fn forget(&mut self, seid: u64, plane: &mut impl TablesAccess) {
        self.remove(seid, plane);
        self.take_changed();
    }

    /// Removes a new session that the store has no room for. Its response has not been sent: the
    /// function replaces it, among `out`, with a rejection.
    pub(crate) fn take_back(
        &mut self,
        seid: u64,
        (from, sequence): (SocketAddr, u32),
        plane: &mut impl TablesAccess,
        out: &mut Outgoing,
    ) {
        self.remove(seid, plane);
        let asked = |datagram: &[u8]| {
            let message = Message::new(datagram).ok().filter(|message| message.sequence() == sequence)?;
            let is_it = message.message_type() == MessageType::SESSION_ESTABLISHMENT_RESPONSE;
            is_it.then(|| message.seid())
        };
        let answer =
            out.iter_mut().filter(|(to, _)| *to == from).find_map(|(_, octets)| Some((asked(octets)?, octets)));
        let Some((cp_seid, octets)) = answer else { return };
        let error = Error { cause: Cause::NO_RESOURCES, offending_ie: None };
        let (response, mut refusal) =
            (SessionEstablishmentResponse::rejected(self.settings.address.into(), error), Vec::new());
        if response.emit(&mut refusal, cp_seid, sequence).is_ok() {
            self.responses.replace(self.response_key(from), sequence, &refusal);
            *octets = refusal;
            self.stats.accepted = self.stats.accepted.saturating_sub(1);
            (self.stats.rejected, self.stats.no_room) = (self.stats.rejected + 1, self.stats.no_room + 1);
        }
    }

    /// Rejects a request about a session without executing it.
    pub(crate) fn refuse(&mut self, from: SocketAddr, datagram: &[u8], cause: Cause, out: &mut Outgoing) {
        let Ok(message) = Message::new(datagram) else { return };
        let (sequence, mut answer) = (message.sequence(), Vec::new());
        let cp_seid = self.sessions.owner(message.seid()).map_or(0, |(_, seid)| seid);
        let written = match message.message_type() {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                let cp_seid = message.get::<FSeid>().ok().flatten().map_or(0, |f_seid| f_seid.seid);
                let error = Error { cause, offending_ie: None };
                let response = SessionEstablishmentResponse::rejected(self.settings.address.into(), error);
                response.emit(&mut answer, cp_seid, sequence)
            }
            MessageType::SESSION_MODIFICATION_REQUEST => {
                SessionModificationResponse::new(cause).emit(&mut answer, cp_seid, sequence)
            }
            MessageType::SESSION_DELETION_REQUEST => {
                SessionDeletionResponse::new(cause).emit(&mut answer, cp_seid, sequence)
            }
            _ => return,
        };
        if written.is_ok() {
            self.stats.rejected += 1;
            out.push((from, answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnation_is_counted_from_record() {
        let node = StoredNode { life: 1, recovery: 7, associations: vec![] };
        let next = StoredNode::decode(&node.encode().expect("octets")).expect("it is known").after_restart();
        assert_eq!((next.life, next.recovery, next.associations.len()), (2, 7, 0));
        assert!(StoredNode::decode(&[9, 7, 0]).is_none() && StoredNode::decode(&[]).is_none());
    }
}
