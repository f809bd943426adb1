//! Start of a user plane.

use super::UserPlane;
use super::config::UserPlaneConfig;
use super::frame_workers::FrameStart;
use super::parts::{SystemParts, TableParts, steer_to_slices};
use super::stats::StatsHandle;
use super::tables_handle::TablesHandle;
use crate::drivers::bare::Bare;
use crate::drivers::frames::FrameIo;
use crate::drivers::module::Module;
use crate::drivers::next_hops::NextHops;
use crate::drivers::udp;
use crate::drivers::xdp::Xdp;
use crate::engine::event::EventSink;
use crate::os_setup::interrupts;
use crate::os_setup::nic::NicFilters;
use crate::start_error::StartError;
use crate::sys::clock::Clock;
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use crate::workers::process::{ProcessContext, ProcessPosts, ProcessWorker, TableFds};
use crate::workers::slices;
use crate::workers::thread::WorkerThreads;
use crate::workers::thread::hot_table::HotTableThread;
use crate::workers::thread::local_addresses::LocalAddresses;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Workers on the sockets and the TUN device.
struct SocketWorkers<'a> {
    config: &'a UserPlaneConfig,
    bare: Option<Bare>,
    events: &'a EventSink,
    /// Sockets of each worker.
    sockets: Vec<Arc<[Socket]>>,
    queues: Vec<Tun>,
    /// True if one thread at a time classifies packets.
    alone: bool,
}

impl UserPlane {
    /// Opens the sockets and the device, and starts the workers.
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the machine does not support the configuration.
    pub fn start(config: UserPlaneConfig, events: EventSink) -> Result<Self, StartError> {
        UserPlane::start_as(&config, None, &events)
    }

    /// Starts the same drivers without packet processing, to measure the cost of a user plane
    /// beyond them. `config` must have no XDP.
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the machine does not support the configuration.
    pub fn bare(config: UserPlaneConfig, bare: Bare) -> Result<Self, StartError> {
        let events: EventSink = Arc::new(|_| true);
        UserPlane::start_as(&config, Some(bare), &events)
    }

    fn start_as(config: &UserPlaneConfig, bare: Option<Bare>, events: &EventSink) -> Result<Self, StartError> {
        config.check()?;
        let threads = config.threads();
        let workers = if config.frames.is_some() { 1 } else { threads };
        let sockets = (0..workers).map(|_| udp::bind(&config.n3, workers > 1)).collect::<Result<Vec<_>, _>>()?;
        let SystemParts { queues, routes, nat } = SystemParts::set_up(config, workers)?;
        let of_modules: usize = config.modules().iter().map(Module::workers).sum();
        let workers_of_all = threads.max(of_modules);
        let TableParts { mut tables, xdp, steering, memory } = TableParts::load(config, workers_of_all)?;
        tables.set_access(config.access.clone());
        // A process may die between the two halves of a non-atomic addition.
        let alone = workers_of_all <= 1 && config.xdp.is_none() && memory.is_none();
        tables.set_single_worker(alone);
        if let Some(steering) = steering.as_ref().filter(|_| workers > 1) {
            steer_to_slices(steering, &sockets[0], &queues[0])?;
        }
        let of_slices = config.slices.iter().map(|slice| slice.workers).sum();
        let stats = StatsHandle::new(tables, xdp.as_ref().map(Xdp::counters), of_slices);
        let mut plane = UserPlane {
            handle: TablesHandle::new(stats, sockets[0].clone(), queues[0].duplicate()?, routes, events.clone()),
            clock: Clock::default(),
            threads: WorkerThreads::new()?,
            _nat: nat,
            xdp: None,
            steering: None,
            next_hops: NextHops::new(config.next_hops())?,
            filters: None,
            rings: vec![],
            logged_missing: AtomicBool::new(false),
            processes: None,
        };
        if bare.is_none() {
            plane.track_addresses()?;
        }
        let mut posts = memory.map(|memory| plane.process_posts(config, memory, events));
        if let Some(frames) = &config.frames {
            let (tun, steering) = (&queues[0], steering.as_ref());
            plane.start_frames(&FrameStart { config, frames, bare, tun, steering, events }, posts.as_mut())?;
        }
        if config.limits.hot_users > 0 {
            plane.maintain_hot_table()?;
        }
        let socket_workers = SocketWorkers { config, bare, events, sockets, queues, alone };
        plane.start_socket_workers(socket_workers, posts.as_mut())?;
        if let (Some(posts), Some(spawner)) = (posts, &config.processes) {
            let stop = plane.threads.stop_signal().clone();
            plane.processes = Some(posts.start(Arc::clone(spawner), stop)?);
        }
        plane.attach(config, xdp)?;
        Ok(plane)
    }

