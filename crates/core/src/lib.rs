//! What a core decides, and nothing of how it is done: pure functions over plain data.
//!
//! One procedure step is `(context, event, now, random) -> (context', effects, deadline)`. No async, no I/O, no
//! threads, no clock and no globals: time, randomness and fresh identifiers come in as arguments ([`Env`]).
#![forbid(unsafe_code)]

pub mod config;
mod env;
pub mod pools;
pub mod session;
pub mod subscription;

pub use env::{Env, Identifiers};
