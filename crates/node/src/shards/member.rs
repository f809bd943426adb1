//! The shard's side: a host of the private cluster that its parent observes and ends.

use super::message::{self, ConfigText, FromShard, Reply, Request, ShardSetup, ToShard};
use crate::cluster::{HostNode, HostNodeConfig};
use crate::control::StartError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vireo_fabric::Security;
use vireo_ops::api::{RelocateError, StatusSource};
use vireo_ops::metrics::Metrics;
use vireo_ops::reload::Reload;
use vireo_ops::supervisor::{WorkerInitError, shard_init};
use vireo_subscribers::Store;

/// Interval of the checks whether the host has failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the updates of metrics that are not counted by events.
const METRICS_INTERVAL: Duration = Duration::from_secs(5);

/// A process that its parent has started as a shard.
#[derive(Debug)]
pub struct ShardMember {
    stream: UnixStream,
    setup: ShardSetup,
    shard: u8,
}

impl ShardMember {
    /// Makes this process a shard that dies with its parent. Receives its configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if no core started the process, or the core ends.
    pub fn begin() -> Result<Self, WorkerInitError> {
        let (shard, mut stream) = shard_init()?;
        let setup = message::read(&mut stream)?;
        Ok(ShardMember { stream, setup, shard })
    }

    /// Returns the number of the shard.
    pub fn number(&self) -> u8 {
        self.shard
    }

    /// Returns the configuration of the core.
    pub fn config(&self) -> &ConfigText {
        &self.setup.config
    }

    /// Reports why the shard ends.
    pub fn fail(&mut self, why: &str) {
        // The parent reports the end of the process anyway.
        let _ = message::write(&mut self.stream, &FromShard::Failed(why.to_owned()));
    }

    /// Starts the host. Its `cluster` gets the controller of the parent.
    ///
    /// # Errors
    ///
    /// Returns an error if a part of the host does not start.
    pub fn start(&self, mut config: HostNodeConfig, store: Store, metrics: Arc<Metrics>) -> Result<Shard, StartError> {
        config.cluster.controllers = vec![self.setup.controller.into()];
        let security = Security::from_texts(&self.setup.tls)?;
        let node = HostNode::start_secured(config, security, store, Arc::clone(&metrics))?;
        Ok(Shard { node, metrics })
    }

    /// Serves until the parent ends or the host fails. `reload` parses a configuration that was
    /// read again; `None` = it is wrong.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn serve(&mut self, shard: &Shard, mut reload: impl FnMut(&ConfigText) -> Option<Reload>) -> io::Result<()> {
        message::write(&mut self.stream, &FromShard::Ready { host: shard.node.number() })?;
        let (timeout, mut upkeep_at) =
            (Timespec { tv_sec: 0, tv_nsec: CHECK_INTERVAL.subsec_nanos().into() }, Instant::now());
        while !shard.node.has_failed() {
            if Instant::now() >= upkeep_at {
                shard.node.source().upkeep();
                shard.metrics.upkeep();
                upkeep_at = Instant::now() + METRICS_INTERVAL;
            }
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match message::read(&mut self.stream)? {
                ToShard::Request { number, request } => {
                    let reply = shard.answer(request);
                    message::write(&mut self.stream, &FromShard::Reply { number, reply })?;
                }
                ToShard::Reload(config) => {
                    if let Some(reload) = reload(&config) {
                        shard.node.reload(reload);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Running host of a shard.
#[derive(Debug)]
pub struct Shard {
    node: HostNode,
    metrics: Arc<Metrics>,
}

/// Returns the reply to an order about a UE: `None` if the SUPI is none, or if the shard does not
/// answer in time.
fn done(answer: Option<Option<bool>>) -> Reply {
    match answer {
        Some(Some(done)) => Reply::Done(done),
        Some(None) => Reply::Busy,
        None => Reply::Done(false),
    }
}

impl Shard {
    /// Returns the host ID.
    pub fn host(&self) -> u16 {
        self.node.number()
    }

    fn answer(&self, request: Request) -> Reply {
        let source = self.node.source();
        match request {
            Request::Status(filter) => Reply::Status(source.status(&filter).map(Box::new)),
            Request::Ues(query) => Reply::Ues(source.ues(&query)),
            Request::Pools => Reply::Pools(source.pools()),
            Request::Metrics => {
                source.count();
                Reply::Metrics(self.metrics.render())
            }
            Request::Deregister { supi, reregister, cause } => {
                done(message::supi(supi).map(|supi| source.deregister(supi, reregister, cause)))
            }
            Request::Locate { supi } => done(message::supi(supi).map(|supi| source.locate(supi))),
            Request::Relocate { supi, upf } => match message::supi(supi).map(|supi| source.relocate(supi, &upf)) {
                Some(Ok(())) => Reply::Done(true),
                Some(Err(RelocateError::Busy)) => Reply::Busy,
                Some(Err(_)) | None => Reply::Done(false),
            },
        }
    }
}
