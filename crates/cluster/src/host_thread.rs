//! A host with its link and its replicator on one thread (`pools.worker-model = "inline"`).
//!
//! A message of a balancer or of another host wakes this thread only. It is received, its step
//! runs, and the copies and effects leave before the thread sleeps again.

use crate::command::COMMANDS;
use crate::error::LinkError;
use crate::link::{HostQueues, Link, RunningLink};
use crate::local_host::{HostTurn, HostTurns, LocalHost};
use crate::poll_set::wait;
use crate::replicator::ReplicatorThread;

/// Maximum number of turns of the host before sockets are read again.
const HOST_TURNS: u32 = 16;
/// Commands that wait for a balancer beyond which the host does not run: one turn adds fewer than
/// the rest of the queue, so that this thread never waits for itself.
const MAX_WAITING: usize = COMMANDS / 2;

/// The parts of a host that share a thread.
#[derive(Debug)]
pub struct HostThread {
    pub host: Box<dyn LocalHost>,
    pub link: Link,
    pub replicator: ReplicatorThread,
    pub queues: HostQueues,
}

impl HostThread {
    /// Reports that the host is ready, and runs until it ends or is removed from the cluster.
    ///
    /// # Errors
    ///
    /// Returns why the host is not in its cluster any more.
    pub fn run(self) -> Result<(), LinkError> {
        let HostThread { host, link, mut replicator, queues } = self;
        let ended = link.ended();
        let result = link.start(queues, replicator.progress()).and_then(|link| run_loop(host, link, &mut replicator));
        ended.set(&result);
        result
    }
}

fn run_loop(
    mut host: Box<dyn LocalHost>,
    mut link: RunningLink,
    replicator: &mut ReplicatorThread,
) -> Result<(), LinkError> {
    loop {
        // The host processes acknowledgements and proposals in its next turn.
        link.run_once()?;
        replicator.receive(&link.queues.input_sender);
        let mut is_busy = false;
        for () in HostTurns::begin(HOST_TURNS) {
            if link.waiting_commands() > MAX_WAITING {
                break;
            }
            match host.run_once() {
                HostTurn::Busy => {
                    is_busy = true;
                    link.send();
                }
                HostTurn::Idle => {
                    is_busy = false;
                    break;
                }
                HostTurn::Ended => {
                    host.end();
                    link.send();
                    return Ok(());
                }
            }
        }
        replicator.send();
        link.send();
        let of_host = if is_busy { None } else { host.sleep() };
        let at_most = link.before_sleep().min(replicator.before_sleep()).min(of_host.unwrap_or_default());
        let polled = wait(&mut [&mut link, replicator], at_most);
        host.awake();
        polled.map_err(|error| LinkError::System(error.into()))?;
    }
}
