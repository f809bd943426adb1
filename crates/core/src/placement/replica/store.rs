//! Replica entries of other hosts' UEs, from which this host continues after a takeover.
//!
//! Entries are stored as received; nothing is decoded before a takeover.

use super::ReplicaUpdate;
use super::entry::{OutboxEntry, REEXECUTION_WINDOW, ReplicaEntry};
use super::proposal::Proposals;
use crate::amf::context::{EncodedContext, Versions};
use crate::placement::balance::HostId;
use crate::placement::balance::map::BucketMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use vireo_types::{Bucket, Duration, Instant, Ltmsi, Tmsi};

/// How long it is remembered which inputs led to copies. Longer than the period in which a balancer
/// redelivers inputs.
const INPUT_RETENTION: Duration = Duration::from_secs(10);
/// Upper bound of the silence after which a member is declared dead: two thirds of
/// [`REEXECUTION_WINDOW`]. The controller detects a dead host up to a quarter of the silence later,
/// and the new owners need the rest for the next map and their replica entries.
pub const MAX_SILENCE: Duration = Duration(REEXECUTION_WINDOW.0 / 3 * 2);

/// Last statement about an LTMSI: its UE was deleted or renumbered.
#[derive(Clone, Copy, Debug)]
struct RemovedUe {
    from: HostId,
    /// Epoch of the sender.
    epoch: u64,
    at: Instant,
}

/// UEs, inputs and buckets that a host takes over.
#[derive(Debug, Default)]
pub struct TakeoverSet {
    /// UEs of dead hosts that this host owns from here on.
    pub ues: Vec<(Ltmsi, ReplicaEntry)>,
    /// UEs that live hosts have handed off, with all effects executed. The host is present if it
    /// used the same map as this host: its own replica entries are then known from that map.
    pub handed: Vec<(Option<HostId>, Ltmsi, ReplicaEntry)>,
    /// Inputs whose results the copies contain, with their UEs; filled if a host has died.
    pub inputs: Vec<(Ltmsi, u64)>,
    /// Buckets that this host owns and that have not been handed off yet.
    pub awaited: FxHashSet<Bucket>,
}

/// Error: the sender is not a member of the cluster map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Epoch of the receiver's map.
    pub epoch: u64,
}

/// Result of applying a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyResult {
    /// The copy is stored.
    Applied,
    /// The copy changes nothing: it, or a newer one, was stored before.
    Stale,
    /// The copy lacks a part that was never received. This is a fault of the sender, and the UE
    /// cannot be taken over.
    MissingBase,
}

/// Replica entries of all UEs at this host, and the order of messages from owners.
#[derive(Debug)]
pub struct ReplicaStore {
    own: HostId,
    pub(super) map: Option<BucketMap>,
    hosts: Vec<HostId>,
    pub(super) ues: FxHashMap<Bucket, FxHashMap<Ltmsi, ReplicaEntry>>,
    /// UEs with an entry, by current and former 5G-TMSI.
    tmsis: FxHashMap<Tmsi, Ltmsi>,
    /// Inputs whose results the copies contain, with the arrival times of the copies.
    inputs: VecDeque<(Instant, (Ltmsi, u64))>,
    /// Inputs whose results were not acknowledged and count as not executed.
    pub(super) void: FxHashSet<u64>,
    /// UEs whose copies have effects, and LTMSIs that were noted in `removed`.
    recent: VecDeque<(Instant, Ltmsi)>,
    /// LTMSIs of UEs that were deleted or renumbered lately. Copies that another host sent before
    /// may still arrive.
    removed: FxHashMap<Ltmsi, RemovedUe>,
    /// Number of the last copy per sender.
    last: FxHashMap<HostId, u64>,
    /// Buckets that this host owns once their live previous owner has handed them off: that host,
    /// and the epoch since which this is so.
    pub(super) awaited_buckets: FxHashMap<Bucket, (HostId, u64)>,
    /// Effect watermark per sender: number of the last copy whose effects have all left.
    pub(super) watermarks: FxHashMap<HostId, u64>,
    /// Per sender, the last epoch whose migrations it has completed, and the epoch of its map at
    /// that time.
    handed: FxHashMap<HostId, (u64, u64)>,
    /// Proposals of this host as a serving host.
    pub(super) proposals: Proposals,
}

