//! The driver of ordinary machines: UDP sockets on N3, a TUN device on N6, one thread per worker.
//!
//! Workers decide on what is usual without a lock, while the owner of the sessions changes rules ([`crate::fast`]); the
//! rest takes the lock of the tables, and so does a change. A change holds for all packets decided on after it (its PFCP
//! response tells the truth), there is one copy of the tables however many workers, and nothing that a change lets go
//! (buffered packets, End Markers) is overtaken by a later packet. A queue of commands per worker would need a copy of
//! the tables each and an answer back before every PFCP response.

use crate::counters::{Counters, DropReason, Stats};
use crate::fast::{Batch, Decide, Reader, SharedTables};
use crate::frames::bare::{Bare, BareFrames};
use crate::frames::steer::Steer;
use crate::frames::{Engine, FrameIo, FramesConfig, Group, Kernel, of_family, packet, xsk};
use crate::hops::{Hops, NextHops};
use crate::host::{self, Nat, StartError};
use crate::modules::{self, Module};
use crate::nic::Filters;
use crate::overflow::FlowPackets;
use crate::pipeline::{self, HEADROOM, Said, Unusual};
use crate::slices::{self, Load, SliceWorkers, To, WorkerLoad, steer::Steering};
use crate::sys::link::Link;
use crate::sys::monotonic_ns;
use crate::sys::poll::{Poller, Waker};
use crate::sys::tun::Tun;
use crate::sys::udp::{BATCH, Receiver, Sender, Socket};
use crate::tables::{Limits, Pool, Released, Tables};
use crate::verdict::Event;
use crate::xdp::{KernelCounters, Xdp, XdpConfig, XdpMode};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use tracing::{debug, error};
use vireo_types::Instant;
use vireo_wire::gtpu;

/// What the driver is told at start.
#[derive(Clone, Debug)]
pub struct SocketsConfig {
    /// Addresses on N3, at least one.
    pub n3: Vec<IpAddr>,
    /// Name of the TUN device.
    pub tun: String,
    /// The UEs' addresses.
    pub pools: Vec<Pool>,
    /// Bounds of the tables.
    pub limits: Limits,
    /// Worker threads; the kernel divides packets between them by their addresses and ports.
    pub workers: usize,
    /// Whether UEs reach the outside by the machine's address.
    pub nat: bool,
    /// With it, the kernel does what is usual and the sockets only the rest.
    pub xdp: Option<XdpConfig>,
    /// With it, `workers` threads do what is usual on frames, and the sockets, of one more thread, only the rest.
    pub frames: Option<FramesConfig>,
    /// With them, their workers take the place of `workers`.
    pub slices: Vec<SliceWorkers>,
}

impl SocketsConfig {
    /// What the driver hands packets of slices to.
    fn steers(&self) -> To {
        match (&self.xdp, self.frames.as_ref().map(|frames| frames.io)) {
            (Some(_), _) => To::Processor,
            (None, Some(FrameIo::AfXdp(_))) => To::Anybody,
            (None, Some(FrameIo::AfPacket(_)) | None) => To::Thread,
        }
    }

    /// Packet threads of the driver, modules' excepted.
    fn threads(&self) -> usize {
        match self.slices.iter().map(|slice| slice.workers).sum::<usize>() {
            of_slices if of_slices > 0 && self.xdp.is_none() => of_slices,
            _ => self.workers.max(1),
        }
    }

    /// The modules of the driver.
    fn modules(&self) -> &[Module] {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.modules);
        of_xdp.or(self.frames.as_ref().map(|frames| &frames.modules)).map_or(&[], Vec::as_slice)
    }

    /// The interfaces of which network cards divide packets by addresses.
    fn filtered(&self) -> Option<&[String]> {
        let of_xdp = self.xdp.as_ref().map(|xdp| (xdp.nic_filters, &xdp.interfaces));
        let of_frames = self.frames.as_ref().map(|frames| (frames.nic_filters, &frames.interfaces));
        of_xdp.or(of_frames).filter(|(filters, _)| *filters).map(|(_, interfaces)| interfaces.as_slice())
    }

    /// Where uplink packets go, of the driver and its modules.
    fn next_hops(&self) -> Vec<IpAddr> {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.next_hops);
        let all = of_xdp.or(self.frames.as_ref().map(|frames| &frames.next_hops)).into_iter().flatten();
        all.chain(self.modules().iter().flat_map(|module| &module.next_hops)).copied().collect()
    }
}

