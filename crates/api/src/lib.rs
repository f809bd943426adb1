//! Management API `/v1`: resources, roles, audit log, and its OpenAPI document.
//!
//! The listeners, tokens and access rules are those of `vireo_ops::api`; this crate adds the
//! routes. It accesses the core only through `StatusSource`, the subscribers only through
//! `vireo_subscribers::Store`, and the configuration through [`ConfigurationControl`].
//!
//! Invariants:
//!
//! - A request never waits on the thread of the API: the core and databases are asked on blocking
//!   threads, of which there is a bounded number.
//! - Every body, list and buffer is bounded.
//! - Every change leaves a line in the audit log, also one that fails.

#![forbid(unsafe_code)]

mod alarms;
mod audit;
mod context;
mod database;
mod events;
mod imports;
mod management;
mod overview;
mod page;
mod problem;
mod secrets;
mod tag;
#[cfg(test)]
mod tests;
mod time;
mod v1;
mod watch;

pub use management::{
    AlarmsConfig, Change, ConfigurationControl, DataNetwork, Management, OpenDatabase, Slice, Slices, Validation,
    WebhookConfig,
};

use context::Api;
use std::sync::Arc;
use vireo_ops::api::{ApiError, Extension, Prepared, Server, StatusSource};
use vireo_ops::config::ApiConfig;
use vireo_ops::metrics::Metrics;

/// Returns the OpenAPI document as JSON.
pub fn openapi() -> String {
    v1::document()
}

/// Starts the API with `/v1`. Returns `None` if it has no listener.
///
/// # Errors
///
/// Returns an error if a listener, token or TLS file is unusable.
pub fn start(
    config: &ApiConfig,
    source: Arc<dyn StatusSource>,
    metrics: Arc<Metrics>,
    management: Management,
) -> Result<Option<Server>, ApiError> {
    serve(Prepared::new(config)?, source, metrics, management)
}

/// Starts an API that is prepared.
///
/// # Errors
///
/// Returns an error if the unix socket or the thread cannot be created.
pub fn serve(
    prepared: Prepared,
    source: Arc<dyn StatusSource>,
    metrics: Arc<Metrics>,
    management: Management,
) -> Result<Option<Server>, ApiError> {
    let (own, counted) = (Arc::clone(&source), Arc::clone(&metrics));
    let routes: Extension = Box::new(move || match Api::new(own, counted, management, v1::document()) {
        Ok(api) => {
            tokio::spawn(watch::run(api.clone()));
            tokio::spawn(v1::run_ue_events(api.clone()));
            v1::router(api)
        }
        Err(error) => {
            tracing::error!(%error, "API has no /v1: no random numbers from the system");
            axum::Router::new()
        }
    });
    prepared.start_with(source, metrics, Some(routes))
}
