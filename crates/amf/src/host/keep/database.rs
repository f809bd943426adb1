//! Contexts in a database that outlive the core, and their resumption.
//!
//! A record is committed before the effects of its step are sent. Its NAS COUNTs are thus exact
//! while the database has lost no commit ([`RecordStore::incarnation`]). A database that was
//! restarted, or has another master, may have older records: then all contexts are removed. The
//! configuration refuses to keep contexts with settings whose records may be older than the COUNTs
//! (`state.persist = "procedure"`, `state.write = "non-blocking"`).

use super::error::KeepError;
use super::file::{Tally, configuration_hash};
use super::holder::{self, HolderRecord, Renewal};
use crate::host::error::HostError;
use crate::host::state::Host;
use crate::worker::Location;
use crate::worker::context_database::{ContextDatabaseConfig, DatabaseRef, ResumeDecision, Resumption};
use std::sync::Arc;
use std::time::Duration;
use vireo_cluster::HostSender;
use vireo_core::amf::context::{self, StoredCounts, UeContext};
use vireo_core::config::CoreConfig;
use vireo_ops::clock::clock;
use vireo_ops::config::{KeepConfig, StateConfig};
use vireo_ops::state::RecordsConfig;
use vireo_ops::ue_record::UeRecord;
use vireo_store::records::{RecordError, RecordStore};
use vireo_types::Instant;

/// Suffix of `state.key` for kept records. Records of a single run have a random number there,
/// those of a cluster nothing.
const SUFFIX: &str = "-run";
/// Time for which operations of a failing database are retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(8);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Kept contexts of a database that this core has acquired.
pub(in crate::host) struct KeptContexts {
    pub(in crate::host) records: RecordsConfig,
    incarnation: String,
    /// Numbers of the context records.
    numbers: Vec<u64>,
    /// Reason for the removal of the previous contexts, if they were removed.
    dropped: Option<&'static str>,
    pub(super) renewal: Renewal,
}

/// Acquires the contexts of the core's previous run, if the configuration keeps them in a database.
///
/// # Errors
///
/// Returns an error if they cannot be kept and the configuration requires it.
pub(in crate::host) fn acquire(
    state: &StateConfig,
    records: &RecordsConfig,
    owner: u64,
    (core, input_sender): (&CoreConfig, &HostSender),
) -> Result<Option<KeptContexts>, KeepError> {
    let Some(KeepConfig::Database { is_wanted }) = state.keep else { return Ok(None) };
    let records = RecordsConfig { key: format!("{}{SUFFIX}", records.key), ..records.clone() };
    match KeptContexts::acquire(records, owner, (core, input_sender)) {
        Ok(kept_contexts) => Ok(Some(kept_contexts)),
        Err(error) if is_wanted => Err(error),
        Err(error) => {
            tracing::warn!(%error, "contexts not kept for the next start");
            Ok(None)
        }
    }
}

impl KeptContexts {
    fn acquire(
        records: RecordsConfig,
        owner: u64,
        (core, input_sender): (&CoreConfig, &HostSender),
    ) -> Result<Self, KeepError> {
        let mut store = records.open()?;
        // Records sealed with another key belong to another core.
        holder::check_readable(&mut *store)?;
        records.prove_key()?;
        let Ok(Some(incarnation)) = store.incarnation() else { return Err(KeepError::Unknown) };
        let mut record = HolderRecord::acquire(store, owner)?;
        match resumable_contexts(&mut record, &records, (owner, configuration_hash(core)), &incarnation) {
            Ok((numbers, dropped)) => {
                let renewal = Renewal::start(record, input_sender.clone()).map_err(KeepError::Thread)?;
                Ok(KeptContexts { records, incarnation, numbers, dropped, renewal })
            }
            Err(error) => {
                record.release();
                Err(error)
            }
        }
    }
}

/// Returns the contexts that the core resumes, and the reason for removing the present ones, if
/// any.
fn resumable_contexts(
    record: &mut HolderRecord,
    records: &RecordsConfig,
    (owner, mark): (u64, u64),
    incarnation: &str,
) -> Result<(Vec<u64>, Option<&'static str>), KeepError> {
    // Without unsealing: removal needs no content.
    let records = RecordsConfig { sealing: None, ..records.clone() };
    let mut store = records.open()?;
    let config = ContextDatabaseConfig { records, owner, shared: false };
    let numbers = Resumption::list(&config, &mut *store)?;
    let Some(reason) = reason(record, mark, incarnation) else { return Ok((numbers, None)) };
    Resumption::new(&config, numbers).remove(&mut *store)?;
    (record.holder.mark, record.holder.incarnation) = (mark, incarnation.to_owned());
    record.commit()?;
    Ok((Vec::new(), Some(reason).filter(|reason| !reason.is_empty())))
}