/// How often users move between the levels of the tables.
const TURN: std::time::Duration = std::time::Duration::from_millis(5);

/// Told of events by any worker; says `false` if there are too many.
pub type EventSink = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// The clock of the datapath: monotonic, from an arbitrary start, and the same in the kernel's program.
#[derive(Clone, Copy, Debug)]
pub struct Clock(());

impl Clock {
    /// The time now.
    pub fn now(&self) -> Instant {
        Instant(monotonic_ns() / 1_000)
    }
}

/// What others may see of a running user plane.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) tables: SharedTables,
    pub(crate) counters: Arc<Counters>,
    kernel: Option<KernelCounters>,
    loads: Arc<[Load]>,
}

impl View {
    /// What the workers of slices have handled, in their order.
    pub fn loads(&self) -> Vec<WorkerLoad> {
        match &self.kernel {
            Some(kernel) => kernel.loads(),
            None => slices::read(&self.loads),
        }
    }

    /// Takes what a worker has counted.
    pub(crate) fn flush(&self, worker: Option<usize>, stats: &mut Stats) {
        if let Some(load) = worker.and_then(|number| self.loads.get(number)) {
            load.add(stats);
        }
        self.counters.flush(stats);
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        let mut stats = self.counters.read();
        if let Some(kernel) = &self.kernel {
            kernel.add_to(&mut stats);
        }
        stats
    }

    /// What the kernel's program did with packets of sessions with rules of their own, where there is one.
    pub fn flow_packets(&self) -> FlowPackets {
        self.kernel.as_ref().map(KernelCounters::flow_packets).unwrap_or_default()
    }

    /// Looks at the tables.
    pub fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        self.tables.look(look)
    }
}

/// What the owner of the sessions changes a running user plane by, from any thread.
#[derive(Clone, Debug)]
pub struct Editor {
    view: View,
    /// Those of the first worker, to send what changes let go.
    sockets: Arc<[Socket]>,
}

impl Editor {
    /// Looks at the tables.
    pub fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        self.view.look(look)
    }

    /// Changes the tables. What the change lets go is sent before any later packet.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        let mut stats = Stats::default();
        let result = self.view.tables.change(change, |released| {
            for (to, datagram) in &released.datagrams {
                if !send(&self.sockets, released.sources, *to, datagram) {
                    stats.drop(DropReason::N3Send);
                }
            }
            stats.drops[DropReason::Action as usize] += released.dropped;
        });
        self.view.counters.flush(&mut stats);
        result
    }
}

