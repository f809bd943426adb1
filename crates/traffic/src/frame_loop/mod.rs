//! A load without a generator: frames go in a circle through a user plane between two pairs of veth interfaces, and BPF
//! programs at their far ends make each one that comes out the next packet of a session chosen at random
//! (`bpf/frame_loop.bpf.c`). As many frames as are injected stay in flight; how fast they go round is the figure.
//!
//! Everything is done in the network namespace of the calling thread. Veth takes redirected frames only where the peer has
//! native XDP or receive offload (GRO).

mod teids;
#[cfg(test)]
mod tests;

pub use teids::Teids;

use crate::packets::{self, ETHERNET, IPV4_HEADER, OUTER};
use crate::sys;
use aya::maps::{Array, MapData, MapError, PerCpuArray};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Why a circuit cannot be had. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FrameLoopError {
    /// BPF needs capabilities.
    #[error("no permission to load BPF programs: run as root, outside of user namespaces")]
    Permission,
    /// There is no such interface.
    #[error("there is no interface {name}: {source}")]
    Interface {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not take a program.
    #[error("the kernel does not take the load's BPF programs ({0}): they need Linux 5.15 or later")]
    Refused(String),
    /// The packets cannot be made.
    #[error("packets of {0} octets cannot be: take 48 to 1,400")]
    Length(u16),
    /// A frame could not be sent.
    #[error("cannot send a frame: {0}")]
    Send(io::Error),
}

/// Frames that are injected without a pause.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_micros(200);

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the RAN, in tunnels.
    Uplink,
    /// To the RAN.
    Downlink,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: [u8; 6],
}

impl Interface {
    /// One of the calling thread's namespace.
    pub fn of(name: &str) -> Result<Self, FrameLoopError> {
        let failed = |source| FrameLoopError::Interface { name: name.to_owned(), source };
        let text = sys::mac(name).map_err(failed)?;
        Ok(Interface { name: name.to_owned(), mac: text })
    }

    fn index(&self) -> Result<u32, FrameLoopError> {
        sys::index(&self.name).map_err(|source| FrameLoopError::Interface { name: self.name.clone(), source })
    }
}

/// Two pairs of interfaces: the user plane is between the near ends, the load between the far ends.
#[derive(Clone, Debug)]
pub struct LinkPairs {
    /// The user plane's, N3.
    pub n3: Interface,
    /// The user plane's, N6.
    pub n6: Interface,
    /// The peer of N3.
    pub ran: Interface,
    /// The peer of N6.
    pub dn: Interface,
}

/// What is in the packets.
#[derive(Clone, Debug)]
pub struct Packets {
    /// Octets of the users' packets, IP header included.
    pub length: u16,
    /// The RAN's address.
    pub gnb: Ipv4Addr,
    /// The user plane's address on N3.
    pub upf: Ipv4Addr,
    /// The host that UEs talk to.
    pub server: Ipv4Addr,
    /// The UE of session 0; those of the others follow.
    pub ue: Ipv4Addr,
    /// The uplink TEIDs.
    pub teids: Teids,
    /// The QoS flow.
    pub qfi: u8,
}

impl Packets {
    /// A frame of a session as the load's programs make it.
    pub fn frame(&self, ends: &LinkPairs, direction: Direction, session: u32) -> Result<Vec<u8>, FrameLoopError> {
        let Packets { length, server, ue, ref teids, .. } = *self;
        let ue = Ipv4Addr::from_bits(ue.to_bits().wrapping_add(session));
        let templates = templates(ends, self)?;
        let body = usize::from(length) - IPV4_HEADER;
        let udp = packets::udp_header(1234, 5678, body as u16);
        let payload = std::iter::repeat_n(0x5a, body - udp.len());
        let mut frame = match direction {
            Direction::Uplink => {
                let mut frame = templates.uplink[..ETHERNET + OUTER].to_vec();
                let at = ETHERNET + IPV4_HEADER + packets::UDP_HEADER + 4;
                frame[at..at + 4].copy_from_slice(&teids.of(session).0.to_be_bytes());
                frame.extend(packets::ipv4_header(ue, server, length));
                frame
            }
            Direction::Downlink => {
                let mut frame = templates.downlink[..ETHERNET].to_vec();
                frame.extend(packets::ipv4_header(server, ue, length));
                frame
            }
        };
        frame.extend(udp);
        frame.extend(payload);
        Ok(frame)
    }
}

