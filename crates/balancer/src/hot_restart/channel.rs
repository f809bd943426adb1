//! Unix-socket channel of a hot restart.
//!
//! It transfers messages and descriptors, each with a deadline.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt,
};
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vireo_cluster::ProgressCounter;

/// Maximum size of a message in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 256 << 20;
/// Maximum of descriptors in one `sendmsg`; the system's limit is higher.
const SOCKETS_PER_MESSAGE: usize = 64;
/// Maximum of descriptors in all, above the number of connections of a balancer.
const MAX_SOCKETS: usize = 4096;
/// Interval at which a waiting thread advances its progress counter.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// One end of the channel.
#[derive(Debug)]
pub struct HotRestartChannel {
    socket: UnixStream,
    deadline: Instant,
    /// Progress counter of the waiting thread.
    progress: ProgressCounter,
}

impl HotRestartChannel {
    /// Creates a channel. The first operations must end within `within`.
    pub fn new(socket: UnixStream, within: Duration, progress: ProgressCounter) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PROGRESS_INTERVAL))?;
        socket.set_write_timeout(Some(PROGRESS_INTERVAL))?;
        Ok(HotRestartChannel { socket, deadline: Instant::now() + within, progress })
    }

    /// Sets a new deadline for the next operations, and the progress counter of the calling thread.
    pub(super) fn set_deadline(&mut self, within: Duration, progress: &ProgressCounter) {
        (self.deadline, self.progress) = (Instant::now() + within, progress.clone());
    }

    /// Returns the peer's process, and true if its user is the same or root.
    pub(super) fn peer(&self) -> io::Result<(Pid, bool)> {
        let peer = sockopt::socket_peercred(&self.socket)?;
        let own = rustix::process::geteuid();
        Ok((peer.pid, peer.uid == own || peer.uid.is_root()))
    }

    /// Advances the progress counter. Returns an error if the failed operation must not be retried.
    fn check_retry(&self, error: io::Error) -> io::Result<()> {
        self.progress.tick();
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut if Instant::now() < self.deadline => Ok(()),
            ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            _ => Err(error),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer does not read in time or has closed the channel.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send_encoded(&encoded(message)?)
    }

    /// Sends an encoded message.
    ///
    /// # Errors
    ///
    /// Returns an error as [`HotRestartChannel::send`] does.
    pub(super) fn send_encoded(&mut self, octets: &[u8]) -> io::Result<()> {
        self.write(&(octets.len() as u32).to_be_bytes())?;
        self.write(octets)
    }

    fn write(&mut self, mut octets: &[u8]) -> io::Result<()> {
        while !octets.is_empty() {
            match self.socket.write(octets) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => octets = &octets[written..],
                Err(error) => self.check_retry(error)?,
            }
        }
        Ok(())
    }

    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// Returns an error if no message arrives in time, the message is invalid, or the peer has
    /// closed the channel ([`ErrorKind::UnexpectedEof`]).
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut octets = vec![0; length];
        self.read(&mut octets)?;
        match postcard::take_from_bytes(&octets) {
            Ok((message, [])) => Ok(message),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn read(&mut self, mut room: &mut [u8]) -> io::Result<()> {
        while !room.is_empty() {
            match self.socket.read(room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => room = &mut room[read..],
                Err(error) => self.check_retry(error)?,
            }
        }
        Ok(())
    }

    /// Sends descriptors.
    ///
    /// # Errors
    ///
    /// Returns an error as [`HotRestartChannel::send`] does.
    pub(super) fn send_sockets(&mut self, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        for sockets in sockets.chunks(SOCKETS_PER_MESSAGE) {
            loop {
                let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
                let mut control = SendAncillaryBuffer::new(&mut room);
                control.push(SendAncillaryMessage::ScmRights(sockets));
                match sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL) {
                    Ok(_) => break,
                    Err(error) => self.check_retry(error.into())?,
                }
            }
        }
        Ok(())
    }

    /// Receives `count` descriptors.
    ///
    /// # Errors
    ///
    /// Returns an error as [`HotRestartChannel::receive`] does.
    pub fn receive_sockets(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut descriptors = Vec::new();
        if count > MAX_SOCKETS {
            return Err(ErrorKind::InvalidData.into());
        }
        while descriptors.len() < count {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let (mut octet, before) = ([0], descriptors.len());
            let mut vectors = [IoSliceMut::new(&mut octet)];
            match recvmsg(self.socket.as_fd(), &mut vectors, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) if received.bytes == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => {
                    self.check_retry(error.into())?;
                    continue;
                }
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(sockets) = message {
                    descriptors.extend(sockets);
                }
            }
            if descriptors.len() == before {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(descriptors)
    }
}

