//! Admission of N2 and S1 associations.
//!
//! Criteria are the peer's address, its number of associations, and a deadline for NG Setup or S1
//! Setup. The addresses of an IPv6 network of 64 bits count as one. The module does no I/O: the
//! caller supplies time and addresses.
//!
//! When there is the maximum number of associations, a new one of a machine with few displaces one
//! of the machine with the most. So no machine keeps RAN nodes of others away, also not by
//! associations with completed NG Setup.

use rustc_hash::FxHashMap;
use std::net::IpAddr;
use vireo_core::amf::ran::admission::{Allow, Refusal, allows};
use vireo_ops::config::N2Config;
use vireo_types::{AssocId, Dialect, Duration, Instant, machine_address};

/// First octets of the messages to a RAN node that this module knows.
struct Answers {
    /// After one of them, the association belongs to a RAN node.
    makes_node: [[u8; 2]; 2],
    setup_failed: [u8; 2],
}

/// NG SETUP RESPONSE and RAN CONFIGURATION UPDATE ACKNOWLEDGE, and NG SETUP FAILURE (TS 38.413
/// 9.4.7).
const NGAP: Answers = Answers { makes_node: [[0x20, 21], [0x20, 35]], setup_failed: [0x40, 21] };
/// S1 SETUP RESPONSE and ENB CONFIGURATION UPDATE ACKNOWLEDGE, and S1 SETUP FAILURE (TS 36.413
/// 9.3.7).
const S1AP: Answers = Answers { makes_node: [[0x20, 17], [0x20, 29]], setup_failed: [0x40, 17] };
/// Longest Time to Wait (TS 38.413 9.3.1.56). After it, a node may retry NG Setup on the same
/// association.
const TIME_TO_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of associations of N2 and S1 together.
const MAX_ASSOCIATIONS: usize = 8192;
/// Maximum number of associations of an endpoint of N2 or S1: more than a balancer permits, because
/// the balancer decides about new ones.
pub const ENDPOINT_ASSOCIATIONS: usize = MAX_ASSOCIATIONS + 1024;
/// Interval of the check for overdue associations.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// An association without a completed NG Setup.
#[derive(Clone, Copy, Debug)]
struct PendingSetup {
    deadline: Instant,
    /// True after the first NG SETUP FAILURE.
    extended: bool,
}

/// The associations of a balancer, keyed by the driver's IDs, and their limits.
#[derive(Debug)]
pub(super) struct Admission {
    allow: Vec<Allow>,
    per_address: usize,
    /// Maximum number of associations.
    pub(super) total: usize,
    /// Maximum time without NG Setup; `None` = unlimited.
    within: Option<Duration>,
    peers: FxHashMap<AssocId, IpAddr>,
    /// Number of associations by [`machine_address`].
    machines: FxHashMap<IpAddr, usize>,
    waiting: FxHashMap<AssocId, PendingSetup>,
    /// Associations that make room for others, and their peers. They are to be aborted.
    displaced: Vec<(AssocId, IpAddr)>,
    checked_at: Instant,
}

impl Default for Admission {
    /// Returns a state without limits.
    fn default() -> Self {
        Admission {
            allow: Vec::new(),
            per_address: usize::MAX,
            total: usize::MAX,
            within: None,
            peers: FxHashMap::default(),
            machines: FxHashMap::default(),
            waiting: FxHashMap::default(),
            displaced: Vec::new(),
            checked_at: Instant::default(),
        }
    }
}

impl Admission {
    /// Sets the limits of a configuration.
    pub(super) fn limit(&mut self, config: &N2Config) {
        self.allow = config.allow.clone();
        self.per_address = config.associations_per_address as usize;
        self.total = MAX_ASSOCIATIONS;
        self.within = Some(config.setup_within.into());
    }

    /// Replaces the allow list for new associations.
    pub(super) fn set_allow(&mut self, allow: Vec<Allow>) {
        self.allow = allow;
    }

    /// Registers a new association.
    ///
    /// # Errors
    ///
    /// Returns an error if the association must be aborted.
    pub(super) fn up(&mut self, assoc: AssocId, peer: IpAddr, now: Instant) -> Result<(), Refusal> {
        let peer = peer.to_canonical();
        if !allows(&self.allow, peer) {
            return Err(Refusal::Address);
        }
        let machine = machine_address(peer);
        if self.machines.get(&machine).is_some_and(|count| *count >= self.per_address) {
            return Err(Refusal::Associations);
        }
        if self.peers.len() >= self.total {
            self.displace_for(machine)?;
        }
        *self.machines.entry(machine).or_default() += 1;
        self.peers.insert(assoc, peer);
        self.start_deadline(assoc, now);
        Ok(())
    }