/// A running user plane; it ends when it is dropped. Address translation is removed from the network namespace of the
/// thread that drops it, which should therefore be that of the thread that started it.
pub struct Sockets {
    editor: Editor,
    clock: Clock,
    stop: Waker,
    threads: Vec<JoinHandle<()>>,
    _nat: Option<Nat>,
    xdp: Option<Xdp>,
    steer: Option<(Steer, FrameIo)>,
    next_hops: NextHops,
    filters: Option<Filters>,
    /// Rings of AF_PACKET, with the numbers of their workers.
    rings: Vec<(usize, Link)>,
    /// Whether the log has it that an interface of XDP is lost.
    told_lost: AtomicBool,
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("workers", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Sockets {
    /// Opens sockets and device and starts the workers.
    pub fn start(config: SocketsConfig, events: EventSink) -> Result<Self, StartError> {
        Sockets::start_as(config, None, events)
    }

    /// The same drivers with nothing between input and output, where `config` has no XDP: what a user plane costs beyond
    /// them is measured against this.
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
        let threads = config.threads();
        let workers = if config.frames.is_some() { 1 } else { threads };
        let sockets = (0..workers).map(|_| bind(&config.n3, workers > 1)).collect::<Result<Vec<_>, _>>()?;
        let queues = host::tun(&config.tun, workers, &config.pools)?;
        host::forwarding(&config.pools);
        let nat = match config.nat {
            true => Some(Nat::install(&config.tun, &config.pools)?),
            false => {
                Nat::remove_leftover();
                None
            }
        };
        let (mut tables, mut xdp, steering) = tables(&config)?;
        let of_modules: usize = config.modules().iter().map(Module::workers).sum();
        let by_one = threads.max(of_modules) <= 1 && config.xdp.is_none();
        tables.decided_by_one(by_one);
        if let Some(steering) = steering.as_ref().filter(|_| workers > 1) {
            divide(steering, &sockets[0], &queues[0])?;
        }
        let mtu = config.pools.iter().map(|pool| usize::from(pool.mtu)).max().unwrap_or(0).max(1500);
        let mut driver = Sockets {
            editor: Editor {
                view: View {
                    tables: SharedTables::new(tables),
                    counters: Arc::default(),
                    kernel: xdp.as_ref().map(Xdp::counters),
                    loads: config.slices.iter().flat_map(|slice| 0..slice.workers).map(|_| Load::default()).collect(),
                },
                sockets: sockets[0].clone(),
            },
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
        };
        if let Some(frames) = &config.frames {
            driver.start_frames(frames, &config, bare, (&queues[0], steering.as_ref()), &events)?;
        }
        if config.limits.hot_users > 0 {
            driver.turn_levels()?;
        }
        let placement = slices::placement(&config.slices);
        for (number, (sockets, tun)) in sockets.into_iter().zip(queues).enumerate() {
            let worker = Worker {
                view: driver.view(),
                sockets,
                tun,
                events: events.clone(),
                clock: driver.clock,
                // headers of any length that is in use, and packets a little above the MTU
                slot: (mtu + 256).next_multiple_of(512),
                bare,
                beside_one: by_one && config.frames.is_some(),
                number: (config.frames.is_none() && config.xdp.is_none()).then_some(number),
            };
            let poller = worker.poller(&driver.stop)?;
            let core = worker.number.and_then(|number| placement.get(number).copied().flatten());
            driver.spawn(format!("upf-{number}"), core, move || worker.run(&poller))?;
        }
        // last, so that what the program passes finds us
        if let Some(xdp) = &mut xdp {
            xdp.attach()?;
        }
        driver.xdp = xdp;
        driver.next_hops.keep();
        driver.filters = config.filtered().map(|names| Filters::set(names, &config.n3, &config.pools)).transpose()?;
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
        // an engine for each worker of each group, and the processor that it is for
        let mut engines = vec![];
        for group in &groups {
            for number in 0..group.workers {
                let core = group.cores.get(number).copied().or(placement.get(number).copied().flatten());
                engines.push((engine(group)?, core));
            }
        }
        match frames.io {
            FrameIo::AfPacket(fanout) => {
                let open = |group: &Group| packet::open(&steer.interfaces[group.interfaces.clone()], group.workers);
                let ports = groups.iter().map(open).collect::<Result<Vec<_>, _>>()?;
                let mut workers = 0;
                for ports in &ports {
                    self.rings.extend(packet::rings(ports)?.into_iter().map(|(n, ring)| (workers + n, ring)));
                    workers += ports.len();
                }
                steer.filter(ports.iter().flat_map(|ports| packet::sockets(ports)))?;
                for (group, ports) in groups.iter().zip(&ports) {
                    let program = steering.map(|steering| steering.packets.as_fd());
                    packet::bind(ports, &steer.interfaces[group.interfaces.clone()], fanout, program)?;
                }
                for (number, (ports, (engine, core))) in ports.into_iter().flatten().zip(engines).enumerate() {
                    let worker = packet::Worker { view: self.view(), engine, ports, clock, number };
                    let poller = worker.poller(&self.stop)?;
                    self.spawn(format!("upf-frames-{number}"), core, move || worker.run(&poller))?;
                }
            }
            FrameIo::AfXdp(mode) => {
                let generic = mode == XdpMode::Generic;
                let mut ports = vec![];
                for group in &groups {
                    ports.extend(xsk::open(&mut steer, group.interfaces.clone(), group.workers, generic)?);
                }
                for (number, (ports, (engine, core))) in ports.into_iter().zip(engines).enumerate() {
                    let worker = xsk::Worker { view: self.view(), engine, ports, clock };
                    let poller = worker.poller(&self.stop)?;
                    self.spawn(format!("upf-frames-{number}"), core, move || worker.run(&poller))?;
                }
            }
        }
        self.steer = Some((steer, frames.io));
        Ok(())
    }

    /// Starts the thread that promotes users with packets and demotes idle ones.
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

    /// Starts a worker, on this processor if one is given.
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

    /// Changes the tables. What the change lets go is sent before any later packet.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        self.editor.change(change)
    }

