//! Log lines that never block or end the thread that writes them, and never fill a disk.
//!
//! - [`Output`]: a bounded queue in front of standard error, with a thread of its own behind it. A full, closed or slow
//!   standard error costs log lines, which are counted, and nothing else.
//! - [`RateLimit`]: a layer of `tracing` that lets few lines of one kind and peer through in a period of time, and reports
//!   how many it has suppressed. Call sites need nothing but a field `peer` (or another of [`PEER_FIELDS`]).
//! - [`counts`]: how many lines were lost or suppressed, of this process and of the worker processes that it has started.
//! - [`escape`]: the text of a peer without control characters, so that no peer forges a line.
//!
//! This crate does not know configurations, formats of lines or metrics.

#![forbid(unsafe_code)]

pub mod counts;
mod escape;
mod limiter;
mod output;
mod rate_limit;

pub use escape::Escaped;
pub use limiter::{Limits, Suppressed};
pub use output::Output;
pub use rate_limit::{PEER_FIELDS, RateLimit};
