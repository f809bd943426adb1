//! Sockets driver: UDP sockets on N3, a TUN device on N6, one thread per worker.
//!
//! Workers run the fast path without a lock while the control side changes rules ([`crate::fast`]).
//! The slow path and each change take the lock of the tables. This has three effects:
//! - A change applies to all packets classified after it, so the PFCP response is truthful.
//! - All workers share one copy of the tables.
//! - No later packet overtakes the output of a change (buffered packets, End Markers).
//!
//! A command queue per worker would need one copy of the tables for each worker. It would also need
//! an acknowledgement before every PFCP response.

mod editor;
mod worker;

use crate::access::Access;
use crate::access::local::LocalAddresses;
use crate::counters::{Counters, DropReason, Stats};
use crate::fast::SharedTables;
use crate::flow_rules::FlowPackets;
use crate::frames::bare::{Bare, BareFrames};
use crate::frames::steer::Steer;
use crate::frames::{Engine, FrameIo, FramesConfig, Group, Kernel, af_packet, af_xdp, of_family};
use crate::host_routes::HostRoutes;
use crate::modules::{self, Module};
use crate::next_hops::{Hops, NextHops};
use crate::nic::NicFilters;
use crate::os_setup::{self, Nat, StartError};
use crate::processes::{
    self, FrameSetup, ProcessSpawner, PuntChannel, PuntHandler, TableFds, TakeoverStats, Takeovers, WorkerPool,
    WorkerPost, WorkerSetup,
};
use crate::slices::{self, Load, SliceWorkers, SteerTarget, WorkerLoad, steer::Steering};
use crate::sys::link::Link;
use crate::sys::monotonic_ns;
use crate::sys::poll::{Poller, Waker};
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use crate::tables::{Limits, Pool, Released, Tables};
use crate::verdict::Event;
use crate::xdp::{KernelCounters, Xdp, XdpConfig, XdpMode};
pub use editor::TablesHandle;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use tracing::error;
use vireo_types::Instant;
use vireo_wire::gtpu;
pub(crate) use worker::{ThreadEnv, Worker, WorkerSlowPath};

/// Configuration of the driver.
#[derive(Clone, Debug)]
pub struct SocketsConfig {
    /// Addresses on N3, at least one.
    pub n3: Vec<IpAddr>,
    /// Name of the TUN device.
    pub tun: String,
    /// Address pools of the UEs.
    pub pools: Vec<Pool>,
    /// Bounds of the tables.
    pub limits: Limits,
    /// Number of worker threads. The kernel distributes packets to them by addresses and ports.
    pub workers: usize,
    /// If true, UEs reach the data network through the machine's address.
    pub nat: bool,
    /// Destinations that UEs must not reach, and permitted sources of G-PDUs.
    pub access: Access,
    /// If true, each UE named in [`TablesHandle::set_host_route`] has a host route. Another user
    /// plane may then share its pool.
    pub host_routes: bool,
    /// If set, the kernel program runs the fast path and the sockets only the slow path.
    pub xdp: Option<XdpConfig>,
    /// If set, `workers` threads run the fast path on frames. One more thread runs the slow path on
    /// the sockets.
    pub frames: Option<FramesConfig>,
    /// If not empty, the workers of the slices replace `workers`.
    pub slices: Vec<SliceWorkers>,
    /// If set, workers are processes that it spawns. A standby worker takes over from a dead one.
    pub processes: Option<Arc<dyn ProcessSpawner>>,
}

impl SocketsConfig {
    /// Returns how the driver steers packets of slices.
    fn steers(&self) -> SteerTarget {
        match (&self.xdp, self.frames.as_ref().map(|frames| frames.io)) {
            (Some(_), _) => SteerTarget::Processor,
            (None, Some(FrameIo::AfXdp(_))) => SteerTarget::Any,
            (None, Some(FrameIo::AfPacket(_)) | None) => SteerTarget::Thread,
        }
    }