/// The programs' constants; the layout is that of `struct constants`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Constants {
    towards_n3: u32,
    towards_n6: u32,
    server: u32,
    address: u32,
    teid: u32,
    sum_up: u32,
    sum_down: u32,
    uplink: [u8; 80],
    downlink: [u8; 36],
}

// SAFETY: plain integers without padding
unsafe impl aya::Pod for Constants {}

const _: () = assert!(size_of::<Constants>() == 7 * 4 + 80 + 36);

/// `struct load`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Load {
    first: u32,
    count: u32,
}

// SAFETY: plain integers without padding
unsafe impl aya::Pod for Load {}

/// `struct generations`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Generations([u8; teids::TOGETHER]);

// SAFETY: octets
unsafe impl aya::Pod for Generations {}

/// `struct counted`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Processor {
    uplink: u64,
    downlink: u64,
    random: u64,
    others: u64,
    ended: u64,
}

// SAFETY: plain integers without padding
unsafe impl aya::Pod for Processor {}

/// What came out of the user plane so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCounters {
    /// Packets on N6.
    pub uplink: u64,
    /// Packets on N3.
    pub downlink: u64,
    /// Frames that are none of the load's.
    pub others: u64,
    /// Frames of the load that came to their end, because there was none any more ([`FrameLoop::run`]).
    pub ended: u64,
}

/// Aligned as ELF asks.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/frame_loop.bpf.o")));

/// Octets of the frames' headers that are always the same.
struct Templates {
    uplink: [u8; ETHERNET + OUTER + IPV4_HEADER],
    downlink: [u8; ETHERNET + IPV4_HEADER],
}

fn ethernet(to: [u8; 6], from: [u8; 6]) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&[8, 0]);
    header
}

/// Different frames of a source.
const SOURCE: u64 = 4096;

/// Sends frames one by one, for what is measured one part after the other.
#[derive(Debug)]
pub struct FrameSource {
    socket: sys::PacketSocket,
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl FrameSource {
    /// A source of packets of `count` sessions from the first on. To be called in the namespace of the far ends.
    pub fn open(ends: &LinkPairs, packets: &Packets, direction: Direction, count: u32) -> Result<Self, FrameLoopError> {
        let interface = match direction {
            Direction::Uplink => &ends.ran,
            Direction::Downlink => &ends.dn,
        };
        let socket = sys::PacketSocket::open(interface.index()?).map_err(FrameLoopError::Send)?;
        // scattered over all of them, by a step that shares no factor with a number of sessions that people choose
        let session = |n: u64| ((n * 1_000_003) % u64::from(count.max(1))) as u32;
        let frames = (0..SOURCE).map(|n| packets.frame(ends, direction, session(n)));
        Ok(FrameSource { socket, frames: frames.collect::<Result<_, _>>()?, next: 0 })
    }

    /// Sends so many frames into the user plane, on this processor, which receives them as they come.
    pub fn send(&mut self, frames: u32) -> Result<(), FrameLoopError> {
        for _ in 0..frames {
            self.next = (self.next + 1) % self.frames.len();
            self.socket.send(&self.frames[self.next]).map_err(FrameLoopError::Send)?;
        }
        Ok(())
    }
}

/// The programs on a pair of interfaces. The kernel takes them off when this is dropped.
#[derive(Debug)]
pub struct FrameLoop {
    bpf: Ebpf,
    packets: Packets,
    ends: LinkPairs,
    links: Vec<FdLink>,
}

impl FrameLoop {
    /// The load, on the far ends of a user plane.
    pub fn load(ends: &LinkPairs, packets: Packets) -> Result<Self, FrameLoopError> {
        let mut circuit = FrameLoop::open(&ends.ran, &ends.dn, ends, packets)?;
        circuit.attach("from_n3", &ends.ran.clone())?;
        circuit.attach("from_n6", &ends.dn.clone())?;
        Ok(circuit)
    }

