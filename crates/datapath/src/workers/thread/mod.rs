//! Threads of the UPF process.

mod env;
pub(crate) mod hot_table;
pub(crate) mod local_addresses;
mod threads;

pub(crate) use env::ThreadEnv;
pub(crate) use threads::WorkerThreads;
