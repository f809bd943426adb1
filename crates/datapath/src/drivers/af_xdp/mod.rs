//! AF_XDP driver: a kernel program redirects frames by queue (`frames::steering`) to one worker for
//! each queue.
//!
//! The worker handles the frames of all interfaces in one UMEM. A frame leaves through another
//! interface without a copy where the network drivers support that.

mod xsk;

use crate::drivers::af_xdp::xsk::{Descriptor, ENTRIES, QueueBinding, Umem, Xsk};
use crate::drivers::frames::steering::FrameSteering;
use crate::drivers::frames::{FrameMemory, FrameProcessor, FrameVerdict, Frames, Kernel};
use crate::engine::batch;
use crate::engine::classifier::Classifier;
use crate::engine::counters::{Counters, DropReason, Stats};
use crate::engine::event::Event;
use crate::engine::frame_layout as layout;
use crate::engine::shared_tables::Reader;
use crate::start_error::StartError;
use crate::sys::BATCH;
use crate::sys::clock::Clock;
use crate::sys::ethtool;
use crate::sys::poll::{Poller, STOP, Waker};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use vireo_types::Instant;

/// Bytes before a frame that the kernel reserves.
const HEADROOM: usize = 256;
/// Chunk sizes in bytes for ordinary and for jumbo frames.
const CHUNKS: [usize; 2] = [2048, 4096];
const ETHERNET: usize = layout::ETHERNET;

/// Maximum batches of each interface between two polls of all other sources.
const ROUNDS: usize = 64;

/// Sockets of one worker: the same queue of each interface.
pub(crate) struct Ports {
    umem: Umem,
    sockets: Vec<Xsk>,
    free: Vec<u64>,
}

/// Opens the sockets of all queues of these interfaces and enters them in the program's map.
pub(crate) fn open(
    steering: &mut FrameSteering,
    which: std::ops::Range<usize>,
    workers: usize,
    generic: bool,
) -> Result<Vec<Ports>, StartError> {
    let first = which.start;
    let interfaces = steering.interfaces[which].to_vec();
    let chunk = chunk(&interfaces)?;
    for (name, _) in &interfaces {
        if let Some(queues) = ethtool::receive_queues(name).filter(|queues| *queues as usize != workers) {
            return Err(StartError::XskQueues { interface: name.clone(), queues, workers });
        }
    }
    let mut all = vec![];
    for queue in 0..workers as u32 {
        // If one interface cannot share memory with its network driver, the kernel copies for all
        // of them.
        let ports = match generic {
            true => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            false => open_queue(&interfaces, queue, chunk, false),
        };
        let ports = match ports {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => open_queue(&interfaces, queue, chunk, true),
            other => other,
        };
        let ports = ports.map_err(|source| refused(source, queue))?;
        for (place, socket) in ports.sockets.iter().enumerate() {
            steering.redirect(first + place, queue, socket)?;
        }
        all.push(ports);
    }
    if let Some(ports) = all.first() {
        let copies = if ports.sockets.iter().all(Xsk::zero_copy) { "without copying" } else { "copying" };
        let pages = if ports.umem.huge { "huge" } else { "ordinary" };
        info!("AF_XDP: {workers} queues, {copies}, memory in {pages} pages");
    }
    Ok(all)
}

/// Returns the smallest chunk that holds the longest frames.
///
/// # Errors
///
/// Returns an error if the MTU of an interface is too large or unknown.
fn chunk(interfaces: &[(String, u32)]) -> Result<usize, StartError> {
    let routes = crate::sys::route::Routes::open()?;
    let mut needed = 0;
    for (name, _) in interfaces {
        let refused = |source| StartError::FramesNotEthernet { interface: name.clone(), source };
        let mtu = routes.interface(name).map_err(refused)?.mtu as usize;
        // Tunnel headers are written before the frame, never after it.
        let octets = HEADROOM + layout::ROOM + ETHERNET + mtu;
        if octets > CHUNKS[1] {
            let most = CHUNKS[1] - HEADROOM - layout::ROOM - ETHERNET;
            return Err(StartError::XskMtu { interface: name.clone(), most });
        }
        needed = needed.max(octets);
    }
    Ok(if needed <= CHUNKS[0] { CHUNKS[0] } else { CHUNKS[1] })
}

fn open_queue(interfaces: &[(String, u32)], queue: u32, chunk: usize, copy: bool) -> io::Result<Ports> {
    // As many chunks as the fill rings and the send rings hold.
    let umem = Umem::new(interfaces.len() * 2 * ENTRIES as usize, chunk)?;
    let mut sockets: Vec<Xsk> = vec![];
    for (name, interface) in interfaces {
        let virtual_link = ethtool::driver(name).is_some_and(|driver| driver == "veth" || driver == "netkit");
        let place = QueueBinding { interface: *interface, queue, copy, virtual_link };
        let socket = Xsk::open(&umem, layout::ROOM, place, sockets.first())?;
        sockets.push(socket);
    }
    let mut free: Vec<u64> = umem.chunks().collect();
    for socket in &mut sockets {
        socket.fill(&mut free);
    }
    Ok(Ports { umem, sockets, free })
}