impl ReplicaStore {
    /// Creates an empty store for a host.
    pub fn new(own: HostId) -> Self {
        ReplicaStore {
            own,
            map: None,
            hosts: Vec::new(),
            ues: FxHashMap::default(),
            tmsis: FxHashMap::default(),
            inputs: VecDeque::new(),
            void: FxHashSet::default(),
            recent: VecDeque::new(),
            removed: FxHashMap::default(),
            last: FxHashMap::default(),
            awaited_buckets: FxHashMap::default(),
            watermarks: FxHashMap::default(),
            handed: FxHashMap::default(),
            proposals: Proposals::default(),
        }
    }

    /// Returns the ID of this host.
    pub(super) fn host_id(&self) -> HostId {
        self.own
    }

    /// Records that a copy contains the result of an input.
    pub(super) fn note_input(&mut self, at: Instant, (ltmsi, input): (Ltmsi, u64)) {
        if input != 0 {
            self.inputs.push_back((at, (ltmsi, input)));
            self.void.remove(&input);
        }
    }

    /// Returns the number of UEs with an entry.
    pub fn len(&self) -> usize {
        self.ues.values().map(FxHashMap::len).sum()
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies a copy of a host that has the map of `epoch`. A repeated copy changes nothing. A
    /// copy of a previous owner that does not know about its replacement changes nothing unless it
    /// is newer than the entry. It never brings back a UE that a later owner has deleted or
    /// renumbered.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn apply(
        &mut self,
        (from, epoch): (HostId, u64),
        copy: &ReplicaUpdate<'_>,
        now: Instant,
    ) -> Result<ApplyResult, Fenced> {
        self.check(from, epoch)?;
        if self.check_repeat(from, copy.number) {
            return Ok(ApplyResult::Stale);
        }
        let before = copy.before.filter(|before| *before != copy.ltmsi);
        if !self.accepts_copy((from, epoch), copy) {
            // The entry that the sender has made for the former LTMSI is obsolete in any case.
            let is_obsolete = |before: &Ltmsi| self.entry(*before).is_some_and(|entry| entry.from == Some(from));
            before.filter(is_obsolete).into_iter().for_each(|before| self.drop_ue(before));
            return Ok(ApplyResult::Stale);
        }
        let result = self.put((from, epoch), copy, now);
        if let Some(before) = before {
            self.drop_ue(before);
            self.note_removed((from, epoch), before, now);
        }
        self.note_input(now, (copy.ltmsi, copy.input));
        while self.inputs.front().is_some_and(|(at, _)| now.since(*at) > INPUT_RETENTION)
            && let Some((_, (_, input))) = self.inputs.pop_front()
        {
            self.void.remove(&input);
        }
        self.forget(now);
        Ok(result)
    }

