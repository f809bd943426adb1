//! Audit of UE addresses borrowed from this host's pool partition.
//!
//! A UE that migrates keeps its address. Its new host reports the address to the lender when the UE
//! releases it. The report is lost if the new host dies first, if the forwarding balancer dies, or
//! if the UE is lost with its host. After the loss of a host or balancer, each host therefore asks
//! all others which addresses of its partition they use. Addresses that no host uses are free.
//!
//! All answers refer to one epoch, and to a moment at which no UE migrates to or from the answering
//! host. UEs keep their hosts during an epoch, so no UE is missed. An audit whose epoch ends too
//! early starts again.

use super::io::HostIo;
use super::machine::HostMachine;
use super::replica_side::AddressAuditMessage;
use crate::placement::balance::{BalancerId, HostId};
use crate::placement::cluster::{ClusterMap, partition_of};
use crate::placement::message::{ClusterOutput, ToReplica};
use crate::placement::replica::{BucketOwner, SlotKey};
use rustc_hash::{FxHashMap, FxHashSet};

/// Table of UE addresses, and number in it.
pub type AddressNumber = (u8, u32);

/// Pool partitions of the cluster, and addresses that UEs have taken to other hosts.
#[derive(Debug)]
pub(super) struct LentAddresses {
    /// Number of pool partitions.
    partitions: u16,
    /// Number of host IDs assigned so far.
    joined: u16,
    balancers: Vec<BalancerId>,
    audit: AddressAudit,
    former: FormerPartitions,
}

impl LentAddresses {
    pub(super) fn new(partitions: u16) -> Self {
        let (audit, former) = (AddressAudit::default(), FormerPartitions::default());
        LentAddresses { partitions, joined: 0, balancers: Vec::new(), audit, former }
    }

    /// Applies a map. `before` has the hosts of the previous one.
    pub(super) fn adopt(&mut self, map: &ClusterMap, before: &[HostId]) {
        let has_balancer = |balancer: &BalancerId| map.balancers.iter().any(|(of, _)| of == balancer);
        let is_lost = before.iter().any(|host| !map.has_host(*host)) || !self.balancers.iter().all(has_balancer);
        self.audit.adopt(is_lost);
        self.balancers = map.balancers.iter().map(|(balancer, _)| *balancer).collect();
        self.joined = map.joined;
    }

    /// Marks partitions as used: a UE came from another host with addresses of them.
    pub(super) fn enter(&mut self, partitions: impl IntoIterator<Item = u16>) {
        self.former.enter(partitions);
    }

    fn host_of(&self, partition: u16, hosts: &[HostId]) -> Option<HostId> {
        hosts.iter().copied().find(|host| partition_of(*host, self.partitions) == partition)
    }
}

/// State of the audit: this host's own, and the requests of others.
#[derive(Debug, Default)]
struct AddressAudit {
    /// True if a member was lost since the last audit began.
    due: bool,
    /// The current audit: epoch, hosts without a complete answer, and numbers in use at other
    /// hosts.
    epoch: u64,
    has_request: FxHashSet<HostId>,
    had: FxHashSet<AddressNumber>,
    /// Requests of other hosts with their epochs.
    requests: FxHashMap<HostId, u64>,
}

impl AddressAudit {
    /// Applies a new epoch. `gone` is true if its map lacks a former member.
    fn adopt(&mut self, gone: bool) {
        self.due |= gone || !self.has_request.is_empty();
        self.has_request.clear();
    }

    /// Returns true if an audit must begin.
    fn is_due(&self) -> bool {
        self.due
    }

    /// Begins an audit among these other hosts. Returns an empty result if there are none.
    fn begin(&mut self, epoch: u64, others: impl IntoIterator<Item = HostId>) -> Option<FxHashSet<AddressNumber>> {
        (self.due, self.epoch) = (false, epoch);
        self.has_request = others.into_iter().collect();
        self.had.clear();
        self.has_request.is_empty().then(FxHashSet::default)
    }

    /// Cancels the audit: no address is lent.
    fn cancel(&mut self) {
        self.due = false;
    }

