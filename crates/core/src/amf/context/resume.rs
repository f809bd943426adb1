//! Resumption of stored contexts after a restart of the core.
//!
//! After a restart there are no associations: every UE is idle, and no procedure is in progress.
//! Only the perpetual part of a context and its NAS COUNTs are still valid. Every commit also
//! stores the COUNTs ([`StoredCounts::from_encoded`]), so that none is used twice.

use super::{EncodedContext, PendingWork, UeContext};
use crate::config::CoreConfig;
use crate::smf::{ModificationCommand, N4State, RanState, SessionHandover, SmContext, Stage, UpfUpdate};
use vireo_types::Instant;

/// Bits of a NAS COUNT (TS 24.501 4.4.3.1).
const COUNT_BITS: u32 = 24;
const COUNT: u32 = (1 << COUNT_BITS) - 1;
/// Number of steps that a new owner skips where copies may lag. The dead host may have executed
/// them beyond its last copy. The keys of its sent effects derive from their sequence numbers and
/// must not be used again.
pub const SKIPPED_STEPS: u64 = 1 << 12;
/// Number of NAS COUNTs that the new owner skips for the same reason.
const SKIPPED_COUNTS: u32 = 32;

/// NAS COUNTs of a stored context, with the version of its perpetual part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCounts {
    pub version: u32,
    /// Lowest uplink COUNT that is accepted, as [`super::NasSecurity::uplink`].
    pub uplink: u32,
    /// Next downlink COUNT, as [`super::NasSecurity::downlink`].
    pub downlink: u32,
}

impl StoredCounts {
    /// Returns the COUNTs of an encoded context without decoding it. Returns `None` without a NAS
    /// security context, or if the COUNTs are used up.
    pub fn from_encoded(octets: &[u8]) -> Option<Self> {
        let record = EncodedContext::new(octets).ok()?;
        // The ephemeral part begins with the sequence number and the COUNTs.
        let ((_, counts), _): ((u64, Option<(u32, u32)>), _) = postcard::take_from_bytes(record.ephemeral).ok()?;
        let (uplink, downlink) = counts?;
        let version = record.versions.perpetual;
        (uplink <= COUNT && downlink <= COUNT).then_some(StoredCounts { version, uplink, downlink })
    }

    /// Returns the COUNTs as one word, which can be stored atomically; never 0. The word has the
    /// lowest 16 bits of the version.
    pub fn to_word(self) -> u64 {
        let version = u64::from(self.version as u16);
        version << (2 * COUNT_BITS) | u64::from(self.uplink) << COUNT_BITS | u64::from(self.downlink)
    }

    /// Returns the uplink and downlink COUNT of a word, if it belongs to this version of the
    /// perpetual part.
    pub fn from_word(word: u64, version: u32) -> Option<(u32, u32)> {
        let of_version = word != 0 && word >> (2 * COUNT_BITS) == u64::from(version as u16);
        let count = |bits: u32| (word >> bits) as u32 & COUNT;
        of_version.then_some((count(COUNT_BITS), count(0)))
    }
}

impl UeContext {
    /// Resumes a stored context after a restart of the core, with these uplink and downlink NAS
    /// COUNTs. The UE is idle. Its sessions are established and idle, and the UPFs do not have
    /// them. Returns false if the UE is not registered or has no keys, and cannot be resumed.
    #[must_use]
    pub fn resume(&mut self, (uplink, downlink): (u32, u32), config: &CoreConfig, now: Instant) -> bool {
        let is_registered = self.is_registered();
        let Some(security) = self.security.as_mut().filter(|_| is_registered) else { return false };
        (security.uplink, security.downlink, security.next_hop) = (uplink, downlink, None);
        // The stored state is as old as the perpetual part: later steps had higher sequence
        // numbers.
        self.sequence += SKIPPED_STEPS;
        (self.connection, self.procedure, self.handover, self.source) = (None, None, None, None);
        self.deferred.clear();
        let authenticate = self.pending.authenticate;
        self.pending = PendingWork { authenticate, ..PendingWork::default() };
        (self.reachability.unreachable, self.reachability.last_node) = (false, None);
        // Mobile reachable timer (TS 24.501 5.3.7), started at the restart: the end of the UE's
        // last connection is unknown.
        self.begin_idle(config, now);
        self.sessions
            .retain(|session| may_exist_at_ue(session) && config.upfs.iter().any(|upf| upf.n4 == session.pfcp.upf));
        self.sessions.iter_mut().for_each(make_idle);
        true
    }
}

/// Advances sequence number and NAS COUNTs beyond all that a dead host may have used without a
/// copy.
pub fn skip(ue: &mut UeContext) {
    ue.sequence += SKIPPED_STEPS;
    if let Some(security) = &mut ue.security {
        security.downlink = security.downlink.saturating_add(SKIPPED_COUNTS);
    }
}

