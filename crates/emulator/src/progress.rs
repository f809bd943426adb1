//! Progress of a run, the counters behind it, and the factory of its endpoints.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use vireo_sctp::Endpoint;

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Connecting,
    /// UEs run their scripts.
    Running,
    /// Every UE is done and all associations are still up. A callback in this phase sees all UEs in
    /// their final state, for example to measure the core's memory.
    Settled,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub ues: u64,
    pub started: u64,
    /// UEs that are done, successfully or not.
    pub done: u64,
    pub failed: u64,
    pub registered: u64,
    pub sessions: u64,
    /// Procedures of the steady load that were due.
    pub procedures: u64,
    /// UEs that lost their registration by a procedure of the steady load.
    pub lost: u64,
    /// Time since the run began.
    pub elapsed: Duration,
}

/// Counters shared by the workers and the calling thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connected: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) registered: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) procedures: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Number of workers whose UEs have reached the start of the steady load.
    pub(crate) ready: AtomicU64,
    /// Start of the steady load, in microseconds of the run's clock; 0 until all workers are ready.
    pub(crate) steady_us: AtomicU64,
    pub(crate) settled: AtomicU64,
    /// Tells the workers to shut down their associations.
    pub(crate) finish: AtomicBool,
    /// Tells the workers not to start further UEs.
    pub(crate) stop: AtomicBool,
}

/// Factory that opens the SCTP endpoint of worker `n`.
pub type EndpointFactory<'a> =
    &'a (dyn Fn(u32) -> Result<Box<dyn Endpoint>, Box<dyn std::error::Error + Send + Sync>> + Sync);