/// Encodes a message.
///
/// # Errors
///
/// Returns an error if the message exceeds [`MAX_MESSAGE_BYTES`].
pub(super) fn encoded(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let octets = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if octets.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::other(format!(
            "{} octets are more than can be handed over, {MAX_MESSAGE_BYTES}",
            octets.len()
        )));
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    const WITHIN: Duration = Duration::from_secs(20);

    fn channels() -> (HotRestartChannel, HotRestartChannel) {
        let (one, other) = UnixStream::pair().expect("a pair");
        let channel = |socket| HotRestartChannel::new(socket, WITHIN, ProgressCounter::default()).expect("a line");
        (channel(one), channel(other))
    }

    #[test]
    fn sockets_and_messages_arrive_unchanged() {
        let (mut one, mut other) = channels();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("it connects");
        let (tcp, _) = listener.accept().expect("it is there");
        // More than fit in one `sendmsg`.
        let mut sockets = vec![udp.as_fd(), tcp.as_fd()];
        sockets.extend((0..SOCKETS_PER_MESSAGE).map(|_| listener.as_fd()));
        one.send(&"before").expect("room");
        one.send_sockets(&sockets).expect("room");
        one.send(&vec![7_u8; 100_000]).expect("room");
        assert_eq!(other.receive::<String>().expect("a message"), "before");
        let mut descriptors = other.receive_sockets(sockets.len()).expect("sockets").into_iter();
        assert_eq!(other.receive::<Vec<u8>>().expect("a message"), [7; 100_000]);

        let address = udp.local_addr().expect("an address");
        drop((udp, tcp));
        let udp = UdpSocket::from(descriptors.next().expect("a socket"));
        assert_eq!(udp.local_addr().expect("an address"), address);
        let mut tcp = TcpStream::from(descriptors.next().expect("a socket"));
        tcp.write_all(b"it").expect("it is connected");
        let mut read = [0; 2];
        peer.read_exact(&mut read).expect("it is connected");
        assert_eq!((&read, descriptors.len()), (b"it", SOCKETS_PER_MESSAGE));
    }

    #[test]
    fn closed_and_silent_peers_are_distinguished() {
        let (mut one, other) = channels();
        one.set_deadline(Duration::from_millis(1), &ProgressCounter::default());
        assert_eq!(one.receive::<u8>().expect_err("silence").kind(), ErrorKind::TimedOut);
        let (pid, same) = one.peer().expect("a peer");
        assert_eq!((pid, same), (rustix::process::getpid(), true));
        drop(other);
        one.set_deadline(WITHIN, &ProgressCounter::default());
        assert_eq!(one.receive::<u8>().expect_err("the end").kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn malformed_message_is_refused() {
        let (mut one, mut other) = channels();
        one.write(&[0x7f, 0xff, 0xff, 0xff]).expect("room");
        assert_eq!(other.receive::<u8>().expect_err("too long").kind(), ErrorKind::InvalidData);
        one.send_encoded(&[1, 2]).expect("room");
        assert_eq!(other.receive::<u8>().expect_err("an octet too many").kind(), ErrorKind::InvalidData);
        one.send(&0_u8).expect("room");
        // The length prefix of the message carries no descriptor.
        assert_eq!(other.receive_sockets(1).expect_err("none").kind(), ErrorKind::InvalidData);
        assert!(other.receive_sockets(MAX_SOCKETS + 1).is_err());
    }
}
