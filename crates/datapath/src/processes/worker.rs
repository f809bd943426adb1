//! Worker process: waits for its setup, maps the named memory, and works until the stop signal.

use super::worker_setup::{self, WorkerSetup, next};
use super::{PuntChannel, RingPosition, WorkerSlot};
use crate::counters::Stats;
use crate::fast::{Arrays, PuntBatch, ReadSection, WorkerEnv};
use crate::frames::{Engine, Kernel, af_packet, of_family};
use crate::next_hops::Hops;
use crate::os_setup::StartError;
use crate::sockets::{Clock, EventSink, Worker};
use crate::sys::monotonic_ns;
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
    Place(io::Error),
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
    seats: Arc<Shared<WorkerSlot>>,
    seat: usize,
    desk: PuntChannel,
}

impl ProcessEnv {
    #[inline]
    fn seat(&self) -> &WorkerSlot {
        &self.seats[self.seat]
    }
}

impl WorkerEnv for ProcessEnv {
    #[inline]
    fn decide(&self, batch: &mut impl PuntBatch) {
        let (mut done, mut owed) = (0, None);
        if let Some(inside) = ReadSection::begin(&self.arrays, &self.seat().batch_counter) {
            done = batch.decide(&inside, 0);
            owed = inside.owed.get();
        }
        if done < batch.count() || owed.is_some() {
            batch.hand_over(done, &self.desk);
            self.desk.post(batch.count() - done, owed);
            // The punt handler has the packets even if this process dies.
            self.hold(0);
            self.desk.wait();
        }
    }

    fn flush(&self, stats: &mut Stats) {
        self.seat().counters.flush(stats);
        self.seat().heartbeat.fetch_add(1, Relaxed);
    }

    #[inline]
    fn hold(&self, packets: usize) {
        self.seat().packets_held.store(packets as u64, Relaxed);
    }
}

/// Runs as a data worker: receives its setup on `line` from the UPF process that started it. Works
/// until the stop signal or the end of the UPF process.
///
/// # Errors
///
/// Returns an error if the setup cannot be applied. The supervisor then starts another process.
pub fn work(line: OwnedFd) -> Result<(), WorkError> {
    let Some((orders, files)) = worker_setup::receive(line.as_fd()).map_err(WorkError::Place)? else { return Ok(()) };
    if let Some(core) = orders.core {
        crate::sys::run_on(core).map_err(|_| WorkError::Core(core))?;
    }
    let mut files = files.into_iter();
    let arrays = orders.arrays(&mut files).map_err(WorkError::Place)?;
    let seats = Arc::clone(&arrays.quiet.seats);
    if orders.seat >= seats.len() {
        return Err(WorkError::Place(io::Error::new(io::ErrorKind::InvalidData, "there is no such seat")));
    }
    let (desk, bell, back) = three(&mut files).map_err(WorkError::Place)?;
    let desk = PuntChannel::of(desk.as_fd(), bell, back).map_err(WorkError::Place)?;
    let place = ProcessEnv { arrays, seats, seat: orders.seat, desk };
    let stop = next(&mut files).map_err(WorkError::Place)?;
    run(&orders, &mut files, &place, &stop)
}

fn three(files: &mut impl Iterator<Item = OwnedFd>) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    Ok((next(files)?, next(files)?, next(files)?))
}

fn run(
    orders: &WorkerSetup,
    files: &mut impl Iterator<Item = OwnedFd>,
    place: &ProcessEnv,
    stop: &OwnedFd,
) -> Result<(), WorkError> {
    let tun = next(files).map_err(WorkError::Place)?.into();
    let sockets = orders.n3.iter().map(|local| Ok(Socket::of(next(files)?, *local)));
    let sockets: Arc<[Socket]> = sockets.collect::<io::Result<_>>().map_err(WorkError::Place)?;
    // The punt handler sends all notifications.
    let events: EventSink = Arc::new(|_| false);
    let clock = Clock::default();
    let joined = || {
        place.seat().heartbeat.fetch_add(1, Relaxed);
        place.seat().started_ns.store(monotonic_ns(), Relaxed);
        place.seat().pid.store(std::process::id().into(), Release);
    };
    let Some(frames) = &orders.frames else {
        let worker = Worker { sockets, tun, events, clock, slot: orders.slot, bare: None };
        let poller = worker.poller(stop.as_fd()).map_err(WorkError::Place)?;
        joined();
        return worker.run(place, &poller).map_err(WorkError::Work);
    };
    let mark = |ring| RingPosition { seats: Arc::clone(&place.seats), seat: orders.seat, ring };
    let ports = af_packet::Ports::of(files, mark).map_err(WorkError::Place)?;
    let exit = Kernel { sockets, own: of_family(&frames.n3), tun, events };
    let hops = Hops::new(&frames.interfaces)?;
    let engine = Engine::new(exit, hops, &frames.n3, &frames.next_hops, None);
    let worker = af_packet::Worker { engine, ports, clock };
    let poller = worker.poller(stop.as_fd()).map_err(WorkError::Place)?;
    joined();
    worker.run(place, &poller).map_err(WorkError::Work)
}