    /// In a user plane's place: headers off and on, and a redirect.
    pub fn bare(ends: &LinkPairs, packets: Packets) -> Result<Self, FrameLoopError> {
        // the frames go to the far ends from here
        let turned = LinkPairs { n3: ends.ran.clone(), ran: ends.n3.clone(), n6: ends.dn.clone(), dn: ends.n6.clone() };
        let turned_packets = Packets { gnb: packets.upf, upf: packets.gnb, ..packets };
        let mut circuit = FrameLoop::open(&ends.n3, &ends.n6, &turned, turned_packets)?;
        circuit.attach("bare_n3", &ends.n3.clone())?;
        circuit.attach("bare_n6", &ends.n6.clone())?;
        Ok(circuit)
    }

    /// In a user plane's place: an end of all that comes, counted as [`LoopCounters::others`].
    pub fn sink(ends: &LinkPairs, packets: Packets) -> Result<Self, FrameLoopError> {
        let mut circuit = FrameLoop::open(&ends.n3, &ends.n6, ends, packets)?;
        circuit.attach("sink", &ends.n3.clone())?;
        circuit.attach("sink", &ends.n6.clone())?;
        Ok(circuit)
    }

    fn open(
        towards_n3: &Interface,
        towards_n6: &Interface,
        ends: &LinkPairs,
        packets: Packets,
    ) -> Result<Self, FrameLoopError> {
        let templates = templates(ends, &packets)?;
        let sum_of = |header: &[u8], address: usize| {
            let mut header: Vec<u8> = header.to_vec();
            header[10..12].fill(0);
            header[address..address + 4].fill(0);
            // as the program reads it, which does not swap octets
            u32::from(packets::sum(&header).to_be())
        };
        let mut constants = Constants {
            towards_n3: towards_n3.index()?,
            towards_n6: towards_n6.index()?,
            server: u32::from_ne_bytes(packets.server.octets()),
            address: packets.ue.to_bits(),
            teid: packets.teids.of(0).0,
            sum_up: sum_of(&templates.uplink[ETHERNET + OUTER..], 12),
            sum_down: sum_of(&templates.downlink[ETHERNET..], 16),
            uplink: [0; 80],
            downlink: [0; 36],
        };
        constants.uplink[..templates.uplink.len()].copy_from_slice(&templates.uplink);
        constants.downlink[..templates.downlink.len()].copy_from_slice(&templates.downlink);
        let generations: Vec<_> = packets.teids.stored().map(Generations).collect();
        let mut bpf = EbpfLoader::new()
            .override_global("constants", &constants, true)
            .map_max_entries("generations", generations.len().max(1) as u32)
            .load(&OBJECT.0)
            .map_err(|error| refused(&error))?;
        let mut stored = map::<Generations>(&mut bpf, "generations")?;
        for (place, some) in (0..).zip(generations) {
            stored.set(place, some, 0).map_err(|error| refused(&error))?;
        }
        Ok(FrameLoop { bpf, packets, ends: ends.clone(), links: vec![] })
    }

    fn attach(&mut self, program: &str, interface: &Interface) -> Result<(), FrameLoopError> {
        let index = interface.index()?;
        let program = self.program(program)?;
        if program.fd().is_err() {
            program.load().map_err(|error| refused(&error))?;
        }
        let link = program.attach_to_if_index(index, XdpMode::Driver).map_err(|error| refused(&error))?;
        let link = program.take_link(link).map_err(|error| refused(&error))?;
        self.links.push(FdLink::try_from(link).map_err(|error| refused(&error))?);
        Ok(())
    }

    fn program(&mut self, name: &str) -> Result<&mut Xdp, FrameLoopError> {
        let missing = || FrameLoopError::Refused(format!("there is no program {name}"));
        let program = self.bpf.program_mut(name).ok_or_else(missing)?;
        program.try_into().map_err(|error: ProgramError| refused(&error))
    }

    /// From now on the packets are of `count` sessions from `first` on; of 0 sessions: the frames end.
    pub fn run(&mut self, first: u32, count: u32) -> Result<(), FrameLoopError> {
        map(&mut self.bpf, "load")?.set(0, Load { first, count }, 0).map_err(|error| refused(&error))
    }

