//! UEs of other hosts whose procedures a host serves.

use crate::placement::message::SERVING_TIMEOUT;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_types::{Instant, Ltmsi};

/// Maximum number of inputs of a UE that wait for the answer to a proposal.
pub(super) const MAX_WAITING_INPUTS: usize = 16;
/// Maximum number of UEs that a host serves at a time. Owners serve the others.
pub const MAX_SERVED_UES: usize = 2048;

/// Input for a UE whose procedure this host serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedInput<I> {
    pub ltmsi: Ltmsi,
    /// Number of the input.
    pub number: u64,
    pub input: I,
}

/// UE of another host, one of whose inputs is executed here.
#[derive(Debug)]
pub(super) struct ServedUe<I> {
    /// Number of the input in progress.
    pub(super) current: u64,
    /// True if its result is proposed.
    pub(super) is_proposed: bool,
    pub(super) waiting: VecDeque<(u64, I)>,
}

/// UEs of other hosts whose procedures this host serves.
#[derive(Debug)]
pub(super) struct ServedUes<I> {
    pub(super) ues: FxHashMap<Ltmsi, ServedUe<I>>,
    /// Inputs that can be executed now.
    pub(super) runnable: VecDeque<ServedInput<I>>,
    /// UEs whose inputs have returned to the balancer, with the time of the first poll since.
    /// Later inputs that the balancer sent before it knew must not overtake them.
    pub(super) returned: FxHashMap<Ltmsi, Option<Instant>>,
}

impl<I> ServedUes<I> {
    /// Forgets returned UEs whose inputs all go to the owner by now.
    pub(super) fn forget_returned(&mut self, now: Instant) {
        self.returned.retain(|_, since| now.since(*since.get_or_insert(now)) < SERVING_TIMEOUT);
    }
}

impl<I> Default for ServedUes<I> {
    fn default() -> Self {
        ServedUes { ues: FxHashMap::default(), runnable: VecDeque::new(), returned: FxHashMap::default() }
    }
}