    /// Returns the number of packet threads, without those of modules.
    fn threads(&self) -> usize {
        match self.slices.iter().map(|slice| slice.workers).sum::<usize>() {
            of_slices if of_slices > 0 && self.xdp.is_none() => of_slices,
            _ => self.workers.max(1),
        }
    }

    /// Returns the modules of the driver.
    fn modules(&self) -> &[Module] {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.modules);
        of_xdp.or(self.frames.as_ref().map(|frames| &frames.modules)).map_or(&[], Vec::as_slice)
    }

    /// Returns the interfaces with NIC filters.
    fn filtered(&self) -> Option<&[String]> {
        let of_xdp = self.xdp.as_ref().map(|xdp| (xdp.nic_filters, &xdp.interfaces));
        let of_frames = self.frames.as_ref().map(|frames| (frames.nic_filters, &frames.interfaces));
        of_xdp.or(of_frames).filter(|(filters, _)| *filters).map(|(_, interfaces)| interfaces.as_slice())
    }

    /// Returns the next hops of uplink packets, for the driver and its modules.
    fn next_hops(&self) -> Vec<IpAddr> {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.next_hops);
        let all = of_xdp.or(self.frames.as_ref().map(|frames| &frames.next_hops)).into_iter().flatten();
        all.chain(self.modules().iter().flat_map(|module| &module.next_hops)).copied().collect()
    }
}

/// Interval of promotion and demotion in the hot table.
const TURN: std::time::Duration = std::time::Duration::from_millis(5);

/// Poll token of the stop signal.
pub(crate) const STOP: u64 = u64::MAX;

/// Callback for notifications of any worker. Returns false if its queue is full.
pub type EventSink = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// Clock of the datapath: monotonic, with an arbitrary start. The kernel program uses the same
/// clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(());

impl Clock {
    /// Returns the current time.
    pub fn now(&self) -> Instant {
        Instant(monotonic_ns() / 1_000)
    }
}

/// Read access to the state of a running user plane.
#[derive(Clone, Debug)]
pub struct StatsHandle {
    pub(crate) tables: SharedTables,
    pub(crate) counters: Arc<Counters>,
    kernel: Option<KernelCounters>,
    loads: Arc<[Load]>,
    pub(crate) takeovers: Arc<Takeovers>,
}

impl StatsHandle {
    fn new(tables: Tables, kernel: Option<KernelCounters>, slices: &[SliceWorkers]) -> Self {
        let loads = slices.iter().flat_map(|slice| 0..slice.workers).map(|_| Load::default()).collect();
        StatsHandle {
            tables: SharedTables::new(tables),
            counters: Arc::default(),
            kernel,
            loads,
            takeovers: Arc::default(),
        }
    }

    /// Returns the load of the workers of slices, in their order.
    pub fn loads(&self) -> Vec<WorkerLoad> {
        match &self.kernel {
            Some(kernel) => kernel.loads(),
            None => {
                let seats = self.tables.arrays().quiet.seats.iter().map(|seat| Some(seat.counters.read()));
                slices::read(&self.loads, seats.chain(std::iter::repeat(None)))
            }
        }
    }

    /// Returns the statistics of worker process takeovers.
    pub fn takeovers(&self) -> TakeoverStats {
        self.takeovers.stats()
    }

    /// Adds the counts of a worker.
    pub(crate) fn flush(&self, worker: Option<usize>, stats: &mut Stats) {
        if let Some(load) = worker.and_then(|number| self.loads.get(number)) {
            load.add(stats);
        }
        self.counters.flush(stats);
    }

    /// Returns the current counters.
    pub fn stats(&self) -> Stats {
        let seats = self.tables.arrays().quiet.seats.iter().map(|seat| seat.counters.read());
        let mut stats = seats.fold(self.counters.read(), |sum, seat| sum.plus(&seat));
        if let Some(kernel) = &self.kernel {
            kernel.add_to(&mut stats);
        }
        stats
    }

    /// Returns the packets of sessions with flow rules that the kernel program received.
    pub fn flow_packets(&self) -> FlowPackets {
        self.kernel.as_ref().map(KernelCounters::flow_packets).unwrap_or_default()
    }