    /// A source of packets of `count` sessions from the first on. To be called in the namespace of the far ends.
    pub fn source(&self, direction: Direction, count: u32) -> Result<FrameSource, FrameLoopError> {
        FrameSource::open(&self.ends, &self.packets, direction, count)
    }

    /// Sends frames of session `session` into the user plane; the program does the rest.
    pub fn inject(&self, direction: Direction, session: u32, frames: usize) -> Result<(), FrameLoopError> {
        let frame = self.packets.frame(&self.ends, direction, session)?;
        let interface = match direction {
            Direction::Uplink => &self.ends.ran,
            Direction::Downlink => &self.ends.dn,
        };
        let socket = sys::PacketSocket::open(interface.index()?).map_err(FrameLoopError::Send)?;
        for n in 0..frames {
            // a veth interface has 256 places for what waits, and whoever takes it out may need the processor for it
            if n > 0 && n % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
            socket.send(&frame).map_err(FrameLoopError::Send)?;
        }
        Ok(())
    }

    /// What was counted so far.
    pub fn counted(&self) -> Result<LoopCounters, FrameLoopError> {
        let add = |sum: LoopCounters, one: LoopCounters| LoopCounters {
            uplink: sum.uplink + one.uplink,
            downlink: sum.downlink + one.downlink,
            others: sum.others + one.others,
            ended: sum.ended + one.ended,
        };
        Ok(self.counted_by_processor()?.into_iter().fold(LoopCounters::default(), add))
    }

    /// What was counted so far on each processor.
    pub fn counted_by_processor(&self) -> Result<Vec<LoopCounters>, FrameLoopError> {
        let map =
            self.bpf.map("counted").ok_or_else(|| FrameLoopError::Refused("there is no map counted".to_owned()))?;
        let map = PerCpuArray::<&MapData, Processor>::try_from(map).map_err(|error: MapError| refused(&error))?;
        let of = |Processor { uplink, downlink, others, ended, .. }: &Processor| LoopCounters {
            uplink: *uplink,
            downlink: *downlink,
            others: *others,
            ended: *ended,
        };
        Ok(map.get(&0, 0).map_err(|error| refused(&error))?.iter().map(of).collect())
    }
}

fn map<'a, T: aya::Pod>(bpf: &'a mut Ebpf, name: &str) -> Result<Array<&'a mut MapData, T>, FrameLoopError> {
    let map = bpf.map_mut(name).ok_or_else(|| FrameLoopError::Refused(format!("there is no map {name}")))?;
    Array::try_from(map).map_err(|error: MapError| refused(&error))
}

fn templates(ends: &LinkPairs, packets: &Packets) -> Result<Templates, FrameLoopError> {
    let Packets { length, gnb, upf, server, ue, ref teids, qfi } = *packets;
    let wrong = || FrameLoopError::Length(length);
    if !(48..=1400).contains(&length) {
        return Err(wrong());
    }
    let outer = packets::tunnel(gnb, upf, teids.of(0), qfi, length.into()).ok_or_else(wrong)?;
    let mut templates = Templates { uplink: [0; 78], downlink: [0; 34] };
    templates.uplink[..ETHERNET].copy_from_slice(&ethernet(ends.n3.mac, ends.ran.mac));
    templates.uplink[ETHERNET..ETHERNET + OUTER].copy_from_slice(&outer);
    templates.uplink[ETHERNET + OUTER..].copy_from_slice(&packets::ipv4_header(ue, server, length));
    templates.downlink[..ETHERNET].copy_from_slice(&ethernet(ends.n6.mac, ends.dn.mac));
    templates.downlink[ETHERNET..].copy_from_slice(&packets::ipv4_header(server, ue, length));
    Ok(templates)
}

/// What the kernel said, below all that was said about it.
fn refused(error: &(dyn std::error::Error + 'static)) -> FrameLoopError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            Some(libc::EPERM) => return FrameLoopError::Permission,
            Some(code) => return FrameLoopError::Refused(io::Error::from_raw_os_error(code).to_string()),
            None => cause = error.source(),
        }
    }
    FrameLoopError::Refused(error.to_string())
}
