//! Worker process: waits for its setup, maps the named memory, and works until the stop signal.

use super::punt_channel::PuntChannel;
use super::setup::{self, WorkerSetup, next};
use crate::drivers::frames::{FrameProcessor, Kernel};
use crate::drivers::next_hops::Hops;
use crate::drivers::{af_packet, udp};
use crate::engine::arrays::Arrays;
use crate::engine::batch::{PuntBatch, WorkerEnv};
use crate::engine::counters::Stats;
use crate::engine::event::EventSink;
use crate::engine::read_section::ReadSection;
use crate::engine::worker_slot::{RingPosition, WorkerSlot};
use crate::network::by_family;
use crate::start_error::StartError;
use crate::sys::clock::{Clock, monotonic_ns};
use crate::sys::run_on;
use crate::sys::shared::Shared;
use crate::sys::udp::Socket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Reason why a data worker process ends without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The processor does not exist or may not be used.
    #[error("the data worker cannot run on processor {0}: correct the cores in the configuration")]
    Core(usize),
    /// The setup does not match the worker.
    #[error("the data worker cannot take its place over: {0}")]
    Setup(io::Error),
    /// The system has no descriptors left.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Processing packets failed.
    #[error("the data worker ends: {0}")]
    Work(io::Error),
}

/// Environment of a worker process.
struct ProcessEnv {
    arrays: Arrays,
    worker_slots: Arc<Shared<WorkerSlot>>,
    number: usize,
    channel: PuntChannel,
}

impl ProcessEnv {
    #[inline]
    fn slot(&self) -> &WorkerSlot {
        &self.worker_slots[self.number]
    }
}

impl WorkerEnv for ProcessEnv {
    #[inline]
    fn decide(&self, batch: &mut impl PuntBatch) {
        let (mut done, mut pending) = (0, None);
        if let Some(section) = ReadSection::begin(&self.arrays, &self.slot().batch_counter) {
            done = batch.decide(&section, 0);
            pending = section.pending.get();
        }
        if done < batch.count() || pending.is_some() {
            batch.punt(done, &self.channel);
            self.channel.post(batch.count() - done, pending);
            // The punt handler has the packets even if this process dies.
            self.announce_packets(0);
            self.channel.wait();
        }
    }

    fn flush(&self, stats: &mut Stats) {
        self.slot().counters.flush(stats);
        self.slot().heartbeat.fetch_add(1, Relaxed);
    }

    #[inline]
    fn announce_packets(&self, packets: usize) {
        self.slot().packets_held.store(packets as u64, Relaxed);
    }
}

/// Runs as a data worker: receives its setup on `line` from the UPF process that started it. Works
/// until the stop signal or the end of the UPF process.
///
/// # Errors
///
/// Returns an error if the setup cannot be applied. The supervisor then starts another process.
pub fn run_worker(line: OwnedFd) -> Result<(), WorkError> {
    let Some((setup, files)) = setup::receive(line.as_fd()).map_err(WorkError::Setup)? else { return Ok(()) };
    if let Some(core) = setup.core {
        run_on(core).map_err(|_| WorkError::Core(core))?;
    }
    let mut files = files.into_iter();
    let arrays = setup.arrays(&mut files).map_err(WorkError::Setup)?;
    let worker_slots = Arc::clone(&arrays.quiescence.worker_slots);
    if setup.worker_slot >= worker_slots.len() {
        return Err(WorkError::Setup(io::Error::new(io::ErrorKind::InvalidData, "there is no such worker slot")));
    }
    let channel = punt_channel(&mut files).map_err(WorkError::Setup)?;
    let env = ProcessEnv { arrays, worker_slots, number: setup.worker_slot, channel };
    let stop = next(&mut files).map_err(WorkError::Setup)?;
    run(&setup, &mut files, &env, &stop)
}

/// Maps the punt channel from the next descriptors.
fn punt_channel(files: &mut impl Iterator<Item = OwnedFd>) -> io::Result<PuntChannel> {
    let (memory, bell, back) = (next(files)?, next(files)?, next(files)?);
    PuntChannel::from_fds(memory.as_fd(), bell, back)
}

fn run(
    setup: &WorkerSetup,
    files: &mut impl Iterator<Item = OwnedFd>,
    env: &ProcessEnv,
    stop: &OwnedFd,
) -> Result<(), WorkError> {
    let tun = next(files).map_err(WorkError::Setup)?.into();
    let sockets = setup.n3.iter().map(|local| Ok(Socket::from_fd(next(files)?, *local)));
    let sockets: Arc<[Socket]> = sockets.collect::<io::Result<_>>().map_err(WorkError::Setup)?;
    // The punt handler sends all notifications.
    let events: EventSink = Arc::new(|_| false);
    let clock = Clock::default();
    let joined = || {
        env.slot().heartbeat.fetch_add(1, Relaxed);
        env.slot().started_ns.store(monotonic_ns(), Relaxed);
        env.slot().pid.store(std::process::id().into(), Release);
    };
    let Some(frames) = &setup.frames else {
        let worker = udp::Worker { sockets, tun, events, clock, slot: setup.slot, bare: None };
        let poller = worker.poller(stop.as_fd()).map_err(WorkError::Setup)?;
        joined();
        return worker.run(env, &poller).map_err(WorkError::Work);
    };
    let position = |ring| RingPosition { slots: Arc::clone(&env.worker_slots), slot: setup.worker_slot, ring };
    let ports = af_packet::Ports::from_files(files, position).map_err(WorkError::Setup)?;
    let exit = Kernel { sockets, own: by_family(&frames.n3), tun, events };
    let hops = Hops::new(&frames.interfaces)?;
    let processor = FrameProcessor::new(exit, hops, &frames.n3, &frames.next_hops, None);
    let worker = af_packet::Worker { processor, ports, clock };
    let poller = worker.poller(stop.as_fd()).map_err(WorkError::Setup)?;
    joined();
    worker.run(env, &poller).map_err(WorkError::Work)
}
