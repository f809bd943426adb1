//! Where a host has its contexts.

use super::HostError;
use crate::config::{StateConfig, StateLocation};
use crate::nf::Location;
use crate::nf::central::{self, CentralConfig};
use crate::state::RecordsConfig;
use rand::RngCore;
use rand::rngs::StdRng;

/// Where they are by a configuration, of a host that others share its records with or not.
///
/// # Errors
///
/// When the database cannot be used.
pub(super) fn location(state: &StateConfig, shared: bool, rng: &mut StdRng) -> Result<Location, HostError> {
    let Some(mut records) = RecordsConfig::of(state) else {
        let memory = state.location == StateLocation::Memory;
        return Ok(if memory { Location::Worker } else { Location::Region });
    };
    let owner = rng.next_u64();
    if !shared && !records.is_shared() {
        // Nobody goes on with what it leaves there, as others of its cluster do.
        records.key.push_str(&format!("-{owner:016x}"));
    }
    let config = CentralConfig { records, owner, shared };
    central::check(&config)?;
    Ok(Location::Central(config))
}
