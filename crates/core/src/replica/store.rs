//! Copies of other hosts' UEs: what this host goes on from when it takes over. Kept as they came; nothing is decoded
//! before that.

use super::{EffectAssociations, ReplicaUpdate};
use crate::balance::HostId;
use crate::balance::map::BucketMap;
use crate::context::{self, EncodedContext, UeContext, Versions};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use vireo_types::{Bucket, Duration, Instant, Ltmsi};

/// How long it is known which inputs copies are the result of, and which UEs have gone: longer than the balancer gives
/// them again.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long what a commit wants done is kept, to be done again: longer than it takes to find out that a host is dead, and
/// less than the balancer knows what it has sent for it.
pub const DONE_AGAIN: Duration = Duration::from_secs(3);

/// A UE's copy.
#[derive(Clone, Debug)]
pub struct ReplicaEntry {
    versions: Versions,
    /// Who has sent it, or has it since this host has handed it over.
    pub(super) from: Option<HostId>,
    /// The epoch by which it was sent.
    pub(super) epoch: u64,
    perpetual: Vec<u8>,
    /// Empty: the context is gone.
    pub ephemeral: Vec<u8>,
    /// What the last commits want done. Several may have come before the first one's effects left.
    pub(super) outboxes: VecDeque<OutboxEntry>,
}

/// What a commit wants done.
#[derive(Clone, Debug)]
pub(super) struct OutboxEntry {
    /// When it came, and of whom.
    at: Instant,
    from: HostId,
    /// It has left, or that host lives, and has it done itself.
    left: bool,
    /// The number of the last copy that has said so, the version of the UE that it is the effect of, and the input that was carried
    /// out, 0 if none.
    number: u64,
    version: u32,
    pub(super) input: u64,
    outbox: Vec<u8>,
    /// By which associations.
    ways: EffectAssociations,
}

/// What may not have been done of what a commit wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentOutbox<'a> {
    /// What the commit wants done.
    pub outbox: &'a [u8],
    /// By which associations.
    pub ways: EffectAssociations,
    /// What was to leave has left: the dead host has said so, or another one has committed it, which had the UE before and lives.
    /// Only what it has asked is to be asked again: the answer may have come to nobody.
    pub sent: bool,
}

impl ReplicaEntry {
    fn parts(&self) -> EncodedContext<'_> {
        EncodedContext { versions: self.versions, perpetual: &self.perpetual, ephemeral: &self.ephemeral }
    }

    /// The context.
    pub fn decode(&self) -> Option<UeContext> {
        self.parts().decode().ok()
    }

    /// What may not have been done, in order.
    pub fn unsent_outboxes(&self, now: Instant) -> impl Iterator<Item = UnsentOutbox<'_>> {
        let recent = self.outboxes.iter().filter(move |wanted| now.since(wanted.at) <= DONE_AGAIN);
        recent.map(|wanted| UnsentOutbox { outbox: &wanted.outbox, ways: wanted.ways, sent: wanted.left })
    }

    /// What a commit wants done, if anything.
    fn wants(&mut self, from: HostId, copy: &ReplicaUpdate<'_>, now: Instant) {
        if !copy.outbox.is_empty() {
            let (number, version, input) = (copy.number, copy.ephemeral_version, copy.input);
            let (outbox, ways) = (copy.outbox.to_vec(), copy.ways);
            self.outboxes.push_back(OutboxEntry { at: now, from, left: false, number, version, input, outbox, ways });
        }
    }

    /// What was done long ago is let go.
    fn forget(&mut self, now: Instant) {
        while self.outboxes.front().is_some_and(|wanted| now.since(wanted.at) > DONE_AGAIN) {
            self.outboxes.pop_front();
        }
    }

    /// What the last commit wants done.
    pub fn last_outbox(&self) -> Option<&[u8]> {
        self.outboxes.back().map(|wanted| &wanted.outbox[..])
    }

    /// The version of its perpetual part.
    pub fn perpetual_version(&self) -> u32 {
        self.versions.perpetual
    }

    /// Its octets as they are stored.
    pub fn record(&self) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        self.parts().put(&mut octets).ok()?;
        Some(octets)
    }

    /// Those of what has come of it since: the versions grow on.
    pub fn next_version(&self, ue: &UeContext) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        context::encode_after(ue, &self.record()?, &mut octets).ok()?;
        Some(octets)
    }
}

/// What a host takes over.
#[derive(Debug, Default)]
pub struct TakeoverSet {
    /// UEs of dead hosts whose owner it is now.
    pub ues: Vec<(Ltmsi, ReplicaEntry)>,
    /// UEs that hosts which live have handed over, all done that they have wanted done; with who that was, if it went by the
    /// same map then: what copies it keeps is told by that.
    pub handed: Vec<(Option<HostId>, Ltmsi, ReplicaEntry)>,
    /// Inputs that copies are the result of, if a host has died.
    pub inputs: Vec<u64>,
    /// Buckets that it owns and that have not been handed over yet.
    pub awaited: FxHashSet<Bucket>,
}

/// The sender is in the cluster no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The epoch that holds.
    pub epoch: u64,
}

/// What becomes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyResult {
    /// It is kept.
    Applied,
    /// It changes nothing: it, or something newer, was kept already.
    Stale,
    /// It leaves a part out that was never here: a fault of who has sent it, and the UE cannot be taken over.
    MissingBase,
}

