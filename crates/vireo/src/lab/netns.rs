//! Namespaces that nobody else sees: a user namespace where the caller is not root, a mount namespace with a `/tmp` of
//! its own, and unnamed network namespaces with children inside.
//!
//! Everything here lives by references of processes: when the last process inside has ended, however it ended, the
//! kernel takes interfaces, addresses and files away. Nothing has to be cleaned up, so nothing can be left behind.

use crate::cli::Failure;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// Why there are no namespaces to be had: what is refused and what helps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetnsError {
    /// Neither root nor allowed to make user namespaces.
    #[error(
        "this needs network namespaces, and the system lets only root make them ({source}): run it with sudo, or allow \
         unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0)"
    )]
    Refused {
        /// What the kernel says.
        source: io::Error,
    },
    /// One step failed.
    #[error("{step}: {source}")]
    Step {
        /// What was tried.
        step: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// `ip` refused.
    #[error("ip {command}: {message}")]
    Ip {
        /// Its arguments.
        command: String,
        /// What it said.
        message: String,
    },
}

fn step(what: &str) -> impl FnOnce(io::Error) -> NetnsError + '_ {
    move |source| NetnsError::Step { step: what.to_owned(), source }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers; the kernel refuses what a process with several threads must not do.
    check(unsafe { libc::unshare(flags) })
}

/// Moves this process into a mount namespace of its own, and into a user namespace of its own if it may not do that
/// otherwise, with an empty `/tmp` that ends with it. To be called before there are other threads.
pub(crate) fn isolate() -> Result<(), NetnsError> {
    // SAFETY: takes no pointers and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET).is_err() {
        unshare(libc::CLONE_NEWUSER).map_err(|source| NetnsError::Refused { source })?;
        // Some systems grant the namespace and withhold its privileges; then one of these says so.
        let map = |file: &str, text: String| fs::write(file, text).map_err(|source| NetnsError::Refused { source });
        map("/proc/self/setgroups", "deny".into())?;
        map("/proc/self/uid_map", format!("0 {uid} 1"))?;
        map("/proc/self/gid_map", format!("0 {gid} 1"))?;
        unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET).map_err(|source| NetnsError::Refused { source })?;
    }
    mount(None, "/", libc::MS_REC | libc::MS_PRIVATE).map_err(step("making mounts private"))?;
    mount(Some("tmpfs"), "/tmp", libc::MS_NOSUID | libc::MS_NODEV).map_err(step("mounting a tmpfs on /tmp"))
}

fn mount(kind: Option<&str>, target: &str, flags: libc::c_ulong) -> io::Result<()> {
    let target = CString::new(target)?;
    let kind = kind.map(CString::new).transpose()?;
    let kind = kind.as_ref().map_or(std::ptr::null(), |k| k.as_ptr());
    // SAFETY: the strings end with NUL and outlive the call; null is allowed where it is given.
    check(unsafe { libc::mount(kind, target.as_ptr(), kind, flags, std::ptr::null()) })
}

/// A network namespace without a name.
#[derive(Debug)]
pub(crate) struct Netns {
    fd: OwnedFd,
}

impl Netns {
    /// A new one with its loopback up. The calling thread is inside afterwards.
    pub(crate) fn new() -> Result<Self, NetnsError> {
        unshare(libc::CLONE_NEWNET).map_err(step("making a network namespace"))?;
        let file = File::open("/proc/thread-self/ns/net").map_err(step("opening a network namespace"))?;
        let netns = Netns { fd: file.into() };
        // No duplicate address detection: nobody else is there, and links would be of no use for a second or two.
        for name in ["accept_dad", "dad_transmits"] {
            let file = format!("/proc/sys/net/ipv6/conf/default/{name}");
            match fs::write(&file, "0") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(step(&file)(error)),
                _ => {}
            }
        }
        netns.ip("link set lo up")?;
        Ok(netns)
    }

    /// Moves the calling thread inside. Children of the thread start there.
    pub(crate) fn enter(&self) -> Result<(), NetnsError> {
        setns(&self.fd).map_err(step("entering a network namespace"))
    }

    /// Runs `work` on a thread inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread.join().map_err(|_| Failure("a thread in a namespace panicked".into()))?.map_err(Failure::from)
        })
    }

    /// The namespace as a path, for programs that take one.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Runs `ip` inside with these words as arguments.
    pub(crate) fn ip(&self, arguments: &str) -> Result<(), NetnsError> {
        let output = self.output(Command::new("ip").args(arguments.split_whitespace()));
        let failed = |message: String| Err(NetnsError::Ip { command: arguments.to_owned(), message });
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => failed("not found; install iproute2".into()),
            Err(error) => failed(error.to_string()),
        }
    }

    /// Runs a command inside and waits for what it writes.
    pub(crate) fn output(&self, command: &mut Command) -> io::Result<Output> {
        self.inside(command)?.output()
    }

    /// Lets the command start inside. The child is killed when the thread that starts it ends, so that nothing
    /// survives a crash: start it from a thread that lasts, best the main one.
    pub(crate) fn inside<'c>(&self, command: &'c mut Command) -> io::Result<&'c mut Command> {
        let fd = self.fd.try_clone()?;
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made; nothing allocates or takes a lock.
        unsafe {
            command.pre_exec(move || {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                if libc::getppid() as u32 != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                setns(&fd)
            });
        }
        Ok(command)
    }

    /// Joins two namespaces by a veth pair: `(namespace, interface, address/prefix)` for each end.
    pub(crate) fn join(one: (&Netns, &str, &str), two: (&Netns, &str, &str)) -> Result<(), NetnsError> {
        one.0.ip(&format!("link add {} type veth peer name {} netns {}", one.1, two.1, two.0.path()))?;
        for (netns, interface, address) in [one, two] {
            netns.ip(&format!("address add {address} dev {interface}"))?;
            netns.ip(&format!("link set {interface} up"))?;
        }
        Ok(())
    }
}