    /// Records numbers of a table that a host uses in an epoch; `last` ends its answer. Returns all
    /// numbers in use when every host has answered.
    fn on_reply(
        &mut self,
        (from, epoch): (HostId, u64),
        table: u8,
        numbers: &[u32],
        last: bool,
    ) -> Option<FxHashSet<AddressNumber>> {
        if epoch != self.epoch || !self.has_request.contains(&from) {
            return None;
        }
        self.had.extend(numbers.iter().map(|number| (table, *number)));
        let over = last && self.has_request.remove(&from) && self.has_request.is_empty();
        over.then(|| std::mem::take(&mut self.had))
    }

    /// Records the request of a host for an epoch.
    fn on_request(&mut self, from: HostId, epoch: u64) {
        self.requests.insert(from, epoch);
    }

    /// Returns the hosts to answer in this epoch. Requests of later epochs wait. Hosts in an
    /// earlier epoch will ask again.
    fn answers(&mut self, epoch: u64) -> Vec<HostId> {
        let due = self.requests.extract_if(|_, requested| *requested <= epoch);
        due.filter(|(_, requested)| *requested == epoch).map(|(from, _)| from).collect()
    }
}

/// Pool partitions of former hosts, and the reports about them to the controller.
#[derive(Debug, Default)]
struct FormerPartitions {
    /// Partitions of which no local UE has an address. Cached, because the search is expensive.
    unused: FxHashSet<u16>,
    /// The last report: epoch and partitions in use by local UEs.
    reported: Option<(u64, Vec<u16>)>,
}

impl FormerPartitions {
    /// Marks partitions as possibly used.
    fn enter(&mut self, partitions: impl IntoIterator<Item = u16>) {
        partitions.into_iter().for_each(|partition| _ = self.unused.remove(&partition));
    }

    /// Returns the used ones of these partitions if the controller needs a report. `is_used`
    /// returns true if local UEs have addresses of a partition.
    fn report(&mut self, epoch: u64, former: &[u16], is_used: impl Fn(u16) -> bool) -> Option<Vec<u16>> {
        // No host allocates from such a partition. It stays unused unless UEs migrate here.
        let is_unused = |part: &&u16| self.unused.contains(*part) || !is_used(**part);
        let (unused, used): (Vec<u16>, Vec<u16>) = former.iter().partition(is_unused);
        self.unused = unused.into_iter().collect();
        let is_news = self.reported.as_ref().is_none_or(|(of, reported)| (*of, reported) != (epoch, &used));
        is_news.then(|| self.reported.insert((epoch, used)).1.clone())
    }
}

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Returns the host that has a pool partition, if any.
    pub fn lender(&self, partition: u16) -> Option<HostId> {
        self.addresses.host_of(partition, self.owner.as_ref()?.hosts())
    }

    /// Handles a message of the address audit of another host.
    pub(super) fn on_address_audit<O>(&mut self, from: HostId, message: &AddressAuditMessage, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let audit = &mut self.addresses.audit;
        match message {
            AddressAuditMessage::Request { epoch } => audit.on_request(from, *epoch),
            AddressAuditMessage::Reply { epoch, table, numbers, last } => {
                if let Some(in_use) = audit.on_reply((from, *epoch), *table, numbers, *last) {
                    io.free_lent(&|address| in_use.contains(&address));
                }
            }
        }
    }

    /// Answers the audits of other hosts, and begins this host's own if it is due.
    pub(super) fn audit_addresses<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(owner) = &mut self.owner else { return };
        let Some(epoch) = owner.settled_epoch() else { return };
        for to in self.addresses.audit.answers(epoch) {
            answer(owner, (to, epoch), io.borrowed_addresses(partition_of(to, self.addresses.partitions)), io);
        }
        if !self.addresses.audit.is_due() {
            return;
        }
        if !io.lends_addresses() {
            return self.addresses.audit.cancel();
        }
        let own = owner.host_id();
        let others: Vec<HostId> = owner.hosts().iter().copied().filter(|host| *host != own).collect();
        for to in &others {
            let number = owner.number(*to);
            io.send_to_replica(*to, number, &ToReplica::AddressAuditRequest { number, epoch });
        }
        if let Some(in_use) = self.addresses.audit.begin(epoch, others) {
            io.free_lent(&|address| in_use.contains(&address));
        }
    }

    /// Reports to the controller the partitions of former hosts from which local UEs have
    /// addresses. The controller assigns a partition again when no host reports it.
    pub(super) fn report_partitions<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let (Some(owner), LentAddresses { partitions, joined, .. }) = (&self.owner, &self.addresses) else { return };
        let Some(epoch) = owner.settled_epoch() else { return };
        let assigned = 0..(*partitions).min(*joined);
        let is_former = |partition: &u16| self.addresses.host_of(*partition, owner.hosts()).is_none();
        let former: Vec<u16> = assigned.filter(is_former).collect();
        let is_used = |partition| io.uses_partition(partition);
        if let Some(partitions) = self.addresses.former.report(epoch, &former, is_used) {
            io.send(ClusterOutput::PoolPartitions { epoch, partitions });
        }
    }
}