    /// Handles a handoff: a host has transferred the buckets that an epoch assigns to this host.
    /// Returns true if this host was waiting for some of them.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn on_handoff(&mut self, (from, of): (HostId, u64), number: u64, epoch: u64) -> Result<bool, Fenced> {
        self.check(from, of)?;
        if self.check_repeat(from, number) {
            return Ok(false);
        }
        let handed = self.handed.entry(from).or_default();
        if epoch >= handed.0 {
            *handed = (epoch, of);
        }
        Ok(self.awaited_buckets.values().any(|(who, since)| *who == from && *since <= epoch))
    }

    /// Checks the sequence number of another message that is sent among the copies. Returns true if
    /// the message is new.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn check_sequence(&mut self, (from, of): (HostId, u64), number: u64) -> Result<bool, Fenced> {
        self.check(from, of)?;
        Ok(!self.check_repeat(from, number))
    }

    /// Returns an error if the sender is not in the map of its epoch: it was declared dead.
    pub(super) fn check(&self, from: HostId, epoch: u64) -> Result<(), Fenced> {
        match &self.map {
            Some(map) if epoch <= map.epoch() && !self.hosts.contains(&from) => Err(Fenced { epoch: map.epoch() }),
            _ => Ok(()),
        }
    }

    /// Records the number of a message. Returns true if it is a repeat.
    pub(super) fn check_repeat(&mut self, from: HostId, number: u64) -> bool {
        let last = self.last.entry(from).or_default();
        let repeat = number <= *last;
        *last = number.max(*last);
        repeat
    }

    fn accepts_copy(&self, (from, epoch): (HostId, u64), copy: &ReplicaUpdate<'_>) -> bool {
        let bucket = copy.ltmsi.bucket();
        // A former owner repeats copies of an earlier epoch on a new connection.
        let is_late = |removed: &RemovedUe| removed.epoch >= epoch || !self.is_owner((from, epoch), bucket);
        if self.removed.get(&copy.ltmsi).is_some_and(|removed| removed.from != from && is_late(removed)) {
            return false;
        }
        let stored = self.entry(copy.ltmsi);
        let newer = |entry: &ReplicaEntry| (copy.ephemeral_version.wrapping_sub(entry.versions.ephemeral) as i32) > 0;
        // The entry was sent by a later map that this host does not have yet: the next owner must
        // not continue from an older state.
        let is_superseded = |entry: &ReplicaEntry| entry.from != Some(from) && entry.epoch > epoch && !newer(entry);
        if !copy.ephemeral.is_empty() && stored.is_some_and(is_superseded) {
            return false;
        }
        let Some(map) = self.map.as_ref().filter(|map| epoch <= map.epoch()) else { return true };
        if self.awaited_buckets.get(&bucket).is_some_and(|(who, _)| *who == from) {
            return true;
        }
        let owners = map.owners(bucket);
        let is_replica = owners.replicas().any(|host| host == self.own);
        is_replica && (owners.owner() == Some(from) || stored.is_none_or(newer))
    }

    /// Drops effects that are too old for re-execution, and UEs that were deleted.
    fn forget(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > REEXECUTION_WINDOW)
            && let Some((at, ltmsi)) = self.recent.pop_front()
        {
            if self.removed.get(&ltmsi).is_some_and(|removed| removed.at == at) {
                self.removed.remove(&ltmsi);
            }
            let Some(entry) = self.ues.get_mut(&ltmsi.bucket()).and_then(|ues| ues.get_mut(&ltmsi)) else { continue };
            entry.forget(now);
            if entry.ephemeral.is_empty() && entry.outboxes.is_empty() {
                self.drop_ue(ltmsi);
            }
        }
    }

    fn put(&mut self, (from, epoch): (HostId, u64), copy: &ReplicaUpdate<'_>, now: Instant) -> ApplyResult {
        let mut result = ApplyResult::Applied;
        let entry =
            self.ues.entry(copy.ltmsi.bucket()).or_default().entry(copy.ltmsi).or_insert_with(|| ReplicaEntry {
                versions: Versions::default(),
                from: None,
                epoch,
                perpetual: Vec::new(),
                tmsis: [None; 2],
                ephemeral: Vec::new(),
                outboxes: VecDeque::new(),
            });
        let not_newer = (copy.ephemeral_version.wrapping_sub(entry.versions.ephemeral) as i32) <= 0;
        if entry.from == Some(from) && not_newer && !copy.ephemeral.is_empty() && !entry.ephemeral.is_empty() {
            // Either the same host resends a UE that was to migrate, or it first sent the UE
            // without the effects. The effects are new in the second case.
            entry.epoch = epoch.max(entry.epoch);
            let same = |commit: &&mut OutboxEntry| (commit.from, commit.version) == (from, copy.ephemeral_version);
            match entry.outboxes.iter_mut().find(same) {
                Some(commit) if !copy.outbox.is_empty() => commit.number = copy.number,
                Some(_) => {}
                None => entry.add_outbox(from, copy, now),
            }
            if !copy.outbox.is_empty() {
                self.recent.push_back((now, copy.ltmsi));
            }
            return ApplyResult::Stale;
        }
        if entry.from != Some(from) && !copy.ephemeral.is_empty() {
            // Another owner continues from its own state. Later entries, and a step in whose place
            // another one is executed, were never acknowledged. If it gives the UE this LTMSI only
            // now, then it does not know that the former owner did, and no commit was acknowledged.
            let is_renumbered = copy.before.is_some_and(|before| before != copy.ltmsi);
            let is_same_state = entry.versions.ephemeral != copy.ephemeral_version || entry.has_state_of(copy);
            entry.outboxes.retain(|commit| {
                let beyond = commit.version.wrapping_sub(copy.ephemeral_version) as i32;
                let is_continued = beyond == 0 && copy.outbox.is_empty() && is_same_state;
                let stays = !is_renumbered && (beyond < 0 || is_continued);
                if !stays {
                    self.void.insert(commit.input);
                }
                stays
            });
        }
        if copy.input != 0 && !copy.outbox.is_empty() {
            // The former owner has executed the input too, but this owner continues without that.
            let is_other = |commit: &OutboxEntry| commit.from != from && commit.version != copy.ephemeral_version;
            entry.outboxes.retain(|commit| commit.input != copy.input || !is_other(commit));
        }
        entry.from = Some(from);
        match copy.perpetual {
            Some(perpetual) => replace(&mut entry.perpetual, perpetual),
            None if (entry.versions.layout, entry.versions.perpetual) == (copy.layout, copy.perpetual_version) => {}
            None => {
                result = ApplyResult::MissingBase;
                entry.perpetual.clear();
            }
        }
        replace(&mut entry.ephemeral, copy.ephemeral);
        entry.epoch = epoch;
        entry.forget(now);
        entry.add_outbox(from, copy, now);
        let ReplicaUpdate { layout, perpetual_version: perpetual, ephemeral_version: ephemeral, .. } = *copy;
        entry.versions = Versions { layout, perpetual, ephemeral };
        if copy.perpetual.is_some() {
            let tmsis = entry.parts().temporary_identities();
            let former = std::mem::replace(&mut entry.tmsis, tmsis);
            former.into_iter().flatten().for_each(|tmsi| _ = self.tmsis.remove(&tmsi));
            self.tmsis.extend(tmsis.into_iter().flatten().map(|tmsi| (tmsi, copy.ltmsi)));
        }
        if copy.ephemeral.is_empty() {
            self.note_removed((from, epoch), copy.ltmsi, now);
            return result;
        }
        self.removed.remove(&copy.ltmsi);
        if !copy.outbox.is_empty() {
            self.recent.push_back((now, copy.ltmsi));
        }
        result
    }

    /// Records that no UE has an LTMSI any longer. Earlier copies of other hosts may arrive later,
    /// because they come on other connections.
    pub(super) fn note_removed(&mut self, (from, epoch): (HostId, u64), ltmsi: Ltmsi, now: Instant) {
        self.removed.insert(ltmsi, RemovedUe { from, epoch, at: now });
        self.recent.push_back((now, ltmsi));
    }

    fn entry(&self, ltmsi: Ltmsi) -> Option<&ReplicaEntry> {
        self.ues.get(&ltmsi.bucket())?.get(&ltmsi)
    }

    fn drop_ue(&mut self, ltmsi: Ltmsi) {
        let entry = self.ues.get_mut(&ltmsi.bucket()).and_then(|ues| ues.remove(&ltmsi));
        for tmsi in entry.into_iter().flat_map(|entry| entry.tmsis).flatten() {
            if self.tmsis.get(&tmsi) == Some(&ltmsi) {
                self.tmsis.remove(&tmsi);
            }
        }
    }

    /// Stores an entry for a UE that this host has handed off and of which it is a replica.
    pub fn insert_own(&mut self, ltmsi: Ltmsi, parts: &EncodedContext<'_>) {
        let entry = ReplicaEntry {
            versions: parts.versions,
            from: self.map.as_ref().and_then(|map| map.owners(ltmsi.bucket()).owner()),
            epoch: self.map.as_ref().map_or(0, BucketMap::epoch),
            perpetual: parts.perpetual.to_vec(),
            tmsis: parts.temporary_identities(),
            ephemeral: parts.ephemeral.to_vec(),
            outboxes: VecDeque::new(),
        };
        self.tmsis.extend(entry.tmsis.into_iter().flatten().map(|tmsi| (tmsi, ltmsi)));
        self.ues.entry(ltmsi.bucket()).or_default().insert(ltmsi, entry);
    }

    /// Returns the UE that has a 5G-TMSI, among those with an entry.
    pub fn ltmsi_of(&self, tmsi: Tmsi) -> Option<Ltmsi> {
        self.tmsis.get(&tmsi).copied()
    }

    /// Adopts the map of a new epoch. From here on copies of hosts outside the map are refused.
    /// Buckets that this host newly owns are returned, or awaited if their previous owner is alive.
    /// Entries of buckets that this host must not store are dropped. The caller passes every epoch:
    /// the previous owner of a bucket is the owner in the previous map.
    pub fn adopt(&mut self, map: &BucketMap, hosts: &[HostId]) -> TakeoverSet {
        let mut takeover = self.take_handed_off();
        // These UEs are loaded under the new map, but were handed off under the previous one.
        takeover.handed.iter_mut().for_each(|(store, ..)| *store = None);
        let own = self.own;
        let owns = |ltmsi: Ltmsi| map.owners(ltmsi.bucket()).owner() == Some(own);
        self.end_proposals(|host| hosts.contains(&host), owns);
        if self.hosts.iter().any(|host| !hosts.contains(host)) {
            takeover.inputs = self.executed_inputs();
        }
        // Neither forgotten inputs nor 0, which means no input, need an entry here.
        let remembered: FxHashSet<u64> = self.inputs.iter().map(|(_, (_, input))| *input).collect();
        self.void.retain(|input| remembered.contains(input));
        self.hosts = hosts.to_vec();
        self.last.retain(|host, _| hosts.contains(host));
        self.handed.retain(|host, _| hosts.contains(host));
        let own = |bucket: Bucket| map.owners(bucket).owner() == Some(self.own);
        self.awaited_buckets.retain(|bucket, _| own(*bucket));
        for bucket in (0..Bucket::COUNT).map(Bucket::new).filter(|bucket| own(*bucket)) {
            let before = self.map.as_ref().and_then(|map| map.owners(bucket).owner());
            let from = match self.awaited_buckets.get(&bucket) {
                Some((from, _)) => Some(*from),
                None => before.filter(|host| *host != self.own),
            };
            if let Some(from) = from.filter(|from| hosts.contains(from)) {
                self.awaited_buckets.entry(bucket).or_insert((from, map.epoch()));
            } else {
                self.awaited_buckets.remove(&bucket);
                takeover.ues.extend(self.ues.remove(&bucket).into_iter().flatten());
            }
        }
        for commit in takeover.ues.iter_mut().flat_map(|(_, entry)| &mut entry.outboxes) {
            let left = self.watermarks.get(&commit.from).is_some_and(|left| commit.number <= *left);
            commit.sent = left || hosts.contains(&commit.from);
        }
        self.watermarks.retain(|host, _| hosts.contains(host));
        let awaited = &self.awaited_buckets;
        let is_replica = |bucket: Bucket| map.owners(bucket).replicas().any(|host| host == self.own);
        let epoch = map.epoch();
        self.ues.retain(|bucket, ues| {
            if !awaited.contains_key(bucket) && !is_replica(*bucket) {
                // The owner does not repeat what it has sent by a later map when this host adopts
                // that map.
                ues.retain(|_, entry| entry.epoch > epoch);
            }
            !ues.is_empty()
        });
        self.map = Some(map.clone());
        let now = self.take_handed_off();
        takeover.handed.extend(now.handed);
        takeover.inputs.extend(now.inputs);
        let ues = &self.ues;
        self.tmsis.retain(|_, ltmsi| ues.get(&ltmsi.bucket()).is_some_and(|ues| ues.contains_key(ltmsi)));
        TakeoverSet { awaited: now.awaited, ..takeover }
    }

    /// Returns the inputs whose results the copies contain.
    fn executed_inputs(&self) -> Vec<(Ltmsi, u64)> {
        self.inputs.iter().map(|(_, input)| *input).filter(|(_, input)| !self.void.contains(input)).collect()
    }

    /// Returns the buckets that were handed off to this host since the last call.
    pub fn take_handed_off(&mut self) -> TakeoverSet {
        let (handed, ues) = (&self.handed, &mut self.ues);
        let mut takeover = TakeoverSet::default();
        let own = self.map.as_ref().map_or(0, BucketMap::epoch);
        let is_there = |from: &HostId, since: u64| handed.get(from).is_some_and(|(epoch, _)| *epoch >= since);
        let by_this_map = |from: &HostId| handed.get(from).is_some_and(|of| *of == (own, own));
        for (bucket, (from, _)) in self.awaited_buckets.extract_if(|_, (from, since)| is_there(from, *since)) {
            let theirs = ues.remove(&bucket).into_iter().flatten();
            let store = Some(from).filter(by_this_map);
            takeover.handed.extend(theirs.map(|(ltmsi, entry)| (store, ltmsi, entry)));
        }
        takeover.awaited = self.awaited_buckets.keys().copied().collect();
        if !takeover.handed.is_empty() {
            // A balancer may give an input to this host that its previous owner has committed as a
            // serving host's proposal.
            takeover.inputs = self.executed_inputs();
        }
        takeover
    }
}