    /// Calls `look` with the locked tables.
    pub fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        self.tables.look(look)
    }
}

/// A running user plane. Dropping it stops it. Address translation is removed from the network
/// namespace of the thread that drops it, which must be that of the thread that started it.
pub struct Sockets {
    editor: TablesHandle,
    clock: Clock,
    stop: Waker,
    threads: Vec<JoinHandle<()>>,
    _nat: Option<Nat>,
    xdp: Option<Xdp>,
    steer: Option<(Steer, FrameIo)>,
    next_hops: NextHops,
    filters: Option<NicFilters>,
    /// AF_PACKET rings, with the numbers of their workers.
    rings: Vec<(usize, Link)>,
    /// True if the log contains the loss of an XDP interface.
    told_lost: AtomicBool,
    /// Memory of the tables and posts of worker processes, until the processes are started.
    files: Option<TableFds>,
    posts: Vec<WorkerPost>,
    staff: Option<WorkerPool>,
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("workers", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Sockets {
    /// Opens the sockets and the device, and starts the workers.
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the machine does not support the configuration.
    pub fn start(config: SocketsConfig, events: EventSink) -> Result<Self, StartError> {
        Sockets::start_as(config, None, events)
    }

    /// Starts the same drivers without packet processing, to measure the cost of a user plane
    /// beyond them. `config` must have no XDP.
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the machine does not support the configuration.
    pub fn bare(config: SocketsConfig, bare: Bare) -> Result<Self, StartError> {
        Sockets::start_as(config, Some(bare), Arc::new(|_| true))
    }

    fn start_as(config: SocketsConfig, bare: Option<Bare>, events: EventSink) -> Result<Self, StartError> {
        if config.n3.is_empty() {
            return Err(StartError::NoN3);
        }
        if config.frames.is_some() && config.nat {
            return Err(StartError::FramesNat);
        }
        modules::check(config.modules(), &config.n3)?;
        slices::check(&config.slices, config.modules().len(), config.steers())?;
        processes::check(&config)?;
        let threads = config.threads();
        let workers = if config.frames.is_some() { 1 } else { threads };
        let sockets = (0..workers).map(|_| bind(&config.n3, workers > 1)).collect::<Result<Vec<_>, _>>()?;
        let (queues, routes) = device(&config, workers)?;
        os_setup::forwarding(&config.pools);
        let nat = match config.nat {
            true => Some(Nat::install(&config.tun, &config.pools)?),
            false if config.host_routes => None,
            false => {
                Nat::remove_leftover();
                None
            }
        };
        let of_modules: usize = config.modules().iter().map(Module::workers).sum();
        let DatapathParts { mut tables, mut xdp, steering, files } = made(&config, threads.max(of_modules))?;
        tables.set_access(config.access.clone());
        // A process may die between the two halves of a non-atomic addition.
        let by_one = threads.max(of_modules) <= 1 && config.xdp.is_none() && files.is_none();
        tables.decided_by_one(by_one);
        if let Some(steering) = steering.as_ref().filter(|_| workers > 1) {
            divide(steering, &sockets[0], &queues[0])?;
        }
        let mtu = config.pools.iter().map(|pool| usize::from(pool.mtu)).max().unwrap_or(0).max(1500);
        let mut driver = Sockets {
            editor: TablesHandle::new(
                StatsHandle::new(tables, xdp.as_ref().map(Xdp::counters), &config.slices),
                (sockets[0].clone(), queues[0].again()?),
                routes,
                events.clone(),
            ),
            clock: Clock(()),
            stop: Waker::new()?,
            threads: vec![],
            _nat: nat,
            xdp: None,
            steer: None,
            next_hops: NextHops::new(config.next_hops())?,
            filters: None,
            rings: vec![],
            told_lost: AtomicBool::new(false),
            files,
            posts: vec![],
            staff: None,
        };
        if bare.is_none() {
            driver.follow_addresses()?;
        }
        if let Some(frames) = &config.frames {
            driver.start_frames(frames, &config, bare, (&queues[0], steering.as_ref()), &events)?;
        }
        if config.limits.hot_users > 0 {
            driver.turn_levels()?;
        }
        let placement = slices::placement(&config.slices);
        for (number, (sockets, tun)) in sockets.into_iter().zip(queues).enumerate() {
            // Room for headers of any length in use, and for packets slightly above the MTU.
            let slot = (mtu + 256).next_multiple_of(512);
            let usual = config.frames.is_none() && config.xdp.is_none();
            let core = placement.get(number).copied().flatten().filter(|_| usual);
            if usual && driver.files.is_some() {
                driver.post(&config, (number, core), (sockets, tun, slot), None, &events)?;
                continue;
            }
            let place = ThreadEnv {
                view: driver.view(),
                reader: driver.editor.view.tables.reader(),
                number: usual.then_some(number),
                beside_one: by_one && config.frames.is_some(),
            };
            let worker = Worker { sockets, tun, events: events.clone(), clock: driver.clock, slot, bare };
            let poller = worker.poller(driver.stop.as_fd())?;
            driver.spawn(format!("upf-{number}"), core, move || worker.run(&place, &poller))?;
        }
        driver.start_processes(config.processes.clone())?;
        // Attached last, so that the sockets exist when the program passes packets to them.
        if let Some(xdp) = &mut xdp {
            xdp.attach()?;
        }
        driver.xdp = xdp;
        driver.next_hops.keep();
        driver.filters =
            config.filtered().map(|names| NicFilters::set(names, &config.n3, &config.pools)).transpose()?;
        match &mut driver.steer {
            Some((steer, FrameIo::AfPacket(_))) => steer.keep()?,
            Some((steer, FrameIo::AfXdp(mode))) => steer.hand_over(*mode)?,
            None => {}
        }
        Ok(driver)
    }

    /// Starts the workers that read frames.
    fn start_frames(
        &mut self,
        frames: &FramesConfig,
        config: &SocketsConfig,
        bare: Option<Bare>,
        (tun, steering): (&Tun, Option<&Steering>),
        events: &EventSink,
    ) -> Result<(), StartError> {
        if frames.interfaces.is_empty() {
            return Err(StartError::NoFramesInterface);
        }
        let mut steer = Steer::load(frames, &config.n3, &config.pools)?;
        let clock = self.clock;
        let groups = frames.groups(&config.n3, config.threads());
        let placement = slices::placement(&config.slices);
        let engine = |group: &Group| {
            let sockets = self.editor.sockets.clone();
            let own = of_family(&group.n3);
            let exit = Kernel { sockets, own, tun: tun.again()?, events: events.clone() };
            let mut hops = Hops::new(&frames.interfaces[group.interfaces.clone()])?;
            let bare = bare.map(|bare| BareFrames::new(bare, &group.n3, &mut hops, clock.now())).transpose()?;
            Ok::<_, StartError>(Engine::new(exit, hops, &group.n3, &group.next_hops, bare))
        };
        // One engine with its processor for each worker of each group.
        let mut engines = vec![];
        for group in &groups {
            for number in 0..group.workers {
                let core = group.cores.get(number).copied().or(placement.get(number).copied().flatten());
                engines.push((engine(group)?, core));
            }
        }
        match frames.io {
            FrameIo::AfPacket(fanout) => {
                let open = |group: &Group| af_packet::open(&steer.interfaces[group.interfaces.clone()], group.workers);
                let ports = groups.iter().map(open).collect::<Result<Vec<_>, _>>()?;
                let mut workers = 0;
                for ports in &ports {
                    self.rings.extend(af_packet::rings(ports)?.into_iter().map(|(n, ring)| (workers + n, ring)));
                    workers += ports.len();
                }
                steer.filter(ports.iter().flat_map(|ports| af_packet::sockets(ports)))?;
                for (group, ports) in groups.iter().zip(&ports) {
                    let program = steering.map(|steering| steering.packets.as_fd());
                    af_packet::bind(ports, &steer.interfaces[group.interfaces.clone()], fanout, program)?;
                }
                let of_group =
                    groups.iter().zip(ports).flat_map(|(group, ports)| ports.into_iter().map(move |p| (group, p)));
                for (number, ((group, ports), (engine, core))) in of_group.zip(engines).enumerate() {
                    if self.files.is_some() {
                        let frames = FrameSetup {
                            interfaces: frames.interfaces[group.interfaces.clone()].to_vec(),
                            n3: group.n3.clone(),
                            next_hops: group.next_hops.clone(),
                        };
                        let by = (self.editor.sockets.clone(), tun.again()?, 0);
                        self.post(config, (number, core), by, Some((frames, ports.files()?)), events)?;
                        continue;
                    }
                    let (view, reader) = (self.view(), self.editor.view.tables.reader());
                    let place = ThreadEnv { view, reader, number: Some(number), beside_one: false };
                    let worker = af_packet::Worker { engine, ports, clock };
                    let poller = worker.poller(self.stop.as_fd())?;
                    self.spawn(format!("upf-frames-{number}"), core, move || worker.run(&place, &poller))?;
                }
            }
            FrameIo::AfXdp(mode) => {
                let generic = mode == XdpMode::Generic;
                let mut ports = vec![];
                for group in &groups {
                    ports.extend(af_xdp::open(&mut steer, group.interfaces.clone(), group.workers, generic)?);
                }
                for (number, (ports, (engine, core))) in ports.into_iter().zip(engines).enumerate() {
                    let worker = af_xdp::Worker { view: self.view(), engine, ports, clock };
                    let poller = worker.poller(&self.stop)?;
                    self.spawn(format!("upf-frames-{number}"), core, move || worker.run(&poller))?;
                }
            }
        }
        self.steer = Some((steer, frames.io));
        Ok(())
    }

    /// Protects the addresses of this machine before the first packet, and starts the thread that
    /// tracks them.
    fn follow_addresses(&mut self) -> io::Result<()> {
        let mut local = LocalAddresses::open(self.editor.view.tables.clone(), &self.stop)?;
        self.spawn("upf-addresses".to_owned(), None, move || local.run())
    }

    /// Starts the thread that promotes active users and demotes idle ones.
    fn turn_levels(&mut self) -> io::Result<()> {
        let (tables, poller) = (self.editor.view.tables.clone(), Poller::new()?);
        poller.add(self.stop.as_fd(), STOP)?;
        self.spawn("upf-levels".to_owned(), None, move || {
            let mut stop = false;
            while !stop {
                poller.wait(Some(TURN), |_| stop = true)?;
                tables.turn_hot();
            }
            Ok(())
        })
    }

    /// Starts a process for each worker post.
    fn start_processes(&mut self, recruit: Option<Arc<dyn ProcessSpawner>>) -> Result<(), StartError> {
        let Some(recruit) = recruit else { return Ok(()) };
        let (posts, view, stop) = (std::mem::take(&mut self.posts), self.view(), self.stop.clone());
        let seats = Arc::clone(&view.tables.arrays().quiet.seats);
        self.staff = Some(WorkerPool::start(recruit, posts, seats, view, stop)?);
        Ok(())
    }

    /// Creates the post of a worker process and starts its punt handler.
    fn post(
        &mut self,
        config: &SocketsConfig,
        (number, core): (usize, Option<usize>),
        (sockets, tun, slot): (Arc<[Socket]>, Tun, usize),
        frames: Option<(FrameSetup, Vec<OwnedFd>)>,
        events: &EventSink,
    ) -> io::Result<()> {
        let Some(of_tables) = &self.files else { return Ok(()) };
        let (desk, of_desk) = PuntChannel::new()?;
        let (frames, rings) = frames.unzip();
        let clerk = PuntHandler {
            channel: Arc::new(desk),
            view: self.view(),
            own: frames.as_ref().map_or([None; 2], |frames| of_family(&frames.n3)),
            sockets,
            tun,
            events: events.clone(),
            clock: self.clock,
            number,
        };
        let orders = WorkerSetup {
            seat: number,
            seats: self.editor.view.tables.arrays().quiet.seats.len(),
            records: self.editor.view.tables.arrays().uplinks.len(),
            pools: WorkerSetup::pools(&config.pools),
            own_peer_only: config.limits.own_peer_only,
            n3: config.n3.clone(),
            slot,
            core,
            frames,
        };
        let [bell, back] = clerk.channel.bells();
        let mut files: Vec<BorrowedFd<'_>> = of_tables.all().to_vec();
        files.extend([of_desk.as_fd(), bell, back, self.stop.as_fd(), clerk.tun.as_fd()]);
        files.extend(clerk.sockets.iter().map(AsFd::as_fd));
        // Packets wait in the files that are read. These are the rings, which precede an equal
        // number of sending rings, or the TUN device and the sockets.
        let work = files.len() - 1 - clerk.sockets.len()..files.len();
        let (work, rings) = match &rings {
            Some(rings) => (files.len()..files.len() + rings.len() / 2, &rings[..]),
            None => (work, &[][..]),
        };
        files.extend(rings.iter().map(AsFd::as_fd));
        let files = files.iter().map(|file| file.try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
        self.posts.push(WorkerPost::new(&orders, files, work, Arc::clone(&clerk.channel))?);
        let poller = clerk.poller(self.stop.as_fd())?;
        self.spawn(format!("upf-clerk-{number}"), None, move || clerk.run(&poller))
    }

    /// Starts a worker thread, on the processor `core` if set.
    fn spawn(
        &mut self,
        name: String,
        core: Option<usize>,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let run = move || {
            let pinned = core.map_or(Ok(()), crate::sys::run_on);
            if let Err(error) = pinned.and_then(|()| run()) {
                error!("a user plane worker ended: {error}");
            }
        };
        self.threads.push(std::thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// Changes the tables. Sends the output of the change before any later packet.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        self.editor.change(change)
    }

    /// Returns a handle to change the tables from any thread while the user plane runs.
    pub fn editor(&self) -> TablesHandle {
        self.editor.clone()
    }

    /// Drops expired buffered packets and sends router advertisements. Must be called once a
    /// second.
    pub fn upkeep(&self) {
        let mut stats = Stats::default();
        stats.drops[DropReason::BufferExpired as usize] =
            self.editor.view.look(|tables| tables.expire_buffers(self.clock.now()));
        for (worker, ring) in &self.rings {
            // A ring without statistics was closed: its worker has ended.
            let drops = ring.take_drops().map_or(0, u64::from);
            stats.drops[DropReason::RingFull as usize] += drops;
            if let Some(load) = self.editor.view.loads.get(*worker) {
                load.no_room(drops);
            }
        }
        let expired = self.editor.view.look(|tables| tables.expire_held(self.clock.now()));
        stats.drops[DropReason::UnknownPeer as usize] += self.editor.note_unknown(&expired);
        self.editor.view.counters.flush(&mut stats);
        self.change(|tables, released| {
            tables.advertise_again(released);
            tables.turn_cells();
            tables.age_peers();
        });
        self.next_hops.keep();
        let xdp = self.xdp.iter().flat_map(Xdp::lost);
        if let Some(name) = xdp.chain(self.steer.iter().flat_map(|(steer, _)| steer.lost())).next()
            && !self.told_lost.swap(true, Relaxed)
        {
            error!("the interface {name} has gone, and its driver with it; user packets go by the slow path: restart");
        }
    }

    /// Returns true if a worker has ended without being stopped.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished) || self.staff.as_ref().is_some_and(WorkerPool::has_failed)
    }

    /// Returns the clock of buffers and rates.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns a read handle of unlimited lifetime.
    pub fn view(&self) -> StatsHandle {
        self.editor.view.clone()
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.xdp = None;
        self.stop.wake();
        self.staff = None;
        for thread in self.threads.drain(..) {
            // A worker that panicked has already logged it.
            let _ = thread.join();
        }
        // Removed last, so that no frame takes both the kernel's and the driver's path.
        self.steer = None;
    }
}

/// The tables, with the kernel program that reads them or the programs that distribute packets to
/// slices, and with the files that other processes map.
struct DatapathParts {
    tables: Tables,
    xdp: Option<Xdp>,
    steering: Option<Steering>,
    files: Option<TableFds>,
}

fn made(config: &SocketsConfig, workers: usize) -> Result<DatapathParts, StartError> {
    let SocketsConfig { n3, tun, pools, limits, nat, .. } = config;
    if let Some(xdp) = &config.xdp {
        let processors = slices::processors(&config.slices);
        let (xdp, tables) = Xdp::load(xdp, n3, pools.clone(), *limits, tun, *nat, &processors)?;
        return Ok(DatapathParts { tables, xdp: Some(xdp), steering: None, files: None });
    }
    let (mut tables, files) = match config.processes {
        Some(_) => {
            let (tables, files) = processes::tables(pools.clone(), *limits, workers)?;
            (tables, Some(files))
        }
        None => (Tables::new(pools.clone(), *limits), None),
    };
    let mut steering = None;
    if !config.slices.is_empty() {
        let (programs, owners) = slices::steer::load(n3, pools, *limits)?;
        tables.owners = owners;
        steering = Some(programs);
    }
    Ok(DatapathParts { tables, xdp: None, steering, files })
}

/// Creates the queues of the TUN device, and the host routes of single UEs.
fn device(config: &SocketsConfig, queues: usize) -> Result<(Vec<Tun>, Option<Arc<HostRoutes>>), StartError> {
    if config.nat && config.host_routes {
        return Err(StartError::HostRoutesNat);
    }
    let queues = os_setup::tun(&config.tun, queues, &config.pools, config.host_routes)?;
    let mtu = config.pools.iter().map(|pool| pool.mtu).max().unwrap_or(1400);
    let routes = config.host_routes.then(|| HostRoutes::new(&config.tun, mtu.into())).transpose()?;
    Ok((queues, routes.map(Arc::new)))
}

/// Makes the kernel distribute packets on these sockets and the TUN device to the workers of
/// slices.
fn divide(steering: &Steering, sockets: &[Socket], tun: &Tun) -> Result<(), StartError> {
    let refused = |error: io::Error| StartError::Slices(error.to_string());
    sockets.iter().try_for_each(|socket| socket.divide_by(steering.datagrams.as_fd())).map_err(refused)?;
    tun.divide_by(steering.packets.as_fd()).map_err(refused)
}

fn bind(addresses: &[IpAddr], shared: bool) -> Result<Arc<[Socket]>, StartError> {
    let bound = addresses.iter().map(|address| {
        Socket::bind(SocketAddr::new(*address, gtpu::PORT), shared).map_err(|source| match source.kind() {
            io::ErrorKind::AddrNotAvailable => StartError::N3NotLocal(*address),
            io::ErrorKind::AddrInUse => StartError::N3InUse(*address),
            _ => StartError::N3 { address: *address, source },
        })
    });
    bound.collect()
}

/// Sends by the socket of one of these sources, otherwise by the first socket of the address
/// family.
pub(crate) fn send(sockets: &[Socket], sources: [Option<IpAddr>; 2], to: SocketAddr, datagram: &[u8]) -> bool {
    let from = sources.into_iter().flatten().find(|source| source.is_ipv4() == to.is_ipv4());
    let own = from.and_then(|from| sockets.iter().position(|socket| socket.local == from));
    match own.or_else(|| position(sockets, to)) {
        Some(n) => sockets[n].send_to(to, datagram).is_ok(),
        None => false,
    }
}

#[inline]
fn position(sockets: &[Socket], to: SocketAddr) -> Option<usize> {
    sockets.iter().position(|socket| socket.local.is_ipv4() == to.is_ipv4())
}
