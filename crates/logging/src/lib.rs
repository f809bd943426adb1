//! Log lines that never block or end the writing thread, and never fill a disk.
//!
//! - [`Output`]: a bounded queue in front of standard error, with a writer thread. If standard
//!   error is full, closed or slow, log lines are dropped and counted. There is no other effect.
//! - [`LogFile`]: a file with rotation in place of standard error, for a process and its workers.
//! - [`RateLimit`]: a layer of `tracing` that limits the lines of one kind and peer per period. It
//!   reports how many it has suppressed. Call sites need only a field `peer` (or another of
//!   [`PEER_FIELDS`]).
//! - [`counts`]: counts of dropped and suppressed lines, of this process and of its worker
//!   processes.
//! - [`escape`]: text of a peer without control characters, so that no peer can forge a line.
//!
//! This crate does not know configurations, line formats or metrics.

#![forbid(unsafe_code)]

pub mod counts;
mod escape;
mod file;
mod limiter;
mod output;
mod rate_limit;

pub use escape::Escaped;
pub use file::{FileLimits, LogFile};
pub use limiter::{Limits, SuppressedLines};
pub use output::{Output, Report, Value};
pub use rate_limit::{PEER_FIELDS, RateLimit};
