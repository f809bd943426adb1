//! Copies of other hosts' UEs: what this host goes on from when it takes over. Kept as they came; nothing is decoded
//! before that.

use crate::fabric::message::Copy;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_core::balance::HostId;
use vireo_core::balance::map::BucketMap;
use vireo_core::context::{Record, UeContext, Versions};
use vireo_types::{Bucket, Duration, Instant, Ltmsi};

/// How long it is known which inputs copies are the result of, and which UEs have gone: longer than the balancer gives
/// them again.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long what a commit wants done is kept, to be done again: longer than it takes to find out that a host is dead, and
/// less than the balancer knows what it has sent for it.
const DONE_AGAIN: Duration = Duration::from_secs(3);

/// A UE's copy.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    versions: Versions,
    perpetual: Vec<u8>,
    /// Empty: the context is gone.
    pub(crate) ephemeral: Vec<u8>,
    /// What the last commits want done, and when they came. Several may have come before the first one's effects left.
    outboxes: VecDeque<(Instant, Vec<u8>)>,
}

impl Shadow {
    fn parts(&self) -> Record<'_> {
        Record { versions: self.versions, perpetual: &self.perpetual, ephemeral: &self.ephemeral }
    }

    /// The context.
    pub(crate) fn decode(&self) -> Option<UeContext> {
        self.parts().decode().ok()
    }

    /// What may not have been done, in order.
    pub(crate) fn undone(&self, now: Instant) -> impl Iterator<Item = &[u8]> {
        let recent = self.outboxes.iter().filter(move |(at, _)| now.since(*at) <= DONE_AGAIN);
        recent.map(|(_, outbox)| &outbox[..])
    }

    /// What was done long ago is let go.
    fn forget(&mut self, now: Instant) {
        while self.outboxes.front().is_some_and(|(at, _)| now.since(*at) > DONE_AGAIN) {
            self.outboxes.pop_front();
        }
    }

    /// Its octets as they are stored.
    pub(crate) fn record(&self) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        self.parts().put(&mut octets).ok()?;
        Some(octets)
    }
}

/// What a host takes over.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// UEs whose owner it is now.
    pub(crate) ues: Vec<(Ltmsi, Shadow)>,
    /// Inputs that copies are the result of, if a host has died.
    pub(crate) inputs: Vec<u64>,
}

impl Taken {
    /// Whether that is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ues.is_empty() && self.inputs.is_empty()
    }
}

/// The sender is not the owner of what it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fenced {
    /// The epoch that holds.
    pub(crate) epoch: u64,
}

/// All copies.
#[derive(Debug)]
pub(crate) struct Shadows {
    own: HostId,
    map: Option<BucketMap>,
    hosts: Vec<HostId>,
    ues: FxHashMap<Bucket, FxHashMap<Ltmsi, Shadow>>,
    /// Inputs that copies are the result of, with when those came.
    inputs: VecDeque<(Instant, u64)>,
    /// UEs whose copies want something done, or that have gone.
    recent: VecDeque<(Instant, Ltmsi)>,
    /// The number of the last copy of each host.
    last: FxHashMap<HostId, u64>,
}

impl Shadows {
    pub(crate) fn new(own: HostId) -> Self {
        Shadows {
            own,
            map: None,
            hosts: Vec::new(),
            ues: FxHashMap::default(),
            inputs: VecDeque::new(),
            recent: VecDeque::new(),
            last: FxHashMap::default(),
        }
    }

    /// How many UEs there are copies of.
    pub(crate) fn len(&self) -> usize {
        self.ues.values().map(FxHashMap::len).sum()
    }