/// Replaces the contents and reuses the allocation.
fn replace(octets: &mut Vec<u8>, with: &[u8]) {
    octets.clear();
    octets.extend_from_slice(with);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amf::context;
    use crate::placement::balance::map::SliceBuckets;
    use crate::placement::balance::ring::WeightedHost;
    use crate::placement::replica::{EffectAssociations, UnsentOutbox};
    use vireo_types::AssocId;

    const A: HostId = HostId(0);
    const OWN: HostId = HostId(1);
    const ASSOCIATIONS: EffectAssociations = [Some((AssocId(1), AssocId(2))), None];

    fn parts(hosts: &[HostId]) -> Vec<SliceBuckets> {
        let hosts = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
        vec![SliceBuckets { weight: 1.0, replicas: 1, hosts }]
    }

    fn copy(number: u64, ltmsi: Ltmsi, octets: &[u8]) -> ReplicaUpdate<'_> {
        ReplicaUpdate {
            number,
            ltmsi,
            before: None,
            input: 100 + number,
            layout: context::LAYOUT_VERSION,
            perpetual_version: 1,
            ephemeral_version: number as u32,
            perpetual: Some(b"perpetual"),
            ephemeral: octets,
            outbox: b"outbox",
            associations: ASSOCIATIONS,
        }
    }

    #[test]
    fn next_owner_takes_over_and_fences_the_dead() {
        let first = BucketMap::new(1, &parts(&[A, OWN]));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).owner() == Some(A)).unwrap();
        let mine = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).owner() == Some(OWN)).unwrap();
        let (ue, now) = (Ltmsi::new(theirs, 7), Instant(1));
        let mut store = ReplicaStore::new(OWN);
        assert!(store.adopt(&first, &[A, OWN]).ues.is_empty());
        assert_eq!(store.apply((A, 1), &copy(1, ue, b"one"), now), Ok(ApplyResult::Applied));
        assert_eq!(store.apply((A, 1), &copy(2, ue, b"two"), now), Ok(ApplyResult::Applied));
        assert_eq!(
            store.apply((A, 1), &copy(1, ue, b"one"), now),
            Ok(ApplyResult::Stale),
            "sent again after a connection was lost"
        );
        let not_theirs = copy(3, Ltmsi::new(mine, 1), b"x");
        assert_eq!(store.apply((A, 1), &not_theirs, now), Ok(ApplyResult::Stale));
        assert_eq!(store.len(), 1, "a UE of this host's own is not touched");

        let takeover = store.adopt(&first.next(&parts(&[OWN])), &[OWN]);
        assert_eq!(takeover.ues.len(), 1);
        assert_eq!((takeover.ues[0].0, &takeover.ues[0].1.ephemeral[..]), (ue, &b"two"[..]));
        assert_eq!(takeover.inputs, [(ue, 101), (ue, 102)], "what is given again of these was carried out");
        let unsent: Vec<_> = takeover.ues[0].1.unsent_outboxes(now).collect();
        let outbox = UnsentOutbox { outbox: b"outbox", associations: ASSOCIATIONS, sent: false };
        assert_eq!(unsent, [outbox; 2], "neither may have left when the host died");
        assert_eq!(takeover.ues[0].1.unsent_outboxes(Instant(4_000_000)).count(), 0, "both have");
        // The stopped host resumes.
        assert_eq!(store.apply((A, 1), &copy(4, ue, b"late"), now), Err(Fenced { epoch: 2 }));
        assert_eq!(store.len(), 0);
    }

    /// After a migration, the effects of the previous owner have left; only its requests are sent
    /// again.
    #[test]
    fn outbox_of_live_host_counts_as_sent() {
        let (now, third) = (Instant(1), HostId(2));
        let of = |hosts: &[HostId]| {
            let mut parts = parts(hosts);
            parts[0].replicas = 2;
            parts
        };
        let (first, mut alone) = (BucketMap::first(&of(&[A, OWN, third])), of(&[A, OWN, third]));
        alone[0].hosts[0].weight = 0.0;
        let second = first.switch(&alone, 4096).unwrap();
        let last = BucketMap::new(9, &parts(&[third]));
        let owner = |map: &BucketMap, bucket: &Bucket| map.owners(*bucket).owner();
        let goes = |b: &Bucket| [&first, &second, &last].map(|map| owner(map, b)) == [A, OWN, third].map(Some);
        let bucket = (0..Bucket::COUNT).map(Bucket::new).find(goes).expect("one goes that way");
        let (ue, mut store) = (Ltmsi::new(bucket, 7), ReplicaStore::new(third));
        store.adopt(&first, &[A, OWN, third]);
        store.apply((A, 1), &copy(1, ue, b"one"), now).unwrap();
        // A repeated copy that is not newer changes nothing.
        assert_eq!(
            store.apply((A, 1), &ReplicaUpdate { number: 2, ..copy(1, ue, b"zero") }, now),
            Ok(ApplyResult::Stale)
        );
        assert_eq!(store.ues[&bucket][&ue].ephemeral, b"one");
        store.adopt(&second, &[A, OWN, third]);
        store.apply((OWN, 2), &copy(3, ue, b"three"), now).unwrap();
        let takeover = store.adopt(&last, &[A, third]);
        let entry = &takeover.ues.iter().find(|(ltmsi, _)| *ltmsi == ue).unwrap().1;
        assert_eq!(entry.ephemeral, b"three");
        assert_eq!(entry.unsent_outboxes(now).map(|unsent| unsent.sent).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn deleted_or_renumbered_ue_is_dropped() {
        let map = BucketMap::new(1, &parts(&[A, OWN]));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| map.owners(*b).owner() == Some(A)).unwrap();
        let (old, new) = (Ltmsi::new(theirs, 7), Ltmsi::new(theirs, 8));
        let mut store = ReplicaStore::new(OWN);
        store.adopt(&map, &[A, OWN]);
        store.apply((A, 1), &copy(1, old, b"one"), Instant(0)).unwrap();
        store.apply((A, 1), &ReplicaUpdate { before: Some(old), ..copy(2, new, b"two") }, Instant(0)).unwrap();
        assert_eq!(store.len(), 1);
        store.apply((A, 1), &copy(3, new, b""), Instant(0)).unwrap();
        assert_eq!(store.len(), 1, "what its end wants done may have to be done again");
        store.apply((A, 1), &copy(4, old, b"x"), Instant(11_000_000)).unwrap();
        assert!(!store.ues[&theirs].contains_key(&new));
    }

    /// The owner is two maps ahead. By the second map this host stores nothing of the bucket, by
    /// the third it does. Copies of the third map that arrive before this host has the second are
    /// kept, because the owner later sends only changes.
    #[test]
    fn copy_of_later_map_survives_earlier_map() {
        const OTHER: HostId = HostId(2);
        let [first, third] = [1, 3].map(|epoch| BucketMap::new(epoch, &parts(&[A, OWN])));
        let second = BucketMap::new(2, &parts(&[A, OTHER]));
        let owned = |bucket: &Bucket| [&first, &second].iter().all(|map| map.owners(*bucket).owner() == Some(A));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(owned).unwrap();
        let (ue, now, all) = (Ltmsi::new(theirs, 7), Instant(1), [A, OWN, OTHER]);
        let mut store = ReplicaStore::new(OWN);
        store.adopt(&first, &all);
        assert_eq!(store.apply((A, 1), &copy(1, ue, b"one"), now), Ok(ApplyResult::Applied));
        assert_eq!(store.apply((A, 3), &copy(2, ue, b"two"), now), Ok(ApplyResult::Applied));
        store.adopt(&second, &all);
        assert_eq!(store.len(), 1);
        store.adopt(&third, &all);
        let changed = ReplicaUpdate { perpetual: None, ..copy(3, ue, b"three") };
        assert_eq!(store.apply((A, 3), &changed, now), Ok(ApplyResult::Applied));
        let entry = &store.ues[&theirs][&ue];
        assert_eq!((&entry.perpetual[..], &entry.ephemeral[..]), (&b"perpetual"[..], &b"three"[..]));
        // Copies of an earlier map are dropped.
        store.adopt(&BucketMap::new(4, &parts(&[A, OTHER])), &all);
        assert_eq!(store.len(), 0);
        assert_eq!(store.apply((A, 4), &changed, now), Ok(ApplyResult::Stale), "a repeat");
        let again = ReplicaUpdate { number: 4, ..changed };
        store.adopt(&BucketMap::new(5, &parts(&[A, OWN])), &all);
        assert_eq!(store.apply((A, 5), &again, now), Ok(ApplyResult::MissingBase));
    }

    /// Returns the first map, a map by which this host takes over A's buckets, and one such bucket.
    fn switched() -> (BucketMap, BucketMap, Bucket) {
        let first = BucketMap::first(&parts(&[A, OWN]));
        let mut alone = parts(&[A, OWN]);
        alone[0].hosts[0].weight = 0.0;
        let second = first.switch(&alone, 4096).unwrap();
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).owner() == Some(A)).unwrap();
        assert_eq!(second.owners(theirs).owner(), Some(OWN));
        (first, second, theirs)
    }

    #[test]
    fn bucket_of_live_host_awaits_handoff() {
        let (first, second, bucket) = switched();
        let (ue, now) = (Ltmsi::new(bucket, 7), Instant(1));
        let mut store = ReplicaStore::new(OWN);
        store.adopt(&first, &[A, OWN]);
        store.apply((A, 1), &copy(1, ue, b"one"), now).unwrap();
        let takeover = store.adopt(&second, &[A, OWN]);
        assert!(takeover.ues.is_empty() && takeover.handed.is_empty() && takeover.awaited.contains(&bucket));
        // A ends the procedures in progress.
        assert_eq!(store.apply((A, 1), &copy(2, ue, b"two"), now), Ok(ApplyResult::Applied));
        assert_eq!(store.apply((A, 2), &copy(3, ue, b"three"), now), Ok(ApplyResult::Applied));
        assert_eq!(store.on_handoff((A, 2), 4, 1), Ok(false), "of an epoch before");
        assert!(store.take_handed_off().handed.is_empty());
        assert_eq!(store.on_handoff((A, 2), 5, 2), Ok(true));
        assert_eq!(store.on_handoff((A, 2), 5, 2), Ok(false), "sent again after a connection was lost");
        let takeover = store.take_handed_off();
        assert!(takeover.awaited.is_empty() && takeover.ues.is_empty());
        assert_eq!((takeover.handed.len(), takeover.handed[0].0, takeover.handed[0].1), (1, Some(A), ue));
        assert_eq!(takeover.handed[0].2.ephemeral, b"three");
        assert_eq!(store.apply((A, 2), &copy(6, ue, b"late"), now), Ok(ApplyResult::Stale));
        assert_eq!(store.len(), 0, "it is this host's own now");
    }

    #[test]
    fn handoff_before_map_or_after_death_is_valid() {
        let (first, second, bucket) = switched();
        let (ue, now) = (Ltmsi::new(bucket, 7), Instant(1));
        let store = || {
            let mut store = ReplicaStore::new(OWN);
            store.adopt(&first, &[A, OWN]);
            store.apply((A, 1), &copy(1, ue, b"one"), now).unwrap();
            store
        };
        let mut early = store();
        assert_eq!(early.on_handoff((A, 2), 2, 2), Ok(false));
        let takeover = early.adopt(&second, &[A, OWN]);
        assert_eq!((takeover.handed.len(), takeover.ues.len(), takeover.awaited.len()), (1, 0, 0));
        assert_eq!(takeover.handed[0].0, Some(A), "both go by the second map: what A keeps is told by it");
        // A already uses a later map, so its replica entries do not follow from this map.
        let mut behind = store();
        assert_eq!(behind.on_handoff((A, 3), 2, 2), Ok(false));
        assert_eq!(behind.adopt(&second, &[A, OWN]).handed[0].0, None);

        let mut bereft = store();
        bereft.adopt(&second, &[A, OWN]);
        let third = second.next(&parts(&[OWN]));
        let takeover = bereft.adopt(&third, &[OWN]);
        assert_eq!((takeover.handed.len(), takeover.ues.len(), takeover.awaited.len()), (0, 1, 0));
        assert_eq!(takeover.ues[0].1.unsent_outboxes(now).count(), 1, "what it wanted done may not have left");
        assert_eq!(bereft.on_handoff((A, 2), 2, 2), Err(Fenced { epoch: 3 }));
    }

    #[test]
    fn late_copy_is_stored_unless_newer_exists() {
        let (first, second, bucket) = switched();
        let (ue, now) = (Ltmsi::new(bucket, 7), Instant(1));
        // A stores entries of the UEs that it has handed off.
        let mut store = ReplicaStore::new(A);
        store.adopt(&first, &[A, OWN]);
        store.adopt(&second, &[A, OWN]);
        store.insert_own(
            ue,
            &EncodedContext {
                versions: Versions { perpetual: 1, ephemeral: 4, ..Versions::default() },
                perpetual: b"p",
                ephemeral: b"e",
            },
        );
        store.apply((OWN, 2), &copy(6, ue, b"six"), now).unwrap();
        let of = |store: &ReplicaStore| store.ues[&bucket][&ue].ephemeral.clone();
        assert_eq!(of(&store), b"six");
        let third = HostId(2);
        store.hosts.push(third);
        store.apply((third, 1), &copy(5, ue, b"five"), now).unwrap();
        assert_eq!(of(&store), b"six");
        store.apply((third, 1), &copy(7, ue, b"seven"), now).unwrap();
        assert_eq!(of(&store), b"seven");
    }
}