    /// What changes the tables from any thread, for as long as this runs.
    pub fn editor(&self) -> Editor {
        self.editor.clone()
    }

    /// Gives up what was buffered for too long, and tells UEs their prefixes again. To be called once a second.
    pub fn upkeep(&self) {
        let mut stats = Stats::default();
        stats.drops[DropReason::BufferExpired as usize] =
            self.editor.view.look(|tables| tables.expire_buffers(self.clock.now()));
        for (worker, ring) in &self.rings {
            // a ring that cannot be asked was closed: its worker has ended
            let drops = ring.take_drops().map_or(0, u64::from);
            stats.drops[DropReason::RingFull as usize] += drops;
            if let Some(load) = self.editor.view.loads.get(*worker) {
                load.no_room(drops);
            }
        }
        self.editor.view.counters.flush(&mut stats);
        self.change(|tables, released| {
            tables.advertise_again(released);
            tables.turn_cells();
        });
        self.next_hops.keep();
        let xdp = self.xdp.iter().flat_map(Xdp::lost);
        if let Some(name) = xdp.chain(self.steer.iter().flat_map(|(steer, _)| steer.lost())).next()
            && !self.told_lost.swap(true, Relaxed)
        {
            error!("the interface {name} has gone, and its driver with it; user packets go by the slow path: restart");
        }
    }

    /// Whether a worker has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// The clock that buffers and rates go by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What others may see of it, for as long as they like.
    pub fn view(&self) -> View {
        self.editor.view.clone()
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.xdp = None;
        self.stop.wake();
        for thread in self.threads.drain(..) {
            // a worker that panicked has said so already
            let _ = thread.join();
        }
        // last, so that no frame is the kernel's as well as ours
        self.steer = None;
    }
}

/// The tables, with the program that reads them if there is one, or with those that divide packets among slices.
fn tables(config: &SocketsConfig) -> Result<(Tables, Option<Xdp>, Option<Steering>), StartError> {
    let SocketsConfig { n3, tun, pools, limits, nat, .. } = config;
    if let Some(xdp) = &config.xdp {
        let processors = slices::processors(&config.slices);
        let (xdp, tables) = Xdp::load(xdp, n3, pools.clone(), *limits, tun, *nat, &processors)?;
        return Ok((tables, Some(xdp), None));
    }
    let mut tables = Tables::new(pools.clone(), *limits);
    if config.slices.is_empty() {
        return Ok((tables, None, None));
    }
    let (steering, owners) = slices::steer::load(n3, pools, *limits)?;
    tables.owners = owners;
    Ok((tables, None, Some(steering)))
}

/// Has the kernel hand what comes to these addresses and the TUN device to the workers of slices.
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

/// Sends by the socket of one of these sources, else by the first of the address's family.
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

struct Worker {
    view: View,
    sockets: Arc<[Socket]>,
    tun: Tun,
    events: EventSink,
    clock: Clock,
    slot: usize,
    /// With it, nothing is looked up.
    bare: Option<Bare>,
    /// Whether there is one worker for what is usual, which counts as if it were alone: it waits while we decide.
    beside_one: bool,
    /// Among the workers of slices, if it may be one.
    number: Option<usize>,
}

pub(crate) const STOP: u64 = u64::MAX;
const TUN: u64 = u64::MAX - 1;

/// What is unusual, in a worker.
pub(crate) struct Rare<'a> {
    /// What it is an answer to came by this one.
    pub(crate) own: Option<&'a Socket>,
    pub(crate) sockets: &'a [Socket],
    pub(crate) events: &'a EventSink,
}