    /// Keeps a copy of a host whose map is of an epoch. One that has been kept already changes nothing.
    pub(crate) fn keep(&mut self, (from, epoch): (HostId, u64), copy: &Copy<'_>, now: Instant) -> Result<(), Fenced> {
        if let Some(map) = &self.map
            && epoch <= map.epoch()
            && map.owners(copy.ltmsi.bucket()).primary() != Some(from)
        {
            return Err(Fenced { epoch: map.epoch() });
        }
        let last = self.last.entry(from).or_default();
        if copy.number <= *last {
            return Ok(());
        }
        *last = copy.number;
        self.put(copy, now);
        if let Some(before) = copy.before.filter(|before| *before != copy.ltmsi) {
            self.drop_ue(before);
        }
        if copy.input != 0 {
            self.inputs.push_back((now, copy.input));
        }
        while self.inputs.front().is_some_and(|(at, _)| now.since(*at) > REMEMBERED) {
            self.inputs.pop_front();
        }
        self.forget(now);
        Ok(())
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

    fn put(&mut self, copy: &Copy<'_>, now: Instant) {
        let shadow = self.ues.entry(copy.ltmsi.bucket()).or_default().entry(copy.ltmsi).or_insert_with(|| Shadow {
            versions: Versions::default(),
            perpetual: Vec::new(),
            ephemeral: Vec::new(),
            outboxes: VecDeque::new(),
        });
        match copy.perpetual {
            Some(perpetual) => replace(&mut shadow.perpetual, perpetual),
            None if shadow.versions.perpetual == copy.perpetual_version => {}
            None => {
                tracing::error!(ltmsi = %copy.ltmsi, "a copy builds on one that is not here: please report it");
                shadow.perpetual.clear();
            }
        }
        replace(&mut shadow.ephemeral, copy.ephemeral);
        shadow.forget(now);
        if !copy.outbox.is_empty() {
            shadow.outboxes.push_back((now, copy.outbox.to_vec()));
        }
        shadow.versions = Versions { perpetual: copy.perpetual_version, ephemeral: copy.ephemeral_version };
        if copy.ephemeral.is_empty() || !copy.outbox.is_empty() {
            self.recent.push_back((now, copy.ltmsi));
        }
    }

    fn drop_ue(&mut self, ltmsi: Ltmsi) {
        if let Some(ues) = self.ues.get_mut(&ltmsi.bucket()) {
            ues.remove(&ltmsi);
        }
    }

    /// A new epoch. From here on copies of hosts that are no owners any more are refused. What this host owns by it
    /// that it did not is taken out, and what it is not to have is dropped.
    pub(crate) fn adopt(&mut self, map: &BucketMap, hosts: &[HostId]) -> Taken {
        let mut taken = Taken::default();
        if self.hosts.iter().any(|host| !hosts.contains(host)) {
            taken.inputs = self.inputs.iter().map(|(_, input)| *input).collect();
        }
        self.hosts = hosts.to_vec();
        self.last.retain(|host, _| hosts.contains(host));
        for (bucket, ues) in &mut self.ues {
            let owners = map.owners(*bucket);
            if owners.primary() == Some(self.own) {
                taken.ues.extend(ues.drain());
            }
        }
        self.ues.retain(|bucket, _| map.owners(*bucket).replicas().any(|host| host == self.own));
        self.map = Some(map.clone());
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
    use vireo_core::balance::map::SlicePart;
    use vireo_core::balance::ring::Weighted;

    const A: HostId = HostId(0);
    const OWN: HostId = HostId(1);

    fn parts(hosts: &[HostId]) -> Vec<SlicePart> {
        let hosts = hosts.iter().map(|host| Weighted { host: *host, weight: 1.0 }).collect();
        vec![SlicePart { weight: 1.0, replicas: 1, hosts }]
    }

    fn copy(number: u64, ltmsi: Ltmsi, octets: &[u8]) -> Copy<'_> {
        Copy {
            number,
            ltmsi,
            before: None,
            input: 100 + number,
            perpetual_version: 1,
            ephemeral_version: number as u32,
            perpetual: Some(b"perpetual"),
            ephemeral: octets,
            outbox: b"outbox",
        }
    }

    #[test]
    fn the_next_owner_takes_what_it_has_and_refuses_the_last_ones_copies() {
        let first = BucketMap::new(1, &parts(&[A, OWN]));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).primary() == Some(A)).unwrap();
        let mine = (0..Bucket::COUNT).map(Bucket::new).find(|b| first.owners(*b).primary() == Some(OWN)).unwrap();
        let (ue, now) = (Ltmsi::new(theirs, 7), Instant(1));
        let mut shadows = Shadows::new(OWN);
        assert!(shadows.adopt(&first, &[A, OWN]).is_empty());
        assert_eq!(shadows.keep((A, 1), &copy(1, ue, b"one"), now), Ok(()));
        assert_eq!(shadows.keep((A, 1), &copy(2, ue, b"two"), now), Ok(()));
        assert_eq!(shadows.keep((A, 1), &copy(1, ue, b"one"), now), Ok(()), "sent again after a connection was lost");
        let not_theirs = copy(3, Ltmsi::new(mine, 1), b"x");
        assert_eq!(shadows.keep((A, 1), &not_theirs, now), Err(Fenced { epoch: 1 }));
        assert_eq!(shadows.len(), 1);

        let taken = shadows.adopt(&first.next(&parts(&[OWN])), &[OWN]);
        assert_eq!(taken.ues.len(), 1);
        assert_eq!((taken.ues[0].0, &taken.ues[0].1.ephemeral[..]), (ue, &b"two"[..]));
        assert_eq!(taken.inputs, [101, 102], "what is given again of these was carried out");
        assert_eq!(taken.ues[0].1.undone(now).count(), 2, "neither may have left when the host died");
        assert_eq!(taken.ues[0].1.undone(Instant(4_000_000)).count(), 0, "both have");
        // The host that was stopped wakes.
        assert_eq!(shadows.keep((A, 1), &copy(4, ue, b"late"), now), Err(Fenced { epoch: 2 }));
        assert_eq!(shadows.len(), 0);
    }

    #[test]
    fn a_ue_that_has_gone_or_has_another_number_is_dropped() {
        let map = BucketMap::new(1, &parts(&[A, OWN]));
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|b| map.owners(*b).primary() == Some(A)).unwrap();
        let (old, new) = (Ltmsi::new(theirs, 7), Ltmsi::new(theirs, 8));
        let mut shadows = Shadows::new(OWN);
        shadows.adopt(&map, &[A, OWN]);
        shadows.keep((A, 1), &copy(1, old, b"one"), Instant(0)).unwrap();
        shadows.keep((A, 1), &Copy { before: Some(old), ..copy(2, new, b"two") }, Instant(0)).unwrap();
        assert_eq!(shadows.len(), 1);
        shadows.keep((A, 1), &copy(3, new, b""), Instant(0)).unwrap();
        assert_eq!(shadows.len(), 1, "what its end wants done may have to be done again");
        shadows.keep((A, 1), &copy(4, old, b"x"), Instant(11_000_000)).unwrap();
        assert!(!shadows.ues[&theirs].contains_key(&new));
    }
}