/// Makes an interface of the calling thread's namespace the peer that native XDP at the other end of a veth pair needs:
/// with generic receive offload it takes frames that XDP redirects to it, and without checksum offload the frames it
/// sends are whole, as they are on a wire.
pub(crate) fn peer_of_xdp(interface: &str) -> Result<(), NetnsError> {
    // linux/ethtool.h and linux/sockios.h, which libc does not have
    const ETHTOOL_STXCSUM: u32 = 0x17;
    const ETHTOOL_SGRO: u32 = 0x2c;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(step("opening a socket"))?;
    for (command, what) in
        [([ETHTOOL_SGRO, 1], "turning receive offload on"), ([ETHTOOL_STXCSUM, 0], "turning checksum offload off")]
    {
        let mut value: [u32; 2] = command;
        // SAFETY: an ifreq is plain data for which zeros are valid
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        // SAFETY: both structures are whole, hold what these commands read (`struct ethtool_value`), and outlive the call
        check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) }).map_err(step(what))?;
    }
    Ok(())
}

fn setns(fd: &impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call takes no pointers.
    check(unsafe { libc::setns(fd.as_fd().as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Packets and octets of an interface of the calling thread's namespace, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceCounters {
    /// Packets received.
    pub(crate) rx_packets: u64,
    /// Octets received, with the link header.
    pub(crate) rx_bytes: u64,
    /// Packets sent.
    pub(crate) tx_packets: u64,
    /// Octets sent, with the link header.
    pub(crate) tx_bytes: u64,
    /// Packets that it had no room for, in either direction.
    pub(crate) dropped: u64,
}

/// Reads the kernel's counters of an interface of the calling thread's namespace.
pub(crate) fn interface_counters(interface: &str) -> Result<InterfaceCounters, NetnsError> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").map_err(step("reading /proc/thread-self/net/dev"))?;
    parse_counters(&text, interface)
        .ok_or_else(|| step("reading the kernel's counters")(io::Error::other(format!("no interface {interface}"))))
}

fn parse_counters(text: &str, interface: &str) -> Option<InterfaceCounters> {
    let line = text.lines().find_map(|l| l.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().ok());
    let mut at = |skip: usize| numbers.nth(skip).flatten();
    let (rx_bytes, rx_packets, rx_dropped) = (at(0)?, at(0)?, at(1)?);
    let (tx_bytes, tx_packets, tx_dropped) = (at(4)?, at(0)?, at(1)?);
    Some(InterfaceCounters { rx_bytes, rx_packets, tx_bytes, tx_packets, dropped: rx_dropped + tx_dropped })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, UdpSocket};

    #[test]
    fn counters_are_read_by_name() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n   n60: 9 9 9 9 9 9 9 9 9 9 9 9\n    \
                    n6: 100 1 0 3 0 0 0 0 200 2 0 4 0 0 0 0\n";
        let n6 = InterfaceCounters { rx_bytes: 100, rx_packets: 1, tx_bytes: 200, tx_packets: 2, dropped: 7 };
        assert_eq!(parse_counters(text, "n6"), Some(n6));
        assert_eq!(parse_counters(text, "n3"), None);
    }

    /// Two namespaces, three datagrams from one to the other, and the kernel's count of them.
    /// The way without root is tested through `vireo demo`: a user namespace needs a process with one thread.
    #[test]
    fn datagrams_cross_and_are_counted() {
        if unshare(libc::CLONE_NEWNET).is_err() {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        }
        let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
        Netns::join((&a, "left", "10.9.0.1/24"), (&b, "right", "10.9.0.2/24")).unwrap();
        b.enter().unwrap();
        let receiver = UdpSocket::bind("10.9.0.2:7000").unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let before = interface_counters("right").unwrap();
        a.enter().unwrap();
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        for _ in 0..3 {
            sender.send_to(&[7; 500], SocketAddr::from(([10, 9, 0, 2], 7000))).unwrap();
            receiver.recv(&mut [0; 600]).unwrap();
        }
        b.enter().unwrap();
        let after = interface_counters("right").unwrap();
        assert!(after.rx_packets - before.rx_packets >= 3 && after.rx_bytes - before.rx_bytes >= 3 * 528);
        let inside = a.output(Command::new("ip").args(["-o", "-4", "address"])).unwrap();
        assert!(String::from_utf8_lossy(&inside.stdout).contains("10.9.0.1/24"));
    }
}