impl Unusual for Rare<'_> {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        // from the address that was asked (TS 29.281 4.4.3.1)
        match self.own.filter(|own| own.local.is_ipv4() == to.is_ipv4()) {
            Some(own) => own.send_to(to, datagram).is_ok(),
            None => send(self.sockets, [None; 2], to, datagram),
        }
    }

    fn event(&mut self, event: Event) -> bool {
        (self.events)(event)
    }
}

impl Worker {
    fn poller(&self, stop: &Waker) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(stop.as_fd(), STOP)?;
        poller.add(self.tun.as_fd(), TUN)?;
        for (token, socket) in (0..).zip(self.sockets.iter()) {
            poller.add(socket.as_fd(), token)?;
        }
        Ok(poller)
    }

    /// Runs until it is told to stop. The waker stays readable, so that every worker sees it.
    fn run(&self, poller: &Poller) -> io::Result<()> {
        let reader = self.view.tables.reader();
        let mut receiver = Receiver::new(self.slot);
        let mut buffer = vec![0; BATCH * self.slot];
        let mut senders: Vec<Sender> = self.sockets.iter().map(|_| Sender::new()).collect();
        let mut stats = Stats::default();
        let mut ready = Vec::with_capacity(2 + self.sockets.len());
        loop {
            ready.clear();
            poller.wait(None, |token| ready.push(token))?;
            for token in &ready {
                match *token {
                    STOP => return Ok(()),
                    TUN => self.downlink(&reader, &mut buffer, &mut senders, &mut stats),
                    n => self.uplink(&reader, &self.sockets[n as usize], &mut receiver, &mut stats),
                }
            }
            self.view.flush(self.number, &mut stats);
        }
    }

    /// One batch from N3 to N6.
    fn uplink(&self, reader: &Reader, socket: &Socket, receiver: &mut Receiver, stats: &mut Stats) {
        let count = match receiver.receive(socket) {
            Ok(count) => count,
            Err(error) => return debug!("receiving on {}: {error}", socket.local),
        };
        let mut forward: [Option<&[u8]>; BATCH] = [None; BATCH];
        match &self.bare {
            None => {
                let rare = Rare { own: Some(socket), sockets: &self.sockets, events: &self.events };
                let (forward, now, local) = (&mut forward[..count], self.clock.now(), socket.local);
                self.decide(reader, &mut Uplink { receiver, local, forward, rare, now, stats });
            }
            Some(Bare { forward: false, .. }) => stats.drops[DropReason::Action as usize] += count as u64,
            Some(_) => {
                for (n, forward) in forward.iter_mut().enumerate().take(count) {
                    *forward = receiver.datagram(n).1.and_then(|datagram| datagram.get(HEADROOM..));
                }
            }
        }
        for packet in forward.into_iter().take(count).flatten() {
            match self.tun.write(packet) {
                Ok(()) => stats.uplink.add(packet.len()),
                Err(_) => stats.drop(DropReason::N6Send),
            }
        }
    }

    fn decide(&self, reader: &Reader, batch: &mut impl Batch) {
        match self.beside_one {
            false => reader.decide(batch),
            true => reader.decide_alone(batch),
        }
    }

    /// One batch from N6 to N3.
    fn downlink(&self, reader: &Reader, buffer: &mut [u8], senders: &mut [Sender], stats: &mut Stats) {
        let mut ends = [0; BATCH];
        let mut count = 0;
        for (slot, end) in buffer.chunks_exact_mut(self.slot).zip(&mut ends) {
            match self.tun.read(&mut slot[HEADROOM..]) {
                Ok(length) => *end = HEADROOM + length,
                // no more, or the device is down
                Err(_) => break,
            }
            count += 1;
        }
        if let Some(bare) = &self.bare {
            return self.bare_downlink(bare, (buffer, &ends[..count]), senders, stats);
        }
        let rare = Rare { own: None, sockets: &self.sockets, events: &self.events };
        let (ends, slot, now) = (&ends[..count], self.slot, self.clock.now());
        self.decide(reader, &mut Downlink { buffer, slot, ends, senders, rare, now, stats });
    }

    /// The same with nothing but a header before each packet.
    fn bare_downlink(
        &self,
        bare: &Bare,
        (buffer, ends): (&mut [u8], &[usize]),
        senders: &mut [Sender],
        stats: &mut Stats,
    ) {
        let to = SocketAddr::new(bare.tunnel.address, gtpu::PORT);
        let (Some(header), Some(place), true) = (bare.header(), position(&self.sockets, to), bare.forward) else {
            stats.drops[DropReason::Action as usize] += ends.len() as u64;
            return;
        };
        for (n, end) in ends.iter().enumerate() {
            let base = n * self.slot;
            buffer[base..base + HEADROOM].copy_from_slice(&header);
            senders[place].queue(to, base, base + end, end - HEADROOM);
        }
        let refused = senders[place].flush(&self.sockets[place], buffer, &mut stats.downlink);
        stats.drops[DropReason::N3Send as usize] += refused;
    }
}