    /// Removes an association to make room for one of a machine: of the machine with the most, one
    /// without NG Setup if there is any, and the newest of these.
    ///
    /// # Errors
    ///
    /// Returns an error if no machine would still have as many as this one has then.
    fn displace_for(&mut self, machine: IpAddr) -> Result<(), Refusal> {
        let own = self.machines.get(&machine).copied().unwrap_or_default();
        let most = self.machines.iter().max_by_key(|(address, count)| (**count, **address));
        let most = most.filter(|(_, count)| **count >= own + 2).map(|(address, _)| *address);
        let its = self.peers.iter().filter(|(_, peer)| most == Some(machine_address(**peer)));
        let displaced = its.max_by_key(|(assoc, _)| (self.waiting.contains_key(*assoc), **assoc));
        let (assoc, peer) = displaced.map(|(assoc, peer)| (*assoc, *peer)).ok_or(Refusal::Full)?;
        self.down(assoc);
        self.displaced.push((assoc, peer));
        Ok(())
    }

    /// Returns the associations that make room for others, once each, with their peers.
    pub(super) fn take_displaced(&mut self) -> Vec<(AssocId, IpAddr)> {
        std::mem::take(&mut self.displaced)
    }

    /// Registers an association of the predecessor process after a hot restart.
    pub(super) fn resume(&mut self, assoc: AssocId, peer: IpAddr, is_node: bool, now: Instant) {
        let peer = peer.to_canonical();
        *self.machines.entry(machine_address(peer)).or_default() += 1;
        self.peers.insert(assoc, peer);
        if !is_node {
            self.start_deadline(assoc, now);
        }
    }

    /// Starts the deadline of NG Setup, for a new or restarted association.
    pub(super) fn start_deadline(&mut self, assoc: AssocId, now: Instant) {
        if let Some(within) = self.within.filter(|_| self.peers.contains_key(&assoc)) {
            self.waiting.insert(assoc, PendingSetup { deadline: now + within, extended: false });
        }
    }

    /// Removes an association.
    pub(super) fn down(&mut self, assoc: AssocId) {
        self.waiting.remove(&assoc);
        let Some(machine) = self.peers.remove(&assoc).map(machine_address) else { return };
        if let Some(count) = self.machines.get_mut(&machine) {
            *count -= 1;
            if *count == 0 {
                self.machines.remove(&machine);
            }
        }
    }

    /// Returns the [`machine_address`] of an association's peer.
    pub(super) fn machine(&self, assoc: AssocId) -> Option<IpAddr> {
        self.peers.get(&assoc).copied().map(machine_address)
    }

    /// Updates the state by a message to the RAN node that does not concern a UE.
    pub(super) fn on_sent(&mut self, assoc: AssocId, pdu: &[u8], now: Instant) {
        let answers = match assoc.dialect() {
            Dialect::Nr => NGAP,
            Dialect::Eps => S1AP,
        };
        if answers.makes_node.iter().any(|head| pdu.starts_with(head)) {
            self.waiting.remove(&assoc);
        } else if pdu.starts_with(&answers.setup_failed)
            && let Some(waiting) = self.waiting.get_mut(&assoc).filter(|waiting| !waiting.extended)
        {
            // Extended once only: a peer that keeps failing NG Setup must not keep its association.
            *waiting = PendingSetup { deadline: now + TIME_TO_WAIT + self.within.unwrap_or_default(), extended: true };
        }
    }

