//! Contexts that outlive the core: what is read of a stored one without decoding, and what a UE is
//! after a restart.
//!
//! A core that starts again has no associations, so every UE is idle and no procedure runs. Only
//! the perpetual part of a context and its NAS COUNTs count then. The COUNTs are kept beside the
//! record at every commit ([`NasCounts::of`]), so that none is used twice.

use super::{EncodedContext, PendingWork, UeContext};
use crate::config::CoreConfig;
use crate::replica::SKIPPED_STEPS;
use crate::session::{N4State, RanState, SmContext, Stage};
use vireo_types::Instant;

/// Bits of a NAS COUNT (TS 24.501 4.4.3.1).
const COUNT_BITS: u32 = 24;
const COUNT: u32 = (1 << COUNT_BITS) - 1;

/// The NAS COUNTs of a stored context, with the version of the perpetual part that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Version of the perpetual part.
    pub version: u32,
    /// As [`super::NasSecurity::uplink`].
    pub uplink: u32,
    /// As [`super::NasSecurity::downlink`].
    pub downlink: u32,
}

impl Counts {
    /// Those of a stored context; `None` if it has no NAS security context, or one whose COUNTs are
    /// used up.
    pub fn of(octets: &[u8]) -> Option<Self> {
        let record = EncodedContext::new(octets).ok()?;
        // The ephemeral part begins with the sequence number and the COUNTs.
        let ((_, counts), _): ((u64, Option<(u32, u32)>), _) = postcard::take_from_bytes(record.ephemeral).ok()?;
        let (uplink, downlink) = counts?;
        let version = record.versions.perpetual;
        (uplink <= COUNT && downlink <= COUNT).then_some(Counts { version, uplink, downlink })
    }

    /// One word, which is stored at once; never 0. Of the version it has the lowest 16 bits.
    pub fn word(self) -> u64 {
        let version = u64::from(self.version as u16);
        version << (2 * COUNT_BITS) | u64::from(self.uplink) << COUNT_BITS | u64::from(self.downlink)
    }

    /// The COUNTs of a word, uplink and downlink, if it belongs to this version of the perpetual
    /// part.
    pub fn read(word: u64, version: u32) -> Option<(u32, u32)> {
        let of_version = word != 0 && word >> (2 * COUNT_BITS) == u64::from(version as u16);
        let count = |bits: u32| (word >> bits) as u32 & COUNT;
        of_version.then_some((count(COUNT_BITS), count(0)))
    }
}

impl UeContext {
    /// Makes a stored context that of a UE which is idle after a restart of the core, with these
    /// NAS COUNTs (uplink and downlink). Sessions that the UE has are at rest; they are not at
    /// their UPFs. Returns false if the UE is not registered, or has no keys: there is nothing to
    /// go on with.
    #[must_use]
    pub fn resume(&mut self, (uplink, downlink): (u32, u32), config: &CoreConfig, now: Instant) -> bool {
        let Some(security) = self.security.as_mut().filter(|_| self.registration == super::Registration::Registered)
        else {
            return false;
        };
        (security.uplink, security.downlink, security.next_hop) = (uplink, downlink, None);
        // The record is as of its perpetual part: later steps had later names.
        self.sequence += SKIPPED_STEPS;
        (self.connection, self.procedure, self.handover, self.source) = (None, None, None, None);
        self.held.clear();
        (self.wanted, self.unreachable) = (PendingWork::default(), false);
        // The mobile reachable timer (TS 24.501 5.3.7) as of the restart: when the UE was last
        // connected is not known.
        let timers = config.timers;
        self.expires = (timers.t3512.as_micros() > 0).then(|| now + timers.t3512 + timers.implicit_deregistration);
        self.sessions.retain(|session| is_there(session) && config.upfs.iter().any(|upf| upf.n4 == session.upf));
        self.sessions.iter_mut().for_each(rest);
        true
    }
}

/// Returns true if the UE has, or may have, the session: it was told, or the UPF has given its
/// tunnel. What it has not, it says in its next PDU session status (TS 24.501 5.6.1.4, 5.5.1.3.4).
fn is_there(session: &SmContext) -> bool {
    match session.stage {
        Stage::Accepted { .. } | Stage::Established => true,
        Stage::Requested { .. } => session.uplink.is_some(),
        Stage::Releasing { .. } | Stage::Ended => false,
    }
}

fn rest(session: &mut SmContext) {
    (session.stage, session.ran, session.n4) = (Stage::Established, RanState::Idle, N4State::Told);
    (session.downlink, session.target, session.relocation) = (None, None, None);
    (session.end_marker, session.deadline) = (false, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{self, NasSecurity, Registration};
    use crate::session::tests::Bench;
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
        assert_eq!(Counts::of(&octets), Some(Counts { version: 1, uplink: 300, downlink: 5 }));
        // The perpetual part has not changed, the COUNTs have.
        ue.security.as_mut().unwrap().downlink = COUNT;
        let mut next = Vec::new();
        context::encode_after(&ue, &octets, &mut next).unwrap();
        let counts = Counts::of(&next).unwrap();
        assert_eq!((counts.version, Counts::read(counts.word(), 1)), (1, Some((300, COUNT))));
        assert_eq!([0, counts.word()].map(|word| Counts::read(word, 2)), [None; 2], "of another version");
        ue.security.as_mut().unwrap().downlink = COUNT + 1;
        octets.clear();
        context::encode_after(&ue, &next, &mut octets).unwrap();
        assert_eq!(Counts::of(&octets), None, "they are used up");
        ue.security = None;
        assert_eq!(Counts::of(&context::encode(&ue, Vec::new()).unwrap()), None);
        assert_eq!(Counts::of(b"x"), None);
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
        assert!(ue.expires.is_some_and(|at| at > Instant(5)));
        // The record that follows is of the same perpetual part.
        let mut next = Vec::new();
        context::encode_after(&ue, &octets, &mut next).unwrap();
        assert_eq!(Counts::of(&next).map(|counts| counts.version), Some(1));
    }

    #[test]
    fn resumed_ue_has_no_session_that_was_ending_or_never_was() {
        let mut bench = Bench::new();
        bench.create(crate::session::tests::REQUEST);
        let mut ue = registered(bench.sm().clone());
        assert!(ue.resume((1, 1), &bench.config, Instant(0)) && ue.sessions.is_empty(), "the UPF has not answered");
        let mut bench = Bench::active();
        bench.n1("2e0507d1");
        let mut ue = registered(bench.sm().clone());
        assert!(ue.resume((1, 1), &bench.config, Instant(0)) && ue.sessions.is_empty(), "it was being released");
        let mut elsewhere = Bench::active().sm().clone();
        elsewhere.upf.set_port(1);
        let mut ue = registered(elsewhere);
        assert!(ue.resume((1, 1), &bench.config, Instant(0)) && ue.sessions.is_empty(), "its UPF is not configured");
        ue.registration = Registration::Deregistered;
        assert!(!ue.resume((1, 1), &bench.config, Instant(0)));
    }
}
