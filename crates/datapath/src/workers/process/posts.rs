//! Posts of worker processes: everything that a process needs, before the processes start.

use super::punt_channel::PuntChannel;
use super::punt_handler::PuntHandler;
use super::setup::{FrameSetup, TableFds, WorkerSetup};
use super::spawner::ProcessSpawner;
use super::supervisor::{Takeovers, WorkerAccounts, WorkerPool, WorkerPost};
use crate::engine::event::EventSink;
use crate::engine::shared_tables::SharedTables;
use crate::engine::worker_load::WorkerCounters;
use crate::network::{Pool, by_family};
use crate::start_error::StartError;
use crate::sys::clock::Clock;
use crate::sys::poll::Waker;
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Common part of all worker processes of a user plane.
pub(crate) struct ProcessContext {
    /// Memory of the tables.
    pub(crate) memory: TableFds,
    pub(crate) tables: SharedTables,
    pub(crate) counters: WorkerCounters,
    pub(crate) takeovers: Arc<Takeovers>,
    pub(crate) pools: Vec<Pool>,
    /// G-PDUs of a tunnel come from its own peer only ([`crate::Limits::own_peer_only`]).
    pub(crate) own_peer_only: bool,
    pub(crate) n3: Vec<IpAddr>,
    pub(crate) events: EventSink,
}

/// One worker process.
pub(crate) struct ProcessWorker {
    pub(crate) number: usize,
    /// Processor of the worker.
    pub(crate) core: Option<usize>,
    pub(crate) sockets: Arc<[Socket]>,
    pub(crate) tun: Tun,
    /// Longest packet that sockets receive, in octets.
    pub(crate) slot: usize,
    /// If set, the worker reads frames instead of the sockets.
    pub(crate) rings: Option<RingWorker>,
}

/// Part of a worker that reads frames.
pub(crate) struct RingWorker {
    pub(crate) setup: FrameSetup,
    /// Rings, then as many sending sockets.
    pub(crate) files: Vec<OwnedFd>,
}

/// Posts of the worker processes that are to be started.
pub(crate) struct ProcessPosts {
    context: ProcessContext,
    posts: Vec<WorkerPost>,
}

impl ProcessPosts {
    pub(crate) fn new(context: ProcessContext) -> Self {
        ProcessPosts { context, posts: vec![] }
    }

    /// Adds the post of a worker process. Returns its punt handler.
    pub(crate) fn add(&mut self, worker: ProcessWorker, stop: &Waker) -> io::Result<PuntHandler> {
        let ProcessContext { memory, tables, counters, pools, own_peer_only, n3, events, .. } = &self.context;
        let ProcessWorker { number, core, sockets, tun, slot, rings } = worker;
        let (channel, of_channel) = PuntChannel::new()?;
        let (frames, rings) = rings.map(|rings| (rings.setup, rings.files)).unzip();
        let handler = PuntHandler {
            channel: Arc::new(channel),
            tables: tables.clone(),
            counters: counters.clone(),
            own: frames.as_ref().map_or([None; 2], |frames| by_family(&frames.n3)),
            sockets,
            tun,
            events: events.clone(),
            clock: Clock::default(),
            number,
        };
        let setup = WorkerSetup {
            worker_slot: number,
            worker_slots: tables.arrays().quiescence.worker_slots.len(),
            entries: tables.arrays().uplinks.len(),
            pools: WorkerSetup::pools(pools),
            own_peer_only: *own_peer_only,
            n3: n3.clone(),
            slot,
            core,
            frames,
        };
        let [bell, back] = handler.channel.bells();
        let mut files: Vec<BorrowedFd<'_>> = memory.all().to_vec();
        files.extend([of_channel.as_fd(), bell, back, stop.as_fd(), handler.tun.as_fd()]);
        files.extend(handler.sockets.iter().map(AsFd::as_fd));
        // Packets wait in the files that are read. These are the rings, which precede an equal
        // number of sending rings, or the TUN device and the sockets.
        let work = files.len() - 1 - handler.sockets.len()..files.len();
        let (work, rings) = match &rings {
            Some(rings) => (files.len()..files.len() + rings.len() / 2, &rings[..]),
            None => (work, &[][..]),
        };
        files.extend(rings.iter().map(AsFd::as_fd));
        let files = files.iter().map(|file| file.try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
        self.posts.push(WorkerPost::new(&setup, files, work, Arc::clone(&handler.channel))?);
        Ok(handler)
    }

    /// Starts a process for each post.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start or does not take its slot.
    pub(crate) fn start(self, spawner: Arc<dyn ProcessSpawner>, stop: Waker) -> Result<WorkerPool, StartError> {
        let ProcessContext { tables, counters, takeovers, .. } = self.context;
        let slots = Arc::clone(&tables.arrays().quiescence.worker_slots);
        let accounts = WorkerAccounts { slots, takeovers, counters: counters.total };
        WorkerPool::start(spawner, self.posts, accounts, stop)
    }
}
