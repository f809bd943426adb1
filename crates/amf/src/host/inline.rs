//! Steps on the thread of the host: run to completion (`pools.worker-model = "inline"`).
//!
//! That is also the thread of the balancer, or of the link and the replicator in a cluster, so that
//! a message wakes one thread.

use super::limits::BATCH;
use super::pools::PoolId;
use super::state::Host;
use crate::worker::StepRecord;
use std::time::Duration;
use vireo_cluster::{COMMANDS, HostTurn, LocalHost};
use vireo_ops::clock::clock;
use vireo_store::region::Buffer;

/// Number of the worker on the thread of the host among the workers of the region.
pub(super) const WORKER: u8 = 1;
/// Maximum number of steps between two batches of waiting inputs.
const STEPS_BEFORE_INPUTS: usize = BATCH / 8;
/// Time after which this thread polls its inputs and heartbeats again, however slow steps are.
const STEPS_TIME: Duration = Duration::from_millis(2);
/// Number of commands at which this thread runs no more: it may be the one that takes them.
const MAX_UNSENT_COMMANDS: usize = COMMANDS / 4;

impl Host {
    /// Enters the NFs that this thread runs.
    pub(super) fn enter_inline(&mut self, pool_ids: &[(PoolId, bool)]) {
        self.restore(WORKER);
        self.workers.pools.add_worker(&self.ues.region, WORKER, pool_ids);
        self.workers.pools.on_worker_started(WORKER);
    }

    /// Runs the steps of UEs that wait, and executes the effects of each at once. Returns true if
    /// one ran.
    pub(super) fn run_steps(&mut self) -> bool {
        let Some(mut worker) = self.workers.inline.take() else { return false };
        // While inputs wait, more of them are forwarded than steps run: queues grow at the NFs,
        // where shares and objectives decide what runs next, and not in front of them.
        let steps = if self.waiting_inputs() == 0 { BATCH } else { STEPS_BEFORE_INPUTS };
        let mut busy = false;
        (self.current.arrived, self.current.input) = (clock(), 0);
        let begin = worker.now();
        for _ in 0..steps {
            if !self.may_run_steps() || !worker.run_once() {
                break;
            }
            busy = true;
            let mut results = worker.take_results();
            results.committed.drain(..).for_each(|(buffer, record)| self.emit_step(buffer, record));
            results.returned.drain(..).for_each(|packet| self.on_returned_packet(packet));
            worker.reuse(results);
            if worker.now().duration_since(begin) > STEPS_TIME {
                break;
            }
        }
        self.workers.inline = Some(worker);
        busy
    }

    /// Without copies of its records a host does not run ahead of its replicas.
    fn may_run_steps(&self) -> bool {
        !self.awaits_too_many() && self.egress.len() < MAX_UNSENT_COMMANDS
    }

    /// Returns true if steps wait that this thread may run: deadlines, and answers to proposals,
    /// begin steps after the others have run.
    pub(super) fn has_runnable_steps(&self) -> bool {
        self.workers.inline.as_ref().is_some_and(|worker| worker.has_work()) && self.may_run_steps()
    }

    /// Returns true if the commands of further inputs find room. Worker processes wait by
    /// themselves.
    pub(super) fn has_room_for_commands(&self) -> bool {
        self.workers.inline.is_none() || self.egress.len() < MAX_UNSENT_COMMANDS
    }

    /// Executes the effects of a step that has just been committed.
    fn emit_step(&mut self, buffer: Buffer, record: Option<StepRecord>) {
        let place = self.ues.region.place_of_buffer(buffer);
        let (Some(StepRecord { outbox, deadline }), Some((slot, version))) = (record, place) else {
            return self.emit(buffer);
        };
        let is_guest = self.ues.region.is_guest(slot);
        if !is_guest && !self.ues.order.is_next(slot, version) {
            return self.emit(buffer);
        }
        let mut snapshot = std::mem::take(&mut self.ues.snapshot);
        let is_read = match is_guest || self.emits_contexts() {
            true => self.ues.region.read_record(buffer, &mut snapshot, true),
            false => {
                snapshot.context.clear();
                snapshot.deadline = deadline;
                true
            }
        };
        match (is_read, is_guest) {
            (true, true) => self.propose(slot, buffer, &outbox, &snapshot),
            (true, false) => self.enter_record((slot, version), buffer, outbox, &snapshot, None),
            (false, _) => {}
        }
        self.ues.snapshot = snapshot;
        if !is_read {
            self.emit(buffer);
        }
    }
}

impl LocalHost for Host {
    fn run_once(&mut self) -> HostTurn {
        self.pass()
    }

    fn sleep(&mut self) -> Option<Duration> {
        self.announce_awaited_answers();
        let has_news = self.has_news();
        (self.inputs.sleep() && !has_news && self.events.waiting.is_empty()).then(|| self.time_to_wait())
    }

    fn awake(&mut self) {
        self.inputs.awake();
        if let Some(worker) = &mut self.workers.inline {
            worker.wakes_up();
        }
    }

    fn end(self: Box<Self>) {
        self.finish();
    }
}
