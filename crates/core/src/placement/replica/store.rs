//! Replica entries of other hosts' UEs, from which this host continues after a takeover.
//!
//! Entries are stored as received; nothing is decoded before a takeover.

use super::{EffectAssociations, ReplicaUpdate};
use crate::amf::context::{self, EncodedContext, UeContext, Versions};
use crate::placement::balance::HostId;
use crate::placement::balance::map::BucketMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use vireo_types::{Bucket, Duration, Instant, Ltmsi};

/// How long it is remembered which inputs led to copies and which UEs were deleted. Longer than the
/// period in which a balancer redelivers inputs.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long the effects of a commit are kept for re-execution. Longer than detection of a host
/// failure, and shorter than balancers remember the effects that they have sent.
pub const DONE_AGAIN: Duration = Duration::from_secs(3);

/// Copy of one UE at a replica, not decoded.
#[derive(Clone, Debug)]
pub struct ReplicaEntry {
    versions: Versions,
    /// Sender of the entry; after a handoff by this host, the new owner.
    pub(super) from: Option<HostId>,
    /// Epoch in which the entry was sent.
    pub(super) epoch: u64,
    perpetual: Vec<u8>,
    /// Empty: the context is deleted.
    pub ephemeral: Vec<u8>,
    /// Effects of the last commits. Several may arrive before the effects of the first have left.
    pub(super) outboxes: VecDeque<OutboxEntry>,
}

/// Effects of one commit.
#[derive(Clone, Debug)]
pub(super) struct OutboxEntry {
    /// Time of arrival and sender.
    at: Instant,
    from: HostId,
    /// True if the effects have left, or if their host is alive and executes them itself.
    left: bool,
    /// Number of the last copy with these effects, version of the UE after the commit, and input
    /// that was executed (0 if none).
    number: u64,
    version: u32,
    pub(super) input: u64,
    outbox: Vec<u8>,
    ways: EffectAssociations,
}

/// Effects of one commit that may not have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentOutbox<'a> {
    /// Encoded effects of the commit.
    pub outbox: &'a [u8],
    /// Associations that the effects use.
    pub ways: EffectAssociations,
    /// True if the messages have left: the dead host has reported it, or a live previous owner has
    /// committed the effects. Only requests are then sent again, because their answers may have
    /// been lost.
    pub sent: bool,
}

impl ReplicaEntry {
    fn parts(&self) -> EncodedContext<'_> {
        EncodedContext { versions: self.versions, perpetual: &self.perpetual, ephemeral: &self.ephemeral }
    }

    /// Decodes the context; `None` if the entry is invalid.
    pub fn decode(&self) -> Option<UeContext> {
        self.parts().decode().ok()
    }

    /// Returns the effects that may not have been executed, in order.
    pub fn unsent_outboxes(&self, now: Instant) -> impl Iterator<Item = UnsentOutbox<'_>> {
        let recent = self.outboxes.iter().filter(move |wanted| now.since(wanted.at) <= DONE_AGAIN);
        recent.map(|wanted| UnsentOutbox { outbox: &wanted.outbox, ways: wanted.ways, sent: wanted.left })
    }

    /// Appends the effects of a commit, if it has any.
    fn wants(&mut self, from: HostId, copy: &ReplicaUpdate<'_>, now: Instant) {
        if !copy.outbox.is_empty() {
            let (number, version, input) = (copy.number, copy.ephemeral_version, copy.input);
            let (outbox, ways) = (copy.outbox.to_vec(), copy.ways);
            self.outboxes.push_back(OutboxEntry { at: now, from, left: false, number, version, input, outbox, ways });
        }
    }

    /// Drops effects that are too old for re-execution.
    fn forget(&mut self, now: Instant) {
        while self.outboxes.front().is_some_and(|wanted| now.since(wanted.at) > DONE_AGAIN) {
            self.outboxes.pop_front();
        }
    }

    /// Returns the effects of the last commit.
    pub fn last_outbox(&self) -> Option<&[u8]> {
        self.outboxes.back().map(|wanted| &wanted.outbox[..])
    }

    /// Returns the version of the perpetual part.
    pub fn perpetual_version(&self) -> u32 {
        self.versions.perpetual
    }

    /// Returns the context in its stored form.
    pub fn record(&self) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        self.parts().put(&mut octets).ok()?;
        Some(octets)
    }

    /// Returns the stored form of a later state of the UE; its versions continue those of the
    /// entry.
    pub fn next_version(&self, ue: &UeContext) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        context::encode_after(ue, &self.record()?, &mut octets).ok()?;
        Some(octets)
    }
}