/// Returns true if the UE has, or may have, the session: it was accepted, or the UPF has allocated
/// its tunnel. The UE's next PDU session status shows the sessions that it does not have (TS 24.501
/// 5.6.1.4, 5.5.1.3.4).
fn may_exist_at_ue(session: &SmContext) -> bool {
    match session.stage {
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => true,
        Stage::Requested { .. } => session.uplink.is_some(),
        Stage::Releasing { .. } | Stage::Ended => false,
    }
}

fn make_idle(session: &mut SmContext) {
    (session.stage, session.ran, session.n4) = (Stage::Established, RanState::Idle, N4State::Synced);
    (session.downlink, session.handover, session.relocation) = (None, SessionHandover::default(), None);
    (session.end_marker, session.deadline) = (false, None);
    // The UPF gets the session again, with the present terms.
    if let Some(change) = &mut session.terms.change {
        (change.upf, change.command) = (UpfUpdate::Done, ModificationCommand::Due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amf::context::{self, NasSecurity, Registration};
    use crate::smf::tests::Bench;
    use vireo_types::Ltmsi;
    use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

    fn registered(session: SmContext) -> UeContext {
        let mut ue = UeContext::new(Ltmsi::from_raw(77));
        ue.registration = Registration::Registered;
        let mut security = NasSecurity::fresh(1, [7; 32], IntegrityAlgorithm::NIA2, CipheringAlgorithm::NEA2);
        (security.uplink, security.downlink) = (300, 5);
        ue.security = Some(security);
        ue.sessions = vec![session];
        ue
    }

    #[test]
    fn counts_are_read_without_decoding() {
        let mut ue = registered(Bench::active().sm().clone());
        let mut octets = context::encode(&ue, Vec::new()).unwrap();
        assert_eq!(StoredCounts::from_encoded(&octets), Some(StoredCounts { version: 1, uplink: 300, downlink: 5 }));
        // Only the COUNTs have changed, not the perpetual part.
        ue.security.as_mut().unwrap().downlink = COUNT;
        let mut next = Vec::new();
        context::encode_after(&ue, &octets, &mut next).unwrap();
        let counts = StoredCounts::from_encoded(&next).unwrap();
        assert_eq!((counts.version, StoredCounts::from_word(counts.to_word(), 1)), (1, Some((300, COUNT))));
        assert_eq!([0, counts.to_word()].map(|word| StoredCounts::from_word(word, 2)), [None; 2], "of another version");
        ue.security.as_mut().unwrap().downlink = COUNT + 1;
        octets.clear();
        context::encode_after(&ue, &next, &mut octets).unwrap();
        assert_eq!(StoredCounts::from_encoded(&octets), None, "they are used up");
        ue.security = None;
        assert_eq!(StoredCounts::from_encoded(&context::encode(&ue, Vec::new()).unwrap()), None);
        assert_eq!(StoredCounts::from_encoded(b"x"), None);
    }

    #[test]
    fn resumed_ue_is_idle_with_its_sessions_at_rest() {
        let bench = Bench::active();
        let mut ue = registered(bench.sm().clone());
        let octets = context::encode(&ue, Vec::new()).unwrap();
        assert!(ue.resume((301, 9), &bench.config, Instant(5)));
        assert_eq!((ue.security.as_ref().unwrap().uplink, ue.security.as_ref().unwrap().downlink), (301, 9));
        assert_eq!(
            (ue.connection.is_none(), ue.sessions[0].ran, ue.sessions[0].downlink),
            (true, RanState::Idle, None)
        );
        assert!(ue.reachability.expires.is_some_and(|at| at > Instant(5)));
        // The next encoding has the same perpetual part.
        let mut next = Vec::new();
        context::encode_after(&ue, &octets, &mut next).unwrap();
        assert_eq!(StoredCounts::from_encoded(&next).map(|counts| counts.version), Some(1));
    }

    #[test]
    fn resumed_ue_keeps_only_established_sessions() {
        let mut bench = Bench::new();
        bench.create(crate::smf::tests::REQUEST);
        let mut ue = registered(bench.sm().clone());
        assert!(ue.resume((1, 1), &bench.config, Instant(0)) && ue.sessions.is_empty(), "the UPF has not answered");
        let mut bench = Bench::active();
        bench.n1("2e0507d1");
        let mut ue = registered(bench.sm().clone());
        assert!(ue.resume((1, 1), &bench.config, Instant(0)) && ue.sessions.is_empty(), "it was being released");
        let mut elsewhere = Bench::active().sm().clone();
        elsewhere.pfcp.upf.set_port(1);
        let mut ue = registered(elsewhere);
        assert!(ue.resume((1, 1), &bench.config, Instant(0)) && ue.sessions.is_empty(), "its UPF is not configured");
        ue.registration = Registration::Deregistered;
        assert!(!ue.resume((1, 1), &bench.config, Instant(0)));
    }
}