/// Sends the numbers that this host uses of another host's partition, in pieces.
fn answer<S: SlotKey, P>(
    owner: &mut BucketOwner<S, P>,
    (to, epoch): (HostId, u64),
    mut pieces: Vec<(u8, Vec<u32>)>,
    io: &impl HostIo,
) {
    if pieces.is_empty() {
        pieces.push((0, Vec::new()));
    }
    let last = pieces.len() - 1;
    for (n, (table, numbers)) in pieces.into_iter().enumerate() {
        let number = owner.number(to);
        let reply = ToReplica::AddressAuditReply { number, epoch, table, numbers, last: n == last };
        io.send_to_replica(to, number, &reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: [HostId; 2] = [HostId(1), HostId(2)];

    #[test]
    fn partition_of_entered_ue_is_used_again() {
        let mut parts = FormerPartitions::default();
        assert_eq!(parts.report(7, &[0, 3], |part| part == 3), Some(vec![3]));
        assert_eq!(parts.report(7, &[0, 3], |_| true), None, "no UE has come, so part 0 needs no look");
        parts.enter([0]);
        assert_eq!(parts.report(8, &[0, 3], |_| true), Some(vec![0, 3]));
        assert_eq!(parts.report(8, &[0], |_| false), Some(vec![]));
        assert_eq!(parts.report(9, &[], |_| false), Some(vec![]), "each epoch is answered for");
    }

    #[test]
    fn unused_addresses_known_after_all_replies() {
        let mut audit = AddressAudit::default();
        assert!(!audit.is_due());
        audit.adopt(false);
        assert!(!audit.is_due(), "who joins has nothing");
        audit.adopt(true);
        assert!(audit.is_due());
        assert_eq!(audit.begin(7, OTHERS), None);
        assert_eq!(audit.on_reply((HostId(1), 7), 0, &[3, 4], false), None);
        assert_eq!(audit.on_reply((HostId(2), 7), 2, &[3], true), None);
        assert_eq!(audit.on_reply((HostId(2), 7), 2, &[9], true), None, "it has said all");
        assert_eq!(audit.on_reply((HostId(5), 7), 0, &[], true), None, "nobody has asked it");
        assert_eq!(audit.on_reply((HostId(1), 6), 0, &[], true), None, "of an epoch before");
        let all = audit.on_reply((HostId(1), 7), 0, &[5], true).unwrap();
        assert_eq!(all, FxHashSet::from_iter([(0, 3), (0, 4), (0, 5), (2, 3)]));
        assert!(!audit.is_due());
        assert_eq!(audit.begin(8, []), Some(FxHashSet::default()), "there are no others");
    }

    #[test]
    fn audit_ended_by_epoch_begins_again() {
        let mut audit = AddressAudit::default();
        audit.adopt(true);
        audit.begin(7, OTHERS);
        assert_eq!(audit.on_reply((HostId(1), 7), 0, &[3], true), None);
        audit.adopt(false);
        assert!(audit.is_due());
        assert_eq!(
            audit.on_reply((HostId(2), 7), 0, &[], true),
            None,
            "UEs may have gone from 2 to 1 since that has answered"
        );
        audit.begin(8, OTHERS);
        assert_eq!(audit.on_reply((HostId(2), 8), 0, &[], true), None);
        assert_eq!(
            audit.on_reply((HostId(1), 8), 0, &[], true),
            Some(FxHashSet::default()),
            "nothing of what was said before"
        );
    }

    #[test]
    fn early_request_waits_and_late_one_is_dropped() {
        let mut audit = AddressAudit::default();
        audit.on_request(HostId(1), 7);
        audit.on_request(HostId(2), 8);
        assert_eq!(audit.answers(6), []);
        assert_eq!(audit.answers(7), [HostId(1)]);
        assert_eq!(audit.answers(9), []);
        assert_eq!(audit.answers(8), [], "it was behind, and will ask again");
    }
}