    /// Protects the addresses of this machine before the first packet, and starts the thread that
    /// tracks them.
    fn track_addresses(&mut self) -> io::Result<()> {
        let mut local = LocalAddresses::open(self.handle.stats.tables.clone(), self.threads.stop_signal())?;
        self.threads.spawn("upf-addresses".to_owned(), None, move || local.run())
    }

    /// Starts the thread that promotes active users and demotes idle ones.
    fn maintain_hot_table(&mut self) -> io::Result<()> {
        let thread = HotTableThread::new(self.handle.stats.tables.clone(), self.threads.stop_signal())?;
        self.threads.spawn("upf-levels".to_owned(), None, move || thread.run())
    }

    fn process_posts(&self, config: &UserPlaneConfig, memory: TableFds, events: &EventSink) -> ProcessPosts {
        let StatsHandle { tables, counters, takeovers, .. } = self.stats();
        ProcessPosts::new(ProcessContext {
            memory,
            tables,
            counters,
            takeovers,
            pools: config.pools.clone(),
            own_peer_only: config.limits.own_peer_only,
            n3: config.n3.clone(),
            events: events.clone(),
        })
    }

    /// Adds the post of a worker process and starts its punt handler.
    pub(super) fn add_post(&mut self, posts: &mut ProcessPosts, worker: ProcessWorker) -> io::Result<()> {
        let number = worker.number;
        let handler = posts.add(worker, self.threads.stop_signal())?;
        let poller = handler.poller(self.threads.stop_signal().as_fd())?;
        self.threads.spawn(format!("upf-punt-{number}"), None, move || handler.run(&poller))
    }

    /// Starts the workers on the sockets and the TUN device, or adds their posts.
    fn start_socket_workers(
        &mut self,
        workers: SocketWorkers<'_>,
        mut posts: Option<&mut ProcessPosts>,
    ) -> Result<(), StartError> {
        let SocketWorkers { config, bare, events, sockets, queues, alone } = workers;
        let mtu = config.pools.iter().map(|pool| usize::from(pool.mtu)).max().unwrap_or(0).max(1500);
        // Room for headers of any length in use, and for packets slightly above the MTU.
        let slot = (mtu + 256).next_multiple_of(512);
        let is_fast_path = config.frames.is_none() && config.xdp.is_none();
        let placement = slices::placement(&config.slices);
        for (number, (sockets, tun)) in sockets.into_iter().zip(queues).enumerate() {
            let core = placement.get(number).copied().flatten().filter(|_| is_fast_path);
            if let Some(posts) = posts.as_mut().filter(|_| is_fast_path) {
                self.add_post(posts, ProcessWorker { number, core, sockets, tun, slot, rings: None })?;
                continue;
            }
            let env = self.thread_env(is_fast_path.then_some(number), alone && config.frames.is_some());
            let worker = udp::Worker { sockets, tun, events: events.clone(), clock: self.clock, slot, bare };
            let poller = worker.poller(self.threads.stop_signal().as_fd())?;
            self.threads.spawn(format!("upf-{number}"), core, move || worker.run(&env, &poller))?;
        }
        Ok(())
    }

    /// Directs the packets of the interfaces to the workers. Called last, so that the workers exist
    /// when packets arrive.
    fn attach(&mut self, config: &UserPlaneConfig, xdp: Option<Xdp>) -> Result<(), StartError> {
        if let Some(mut xdp) = xdp {
            xdp.attach()?;
            config.modules().iter().for_each(|module| interrupts::move_interrupts(&module.interfaces, &module.cores));
            self.xdp = Some(xdp);
        }
        self.next_hops.refresh();
        let filtered = config.filtered_interfaces();
        self.filters = filtered.map(|names| NicFilters::set(names, &config.n3, &config.pools)).transpose()?;
        match &mut self.steering {
            Some((steering, FrameIo::AfPacket(_))) => steering.withhold_from_kernel(),
            Some((steering, FrameIo::AfXdp(mode))) => steering.redirect_all(*mode),
            None => Ok(()),
        }
    }
}
