//! Configuration, metrics, API and process primitives that all parts of a running core share.
//!
//! The crate contains no network function. It does not know balancer, host, SMF, UPF or
//! controller: they fill the data types of the API and register their own metrics.

pub mod api;
pub mod clock;
pub mod config;
pub mod database;
pub mod evicted_claims;
pub mod http_post;
pub mod metrics;
pub mod n4;
pub mod priority_boost;
pub mod privileges;
pub mod reload;
pub mod sbi;
pub mod shared_record;
pub mod state;
pub mod supervisor;
pub mod sys;
pub mod traces;
pub mod ue_record;
