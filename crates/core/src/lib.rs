//! Decision logic of the core: pure functions over plain data.
//!
//! One procedure step is `(context, event, now, random) -> (context', effects, deadline)`. The
//! crate has no async code, I/O, threads, clock or globals. The caller passes time, randomness and
//! new identifiers as arguments ([`Env`]).
#![forbid(unsafe_code)]

pub mod amf;
mod back_off;
pub mod config;
mod env;
#[cfg(test)]
mod golden;
mod gprs_timer;
mod hash;
pub mod ids;
mod octets;
pub mod placement;
pub mod postcard_writer;
pub mod sba;
pub mod schedule;
pub mod smf;
pub mod step;
pub mod subscription;

pub use env::{Env, RanNodes};
pub use ids::Identifiers;
