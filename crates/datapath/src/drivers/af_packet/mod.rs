//! AF_PACKET driver: one receive ring (TPACKET_V3) of each interface for each worker.
//!
//! The rings of an interface form a PACKET_FANOUT group. Frames are sent in batches directly from
//! the ring. The kernel passes a block of frames when it is full or after one millisecond. A light
//! load trades this latency for few wake-ups.

pub(crate) mod link;
mod ring;

use crate::drivers::af_packet::link::{Link, MessageArrays, Outbox};
use crate::drivers::af_packet::ring::{FanoutMode, Group, Ring, Span};
use crate::drivers::frames::{Fanout, FrameMemory, FrameProcessor, FrameVerdict, Frames, Kernel};
use crate::engine::batch::{self, PuntBatch, PuntSink, WorkerEnv};
use crate::engine::classifier::Classifier;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::event::Event;
use crate::engine::frame_layout as layout;
use crate::engine::worker_slot::RingPosition;
use crate::start_error::StartError;
use crate::sys::BATCH;
use crate::sys::clock::Clock;
use crate::sys::poll::{Poller, STOP};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::{debug, warn};
use vireo_types::Instant;

/// Rings and sockets of one worker, for each interface.
pub(crate) struct Ports {
    rings: Vec<Ring>,
    links: Vec<Link>,
}

/// Opens the rings and sockets of all workers. They receive nothing before [`bind`].
///
/// # Errors
///
/// Returns an error if the process lacks permission or memory, or the kernel has no AF_PACKET.
pub(crate) fn open(interfaces: &[(String, u32)], workers: usize) -> Result<Vec<Ports>, StartError> {
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => StartError::FramesPermission,
        _ => StartError::Ring(source),
    };
    let ports = (0..workers).map(|_| {
        let rings = interfaces.iter().map(|_| Ring::open(layout::ROOM));
        let links = interfaces.iter().map(|(_, index)| Link::sender(*index));
        Ok(Ports { rings: rings.collect::<Result<_, _>>()?, links: links.collect::<Result<_, _>>()? })
    });
    ports.collect::<Result<_, io::Error>>().map_err(refused)
}

impl Ports {
    /// Returns the descriptors for a worker process: first those of the rings, then those of the
    /// sending sockets.
    pub(crate) fn files(&self) -> io::Result<Vec<OwnedFd>> {
        let rings = self.rings.iter().map(|ring| ring.link().as_fd());
        rings.chain(self.links.iter().map(Link::as_fd)).map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// Creates the ports from such descriptors. Each ring continues at its stored position.
    pub(crate) fn from_files(
        files: &mut impl Iterator<Item = OwnedFd>,
        position: impl Fn(usize) -> RingPosition,
    ) -> io::Result<Self> {
        let mut files: Vec<_> = files.collect();
        let links = files.split_off(files.len() / 2).into_iter().map(Link::from).collect();
        let rings = files.into_iter().enumerate().map(|(n, file)| Ring::take_over(file.into(), position(n)));
        Ok(Ports { rings: rings.collect::<Result<_, _>>()?, links })
    }
}

/// Returns the receiving sockets.
pub(crate) fn sockets(ports: &[Ports]) -> impl Iterator<Item = &Link> {
    ports.iter().flat_map(|ports| ports.rings.iter().map(Ring::link))
}

/// Returns duplicates of the ring sockets with the numbers of their workers, to read drop counters.
pub(crate) fn rings(ports: &[Ports]) -> io::Result<Vec<(usize, Link)>> {
    let all = ports.iter().enumerate().flat_map(|(n, ports)| ports.rings.iter().map(move |ring| (n, ring)));
    all.map(|(n, ring)| Ok((n, ring.link().duplicate()?))).collect()
}

/// Starts receiving. The rings of an interface form a group, whose frames a program distributes if
/// there is one.
pub(crate) fn bind(
    ports: &[Ports],
    interfaces: &[(String, u32)],
    fanout: Fanout,
    program: Option<BorrowedFd<'_>>,
) -> Result<(), StartError> {
    let by = match fanout {
        _ if program.is_some() => FanoutMode::Program,
        Fanout::Hash => FanoutMode::Hash,
        Fanout::Queue => FanoutMode::Queue,
    };
    let group = Group { by, id: 0 };
    for (n, (_, index)) in interfaces.iter().enumerate() {
        let mut group = (ports.len() > 1).then_some(group);
        for ports in ports {
            group = ports.rings[n].bind(*index, group).map_err(StartError::Ring)?;
        }
        if let (Some(program), [first, _, ..]) = (program, ports) {
            first.rings[n].set_program(program).map_err(StartError::Ring)?;
        }
    }
    Ok(())
}

/// A batch in a block of the ring.
struct Batch<'a> {
    octets: &'a mut [u8],
    spans: &'a [Span],
}

impl Frames for Batch<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    fn frame(&mut self, n: usize) -> FrameMemory<'_> {
        let Span { room, start, end, .. } = self.spans[n];
        FrameMemory { octets: &mut self.octets[room..end], start: start - room, end: end - room }
    }

    #[inline]
    fn lacks_checksum(&self, n: usize) -> bool {
        self.spans[n].lacks_checksum
    }
}