/// UEs, inputs and buckets that a host takes over.
#[derive(Debug, Default)]
pub struct TakeoverSet {
    /// UEs of dead hosts that this host owns from here on.
    pub ues: Vec<(Ltmsi, ReplicaEntry)>,
    /// UEs that live hosts have handed off, with all effects executed. The host is present if it
    /// used the same map as this host: its own replica entries are then known from that map.
    pub handed: Vec<(Option<HostId>, Ltmsi, ReplicaEntry)>,
    /// Inputs whose results the copies contain; filled if a host has died.
    pub inputs: Vec<u64>,
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
    /// Inputs whose results the copies contain, with the arrival times of the copies.
    inputs: VecDeque<(Instant, u64)>,
    /// Inputs whose results were not acknowledged and count as not executed.
    pub(super) void: FxHashSet<u64>,
    /// UEs whose copies have effects, or that were deleted.
    recent: VecDeque<(Instant, Ltmsi)>,
    /// Number of the last copy per sender.
    last: FxHashMap<HostId, u64>,
    /// Buckets that this host owns once their live previous owner has handed them off: that host,
    /// and the epoch since which this is so.
    pub(super) awaited_buckets: FxHashMap<Bucket, (HostId, u64)>,
    /// Effect watermark per sender: number of the last copy whose effects have all left.
    pub(super) left: FxHashMap<HostId, u64>,
    /// Per sender, the last epoch whose migrations it has completed, and the epoch of its map at
    /// that time.
    handed: FxHashMap<HostId, (u64, u64)>,
}

impl ReplicaStore {
    /// Creates an empty store for a host.
    pub fn new(own: HostId) -> Self {
        ReplicaStore {
            own,
            map: None,
            hosts: Vec::new(),
            ues: FxHashMap::default(),
            inputs: VecDeque::new(),
            void: FxHashSet::default(),
            recent: VecDeque::new(),
            last: FxHashMap::default(),
            awaited_buckets: FxHashMap::default(),
            left: FxHashMap::default(),
            handed: FxHashMap::default(),
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
    /// is newer than the entry.
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
        if self.is_repeat(from, copy.number) || !self.takes((from, epoch), copy) {
            return Ok(ApplyResult::Stale);
        }
        let kept = self.put((from, epoch), copy, now);
        if let Some(before) = copy.before.filter(|before| *before != copy.ltmsi) {
            self.drop_ue(before);
        }
        if copy.input != 0 {
            self.inputs.push_back((now, copy.input));
            self.void.remove(&copy.input);
        }
        while self.inputs.front().is_some_and(|(at, _)| now.since(*at) > REMEMBERED)
            && let Some((_, input)) = self.inputs.pop_front()
        {
            self.void.remove(&input);
        }
        self.forget(now);
        Ok(kept)
    }

    /// Handles a handoff: a host has transferred the buckets that an epoch assigns to this host.
    /// Returns true if this host was waiting for some of them.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn on_handoff(&mut self, (from, of): (HostId, u64), number: u64, epoch: u64) -> Result<bool, Fenced> {
        self.check(from, of)?;
        if self.is_repeat(from, number) {
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
        Ok(!self.is_repeat(from, number))
    }

    /// Returns an error if the sender is not in the map of its epoch: it was declared dead.
    pub(super) fn check(&self, from: HostId, epoch: u64) -> Result<(), Fenced> {
        match &self.map {
            Some(map) if epoch <= map.epoch() && !self.hosts.contains(&from) => Err(Fenced { epoch: map.epoch() }),
            _ => Ok(()),
        }
    }

    /// Records the number of a message. Returns true if it is a repeat.
    pub(super) fn is_repeat(&mut self, from: HostId, number: u64) -> bool {
        let last = self.last.entry(from).or_default();
        let repeat = number <= *last;
        *last = number.max(*last);
        repeat
    }

    fn takes(&self, (from, epoch): (HostId, u64), copy: &ReplicaUpdate<'_>) -> bool {
        let bucket = copy.ltmsi.bucket();
        let here = self.ues.get(&bucket).and_then(|ues| ues.get(&copy.ltmsi));
        let newer = |shadow: &ReplicaEntry| (copy.ephemeral_version.wrapping_sub(shadow.versions.ephemeral) as i32) > 0;
        // The entry was sent by a later map that this host does not have yet: the next owner must
        // not continue from an older state.
        let followed = |shadow: &ReplicaEntry| shadow.from != Some(from) && shadow.epoch > epoch && !newer(shadow);
        if !copy.ephemeral.is_empty() && here.is_some_and(followed) {
            return false;
        }
        let Some(map) = self.map.as_ref().filter(|map| epoch <= map.epoch()) else { return true };
        if self.awaited_buckets.get(&bucket).is_some_and(|(who, _)| *who == from) {
            return true;
        }
        let owners = map.owners(bucket);
        let keeps = owners.replicas().any(|host| host == self.own);
        keeps && (owners.owner() == Some(from) || here.is_none_or(newer))
    }

    /// Drops effects that are too old for re-execution, and UEs that were deleted.
    fn forget(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > DONE_AGAIN)
            && let Some((_, ltmsi)) = self.recent.pop_front()
        {
            let Some(shadow) = self.ues.get_mut(&ltmsi.bucket()).and_then(|ues| ues.get_mut(&ltmsi)) else { continue };
            shadow.forget(now);
            if shadow.ephemeral.is_empty() && shadow.outboxes.is_empty() {
                self.drop_ue(ltmsi);
            }
        }
    }

