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

use super::Host;
use super::cluster::{Cluster, Owner};
use crate::balancer::Command;
use crate::cluster::replicator::PeerMessage;
use rustc_hash::{FxHashMap, FxHashSet};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::host::{self as machine, AddressAuditMessage};
use vireo_core::placement::message::ToReplica;

/// Addresses per message.
const PIECE: usize = 8192;

/// Table and number in it.
pub(super) type Number = (u8, u32);

/// State of the audit: this host's own, and the requests of others.
#[derive(Debug, Default)]
pub(super) struct AddressAudit {
    /// True if a member was lost since the last audit began.
    due: bool,
    /// The current audit: epoch, hosts without a complete answer, and numbers in use at other
    /// hosts.
    epoch: u64,
    waits: FxHashSet<HostId>,
    had: FxHashSet<Number>,
    /// Requests of other hosts with their epochs.
    questions: FxHashMap<HostId, u64>,
}

impl AddressAudit {
    /// Applies a new epoch. `gone` is true if a member was lost with it.
    pub(super) fn adopt(&mut self, gone: bool) {
        self.due |= gone || !self.waits.is_empty();
        self.waits.clear();
    }

    /// Returns true if an audit must begin.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Begins an audit among these other hosts. Returns an empty result if there are none.
    pub(super) fn begin(&mut self, epoch: u64, others: impl IntoIterator<Item = HostId>) -> Option<FxHashSet<Number>> {
        (self.due, self.epoch) = (false, epoch);
        self.waits = others.into_iter().collect();
        self.had.clear();
        self.waits.is_empty().then(FxHashSet::default)
    }

    /// Cancels the audit: no host has to be asked.
    pub(super) fn is_over(&mut self) {
        self.due = false;
    }

    /// Records numbers of a table that a host uses in an epoch; `last` ends its answer. Returns all
    /// numbers in use when every host has answered.
    pub(super) fn has(
        &mut self,
        (from, epoch): (HostId, u64),
        table: u8,
        numbers: &[u32],
        last: bool,
    ) -> Option<FxHashSet<Number>> {
        if epoch != self.epoch || !self.waits.contains(&from) {
            return None;
        }
        self.had.extend(numbers.iter().map(|number| (table, *number)));
        let over = last && self.waits.remove(&from) && self.waits.is_empty();
        over.then(|| std::mem::take(&mut self.had))
    }

    /// Records the request of a host for an epoch.
    pub(super) fn asked(&mut self, from: HostId, epoch: u64) {
        self.questions.insert(from, epoch);
    }

    /// Returns the hosts to answer in this epoch. Requests of later epochs wait. Hosts in an
    /// earlier epoch will ask again.
    fn answers(&mut self, epoch: u64) -> Vec<HostId> {
        let now = self.questions.extract_if(|_, asked| *asked <= epoch);
        now.filter(|(_, asked)| *asked == epoch).map(|(from, _)| from).collect()
    }
}

/// State of the reports to the controller about pool partitions of lost hosts.
#[derive(Debug, Default)]
pub(super) struct GoneParts {
    /// Partitions of which no local UE has an address. Cached, because the search is expensive.
    unused: FxHashSet<u16>,
    /// The last report: epoch and partitions in use by local UEs.
    told: Option<(u64, Vec<u16>)>,
}

impl GoneParts {
    /// Marks partitions as possibly used: a UE came from another host with addresses of them.
    pub(super) fn come(&mut self, parts: impl Iterator<Item = u16>) {
        parts.for_each(|part| _ = self.unused.remove(&part));
    }

    /// Returns the used ones of these partitions if the controller needs a report. `has` returns
    /// true if local UEs have addresses of a partition.
    fn news(&mut self, epoch: u64, gone: &[u16], has: impl Fn(u16) -> bool) -> Option<Vec<u16>> {
        // No host allocates from such a partition. It stays unused unless UEs migrate here.
        let is_unused = |part: &&u16| self.unused.contains(*part) || !has(**part);
        let (unused, used): (Vec<u16>, Vec<u16>) = gone.iter().partition(is_unused);
        self.unused = unused.into_iter().collect();
        let is_news = self.told.as_ref().is_none_or(|(of, told)| (*of, told) != (epoch, &used));
        is_news.then(|| self.told.insert((epoch, used)).1.clone())
    }
}