pub(crate) struct Worker {
    pub(crate) processor: FrameProcessor<Kernel>,
    pub(crate) ports: Ports,
    pub(crate) clock: Clock,
}

impl Worker {
    pub(crate) fn poller(&self, stop: BorrowedFd<'_>) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(stop, STOP)?;
        for (token, ring) in (0..).zip(&self.ports.rings) {
            poller.add(ring.link().as_fd(), token)?;
        }
        Ok(poller)
    }

    /// Runs until the stop signal. The waker stays readable, so that every worker sees it.
    pub(crate) fn run(mut self, env: &impl WorkerEnv, poller: &Poller) -> io::Result<()> {
        let mut stats = Stats::default();
        let mut outbox: Vec<MessageArrays> = self.ports.links.iter().map(|_| MessageArrays::new()).collect();
        let mut ready = Vec::with_capacity(1 + self.ports.rings.len());
        loop {
            ready.clear();
            poller.wait(None, |token| ready.push(token))?;
            for token in &ready {
                if *token == STOP {
                    return Ok(());
                }
                let ring = &mut self.ports.rings[*token as usize];
                let (links, clock) = (&self.ports.links, self.clock);
                if receive(env, &mut self.processor, ring, (links, &mut outbox), clock, &mut stats) {
                    continue;
                }
                match ring.link().take_error() {
                    // The ring receives again when the interface is up again.
                    Some(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                        warn!("an interface of the user plane is down");
                    }
                    Some(error) => debug!("receiving frames: {error}"),
                    None => {}
                }
            }
            env.flush(&mut stats);
        }
    }
}

/// Processes a block of frames. Returns false if there is none.
fn receive(
    env: &impl WorkerEnv,
    processor: &mut FrameProcessor<Kernel>,
    ring: &mut Ring,
    (links, outbox): (&[Link], &mut [MessageArrays]),
    clock: Clock,
    stats: &mut Stats,
) -> bool {
    let Some(mut block) = ring.block() else { return false };
    let mut spans = [Span::default(); BATCH];
    let mut fates = [FrameVerdict::Done; BATCH];
    loop {
        env.announce_packets(BATCH);
        let count = block.next(&mut spans);
        env.announce_packets(count);
        if count == 0 {
            return true;
        }
        let batch = Batch { octets: block.octets(), spans: &spans[..count] };
        let fates = &mut fates;
        env.decide(&mut Work { processor, batch, fates, links, outbox, stats, now: clock.now() });
    }
}

/// A batch with its output.
struct Work<'a, 'b> {
    processor: &'a mut FrameProcessor<Kernel>,
    batch: Batch<'b>,
    fates: &'a mut [FrameVerdict; BATCH],
    links: &'a [Link],
    outbox: &'a mut [MessageArrays],
    stats: &'a mut Stats,
    now: Instant,
}

impl batch::Batch for Work<'_, '_> {
    #[inline]
    fn count(&self) -> usize {
        self.batch.spans.len()
    }

    #[inline]
    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let Work { processor, batch, fates, links, outbox, stats, now } = self;
        let to = processor.process(by, batch, from, fates, *now, stats);
        // Datagrams of a later change must follow these.
        for (port, (link, arrays)) in links.iter().zip(outbox.iter_mut()).enumerate() {
            flush(batch.octets, &batch.spans[from..to], &fates[from..to], port, (link, arrays), stats);
        }
        to
    }

    fn notify(&mut self, event: Event) {
        self.processor.notify(event);
    }
}

impl PuntBatch for Work<'_, '_> {
    fn punt(&mut self, from: usize, channel: &impl PuntSink) {
        for n in from..self.batch.spans.len() {
            self.processor.punt(&mut self.batch, n, |packet, octets| channel.put(n - from, packet, octets));
        }
    }
}

/// Sends the frames that leave through one interface.
fn flush(
    octets: &[u8],
    spans: &[Span],
    fates: &[FrameVerdict],
    port: usize,
    (link, arrays): (&Link, &mut MessageArrays),
    stats: &mut Stats,
) {
    let mut outbox: Outbox<'_> = arrays.outbox();
    let mut sent = [(false, 0); BATCH];
    let mut count = 0;
    for (span, fate) in spans.iter().zip(fates) {
        if let FrameVerdict::Send { port: to, start, end, uplink, octets: length } = *fate
            && to == port
        {
            outbox.push(&octets[span.room + start..span.room + end]);
            sent[count] = (uplink, length);
            count += 1;
            let volume = if uplink { &mut stats.uplink } else { &mut stats.downlink };
            volume.add(length);
        }
    }
    if count == 0 {
        return;
    }
    outbox.send(link, |n| {
        let (uplink, length) = sent[n];
        let (volume, reason) = match uplink {
            true => (&mut stats.uplink, DropReason::N6Send),
            false => (&mut stats.downlink, DropReason::N3Send),
        };
        volume.packets -= 1;
        volume.octets -= length as u64;
        stats.drop(reason);
    });
}