/// Returns the reason for dropping the contexts that were found; empty if there are none.
fn reason(record: &HolderRecord, mark: u64, incarnation: &str) -> Option<&'static str> {
    let found = &record.holder;
    if found.mark == 0 {
        // Remaining records belong to no core.
        return Some("");
    }
    let is_other = "the database was restarted, or has another master: it may have lost commits";
    let reasons =
        [(found.incarnation != incarnation, is_other), (found.mark != mark, "the configuration is another one")];
    reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
}

/// Returns the UE of a record after a restart, if it can be resumed.
fn resumed(stored: &UeRecord, core: &CoreConfig, now: Instant) -> ResumeDecision<Box<UeContext>> {
    let resumed = || {
        let counts = StoredCounts::from_encoded(&stored.context)?;
        let mut ue = context::decode(&stored.context).ok()?;
        let is_resumable = ue.resume((counts.uplink, counts.downlink), core, now);
        let context = context::encode(&ue, Vec::new()).ok().filter(|_| is_resumable)?;
        Some(ResumeDecision::Resumed { deadline: ue.deadline(), with: Box::new(ue), context })
    };
    resumed().unwrap_or(ResumeDecision::Nothing)
}

impl Host {
    /// Resumes the contexts of the previous run from the database.
    pub(in crate::host) fn resume_stored(&mut self, kept_contexts: KeptContexts) -> Result<(), HostError> {
        let Location::Database(config) = self.workers.location.clone() else { return Ok(()) };
        let (began, now) = (std::time::Instant::now(), clock());
        let mut records = config.records.open().map_err(KeepError::from)?;
        let mut tally = Tally::default();
        let mut deadline = began + RETRY_TIMEOUT;
        let mut resumption = Resumption::new(&config, kept_contexts.numbers);
        let (core, mut without_room) = (Arc::clone(&self.config), Vec::new());
        while !resumption.is_done() {
            let (claimed, done) = resumption.next(&mut *records, |stored| resumed(stored, &core, now));
            if !claimed.is_empty() {
                deadline = std::time::Instant::now() + RETRY_TIMEOUT;
            }
            for (id, ue) in claimed {
                if !self.enter_resumed(id, &ue, &mut tally) {
                    without_room.push(id);
                }
            }
            done.or_else(|error| wait(error, deadline))?;
        }
        tally.unreadable = resumption.damaged;
        tally.void = without_room.len() + resumption.removed.saturating_sub(resumption.damaged);
        Resumption::new(&config, without_room).remove(&mut *records).map_err(KeepError::from)?;
        match records.incarnation() {
            Ok(Some(incarnation)) if incarnation == kept_contexts.incarnation => {}
            _ => return Err(KeepError::Restarted.into()),
        }
        if let Some(reason) = kept_contexts.dropped {
            tracing::warn!(reason, "kept contexts dropped; their UEs register again");
        }
        let Tally { resumed, sessions, unreadable: damaged, void: unregistered, .. } = tally;
        if damaged + unregistered > 0 {
            tracing::warn!(damaged, unregistered, "kept contexts dropped; their UEs register again");
        }
        if resumed > 0 {
            let elapsed_ms = began.elapsed().as_millis() as u64;
            tracing::info!(ues = resumed, sessions, elapsed_ms, "contexts of the last run resumed");
        }
        self.wait_for_sessions(now);
        self.examine_stored_ues();
        self.persistence.renewal = Some(kept_contexts.renewal);
        Ok(())
    }

    /// Enters a UE whose record this host has claimed. Returns false if there is no room.
    fn enter_resumed(&mut self, id: u64, ue: &UeContext, tally: &mut Tally) -> bool {
        let octets = DatabaseRef { id, base: self.events.sequence, ..DatabaseRef::default() }.octets();
        let has_room = tally.resumed < self.ues.region.config().ues as usize;
        if !has_room || self.enter_context((ue.ltmsi, ue), &octets, || None).is_none() {
            return false;
        }
        self.persistence.restoring.add(ue);
        tally.resumed += 1;
        tally.sessions += ue.sessions.len();
        true
    }
}

/// Waits before a retry of a failing database, unless the error is permanent or the time is over.
fn wait(error: RecordError, deadline: std::time::Instant) -> Result<(), KeepError> {
    if !error.is_retryable() || std::time::Instant::now() >= deadline {
        return Err(error.into());
    }
    std::thread::sleep(RETRY_INTERVAL);
    Ok(())
}

#[cfg(test)]
mod tests;
