//! Capture of the packets on interfaces of a namespace, as a pcap file.
//!
//! The file lets another program check the traffic. The capture does not interpret packets. The
//! link type is LINUX_SLL ("cooked"), because loopback and Ethernet interfaces share the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SNAP: usize = 65_535;
const RECEIVE_BUFFER: libc::c_int = 64 << 20;
/// LINKTYPE_LINUX_SLL of the pcap format.
const LINK_TYPE: u32 = 113;
const SLL_HEADER: usize = 16;
/// Longest time until the thread notices the stop flag.
const POLL: Duration = Duration::from_millis(50);

/// Capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Written>>,
}

/// Result of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Packets in the file.
    pub(crate) packets: u64,
    /// Packets that the kernel dropped.
    pub(crate) lost: u64,
}

impl Capture {
    /// Starts a capture on the named interfaces of the calling thread's namespace.
    pub(crate) fn start(file: File, interfaces: &[&str]) -> io::Result<Self> {
        let socket = open_socket()?;
        let mut indexes = Vec::new();
        for name in interfaces {
            indexes.push(index_of(name)?);
        }
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write_header(&mut out)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || run(&socket, &indexes, &mut out, &stopped))?;
        Ok(Capture { stop, thread })
    }

    /// Stops the capture after all packets sent before this call are in the file.
    pub(crate) fn finish(self) -> io::Result<Written> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| io::Error::other("the capture panicked"))?
    }
}

fn run(socket: &OwnedFd, indexes: &[libc::c_int], out: &mut impl Write, stop: &AtomicBool) -> io::Result<Written> {
    let mut written = Written::default();
    let mut packet = vec![0; SNAP];
    loop {
        // Read before the socket is drained: packets that arrived before the stop are still
        // written.
        let last = stop.load(Ordering::Acquire);
        while let Some(Received { captured, length, address }) = receive(socket, &mut packet)? {
            // On loopback every packet appears twice, outgoing and incoming.
            let repeat = address.sll_hatype == libc::ARPHRD_LOOPBACK
                && u32::from(address.sll_pkttype) == libc::PACKET_OUTGOING as u32;
            if indexes.contains(&address.sll_ifindex) && !repeat {
                write_packet(out, &packet[..captured], length, &address)?;
                written.packets += 1;
            }
        }
        if last {
            out.flush()?;
            written.lost = count_drops(socket)?;
            return Ok(written);
        }
    }
}

fn write_header(out: &mut impl Write) -> io::Result<()> {
    // Magic number of files with nanoseconds, version 2.4, time zone and accuracy 0.
    let mut header = Vec::with_capacity(24);
    header.extend_from_slice(&0xa1b2_3c4d_u32.to_ne_bytes());
    header.extend_from_slice(&2_u16.to_ne_bytes());
    header.extend_from_slice(&4_u16.to_ne_bytes());
    header.extend_from_slice(&[0; 8]);
    header.extend_from_slice(&(SNAP as u32).to_ne_bytes());
    header.extend_from_slice(&LINK_TYPE.to_ne_bytes());
    out.write_all(&header)
}

fn write_packet(out: &mut impl Write, packet: &[u8], original: usize, from: &libc::sockaddr_ll) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut head = [0; 16 + SLL_HEADER];
    head[0..4].copy_from_slice(&(now.as_secs() as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&now.subsec_nanos().to_ne_bytes());
    head[8..12].copy_from_slice(&((packet.len() + SLL_HEADER) as u32).to_ne_bytes());
    head[12..16].copy_from_slice(&((original + SLL_HEADER) as u32).to_ne_bytes());
    let sll = &mut head[16..];
    sll[0..2].copy_from_slice(&u16::from(from.sll_pkttype).to_be_bytes());
    sll[2..4].copy_from_slice(&from.sll_hatype.to_be_bytes());
    sll[4..6].copy_from_slice(&u16::from(from.sll_halen).to_be_bytes());
    sll[6..14].copy_from_slice(&from.sll_addr);
    // The protocol is in network byte order already.
    sll[14..16].copy_from_slice(&from.sll_protocol.to_ne_bytes());
    out.write_all(&head)?;
    out.write_all(packet)
}

fn open_socket() -> io::Result<OwnedFd> {
    let protocol = i32::from((libc::ETH_P_ALL as u16).to_be());
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // Exceeds the system's limit if permitted, else uses the limit. Packets that do not fit count
    // as lost.
    if set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER).is_err() {
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
    }
    let timeout = libc::timeval { tv_sec: 0, tv_usec: POLL.as_micros() as libc::suseconds_t };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    Ok(socket)
}

fn set_option<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let size = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and size are of one value that outlives the call, of the type the option has.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn index_of(interface: &str) -> io::Result<libc::c_int> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the string ends with NUL and outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as libc::c_int),
    }
}

/// A received packet.
struct Received {
    /// Bytes in the buffer.
    captured: usize,
    /// Bytes on the wire.
    length: usize,
    address: libc::sockaddr_ll,
}

/// Receives one packet. Returns `None` after [`POLL`] without a packet.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut size = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: buffer and address are valid for the lengths given and outlive the call.
    let got = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_TRUNC,
            (&raw mut address).cast(),
            &raw mut size,
        )
    };
    if let Ok(length) = usize::try_from(got) {
        return Ok(Some(Received { captured: length.min(buffer.len()), length, address }));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::TimedOut => Ok(None),
        // One interface went down; the others continue.
        io::ErrorKind::NetworkDown => Ok(None),
        _ => Err(error),
    }
}

fn count_drops(socket: &OwnedFd) -> io::Result<u64> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut size = mem::size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: pointer and size are of one variable that outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut size,
        )
    };
    if result == 0 { Ok(u64::from(statistics.tp_drops)) } else { Err(io::Error::last_os_error()) }
}
