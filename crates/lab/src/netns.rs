//! Private namespaces: user, mount and network namespaces for child processes.
//!
//! The user namespace exists only if the caller is not root. The mount namespace has its own
//! `/tmp`. Network namespaces have no names.
//!
//! Processes hold the only references. When the last process inside has ended, for any reason, the
//! kernel removes interfaces, addresses and files. No cleanup is necessary, and nothing can remain.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use vireo_config::Failure;

/// Reason why namespaces are not available, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The caller is not root and may not create user namespaces.
    #[error(
        "this needs network namespaces, and the system lets only root make them ({source}): run it with sudo, or allow \
         unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0)"
    )]
    Refused { source: io::Error },
    /// A system call or file operation failed.
    #[error("{step}: {source}")]
    Step { step: String, source: io::Error },
    /// The `ip` command failed.
    #[error("ip {command}: {message}")]
    Ip {
        command: String,
        /// Standard error of `ip`.
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
    // SAFETY: takes no pointers; the kernel refuses what a process with several threads must not
    // do.
    check(unsafe { libc::unshare(flags) })
}

/// Moves this process into its own mount namespace, with an empty `/tmp` that ends with it. Without
/// the privilege, the process first gets its own user namespace. The process must have one thread.
pub fn isolate() -> Result<(), NetnsError> {
    // SAFETY: takes no pointers and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET).is_err() {
        unshare(libc::CLONE_NEWUSER).map_err(|source| NetnsError::Refused { source })?;
        // Some systems grant the namespace without privileges. One of these writes fails then.
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

/// Unnamed network namespace.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
}

/// End of a veth pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VethEnd<'a> {
    pub(crate) netns: &'a Netns,
    pub(crate) interface: &'a str,
    /// Address with its prefix length, such as `10.9.0.1/24`.
    pub(crate) address: &'a str,
}

impl Netns {
    /// Creates a namespace with its loopback interface up. The calling thread is inside afterwards.
    pub fn new() -> Result<Self, NetnsError> {
        unshare(libc::CLONE_NEWNET).map_err(step("making a network namespace"))?;
        let file = File::open("/proc/thread-self/ns/net").map_err(step("opening a network namespace"))?;
        let netns = Netns { fd: file.into() };
        // Duplicate address detection is off: no other node exists, and links would be unusable for
        // a second or two.
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

    /// Moves the calling thread inside. Children that the thread starts are inside too.
    pub fn enter(&self) -> Result<(), NetnsError> {
        setns(&self.fd).map_err(step("entering a network namespace"))
    }

    /// Runs `work` on a thread inside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread.join().map_err(|_| Failure("a thread in a namespace panicked".into()))?.map_err(Failure::from)
        })
    }

    /// Returns the path of the namespace, for programs that take a path.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Runs `ip` inside with these arguments.
    pub fn ip(&self, arguments: &str) -> Result<(), NetnsError> {
        let output = self.output(Command::new("ip").args(arguments.split_whitespace()));
        let failed = |message: String| Err(NetnsError::Ip { command: arguments.to_owned(), message });
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => failed("not found; install iproute2".into()),
            Err(error) => failed(error.to_string()),
        }
    }

    /// Runs a command inside and returns its output.
    pub fn output(&self, command: &mut Command) -> io::Result<Output> {
        self.inside(command)?.output()
    }

    /// Configures a command to start inside. The kernel kills the child when its starting thread
    /// ends, so that no child survives a crash. Start it from a long-lived thread, preferably the
    /// main thread.
    pub fn inside<'c>(&self, command: &'c mut Command) -> io::Result<&'c mut Command> {
        let fd = self.fd.try_clone()?;
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made; nothing allocates or takes a
        // lock.
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

    /// Connects two namespaces by a veth pair.
    pub(crate) fn join(one: VethEnd<'_>, two: VethEnd<'_>) -> Result<(), NetnsError> {
        let peer = format!("peer name {} netns {}", two.interface, two.netns.path());
        one.netns.ip(&format!("link add {} type veth {peer}", one.interface))?;
        for VethEnd { netns, interface, address } in [one, two] {
            netns.ip(&format!("address add {address} dev {interface}"))?;
            netns.ip(&format!("link set {interface} up"))?;
        }
        Ok(())
    }
}

/// Prepares an interface of the calling thread's namespace as peer of native XDP at the other end
/// of a veth pair. With generic receive offload it accepts frames that XDP redirects to it. Without
/// checksum offload its frames are complete, as on a wire.
pub fn peer_of_xdp(interface: &str) -> Result<(), NetnsError> {
    // From linux/ethtool.h and linux/sockios.h; libc lacks them.
    const ETHTOOL_STXCSUM: u32 = 0x17;
    const ETHTOOL_SGRO: u32 = 0x2c;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(step("opening a socket"))?;
    for (command, what) in
        [([ETHTOOL_SGRO, 1], "turning receive offload on"), ([ETHTOOL_STXCSUM, 0], "turning checksum offload off")]
    {
        let mut value: [u32; 2] = command;
        // SAFETY: an ifreq is plain data for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        // SAFETY: both structures are whole, hold what these commands read (`struct
        // ethtool_value`), and outlive the call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) }).map_err(step(what))?;
    }
    Ok(())
}

fn setns(fd: &impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call takes no pointers.
    check(unsafe { libc::setns(fd.as_fd().as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Kernel counters of an interface: packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    pub rx_packets: u64,
    /// Received bytes, with the link header.
    pub rx_bytes: u64,
    pub tx_packets: u64,
    /// Sent bytes, with the link header.
    pub tx_bytes: u64,
    /// Packets dropped for lack of buffers, in either direction.
    pub dropped: u64,
}

/// Reads the kernel's counters of an interface of the calling thread's namespace.
pub fn interface_counters(interface: &str) -> Result<InterfaceCounters, NetnsError> {
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

    /// Sends three datagrams between two namespaces and checks the kernel's count. `vireo demo`
    /// tests the case without root, because a user namespace needs a process with one thread.
    #[test]
    fn datagrams_cross_and_are_counted() {
        if unshare(libc::CLONE_NEWNET).is_err() {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        }
        let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
        let end = |netns, interface, address| VethEnd { netns, interface, address };
        Netns::join(end(&a, "left", "10.9.0.1/24"), end(&b, "right", "10.9.0.2/24")).unwrap();
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