    /// Returns the earliest time of the next [`Admission::overdue`] or
    /// [`Admission::take_displaced`] with a result.
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.displaced.is_empty() {
            return Some(self.checked_at);
        }
        (!self.waiting.is_empty()).then(|| self.checked_at + CHECK_INTERVAL)
    }

    /// Returns the associations whose deadline has passed, once each, with their peers.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(AssocId, IpAddr)> {
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.checked_at = now;
        let overdue = self.waiting.extract_if(|_, waiting| waiting.deadline <= now).map(|(assoc, _)| assoc);
        overdue.filter_map(|assoc| Some((assoc, *self.peers.get(&assoc)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: [u8; 4] = [0x20, 21, 0, 0];

    fn limited() -> Admission {
        let allow = Allow { network: "10.0.0.0/8".parse().expect("a network"), plmn: None, ids: None };
        let config = N2Config { allow: vec![allow], associations_per_address: 3, ..N2Config::default() };
        let mut admission = Admission::default();
        admission.limit(&config);
        admission
    }

    /// Returns a time some seconds after the first association.
    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(1000 + seconds)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn address_at_association_limit_is_refused() {
        let (mut admission, now) = (limited(), Instant::default());
        let mut up = |assoc, peer: &str| admission.up(AssocId(assoc), ip(peer), now);
        (0..3).for_each(|assoc| assert_eq!(up(assoc, "10.0.0.1"), Ok(())));
        assert_eq!(up(3, "10.0.0.1"), Err(Refusal::Associations));
        assert_eq!(up(4, "::ffff:10.0.0.1"), Err(Refusal::Associations));
        assert_eq!(up(5, "10.0.0.2"), Ok(()));
        assert_eq!(up(6, "192.0.2.1"), Err(Refusal::Address));
        admission.down(AssocId(3));
        assert_eq!(admission.up(AssocId(7), ip("10.0.0.1"), now), Err(Refusal::Associations), "3 was never taken");
        admission.down(AssocId(1));
        assert_eq!(admission.up(AssocId(8), ip("10.0.0.1"), now), Ok(()));
        [0, 2, 5, 8].into_iter().for_each(|assoc| admission.down(AssocId(assoc)));
        assert!(admission.machines.is_empty() && admission.peers.is_empty() && admission.waiting.is_empty());
    }

    /// A machine with an IPv6 address may have each address of its network.
    #[test]
    fn ipv6_network_counts_as_one_address() {
        let mut admission = Admission::default();
        admission.limit(&N2Config { associations_per_address: 3, ..N2Config::default() });
        let now = Instant::default();
        admission.resume(AssocId(0), ip("2001:db8::1"), true, now);
        let mut up = |assoc, peer: &str| admission.up(AssocId(assoc), ip(peer), now);
        assert_eq!((up(1, "2001:db8::2"), up(2, "2001:db8::a:b:c:d")), (Ok(()), Ok(())));
        assert_eq!(up(3, "2001:db8::ffff:0:0:3"), Err(Refusal::Associations));
        assert_eq!(up(4, "2001:db8:0:1::2"), Ok(()));
        admission.down(AssocId(1));
        assert_eq!(admission.up(AssocId(5), ip("2001:db8::5"), now), Ok(()));
        [0, 2, 4, 5].into_iter().for_each(|assoc| admission.down(AssocId(assoc)));
        assert!(admission.machines.is_empty());
    }

    #[test]
    fn machine_with_most_makes_room() {
        let within = Some(Duration::from_secs(10));
        let mut admission = Admission { total: 6, within, ..Admission::default() };
        let one = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"];
        for (assoc, peer) in (0..).map(AssocId).zip(one) {
            admission.up(assoc, ip(peer), at(0)).expect("there is room");
            if assoc != AssocId(2) {
                admission.on_sent(assoc, &RESPONSE, at(0));
            }
        }
        let mut up = |assoc, peer: &str| {
            let result = admission.up(AssocId(assoc), ip(peer), at(1));
            (result, admission.take_displaced())
        };
        let displaces = |assoc, peer: &str| (Ok::<(), Refusal>(()), vec![(AssocId(assoc), ip(peer))]);
        assert_eq!(up(6, "10.0.0.3"), displaces(2, "10.0.0.1"), "without NG Setup");
        assert_eq!(up(7, "10.0.0.3"), displaces(4, "10.0.0.1"), "the newest");
        // Each machine has two.
        assert_eq!(up(8, "10.0.0.1"), (Err(Refusal::Full), vec![]));
        assert_eq!(up(9, "10.0.0.3"), (Err(Refusal::Full), vec![]));
        assert_eq!(up(10, "10.0.0.4"), displaces(7, "10.0.0.3"));
        assert_eq!(up(11, "10.0.0.5"), displaces(5, "10.0.0.2"));
        assert_eq!((admission.peers.len(), admission.machines.len()), (6, 5));
    }

    #[test]
    fn s1_association_waits_for_s1_setup() {
        let (mut admission, enb) = (limited(), AssocId(1).with_dialect(Dialect::Eps));
        admission.up(enb, ip("10.0.0.1"), at(0)).expect("it is taken");
        admission.on_sent(enb, &RESPONSE, at(0));
        assert!(admission.due().is_some(), "NG SETUP RESPONSE is another message of S1AP");
        admission.on_sent(enb, &[0x20, 17, 0, 0], at(0));
        assert_eq!(admission.due(), None);
    }

    #[test]
    fn associations_without_ng_setup_end_in_time() {
        let (mut admission, begun) = (limited(), at(0));
        let peers = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        let associations: Vec<AssocId> = (0..4).map(AssocId).collect();
        for (assoc, peer) in associations.iter().zip(peers) {
            admission.up(*assoc, ip(peer), begun).expect("it is taken");
        }
        admission.on_sent(AssocId(0), &RESPONSE, begun);
        // NG SETUP FAILURE with a wait of one minute, and a second failure.
        admission.on_sent(AssocId(1), &[0x40, 21, 0, 0], at(9));
        admission.on_sent(AssocId(1), &[0x40, 21, 0, 0], at(69));
        admission.on_sent(AssocId(2), &[0x00, 9], begun);
        assert_eq!(admission.overdue(at(9)), []);
        let mut overdue = admission.overdue(at(10));
        overdue.sort_unstable();
        assert_eq!(overdue, [(AssocId(2), ip(peers[2])), (AssocId(3), ip(peers[3]))]);
        assert_eq!(admission.overdue(at(11)), [], "once");
        assert_eq!(admission.overdue(at(78)), []);
        assert_eq!(admission.overdue(at(79)), [(AssocId(1), ip(peers[1]))]);
        assert_eq!(admission.due(), None, "all are nodes'");
        // A restarted association needs NG Setup again.
        admission.start_deadline(AssocId(0), at(100));
        assert_eq!(admission.overdue(at(110)), [(AssocId(0), ip(peers[0]))]);
    }
}