fn refused(source: io::Error, queue: u32) -> StartError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => StartError::FramesPermission,
        Some(libc::EAFNOSUPPORT) => StartError::NoXsk,
        Some(libc::EBUSY) => StartError::XskBusy(queue),
        _ => StartError::Xsk(source),
    }
}

/// A batch in the UMEM.
struct Batch<'a> {
    umem: &'a mut Umem,
    frames: &'a [Descriptor],
}

impl Frames for Batch<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.frames.len()
    }

    #[inline]
    fn frame(&mut self, n: usize) -> FrameMemory<'_> {
        let Descriptor { addr, len, .. } = self.frames[n];
        let chunk = self.umem.chunk_of(addr);
        let octets = self.umem.chunk(chunk);
        let start = (addr - chunk) as usize;
        let end = (start + len as usize).min(octets.len());
        FrameMemory { octets, start, end }
    }

    /// Unknown in AF_XDP: frames from a wire are complete, and virtual links must be set to send
    /// complete checksums.
    #[inline]
    fn lacks_checksum(&self, _: usize) -> bool {
        false
    }
}

pub(crate) struct Worker {
    pub(crate) reader: Reader,
    pub(crate) counters: Arc<Counters>,
    pub(crate) processor: FrameProcessor<Kernel>,
    pub(crate) ports: Ports,
    pub(crate) clock: Clock,
}

impl Worker {
    pub(crate) fn poller(&self, stop: &Waker) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(stop.as_fd(), STOP)?;
        for (token, socket) in (0..).zip(&self.ports.sockets) {
            poller.add(socket.as_fd(), token)?;
        }
        Ok(poller)
    }

    /// Runs until the stop signal. The waker stays readable, so that every worker sees it.
    pub(crate) fn run(mut self, poller: &Poller) -> io::Result<()> {
        let mut stats = Stats::default();
        loop {
            let mut stop = false;
            // Chunks in transmission become free shortly, without a notification.
            let sending = self.ports.sockets.iter().any(Xsk::is_sending);
            poller.wait(sending.then_some(Duration::from_millis(10)), |token| stop |= token == STOP)?;
            if stop {
                return Ok(());
            }
            // Each ring in turn until all are empty: waiting costs more than polling.
            for _ in 0..ROUNDS {
                let mut any = false;
                for port in 0..self.ports.sockets.len() {
                    any |= self.receive(port, &mut stats);
                }
                if !any {
                    break;
                }
            }
            self.reclaim();
            self.counters.flush(&mut stats);
        }
    }

    /// Processes a batch of one interface. Returns false if there is none.
    fn receive(&mut self, port: usize, stats: &mut Stats) -> bool {
        let mut frames = [Descriptor { addr: 0, len: 0, options: 0 }; BATCH];
        let Ports { umem, sockets, free } = &mut self.ports;
        let count = sockets[port].receive(&mut frames);
        if count == 0 {
            return false;
        }
        let batch = Batch { umem, frames: &frames[..count] };
        let (processor, fates, now) = (&mut self.processor, [FrameVerdict::Done; BATCH], self.clock.now());
        self.reader.decide(&mut Work { processor, batch, fates, sockets, free, stats, now });
        sockets[port].fill(free);
        true
    }

    /// Reclaims the sent chunks and supplies them to the receiving rings.
    fn reclaim(&mut self) {
        let Ports { umem, sockets, free } = &mut self.ports;
        for socket in sockets.iter_mut() {
            socket.reclaim(umem, free);
        }
        for socket in sockets.iter_mut() {
            socket.fill(free);
        }
    }
}

/// A batch with its output.
struct Work<'a> {
    processor: &'a mut FrameProcessor<Kernel>,
    batch: Batch<'a>,
    fates: [FrameVerdict; BATCH],
    sockets: &'a mut [Xsk],
    free: &'a mut Vec<u64>,
    stats: &'a mut Stats,
    now: Instant,
}

impl batch::Batch for Work<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.batch.frames.len()
    }

    #[inline]
    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let Work { processor, batch, fates, sockets, free, stats, now } = self;
        let to = processor.process(by, batch, from, fates, *now, stats);
        let Batch { umem, frames } = batch;
        let mut used = 0_u64;
        for (frame, fate) in frames[from..to].iter().zip(&fates[from..to]) {
            let chunk = umem.chunk_of(frame.addr);
            let FrameVerdict::Send { port, start, end, uplink, octets } = *fate else {
                free.push(chunk);
                continue;
            };
            let descriptor = Descriptor { addr: chunk + start as u64, len: (end - start) as u32, options: 0 };
            if sockets[port].queue(descriptor) {
                used |= 1 << port;
                let volume = if uplink { &mut stats.uplink } else { &mut stats.downlink };
                volume.add(octets);
            } else {
                free.push(chunk);
                stats.drop(if uplink { DropReason::N6Send } else { DropReason::N3Send });
            }
        }
        // Datagrams of a later change must follow these.
        for (port, socket) in sockets.iter_mut().enumerate() {
            if used >> port & 1 == 1 {
                socket.send();
                socket.reclaim(umem, free);
            }
        }
        to
    }

    fn notify(&mut self, event: Event) {
        self.processor.notify(event);
    }
}
