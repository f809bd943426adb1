//! Tests of records with real servers on ports of their own.
//!
//! The tests start and stop the servers. Tests that run for long, or need a server that is not
//! commonly installed, run by `make test-stores`.

mod cluster;
mod load;
#[cfg(feature = "mongodb")]
mod mongo;
mod redis;
mod servers;
mod tls;