/// Datagrams from N3.
struct Uplink<'a, 'r> {
    receiver: &'r Receiver,
    local: IpAddr,
    /// What leaves.
    forward: &'a mut [Option<&'r [u8]>],
    rare: Rare<'a>,
    now: Instant,
    stats: &'a mut Stats,
}

impl Batch for Uplink<'_, '_> {
    fn count(&self) -> usize {
        self.forward.len()
    }

    fn decide(&mut self, by: &impl Decide, from: usize) -> usize {
        let Uplink { receiver, local, forward, rare, now, stats } = self;
        // records lie in memory at random: they are on their way while the packets before theirs are decided on
        for n in from..forward.len() {
            if let (_, Some(datagram)) = receiver.datagram(n) {
                by.arrays().prefetch_datagram(datagram);
            }
        }
        for (n, forward) in forward.iter_mut().enumerate().skip(from) {
            match receiver.datagram(n) {
                (from, Some(datagram)) => match pipeline::uplink(by, from, *local, datagram, *now, stats, rare) {
                    Said::Leaves(packet) => *forward = Some(packet),
                    Said::Done => {}
                    Said::Ask => return n,
                },
                (_, None) => stats.drop(DropReason::Malformed),
            }
            if by.ends() {
                return n + 1;
            }
        }
        forward.len()
    }

    fn tell(&mut self, event: Event) {
        self.rare.event(event);
    }
}

/// Packets from N6, each in a slot of the buffer.
struct Downlink<'a> {
    buffer: &'a mut [u8],
    slot: usize,
    ends: &'a [usize],
    senders: &'a mut [Sender],
    rare: Rare<'a>,
    now: Instant,
    stats: &'a mut Stats,
}

impl Batch for Downlink<'_> {
    fn count(&self) -> usize {
        self.ends.len()
    }

    fn decide(&mut self, by: &impl Decide, from: usize) -> usize {
        let done = self.queue(by, from);
        // what a change sends afterwards must come after these
        for (sender, socket) in self.senders.iter_mut().zip(self.rare.sockets) {
            let refused = sender.flush(socket, self.buffer, &mut self.stats.downlink);
            self.stats.drops[DropReason::N3Send as usize] += refused;
        }
        done
    }

    fn tell(&mut self, event: Event) {
        self.rare.event(event);
    }
}

impl Downlink<'_> {
    fn queue(&mut self, by: &impl Decide, from: usize) -> usize {
        let Downlink { buffer, slot, ends, senders, rare, now, stats } = self;
        let packets = || buffer.chunks_exact(*slot).zip(*ends).skip(from);
        packets().for_each(|(slot, end)| by.arrays().prefetch_address_of(&slot[HEADROOM..*end]));
        let cold = |packet: &(&[u8], &usize)| !by.arrays().prefetch_record_of(&packet.0[HEADROOM..*packet.1]);
        packets().filter(cold).for_each(|(slot, end)| by.arrays().prefetch_cold_of(&slot[HEADROOM..*end]));
        for (n, end) in ends.iter().enumerate().skip(from) {
            let base = n * *slot;
            match pipeline::downlink(by, &mut buffer[base..base + *slot], *end, *now, stats, rare) {
                Said::Leaves(out) => match position(rare.sockets, out.to) {
                    Some(n) => senders[n].queue(out.to, base + out.start, base + out.end, out.octets),
                    None => stats.drop(DropReason::N3Send),
                },
                Said::Done => {}
                Said::Ask => return n,
            }
            if by.ends() {
                return n + 1;
            }
        }
        ends.len()
    }
}
