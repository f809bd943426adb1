//! Frame loop: a load without a generator.
//!
//! Frames circulate through a user plane between two pairs of veth interfaces. BPF programs at the
//! far ends turn each received frame into the next packet of a random session
//! (`bpf/frame_loop.bpf.c`). The number of injected frames stays in flight; the circulation rate is
//! the result.
//!
//! All operations apply to the network namespace of the calling thread. Veth accepts redirected
//! frames only if the peer has native XDP or receive offload (GRO).

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

/// Reason why a frame loop cannot be set up. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum FrameLoopError {
    /// BPF needs capabilities.
    #[error("no permission to load BPF programs: run as root, outside of user namespaces")]
    Permission,
    /// The interface does not exist.
    #[error("there is no interface {name}: {source}")]
    Interface {
        /// Name of the interface.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel refuses a program.
    #[error("the kernel does not take the load's BPF programs ({0}): they need Linux 5.15 or later")]
    Refused(String),
    /// The packet length is out of range.
    #[error("packets of {0} octets cannot be: take 48 to 1,400")]
    Length(u16),
    /// A frame could not be sent.
    #[error("cannot send a frame: {0}")]
    Send(io::Error),
}

/// Frames that are injected without a pause.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_micros(200);

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the RAN, in tunnels.
    Uplink,
    /// To the RAN, sent on N6.
    Downlink,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub mac: [u8; 6],
}

impl Interface {
    /// Looks up an interface in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such Ethernet interface.
    pub fn find(name: &str) -> Result<Self, FrameLoopError> {
        let failed = |source| FrameLoopError::Interface { name: name.to_owned(), source };
        let text = sys::mac(name).map_err(failed)?;
        Ok(Interface { name: name.to_owned(), mac: text })
    }

    fn index(&self) -> Result<u32, FrameLoopError> {
        sys::index(&self.name).map_err(|source| FrameLoopError::Interface { name: self.name.clone(), source })
    }
}

/// Two pairs of interfaces. The user plane is between the near ends, the load between the far ends.
#[derive(Clone, Debug)]
pub struct LinkPairs {
    /// Interface of the user plane on N3.
    pub n3: Interface,
    /// Interface of the user plane on N6.
    pub n6: Interface,
    pub ran: Interface,
    pub dn: Interface,
}

/// Contents of the packets.
#[derive(Clone, Debug)]
pub struct Packets {
    /// Length of a user packet with its IP header, in octets.
    pub length: u16,
    /// N3 address of the RAN node.
    pub gnb: Ipv4Addr,
    /// N3 address of the user plane.
    pub upf: Ipv4Addr,
    /// Host in the data network.
    pub server: Ipv4Addr,
    /// UE address of session 0. Those of the others follow.
    pub ue: Ipv4Addr,
    /// Uplink TEIDs of the sessions.
    pub teids: Teids,
    /// QFI of all packets.
    pub qfi: u8,
}

impl Packets {
    /// Returns a frame of a session as the programs of the load write it.
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
                frame[at..at + 4].copy_from_slice(&teids.teid(session).0.to_be_bytes());
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

/// Constants of the programs, in the layout of `struct constants`.
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

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for Constants {}

const _: () = assert!(size_of::<Constants>() == 7 * 4 + 80 + 36);

/// Layout of `struct load`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Load {
    first: u32,
    count: u32,
}

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for Load {}

/// Layout of `struct generations`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Generations([u8; teids::TOGETHER]);

// SAFETY: an array of octets.
unsafe impl aya::Pod for Generations {}

/// Layout of `struct counted`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Processor {
    uplink: u64,
    downlink: u64,
    random: u64,
    unrelated: u64,
    ended: u64,
}

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for Processor {}

/// Frames received from the user plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCounters {
    pub uplink: u64,
    pub downlink: u64,
    /// Frames that do not belong to the load.
    pub unrelated: u64,
    /// Frames of the load that ended because no sessions are selected ([`FrameLoop::run`]).
    pub ended: u64,
}

/// Bytes with the alignment that ELF requires.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/frame_loop.bpf.o")));

/// Constant octets of the frames' headers.
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

/// Number of different frames of a source.
const SOURCE: u64 = 4096;

/// Sends frames one by one, for measurements of one part after another.
#[derive(Debug)]
pub struct FrameSource {
    socket: sys::PacketSocket,
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl FrameSource {
    /// Opens a source of packets of the first `count` sessions. Must be called in the namespace of
    /// the far ends.
    pub fn open(ends: &LinkPairs, packets: &Packets, direction: Direction, count: u32) -> Result<Self, FrameLoopError> {
        let interface = match direction {
            Direction::Uplink => &ends.ran,
            Direction::Downlink => &ends.dn,
        };
        let socket = sys::PacketSocket::open(interface.index()?).map_err(FrameLoopError::Send)?;
        // Scatters the frames over all sessions. The step is coprime to common numbers of sessions.
        let session = |n: u64| ((n * 1_000_003) % u64::from(count.max(1))) as u32;
        let frames = (0..SOURCE).map(|n| packets.frame(ends, direction, session(n)));
        Ok(FrameSource { socket, frames: frames.collect::<Result<_, _>>()?, next: 0 })
    }

    /// Sends `frames` frames into the user plane. This processor also receives them.
    pub fn send(&mut self, frames: u32) -> Result<(), FrameLoopError> {
        for _ in 0..frames {
            self.next = (self.next + 1) % self.frames.len();
            self.socket.send(&self.frames[self.next]).map_err(FrameLoopError::Send)?;
        }
        Ok(())
    }
}

/// Programs attached to a pair of interfaces. When the value is dropped, the kernel detaches them.
#[derive(Debug)]
pub struct FrameLoop {
    bpf: Ebpf,
    packets: Packets,
    ends: LinkPairs,
    links: Vec<FdLink>,
}

impl FrameLoop {
    /// Attaches the load to the far ends of a user plane.
    pub fn load(ends: &LinkPairs, packets: Packets) -> Result<Self, FrameLoopError> {
        let mut circuit = FrameLoop::open(&ends.ran, &ends.dn, ends, packets)?;
        circuit.attach("from_n3", &ends.ran.clone())?;
        circuit.attach("from_n6", &ends.dn.clone())?;
        Ok(circuit)
    }