/// All copies.
#[derive(Debug)]
pub struct ReplicaStore {
    own: HostId,
    pub(super) map: Option<BucketMap>,
    hosts: Vec<HostId>,
    pub(super) ues: FxHashMap<Bucket, FxHashMap<Ltmsi, ReplicaEntry>>,
    /// Inputs that copies are the result of, with when those came.
    inputs: VecDeque<(Instant, u64)>,
    /// Those of which nobody has acknowledged the result, and which were carried out by nobody.
    pub(super) void: FxHashSet<u64>,
    /// UEs whose copies want something done, or that have gone.
    recent: VecDeque<(Instant, Ltmsi)>,
    /// The number of the last copy of each host.
    last: FxHashMap<HostId, u64>,
    /// Buckets that are this host's as soon as who had them before has handed them over, which lives: who, and since which
    /// epoch.
    pub(super) awaited_buckets: FxHashMap<Bucket, (HostId, u64)>,
    /// Up to which of its copies all has left that they want done, as far as each host has said.
    pub(super) left: FxHashMap<HostId, u64>,
    /// Up to which epoch each host has handed over what it was to, and an epoch that it had got to when it was said.
    handed: FxHashMap<HostId, (u64, u64)>,
}

impl ReplicaStore {
    /// None yet, at this host.
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

    /// How many UEs there are copies of.
    pub fn len(&self) -> usize {
        self.ues.values().map(FxHashMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a copy of a host whose map is of an epoch. One that has been kept already changes nothing, nor does one of a
    /// host that was the owner before and does not know of it yet, unless it is newer than what is here.
    ///
    /// # Errors
    ///
    /// When the sender is in the map no longer.
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

    /// A host has handed over what an epoch gave to this one. Whether something was waited for.
    ///
    /// # Errors
    ///
    /// When the sender is in the map no longer.
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

    /// A host says something else, in its order among the copies. Whether for the first time.
    ///
    /// # Errors
    ///
    /// When the sender is in the map no longer.
    pub fn check_sequence(&mut self, (from, of): (HostId, u64), number: u64) -> Result<bool, Fenced> {
        self.check(from, of)?;
        Ok(!self.is_repeat(from, number))
    }

    /// Who is not in the map any more has been given up.
    pub(super) fn check(&self, from: HostId, epoch: u64) -> Result<(), Fenced> {
        match &self.map {
            Some(map) if epoch <= map.epoch() && !self.hosts.contains(&from) => Err(Fenced { epoch: map.epoch() }),
            _ => Ok(()),
        }
    }

    /// Notes the number of what a host has sent; whether that came already.
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
        // What is here was sent by a later map, which is not known yet: the next owner does not go on from less than this.
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

    /// What was done long ago is let go, and UEs that have gone.
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
            // The same host sends again what was to be somebody else's; or has sent the UE as it is before what that wants done, which
            // is news then.
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
            // Another owner goes on from what it has: what came beyond that was acknowledged by nobody, nor was a step in the
            // place of which this one is.
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

    /// What this host has handed over to another and keeps a copy of.
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

    /// A new epoch. From here on copies of hosts that are gone are refused. What this host owns by it that it did not is
    /// taken out, or waited for if who had it lives, and what it is not to have is dropped. No epoch is left out: who has
    /// had a bucket is who had it in the one before.
    pub fn adopt(&mut self, map: &BucketMap, hosts: &[HostId]) -> TakeoverSet {
        let mut taken = self.take_handed();
        // They are entered by this map, and were handed over by the one before.
        taken.handed.iter_mut().for_each(|(keeper, ..)| *keeper = None);
        if self.hosts.iter().any(|host| !hosts.contains(host)) {
            let inputs = self.inputs.iter().map(|(_, input)| *input);
            taken.inputs = inputs.filter(|input| !self.void.contains(input)).collect();
        }
        // Of those that are remembered no more nobody asks; nor of 0, which is none.
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
                // What is sent by a later map already is not sent again when this host gets there.
                ues.retain(|_, shadow| shadow.epoch > epoch);
            }
            !ues.is_empty()
        });
        self.map = Some(map.clone());
        let now = self.take_handed();
        taken.handed.extend(now.handed);
        TakeoverSet { awaited: now.awaited, ..taken }
    }

    /// What has been handed over to this host since this was asked last.
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

/// As a copy, in the memory that is there.
fn replace(octets: &mut Vec<u8>, with: &[u8]) {
    octets.clear();
    octets.extend_from_slice(with);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::map::SliceBuckets;
    use crate::balance::ring::WeightedHost;
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
        // The host that was stopped wakes.
        assert_eq!(shadows.apply((A, 1), &copy(4, ue, b"late"), now), Err(Fenced { epoch: 2 }));
        assert_eq!(shadows.len(), 0);
    }

    /// Of a UE that was handed over, what the host that had it before wanted done has left; what it asked is asked again.
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
        // What is sent again and is not newer changes nothing.
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

    /// The owner is two maps ahead: by the second one this host keeps nothing of the bucket, by the third it does. What comes by
    /// the third before this host has the second is kept, because the owner sends later only what has changed since.
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
        // What was sent by a map before goes.
        shadows.adopt(&BucketMap::new(4, &parts(&[A, OTHER])), &all);
        assert_eq!(shadows.len(), 0);
        assert_eq!(shadows.apply((A, 4), &changed, now), Ok(ApplyResult::Stale), "a repeat");
        let again = ReplicaUpdate { number: 4, ..changed };
        shadows.adopt(&BucketMap::new(5, &parts(&[A, OWN])), &all);
        assert_eq!(shadows.apply((A, 5), &again, now), Ok(ApplyResult::MissingBase));
    }

    /// The first map, one by which the next owner of this host's part of A's buckets is this host, and such a bucket.
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
        // What A has begun it ends.
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
        // A has gone further when it is heard: what it keeps is not told by this map.
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
        // A keeps a copy of what it has handed over.
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
