//! Records in the real servers, started on ports of their own and stopped by the tests. What runs for longer than a test of every
//! day may, or needs a server that not everybody has, runs by `make test-stores`.

mod cluster;
mod load;
#[cfg(feature = "mongodb")]
mod mongo;
mod redis;
mod servers;
mod tls;
