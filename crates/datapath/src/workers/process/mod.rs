//! Data workers as processes.
//!
//! The UPF process owns the tables, the sockets, the rings and the TUN device. It shares the memory
//! of the entries with the worker processes ([`setup`]), which run the fast path on it as
//! threads do ([`worker`]). A worker punts all other packets through its punt channel. A punt
//! handler in the UPF process classifies them by the locked tables ([`punt_channel`],
//! [`punt_handler`]).
//!
//! When a worker dies, at most the packets that it held are lost, which is one batch. Rules,
//! counters and policers are in the shared memory. Waiting packets stay in sockets and rings, which
//! the UPF process has open too. The supervisor ([`supervisor`]) assigns the worker slot to a
//! standby worker, which continues reading where the dead one stopped. A worker that is stopped or
//! hangs while packets wait is killed first.

mod posts;
mod punt_channel;
mod punt_handler;
mod setup;
mod spawner;
mod supervisor;
mod worker;

pub(crate) use posts::{ProcessContext, ProcessPosts, ProcessWorker, RingWorker};
pub(crate) use setup::{FrameSetup, TableFds, tables};
pub use spawner::{ChildProcess, ProcessSpawner};
pub use supervisor::TakeoverStats;
pub(crate) use supervisor::{Takeovers, WorkerPool};
pub use worker::{WorkError, run_worker};