    fn put(&mut self, (from, epoch): (HostId, u64), copy: &ReplicaUpdate<'_>, now: Instant) -> ApplyResult {
        let mut kept = ApplyResult::Applied;
        let shadow =
            self.ues.entry(copy.ltmsi.bucket()).or_default().entry(copy.ltmsi).or_insert_with(|| ReplicaEntry {
                versions: Versions::default(),
                from: None,
                epoch,
                perpetual: Vec::new(),
                ephemeral: Vec::new(),
                outboxes: VecDeque::new(),
            });
        let not_newer = (copy.ephemeral_version.wrapping_sub(shadow.versions.ephemeral) as i32) <= 0;
        if shadow.from == Some(from) && not_newer && !copy.ephemeral.is_empty() && !shadow.ephemeral.is_empty() {
            // Either the same host resends a UE that was to migrate, or it first sent the UE
            // without the effects. The effects are new in the second case.
            shadow.epoch = epoch.max(shadow.epoch);
            let same = |wanted: &&mut OutboxEntry| (wanted.from, wanted.version) == (from, copy.ephemeral_version);
            match shadow.outboxes.iter_mut().find(same) {
                Some(wanted) if !copy.outbox.is_empty() => wanted.number = copy.number,
                Some(_) => {}
                None => shadow.wants(from, copy, now),
            }
            if !copy.outbox.is_empty() {
                self.recent.push_back((now, copy.ltmsi));
            }
            return ApplyResult::Stale;
        }
        if shadow.from != Some(from) && !copy.ephemeral.is_empty() {
            // Another owner continues from its own state. Later entries, and a step in whose place
            // this one is executed, were never acknowledged.
            shadow.outboxes.retain(|wanted| {
                let beyond = wanted.version.wrapping_sub(copy.ephemeral_version) as i32;
                let stays = beyond < 0 || beyond == 0 && copy.outbox.is_empty();
                if !stays {
                    self.void.insert(wanted.input);
                }
                stays
            });
        }
        shadow.from = Some(from);
        match copy.perpetual {
            Some(perpetual) => replace(&mut shadow.perpetual, perpetual),
            None if shadow.versions.perpetual == copy.perpetual_version => {}
            None => {
                kept = ApplyResult::MissingBase;
                shadow.perpetual.clear();
            }
        }
        replace(&mut shadow.ephemeral, copy.ephemeral);
        shadow.epoch = epoch;
        shadow.forget(now);
        shadow.wants(from, copy, now);
        shadow.versions = Versions { perpetual: copy.perpetual_version, ephemeral: copy.ephemeral_version };
        if copy.ephemeral.is_empty() || !copy.outbox.is_empty() {
            self.recent.push_back((now, copy.ltmsi));
        }
        kept
    }

