//! Contexts that outlive the core in a shared-memory file, and their resumption.
//!
//! `state.keep` enables this. Invariants:
//!
//! - Each commit stores the NAS COUNTs in one word ([`StoredCounts`]) before its effects are sent.
//!   No COUNT is used twice.
//! - The perpetual part changes seldom, and several times in one procedure. After a change the
//!   encoded context is sealed and stored when the host is idle, at the latest after
//!   `file::MAX_STORE_DELAY`. If the process ends in between, the stored context is older than its
//!   COUNTs. The next start drops it.
//! - A restarted core makes all UEs idle, and its UPFs set up their sessions again. RAN nodes are
//!   served after that ([`back`]).
//!
//! Contexts in a database are current at each commit: [`database`] resumes those.

mod back;
mod database;
mod error;
mod file;
mod holder;
mod restoring;

pub(super) use database::{KeptContexts, acquire};
pub use error::KeepError;
pub(super) use file::Keep;
pub(super) use holder::Renewal;
pub(super) use restoring::RestoringSessions;

use super::state::Host;
use file::Tally;
use vireo_core::amf::context::{self, EncodedContext, StoredCounts};
use vireo_ops::clock::clock;
use vireo_store::records::{Opened, OpenedContext};
use vireo_types::Instant;

impl Host {
    /// Resumes the contexts of the previous run.
    pub(super) fn resume(&mut self, mut keep: Keep, opened: Opened) {
        let (began, now) = (std::time::Instant::now(), clock());
        let mut tally = Tally::default();
        for OpenedContext { location, word, octets } in opened.contexts {
            if !self.resume_one(&mut keep, (location, word), &octets, &mut tally, now) {
                keep.file.remove(location);
            }
        }
        let Tally { resumed, sessions, older, unreadable, void } = tally;
        let damaged = opened.damaged + unreadable;
        if let Some(reason) = opened.dropped {
            tracing::warn!(reason, "kept contexts dropped; their UEs register again");
        }
        if older + opened.unfinished + damaged + opened.other_key + void > 0 {
            let (unfinished, other_key) = (older + opened.unfinished, opened.other_key);
            tracing::warn!(
                unfinished,
                damaged,
                other_key,
                unregistered = void,
                "kept contexts dropped; their UEs register again"
            );
        }
        if resumed > 0 {
            let elapsed_ms = began.elapsed().as_millis() as u64;
            tracing::info!(ues = resumed, sessions, elapsed_ms, "contexts of the last run resumed");
        }
        self.wait_for_sessions(now);
        self.examine_stored_ues();
        self.persistence.keep = Some(Box::new(keep));
    }

    fn resume_one(
        &mut self,
        keep: &mut Keep,
        (location, word): (u32, u64),
        octets: &[u8],
        tally: &mut Tally,
        now: Instant,
    ) -> bool {
        let Ok(record) = EncodedContext::new(octets) else {
            tally.unreadable += 1;
            return false;
        };
        let version = record.versions.perpetual;
        let Some(counts) = StoredCounts::from_word(word, version) else {
            tally.older += 1;
            return false;
        };
        let Ok(mut ue) = record.decode() else {
            tally.unreadable += 1;
            return false;
        };
        let mut next = Vec::new();
        let is_resumable =
            ue.resume(counts, &self.config, now) && context::encode_after(&ue, octets, &mut next).is_ok();
        let slot = if is_resumable { self.enter_context((ue.ltmsi, &ue), &next, || None) } else { None };
        let Some(slot) = slot else {
            tally.void += 1;
            return false;
        };
        keep.adopt(slot, location, version, now);
        self.persistence.restoring.add(&ue);
        tally.resumed += 1;
        tally.sessions += ue.sessions.len();
        true
    }

    /// Stores changed contexts. Returns true if more contexts are due.
    pub(super) fn keep_contexts(&mut self, is_idle: bool, now: Instant) -> bool {
        self.persistence.keep.as_mut().is_some_and(|keep| keep.store(&self.ues.region, is_idle, now))
    }
}