    /// Attaches a substitute for the user plane: it removes and adds headers, and redirects.
    pub fn bare(ends: &LinkPairs, packets: Packets) -> Result<Self, FrameLoopError> {
        // Seen from here, the far ends are the destination.
        let turned = LinkPairs { n3: ends.ran.clone(), ran: ends.n3.clone(), n6: ends.dn.clone(), dn: ends.n6.clone() };
        let turned_packets = Packets { gnb: packets.upf, upf: packets.gnb, ..packets };
        let mut circuit = FrameLoop::open(&ends.n3, &ends.n6, &turned, turned_packets)?;
        circuit.attach("bare_n3", &ends.n3.clone())?;
        circuit.attach("bare_n6", &ends.n6.clone())?;
        Ok(circuit)
    }

    /// Attaches a substitute for the user plane that ends all frames, counted as
    /// [`LoopCounters::others`].
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
            // The program reads it without swapping octets.
            u32::from(packets::sum(&header).to_be())
        };
        let mut constants = Constants {
            towards_n3: towards_n3.index()?,
            towards_n6: towards_n6.index()?,
            server: u32::from_ne_bytes(packets.server.octets()),
            address: packets.ue.to_bits(),
            teid: packets.teids.teid(0).0,
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

    /// Selects `count` sessions from `first` on for the packets. With 0 sessions, the frames end.
    pub fn run(&mut self, first: u32, count: u32) -> Result<(), FrameLoopError> {
        map(&mut self.bpf, "load")?.set(0, Load { first, count }, 0).map_err(|error| refused(&error))
    }

    /// Opens a source of packets of the first `count` sessions. Must be called in the namespace of
    /// the far ends.
    pub fn source(&self, direction: Direction, count: u32) -> Result<FrameSource, FrameLoopError> {
        FrameSource::open(&self.ends, &self.packets, direction, count)
    }

    /// Injects frames of the session `session` into the user plane. The programs keep them
    /// circulating.
    pub fn inject(&self, direction: Direction, session: u32, frames: usize) -> Result<(), FrameLoopError> {
        let frame = self.packets.frame(&self.ends, direction, session)?;
        let interface = match direction {
            Direction::Uplink => &self.ends.ran,
            Direction::Downlink => &self.ends.dn,
        };
        let socket = sys::PacketSocket::open(interface.index()?).map_err(FrameLoopError::Send)?;
        for n in 0..frames {
            // A veth interface queues 256 frames, and its reader may need this processor.
            if n > 0 && n % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
            socket.send(&frame).map_err(FrameLoopError::Send)?;
        }
        Ok(())
    }

    /// Returns the current counters.
    pub fn counted(&self) -> Result<LoopCounters, FrameLoopError> {
        let add = |sum: LoopCounters, one: LoopCounters| LoopCounters {
            uplink: sum.uplink + one.uplink,
            downlink: sum.downlink + one.downlink,
            unrelated: sum.unrelated + one.unrelated,
            ended: sum.ended + one.ended,
        };
        Ok(self.counted_by_processor()?.into_iter().fold(LoopCounters::default(), add))
    }

    /// Returns the current counters of each processor.
    pub fn counted_by_processor(&self) -> Result<Vec<LoopCounters>, FrameLoopError> {
        let map =
            self.bpf.map("counted").ok_or_else(|| FrameLoopError::Refused("there is no map counted".to_owned()))?;
        let map = PerCpuArray::<&MapData, Processor>::try_from(map).map_err(|error: MapError| refused(&error))?;
        let of = |Processor { uplink, downlink, unrelated, ended, .. }: &Processor| LoopCounters {
            uplink: *uplink,
            downlink: *downlink,
            unrelated: *unrelated,
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
    let outer = packets::tunnel(gnb, upf, teids.teid(0), qfi, length.into()).ok_or_else(wrong)?;
    let mut templates = Templates { uplink: [0; 78], downlink: [0; 34] };
    templates.uplink[..ETHERNET].copy_from_slice(&ethernet(ends.n3.mac, ends.ran.mac));
    templates.uplink[ETHERNET..ETHERNET + OUTER].copy_from_slice(&outer);
    templates.uplink[ETHERNET + OUTER..].copy_from_slice(&packets::ipv4_header(ue, server, length));
    templates.downlink[..ETHERNET].copy_from_slice(&ethernet(ends.n6.mac, ends.dn.mac));
    templates.downlink[ETHERNET..].copy_from_slice(&packets::ipv4_header(server, ue, length));
    Ok(templates)
}

/// Returns the error with the errno at the end of an error chain.
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