    fn drop_ue(&mut self, ltmsi: Ltmsi) {
        if let Some(ues) = self.ues.get_mut(&ltmsi.bucket()) {
            ues.remove(&ltmsi);
        }
    }

    /// Stores an entry for a UE that this host has handed off and of which it is a replica.
    pub fn keep_own(&mut self, ltmsi: Ltmsi, parts: &EncodedContext<'_>) {
        let shadow = ReplicaEntry {
            versions: parts.versions,
            from: self.map.as_ref().and_then(|map| map.owners(ltmsi.bucket()).owner()),
            epoch: self.map.as_ref().map_or(0, BucketMap::epoch),
            perpetual: parts.perpetual.to_vec(),
            ephemeral: parts.ephemeral.to_vec(),
            outboxes: VecDeque::new(),
        };
        self.ues.entry(ltmsi.bucket()).or_default().insert(ltmsi, shadow);
    }

    /// Adopts the map of a new epoch. From here on copies of hosts outside the map are refused.
    /// Buckets that this host newly owns are returned, or awaited if their previous owner is alive.
    /// Entries of buckets that this host must not store are dropped. The caller passes every epoch:
    /// the previous owner of a bucket is the owner in the previous map.
    pub fn adopt(&mut self, map: &BucketMap, hosts: &[HostId]) -> TakeoverSet {
        let mut taken = self.take_handed();
        // These UEs are loaded under the new map, but were handed off under the previous one.
        taken.handed.iter_mut().for_each(|(keeper, ..)| *keeper = None);
        if self.hosts.iter().any(|host| !hosts.contains(host)) {
            let inputs = self.inputs.iter().map(|(_, input)| *input);
            taken.inputs = inputs.filter(|input| !self.void.contains(input)).collect();
        }
        // Neither forgotten inputs nor 0, which means no input, need an entry here.
        let remembered: FxHashSet<u64> = self.inputs.iter().map(|(_, input)| *input).collect();
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
                taken.ues.extend(self.ues.remove(&bucket).into_iter().flatten());
            }
        }
        for wanted in taken.ues.iter_mut().flat_map(|(_, shadow)| &mut shadow.outboxes) {
            let left = self.left.get(&wanted.from).is_some_and(|left| wanted.number <= *left);
            wanted.left = left || hosts.contains(&wanted.from);
        }
        self.left.retain(|host, _| hosts.contains(host));
        let awaited = &self.awaited_buckets;
        let keeps = |bucket: Bucket| map.owners(bucket).replicas().any(|host| host == self.own);
        let epoch = map.epoch();
        self.ues.retain(|bucket, ues| {
            if !awaited.contains_key(bucket) && !keeps(*bucket) {
                // The owner does not repeat what it has sent by a later map when this host adopts
                // that map.
                ues.retain(|_, shadow| shadow.epoch > epoch);
            }
            !ues.is_empty()
        });
        self.map = Some(map.clone());
        let now = self.take_handed();
        taken.handed.extend(now.handed);
        TakeoverSet { awaited: now.awaited, ..taken }
    }

    /// Returns the buckets that were handed off to this host since the last call.
    pub fn take_handed(&mut self) -> TakeoverSet {
        let (handed, ues) = (&self.handed, &mut self.ues);
        let mut taken = TakeoverSet::default();
        let own = self.map.as_ref().map_or(0, BucketMap::epoch);
        let is_there = |from: &HostId, since: u64| handed.get(from).is_some_and(|(epoch, _)| *epoch >= since);
        let by_this_map = |from: &HostId| handed.get(from).is_some_and(|of| *of == (own, own));
        for (bucket, (from, _)) in self.awaited_buckets.extract_if(|_, (from, since)| is_there(from, *since)) {
            let theirs = ues.remove(&bucket).into_iter().flatten();
            let keeper = Some(from).filter(by_this_map);
            taken.handed.extend(theirs.map(|(ltmsi, shadow)| (keeper, ltmsi, shadow)));
        }
        taken.awaited = self.awaited_buckets.keys().copied().collect();
        taken
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
    use crate::placement::balance::map::SliceBuckets;
    use crate::placement::balance::ring::WeightedHost;
    use vireo_types::AssocId;

    const A: HostId = HostId(0);
    const OWN: HostId = HostId(1);
    const WAYS: EffectAssociations = [Some((AssocId(1), AssocId(2))), None];

    fn parts(hosts: &[HostId]) -> Vec<SliceBuckets> {
        let hosts = hosts.iter().map(|host| WeightedHost { host: *host, weight: 1.0 }).collect();
        vec![SliceBuckets { weight: 1.0, replicas: 1, hosts }]
    }

    fn copy(number: u64, ltmsi: Ltmsi, octets: &[u8]) -> ReplicaUpdate<'_> {
        ReplicaUpdate {
            number,
            ltmsi,
            before: None,
            input: 100 + number,
            perpetual_version: 1,
            ephemeral_version: number as u32,
            perpetual: Some(b"perpetual"),
            ephemeral: octets,
            outbox: b"outbox",
            ways: WAYS,
        }
    }

    #[test]
    fn the_next_owner_takes_what_it_has_and_refuses_the_last_ones_copies() {
        let first = BucketMap::new(1, &parts(&[A, OWN]));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).owner() == Some(A)).unwrap();
        let mine = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).owner() == Some(OWN)).unwrap();
        let (ue, now) = (Ltmsi::new(theirs, 7), Instant(1));
        let mut shadows = ReplicaStore::new(OWN);
        assert!(shadows.adopt(&first, &[A, OWN]).ues.is_empty());
        assert_eq!(shadows.apply((A, 1), &copy(1, ue, b"one"), now), Ok(ApplyResult::Applied));
        assert_eq!(shadows.apply((A, 1), &copy(2, ue, b"two"), now), Ok(ApplyResult::Applied));
        assert_eq!(
            shadows.apply((A, 1), &copy(1, ue, b"one"), now),
            Ok(ApplyResult::Stale),
            "sent again after a connection was lost"
        );
        let not_theirs = copy(3, Ltmsi::new(mine, 1), b"x");
        assert_eq!(shadows.apply((A, 1), &not_theirs, now), Ok(ApplyResult::Stale));
        assert_eq!(shadows.len(), 1, "a UE of this host's own is not touched");

        let taken = shadows.adopt(&first.next(&parts(&[OWN])), &[OWN]);
        assert_eq!(taken.ues.len(), 1);
        assert_eq!((taken.ues[0].0, &taken.ues[0].1.ephemeral[..]), (ue, &b"two"[..]));
        assert_eq!(taken.inputs, [101, 102], "what is given again of these was carried out");
        let undone: Vec<_> = taken.ues[0].1.unsent_outboxes(now).collect();
        let outbox = UnsentOutbox { outbox: b"outbox", ways: WAYS, sent: false };
        assert_eq!(undone, [outbox; 2], "neither may have left when the host died");
        assert_eq!(taken.ues[0].1.unsent_outboxes(Instant(4_000_000)).count(), 0, "both have");
        // The stopped host resumes.
        assert_eq!(shadows.apply((A, 1), &copy(4, ue, b"late"), now), Err(Fenced { epoch: 2 }));
        assert_eq!(shadows.len(), 0);
    }

    /// After a migration, the effects of the previous owner have left; only its requests are sent
    /// again.
    #[test]
    fn what_a_host_that_lives_has_had_sent_is_known_from_what_the_dead_one_has() {
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
        let primary = |map: &BucketMap, bucket: &Bucket| map.owners(*bucket).owner();
        let goes = |b: &Bucket| [&first, &second, &last].map(|map| primary(map, b)) == [A, OWN, third].map(Some);
        let bucket = (0..Bucket::COUNT).map(Bucket::new).find(goes).expect("one goes that way");
        let (ue, mut shadows) = (Ltmsi::new(bucket, 7), ReplicaStore::new(third));
        shadows.adopt(&first, &[A, OWN, third]);
        shadows.apply((A, 1), &copy(1, ue, b"one"), now).unwrap();
        // A repeated copy that is not newer changes nothing.
        assert_eq!(
            shadows.apply((A, 1), &ReplicaUpdate { number: 2, ..copy(1, ue, b"zero") }, now),
            Ok(ApplyResult::Stale)
        );
        assert_eq!(shadows.ues[&bucket][&ue].ephemeral, b"one");
        shadows.adopt(&second, &[A, OWN, third]);
        shadows.apply((OWN, 2), &copy(3, ue, b"three"), now).unwrap();
        let taken = shadows.adopt(&last, &[A, third]);
        let shadow = &taken.ues.iter().find(|(ltmsi, _)| *ltmsi == ue).unwrap().1;
        assert_eq!(shadow.ephemeral, b"three");
        assert_eq!(shadow.unsent_outboxes(now).map(|undone| undone.sent).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_ue_that_has_gone_or_has_another_number_is_dropped() {
        let map = BucketMap::new(1, &parts(&[A, OWN]));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| map.owners(*b).owner() == Some(A)).unwrap();
        let (old, new) = (Ltmsi::new(theirs, 7), Ltmsi::new(theirs, 8));
        let mut shadows = ReplicaStore::new(OWN);
        shadows.adopt(&map, &[A, OWN]);
        shadows.apply((A, 1), &copy(1, old, b"one"), Instant(0)).unwrap();
        shadows.apply((A, 1), &ReplicaUpdate { before: Some(old), ..copy(2, new, b"two") }, Instant(0)).unwrap();
        assert_eq!(shadows.len(), 1);
        shadows.apply((A, 1), &copy(3, new, b""), Instant(0)).unwrap();
        assert_eq!(shadows.len(), 1, "what its end wants done may have to be done again");
        shadows.apply((A, 1), &copy(4, old, b"x"), Instant(11_000_000)).unwrap();
        assert!(!shadows.ues[&theirs].contains_key(&new));
    }

    /// The owner is two maps ahead. By the second map this host stores nothing of the bucket, by
    /// the third it does. Copies of the third map that arrive before this host has the second are
    /// kept, because the owner later sends only changes.
    #[test]
    fn what_comes_by_a_later_map_is_not_dropped_by_the_one_between() {
        const OTHER: HostId = HostId(2);
        let [first, third] = [1, 3].map(|epoch| BucketMap::new(epoch, &parts(&[A, OWN])));
        let second = BucketMap::new(2, &parts(&[A, OTHER]));
        let owned = |bucket: &Bucket| [&first, &second].iter().all(|map| map.owners(*bucket).owner() == Some(A));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(owned).unwrap();
        let (ue, now, all) = (Ltmsi::new(theirs, 7), Instant(1), [A, OWN, OTHER]);
        let mut shadows = ReplicaStore::new(OWN);
        shadows.adopt(&first, &all);
        assert_eq!(shadows.apply((A, 1), &copy(1, ue, b"one"), now), Ok(ApplyResult::Applied));
        assert_eq!(shadows.apply((A, 3), &copy(2, ue, b"two"), now), Ok(ApplyResult::Applied));
        shadows.adopt(&second, &all);
        assert_eq!(shadows.len(), 1);
        shadows.adopt(&third, &all);
        let changed = ReplicaUpdate { perpetual: None, ..copy(3, ue, b"three") };
        assert_eq!(shadows.apply((A, 3), &changed, now), Ok(ApplyResult::Applied));
        let shadow = &shadows.ues[&theirs][&ue];
        assert_eq!((&shadow.perpetual[..], &shadow.ephemeral[..]), (&b"perpetual"[..], &b"three"[..]));
        // Copies of an earlier map are dropped.
        shadows.adopt(&BucketMap::new(4, &parts(&[A, OTHER])), &all);
        assert_eq!(shadows.len(), 0);
        assert_eq!(shadows.apply((A, 4), &changed, now), Ok(ApplyResult::Stale), "a repeat");
        let again = ReplicaUpdate { number: 4, ..changed };
        shadows.adopt(&BucketMap::new(5, &parts(&[A, OWN])), &all);
        assert_eq!(shadows.apply((A, 5), &again, now), Ok(ApplyResult::MissingBase));
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
    fn a_bucket_of_a_host_that_lives_is_waited_for_until_it_is_handed_over() {
        let (first, second, bucket) = switched();
        let (ue, now) = (Ltmsi::new(bucket, 7), Instant(1));
        let mut shadows = ReplicaStore::new(OWN);
        shadows.adopt(&first, &[A, OWN]);
        shadows.apply((A, 1), &copy(1, ue, b"one"), now).unwrap();
        let taken = shadows.adopt(&second, &[A, OWN]);
        assert!(taken.ues.is_empty() && taken.handed.is_empty() && taken.awaited.contains(&bucket));
        // A ends the procedures in progress.
        assert_eq!(shadows.apply((A, 1), &copy(2, ue, b"two"), now), Ok(ApplyResult::Applied));
        assert_eq!(shadows.apply((A, 2), &copy(3, ue, b"three"), now), Ok(ApplyResult::Applied));
        assert_eq!(shadows.on_handoff((A, 2), 4, 1), Ok(false), "of an epoch before");
        assert!(shadows.take_handed().handed.is_empty());
        assert_eq!(shadows.on_handoff((A, 2), 5, 2), Ok(true));
        assert_eq!(shadows.on_handoff((A, 2), 5, 2), Ok(false), "sent again after a connection was lost");
        let taken = shadows.take_handed();
        assert!(taken.awaited.is_empty() && taken.ues.is_empty());
        assert_eq!((taken.handed.len(), taken.handed[0].0, taken.handed[0].1), (1, Some(A), ue));
        assert_eq!(taken.handed[0].2.ephemeral, b"three");
        assert_eq!(shadows.apply((A, 2), &copy(6, ue, b"late"), now), Ok(ApplyResult::Stale));
        assert_eq!(shadows.len(), 0, "it is this host's own now");
    }

    #[test]
    fn a_bucket_may_be_handed_over_before_this_host_knows_and_its_owner_may_die_before_it_is() {
        let (first, second, bucket) = switched();
        let (ue, now) = (Ltmsi::new(bucket, 7), Instant(1));
        let shadows = || {
            let mut shadows = ReplicaStore::new(OWN);
            shadows.adopt(&first, &[A, OWN]);
            shadows.apply((A, 1), &copy(1, ue, b"one"), now).unwrap();
            shadows
        };
        let mut early = shadows();
        assert_eq!(early.on_handoff((A, 2), 2, 2), Ok(false));
        let taken = early.adopt(&second, &[A, OWN]);
        assert_eq!((taken.handed.len(), taken.ues.len(), taken.awaited.len()), (1, 0, 0));
        assert_eq!(taken.handed[0].0, Some(A), "both go by the second map: what A keeps is told by it");
        // A already uses a later map, so its replica entries do not follow from this map.
        let mut behind = shadows();
        assert_eq!(behind.on_handoff((A, 3), 2, 2), Ok(false));
        assert_eq!(behind.adopt(&second, &[A, OWN]).handed[0].0, None);

        let mut bereft = shadows();
        bereft.adopt(&second, &[A, OWN]);
        let third = second.next(&parts(&[OWN]));
        let taken = bereft.adopt(&third, &[OWN]);
        assert_eq!((taken.handed.len(), taken.ues.len(), taken.awaited.len()), (0, 1, 0));
        assert_eq!(taken.ues[0].1.unsent_outboxes(now).count(), 1, "what it wanted done may not have left");
        assert_eq!(bereft.on_handoff((A, 2), 2, 2), Err(Fenced { epoch: 3 }));
    }

    #[test]
    fn a_replica_keeps_what_the_last_owner_says_late_unless_the_next_one_has_said_more() {
        let (first, second, bucket) = switched();
        let (ue, now) = (Ltmsi::new(bucket, 7), Instant(1));
        // A stores entries of the UEs that it has handed off.
        let mut shadows = ReplicaStore::new(A);
        shadows.adopt(&first, &[A, OWN]);
        shadows.adopt(&second, &[A, OWN]);
        shadows.keep_own(
            ue,
            &EncodedContext { versions: Versions { perpetual: 1, ephemeral: 4 }, perpetual: b"p", ephemeral: b"e" },
        );
        shadows.apply((OWN, 2), &copy(6, ue, b"six"), now).unwrap();
        let of = |shadows: &ReplicaStore| shadows.ues[&bucket][&ue].ephemeral.clone();
        assert_eq!(of(&shadows), b"six");
        let third = HostId(2);
        shadows.hosts.push(third);
        shadows.apply((third, 1), &copy(5, ue, b"five"), now).unwrap();
        assert_eq!(of(&shadows), b"six");
        shadows.apply((third, 1), &copy(7, ue, b"seven"), now).unwrap();
        assert_eq!(of(&shadows), b"seven");
    }
}
