//! Crash tests with real processes over one region, killed at any instruction.
//!
//! The state is checked after each kill. A worker is this test binary, started again with a
//! descriptor of the region in its environment.

mod commit;
mod mailbox;
mod process;
mod ring;
