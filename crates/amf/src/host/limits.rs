//! Limits of the host thread and of its queues.

use vireo_ops::config::WorkerModel;

/// Maximum number of inputs, and of commit records per worker, taken in one pass of the loop.
pub(super) const BATCH: usize = 64;
/// Capacity of the input queue.
pub(super) const INPUTS: usize = 65_536;
/// Number of UEs waiting for a full NF queue at which the host stops taking inputs.
pub(super) const MAX_WAITING_UES: usize = 65_536;
/// Maximum number of concurrent worker processes. The count includes the host's own number.
pub(super) const WORKERS: u8 = 250;

/// Returns the number of workers that the region has room for, including the host's own number.
pub(super) fn workers(model: WorkerModel) -> u8 {
    match model {
        WorkerModel::Processes => WORKERS,
        WorkerModel::Inline => 2,
    }
}

/// Number of deferred events at which the host stops taking inputs.
pub(super) const MAX_DEFERRED: usize = 16_384;
