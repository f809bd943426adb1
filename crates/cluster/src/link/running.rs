//! The loop of a link.

use super::{FULL_QUEUE_RETRY_INTERVAL, Link};
use crate::command::CommandReceiver;
use crate::error::LinkError;
use crate::heartbeat::{HeartbeatHandle, HeartbeatTargets};
use crate::input::Input;
use crate::input_queue::HostSender;
use crate::poll_set::{PollSet, Sockets, interest, wait};
use crate::progress::ProgressCounter;
use rustix::event::{PollFd, PollFlags};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vireo_core::placement::cluster::Member;
use vireo_core::placement::message::{Envelope, PeerEvent};
use vireo_ops::clock::clock;
use vireo_ops::priority_boost::PriorityBoost;
use vireo_sctp::Waker;

/// The host's queues, as its link has them.
#[derive(Debug)]
pub struct HostQueues {
    pub input_sender: HostSender,
    pub commands: CommandReceiver,
    /// Wakes the link for commands.
    pub waker: Waker,
}

/// A link that has reported its host as ready.
#[derive(Debug)]
pub(crate) struct RunningLink {
    link: Link,
    pub(crate) queues: HostQueues,
    heartbeats: HeartbeatHandle,
    targets: HeartbeatTargets,
    priority_boost: PriorityBoost,
    /// True if the host has no room for all inputs.
    is_blocked: bool,
}

impl Link {
    /// Reports that the host is ready, and runs until the host is removed from the cluster or the
    /// replicator stops.
    ///
    /// # Errors
    ///
    /// Returns why the host is not in its cluster any more.
    pub fn run(self, queues: HostQueues, replicator: ProgressCounter) -> Result<(), LinkError> {
        let ended = self.ended();
        let result = self.start(queues, replicator).and_then(|mut running| {
            loop {
                running.run_once()?;
                let at_most = running.before_sleep();
                wait(&mut [&mut running], at_most).map_err(|error| LinkError::System(error.into()))?;
            }
        });
        ended.set(&result);
        result
    }

    /// Reports that the host is ready. The caller runs the link.
    pub(crate) fn start(mut self, queues: HostQueues, replicator: ProgressCounter) -> Result<RunningLink, LinkError> {
        self.client.report_ready();
        let watched = vec![queues.input_sender.progress(), self.progress.clone(), replicator];
        let (me, heartbeat) = (Member::Host(self.host), self.client.heartbeat());
        let input_sender = Some(queues.input_sender.clone());
        let heartbeats =
            HeartbeatHandle::start(me, heartbeat, &self.security, watched, input_sender).map_err(LinkError::System)?;
        let priority_boost = PriorityBoost::new(heartbeat, Instant::now());
        let targets = HeartbeatTargets::default();
        Ok(RunningLink { link: self, queues, heartbeats, targets, priority_boost, is_blocked: false })
    }
}

impl super::LinkStatus {
    /// Records that the link has ended.
    pub(crate) fn set(&self, result: &Result<(), LinkError>) {
        if let Err(error) = result {
            tracing::error!(%error, "host removed from its cluster");
        }
        self.0.store(true, Ordering::Relaxed);
    }
}

impl RunningLink {
    /// Executes commands of the host, and passes messages of the cluster to it.
    pub(crate) fn run_once(&mut self) -> Result<(), LinkError> {
        let (link, input_sender) = (&mut self.link, &self.queues.input_sender);
        link.progress.tick();
        link.execute_commands(&self.queues.commands, input_sender);
        let now = Instant::now();
        self.priority_boost.update(now);
        link.controller(now, input_sender)?;
        if link.targets_changed(&self.targets) {
            self.targets = link.heartbeat_targets();
            self.heartbeats.set_targets(self.targets.clone());
        }
        link.connect(now);
        for seid in link.pending_pfcp.expire(clock()) {
            let envelope = Envelope::new(PeerEvent::PfcpTimeout { seid });
            link.offer(Input::Peer { envelope, at: clock() }, input_sender);
        }
        link.flush(input_sender);
        if link.receive(input_sender)? {
            input_sender.wake();
        }
        Ok(())
    }

    /// Executes commands of the host.
    pub(crate) fn send(&mut self) {
        self.link.execute_commands(&self.queues.commands, &self.queues.input_sender);
        self.link.flush(&self.queues.input_sender);
    }

    /// Returns the number of commands that wait for a balancer.
    pub(crate) fn waiting_commands(&self) -> usize {
        self.queues.commands.queue.len()
    }

    /// Announces that the thread will sleep. Returns the maximum time.
    pub(crate) fn before_sleep(&mut self) -> Duration {
        let nothing = self.link.is_congested() || self.queues.commands.sleep();
        let wait = if nothing { self.link.client.heartbeat() } else { Duration::ZERO };
        self.is_blocked = !self.link.deferred.is_empty();
        // The host does not signal when it has room.
        if self.is_blocked { wait.min(FULL_QUEUE_RETRY_INTERVAL) } else { wait }
    }
}

impl Sockets for RunningLink {
    fn register<'a>(&'a self, set: &mut PollSet<'a>) {
        set.push(PollFd::new(&self.queues.waker, PollFlags::IN));
        if let Some(fd) = self.link.client.fd() {
            set.push(PollFd::from_borrowed_fd(fd, interest(self.link.client.has_unwritten(), true)));
        }
        let streams = self.link.balancers.values().filter_map(|connection| connection.stream.as_ref());
        let reads = !self.is_blocked;
        set.extend(
            streams.map(|stream| PollFd::from_borrowed_fd(stream.fd(), interest(stream.has_unwritten(), reads))),
        );
    }

    fn on_polled(&mut self, ready: &mut dyn Iterator<Item = bool>) {
        self.queues.commands.awake();
        if ready.next() == Some(true) {
            self.queues.waker.clear();
        }
        if self.link.client.fd().is_some() {
            self.link.client.set_readable(ready.next() == Some(true));
        }
        for stream in self.link.balancers.values_mut().filter_map(|connection| connection.stream.as_mut()) {
            stream.set_readable(ready.next() == Some(true));
        }
    }
}
