//! Location of a host's contexts.

use super::builder::HostConfig;
use super::error::HostError;
use super::keep::{self, KeptContexts};
use crate::worker::Location;
use crate::worker::context_database::{self, ContextDatabaseConfig};
use rand::RngCore;
use rand::rngs::StdRng;
use vireo_cluster::HostSender;
use vireo_ops::config::StateLocation;
use vireo_ops::state::RecordsConfig;

/// Returns the location of the contexts, and the kept contexts of the previous run if they outlive
/// it in a database. `shared` is true if the host shares its records with others.
///
/// # Errors
///
/// Returns an error if the database cannot be used.
pub(super) fn select(
    config: &HostConfig,
    shared: bool,
    input_sender: &HostSender,
    rng: &mut StdRng,
) -> Result<(Location, Option<KeptContexts>), HostError> {
    let state = &config.state;
    let Some(mut records) = RecordsConfig::from_state(state) else {
        let memory = state.location == StateLocation::Memory;
        return Ok((if memory { Location::Worker } else { Location::Region }, None));
    };
    let owner = rng.next_u64();
    let mut kept = None;
    if !shared && !records.is_shared() {
        kept = keep::acquire(state, &records, owner, (&config.core, input_sender))?;
        match &kept {
            Some(kept) => records.key.clone_from(&kept.records.key),
            // No other host continues with these records, unlike in a cluster.
            None => records.key.push_str(&format!("-{owner:016x}")),
        }
    }
    let config = ContextDatabaseConfig { records, owner, shared };
    context_database::check(&config)?;
    Ok((Location::Database(config), kept))
}