impl Host {
    /// Processes messages of other hosts besides copies, and runs the audit.
    pub(super) fn audit_addresses(&mut self) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let (mut all, mut replies) = (None, Vec::new());
        for message in cluster.member.replicator.take_peer_messages() {
            match message {
                PeerMessage::AddressAudit { from, message: AddressAuditMessage::Request { epoch } } => {
                    cluster.audit.asked(from, epoch);
                }
                PeerMessage::AddressAudit {
                    from,
                    message: AddressAuditMessage::Reply { epoch, table, numbers, last },
                } => all = cluster.audit.has((from, epoch), table, &numbers, last).or(all),
                PeerMessage::ReconcileReply { from, number, ues } => replies.push((from, number, ues)),
            }
        }
        for (from, number, ues) in replies {
            self.on(machine::Input::ReconcileReply { from, number, ues: &ues });
        }
        let owner = self.machine.as_mut().and_then(|machine| machine.owner_mut());
        let (Some(cluster), Some(owner)) = (self.cluster.as_mut(), owner) else { return };
        let Some(epoch) = owner.settled() else { return };
        for to in cluster.audit.answers(epoch) {
            let part = cluster.part_of(to);
            cluster.answer(owner, to, epoch, self.ids.foreign_numbers(part, PIECE));
        }
        if cluster.audit.is_due() {
            if self.ids.lends() {
                all = cluster.begin_audit(owner, epoch).or(all);
            } else {
                cluster.audit.is_over();
            }
        }
        if let Some(all) = all {
            let freed = self.ids.returned_but(&all);
            tracing::info!(freed, lent = all.len(), "addresses that nobody has any more were counted");
        }
    }

    /// Reports to the controller the partitions of lost hosts from which local UEs have addresses.
    /// The controller assigns a partition again when no host reports it.
    pub(super) fn report_parts(&mut self) {
        let owner = self.machine.as_ref().and_then(|machine| machine.owner());
        let (Some(cluster), Some(owner)) = (self.cluster.as_mut(), owner) else { return };
        let Some(epoch) = owner.settled() else { return };
        let gone: Vec<u16> = cluster.gone_parts(owner).collect();
        if let Some(parts) = cluster.parts.news(epoch, &gone, |part| self.ids.has_of(part)) {
            self.egress.send(Command::PoolPartitions { epoch, parts });
        }
    }
}

impl Cluster {
    /// Requests from all other hosts the numbers that they use of this host's partition.
    fn begin_audit(&mut self, owner: &mut Owner, epoch: u64) -> Option<FxHashSet<Number>> {
        let own = owner.own();
        let others: Vec<HostId> = owner.hosts().iter().copied().filter(|host| *host != own).collect();
        for to in &others {
            let number = owner.number(*to);
            self.member.replicator.put(*to, number, &ToReplica::AddressAuditRequest { number, epoch });
        }
        self.audit.begin(epoch, others)
    }

    /// Sends the numbers that this host uses of another host's partition, in pieces.
    fn answer(&self, owner: &mut Owner, to: HostId, epoch: u64, mut pieces: Vec<(u8, Vec<u32>)>) {
        if pieces.is_empty() {
            pieces.push((0, Vec::new()));
        }
        let last = pieces.len() - 1;
        for (n, (table, numbers)) in pieces.into_iter().enumerate() {
            let number = owner.number(to);
            let reply = ToReplica::AddressAuditReply { number, epoch, table, numbers, last: n == last };
            self.member.replicator.put(to, number, &reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: [HostId; 2] = [HostId(1), HostId(2)];

    #[test]
    fn part_of_a_ue_that_comes_is_used_again() {
        let mut parts = GoneParts::default();
        assert_eq!(parts.news(7, &[0, 3], |part| part == 3), Some(vec![3]));
        assert_eq!(parts.news(7, &[0, 3], |_| true), None, "no UE has come, so part 0 needs no look");
        parts.come([0].into_iter());
        assert_eq!(parts.news(8, &[0, 3], |_| true), Some(vec![0, 3]));
        assert_eq!(parts.news(8, &[0], |_| false), Some(vec![]));
        assert_eq!(parts.news(9, &[], |_| false), Some(vec![]), "each epoch is answered for");
    }

    #[test]
    fn what_nobody_has_is_known_when_all_have_answered_of_one_epoch() {
        let mut census = AddressAudit::default();
        assert!(!census.is_due());
        census.adopt(false);
        assert!(!census.is_due(), "who joins has nothing");
        census.adopt(true);
        assert!(census.is_due());
        assert_eq!(census.begin(7, OTHERS), None);
        assert_eq!(census.has((HostId(1), 7), 0, &[3, 4], false), None);
        assert_eq!(census.has((HostId(2), 7), 2, &[3], true), None);
        assert_eq!(census.has((HostId(2), 7), 2, &[9], true), None, "it has said all");
        assert_eq!(census.has((HostId(5), 7), 0, &[], true), None, "nobody has asked it");
        assert_eq!(census.has((HostId(1), 6), 0, &[], true), None, "of an epoch before");
        let all = census.has((HostId(1), 7), 0, &[5], true).unwrap();
        assert_eq!(all, FxHashSet::from_iter([(0, 3), (0, 4), (0, 5), (2, 3)]));
        assert!(!census.is_due());
        assert_eq!(census.begin(8, []), Some(FxHashSet::default()), "there are no others");
    }

    #[test]
    fn one_that_an_epoch_ends_is_begun_again() {
        let mut census = AddressAudit::default();
        census.adopt(true);
        census.begin(7, OTHERS);
        assert_eq!(census.has((HostId(1), 7), 0, &[3], true), None);
        census.adopt(false);
        assert!(census.is_due());
        assert_eq!(
            census.has((HostId(2), 7), 0, &[], true),
            None,
            "UEs may have gone from 2 to 1 since that has answered"
        );
        census.begin(8, OTHERS);
        assert_eq!(census.has((HostId(2), 8), 0, &[], true), None);
        assert_eq!(
            census.has((HostId(1), 8), 0, &[], true),
            Some(FxHashSet::default()),
            "nothing of what was said before"
        );
    }

    #[test]
    fn who_asks_too_early_is_answered_later_and_who_asks_too_late_is_not() {
        let mut census = AddressAudit::default();
        census.asked(HostId(1), 7);
        census.asked(HostId(2), 8);
        assert_eq!(census.answers(6), []);
        assert_eq!(census.answers(7), [HostId(1)]);
        assert_eq!(census.answers(9), []);
        assert_eq!(census.answers(8), [], "it was behind, and will ask again");
    }
}
