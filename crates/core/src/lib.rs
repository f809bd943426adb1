//! Decision logic of the core: pure functions over plain data.
//!
//! One procedure step is `(context, event, now, random) -> (context', effects, deadline)`. The
//! crate has no async code, I/O, threads, clock or globals. The caller passes time, randomness and
//! new identifiers as arguments ([`Env`]).
#![forbid(unsafe_code)]

pub mod balance;
pub mod cluster;
pub mod config;
pub mod context;
pub mod engine;
mod env;
mod hash;
pub mod n2;
pub mod pools;
pub mod postcard_writer;
pub mod procedures;
pub mod ran;
pub mod replica;
pub mod sba;
pub mod schedule;
pub mod session;
pub mod step;
pub mod subscription;
pub mod tmsi;

pub use env::{Env, Identifiers, RanNodes};
