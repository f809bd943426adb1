//! Reasons why a user plane does not start.

use std::io;
use std::net::IpAddr;

/// Reason why a user plane does not start. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Creating a TUN device needs a capability.
    #[error("no permission to make the TUN device {0}: run as root or with CAP_NET_ADMIN")]
    TunPermission(String),
    /// The kernel has no TUN driver.
    #[error("the kernel has no /dev/net/tun: load the module `tun` (modprobe tun), or give the container the device")]
    NoTun,
    /// The name belongs to another interface.
    #[error("the interface {0} is in use: choose another name for the TUN device or end the process that has it")]
    TunInUse(String),
    /// Any other failure of the TUN device.
    #[error("cannot set up the TUN device {name}: {source}")]
    Tun {
        /// Name of the device.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The pool is routed to another interface.
    #[error("cannot route the pool {pool} to {name}, is it in use on another interface? {source}")]
    Route {
        /// Network and prefix length.
        pool: String,
        /// Name of the TUN device.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel does not support IPv6.
    #[error(
        "the kernel has no IPv6 for the pool {0}: remove the pool, or turn IPv6 on (sysctl net.ipv6.conf.all.disable_ipv6=0)"
    )]
    NoIpv6(String),
    /// The N3 address belongs to another machine.
    #[error("the N3 address {0} is not an address of this machine: see `ip address`, then correct the configuration")]
    N3NotLocal(IpAddr),
    /// Another process has the GTP-U port.
    #[error("UDP port 2152 of {0} is in use: end the other GTP-U process or choose another N3 address")]
    N3InUse(IpAddr),
    /// Any other failure of the socket.
    #[error("cannot open UDP port 2152 of {address}: {source}")]
    N3 {
        address: IpAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The configuration has no N3 address.
    #[error("no N3 address is configured: name at least one address of this machine")]
    NoN3,
    /// The size of a pool is not supported.
    #[error("the pool {0} is too small or too wide: IPv4 takes /8 to /30, IPv6 /16 to /64")]
    Pool(String),
    /// The program for address translation is missing.
    #[error("address translation needs the program nft: install the package nftables, or turn NAT off")]
    NoNft,
    /// The program for address translation failed.
    #[error("nft did not take the rules for address translation: {0}; check `nft list tables`, or turn NAT off")]
    Nft(String),
    /// XDP is configured without interfaces.
    #[error("XDP has no interface to run on: name those of N3 and N6, or choose the sockets driver")]
    NoXdpInterface,
    /// An XDP interface does not exist.
    #[error("there is no interface {0} for XDP: see `ip link`, then correct the configuration")]
    XdpInterface(String),
    /// BPF needs capabilities.
    #[error(
        "no permission to load the XDP program: run as root or with CAP_BPF and CAP_NET_ADMIN outside of user \
         namespaces, or choose the sockets driver"
    )]
    XdpPermission,
    /// The kernel refuses the program.
    #[error(
        "the kernel does not take the XDP program ({0}): it needs Linux 5.15 or later, or choose the sockets driver"
    )]
    Xdp(String),
    /// The network driver does not support native XDP.
    #[error("the driver of {0} cannot run XDP natively: choose the generic mode of XDP, or the sockets driver")]
    XdpNotNative(String),
    /// A network driver or the kernel does not run XDP on frames in several buffers.
    #[error(
        "XDP does not run on {interface} at an MTU of {mtu}: frames above {most} octets need Linux 5.18 or later and a \
         network driver with multi-buffer XDP; lower the MTU to {most}, or choose the generic mode of XDP or the \
         af-packet driver"
    )]
    XdpMtu {
        /// Name of the interface.
        interface: String,
        /// MTU of the interface in octets.
        mtu: u32,
        /// Largest MTU in octets with one buffer for each frame.
        most: u32,
    },
    /// The interface has another XDP program.
    #[error("another XDP program is on {0}: remove it (`ip link set dev {0} xdp off`), or choose the sockets driver")]
    XdpBusy(String),
    /// Translated packets follow the kernel's routes.
    #[error("with address translation packets go by the kernel's routes: remove the next hops of XDP, or turn NAT off")]
    XdpNatNextHop,
    /// The kernel would drop packets that come out of tunnels.
    #[error(
        "the kernel drops UEs' packets that come by {0} (reverse path filter), which address translation with XDP needs: \
         run `sysctl -w net.ipv4.conf.{0}.rp_filter=2`, or choose the sockets driver"
    )]
    XdpNatFilter(String),
    /// More items than the tables of the program hold.
    #[error("XDP takes at most {most} {items}: configure fewer, or choose the sockets driver")]
    XdpTooMany {
        /// Capacity of the table.
        most: usize,
        /// Plural noun for the items.
        items: &'static str,
    },
    /// Modules with a common interface would receive each other's packets.
    #[error("the interface {0} is in two modules: give each module interfaces of its own")]
    ModuleInterface(String),
    /// No processor exists for a worker.
    #[error("this machine has no processor {0}: see `nproc`, then correct the modules' cores")]
    ModuleCore(usize),
    /// Filters cannot distribute packets to a single queue.
    #[error(
        "{0} receives by one queue, or does not say by how many: give it one for each worker (`ethtool -L {0} combined \
         N`), or remove `nic-filters`"
    )]
    NicQueues(String),
    /// The program for filters is missing.
    #[error("filters of a network card need the program ethtool: install the package ethtool, or remove `nic-filters`")]
    NoEthtool,
    /// The network card does not support such filters.
    #[error(
        "{interface} takes no filters of address ranges ({reason}): they need a network card that has them (veth has \
         none) and `ethtool -K {interface} ntuple on`; or remove `nic-filters`, and the card divides packets by a hash"
    )]
    NicFilters {
        /// Name of the interface.
        interface: String,
        /// Output of ethtool, or why it did not run.
        reason: String,
    },
    /// A frame driver is configured without interfaces.
    #[error("the driver has no interface to read frames from: name those of N3 and N6, or choose the sockets driver")]
    NoFramesInterface,
    /// A frame interface does not exist.
    #[error("there is no interface {0} to read frames from: see `ip link`, then correct the configuration")]
    FramesInterface(String),
    /// The interface has no Ethernet frames.
    #[error(
        "{interface} cannot be read frame by frame ({source}): name Ethernet interfaces, or choose the sockets driver"
    )]
    FramesNotEthernet {
        /// Name of the interface.
        interface: String,
        /// Error of the kernel, or the reason why the interface is unsuitable.
        source: io::Error,
    },
    /// Packet sockets and BPF need capabilities.
    #[error(
        "no permission to read frames: run as root or with CAP_NET_RAW, CAP_BPF and CAP_NET_ADMIN outside of user \
         namespaces, or choose the sockets driver"
    )]
    FramesPermission,
    /// The kernel refuses the programs that separate the driver's frames from its own.
    #[error(
        "the kernel does not take the program that tells our frames from its own ({0}): it needs Linux 5.15 or later, \
         or choose the sockets driver"
    )]
    Frames(String),
    /// Older kernels cannot attach a program to the ingress of an interface by a link.
    #[error(
        "the kernel cannot keep from itself what it hands to AF_PACKET on {0}: that needs Linux 6.6 or later; choose \
         the xdp, af-xdp or sockets driver"
    )]
    NoTcx(String),
    /// The kernel has no AF_PACKET, or memory is insufficient.
    #[error(
        "cannot make a ring of AF_PACKET ({0}): it needs a kernel with CONFIG_PACKET and 8 MiB for each interface and \
         worker; configure fewer workers, or choose the sockets driver"
    )]
    Ring(io::Error),
    /// The kernel has no AF_XDP.
    #[error("the kernel has no AF_XDP (CONFIG_XDP_SOCKETS): choose the xdp, af-packet or sockets driver")]
    NoXsk,
    /// Another process has the queue.
    #[error("another process reads queue {0} of an interface by AF_XDP: end it, or choose the xdp or sockets driver")]
    XskBusy(u32),
    /// Some queues would have no reader.
    #[error(
        "{interface} receives by {queues} queues and the user plane has {workers} workers: AF_XDP needs as many, set \
         workers = {queues}, or run `ethtool -L {interface} combined {workers}` (rx {workers} where it has no combined \
         ones)"
    )]
    XskQueues {
        /// Name of the interface.
        interface: String,
        /// Number of its receive queues.
        queues: u32,
        /// Number of workers of the user plane.
        workers: usize,
    },
    /// The frames exceed the maximum size.
    #[error("AF_XDP takes frames of an MTU of up to {most}: lower that of {interface}, or choose the af-packet driver")]
    XskMtu {
        /// Name of the interface.
        interface: String,
        /// Largest supported MTU in octets.
        most: usize,
    },
    /// Insufficient memory or any other failure of the sockets.
    #[error(
        "cannot set up AF_XDP ({0}): it needs 16 MiB of lockable memory for each worker (ulimit -l) and a queue of each \
         interface for it; configure fewer workers, or choose the af-packet or sockets driver"
    )]
    Xsk(io::Error),
    /// A bare forwarder writes the headers of its frames once, at start.
    #[error("the kernel knows no neighbour on the way to {0} that frames can be sent to: give it a permanent entry")]
    BareHop(IpAddr),
    /// Each user plane on a machine would replace the rules of the other.
    #[error("address translation is of one user plane of a machine: turn NAT off, or host-routes")]
    HostRoutesNat,
    /// Frames bypass netfilter.
    #[error("frames go past the kernel's address translation: turn NAT off, or choose the sockets driver")]
    FramesNat,
    /// Slices and modules both distribute packets to workers.
    #[error("slices and modules both have workers of their own: remove the slices' data-workers, or the modules")]
    SlicesAndModules,
    /// The driver cannot steer packets to the workers of a slice.
    #[error(
        "this driver does not hand packets to the workers of slices: choose driver = \"xdp\", \"af-packet\" or \"sockets\", or \
         remove the slices' data-workers"
    )]
    SlicesDriver,
    /// XDP programs run on processors, not in threads.
    #[error(
        "with driver = \"xdp\" each worker of a slice has a processor of its own: give each slice data-cores that no other \
         has, or choose driver = \"af-packet\" or \"sockets\""
    )]
    SliceProcessors,
    /// The number of workers is out of range.
    #[error("all slices together have 1 to 64 workers, and each has one at least: correct their data-workers")]
    SliceWorkers,
    /// BPF needs capabilities.
    #[error(
        "no permission to divide packets among slices: run as root or with CAP_BPF and CAP_NET_ADMIN outside of user \
         namespaces, or remove the slices' data-workers"
    )]
    SlicesPermission,
    /// The kernel refuses the programs.
    #[error(
        "the kernel does not take the programs that divide packets among slices ({0}): they need Linux 5.15 or later; \
         or remove the slices' data-workers"
    )]
    Slices(String),
    /// The kernel program does not run in a process.
    #[error(
        "with driver = \"xdp\" the data workers are a program in the kernel, which no process holds: choose driver = \"sockets\" \
         or \"af-packet\" for placement = \"processes\", or placement = \"threads\""
    )]
    ProcessesOfXdp,
    /// The memory of AF_XDP belongs to its process.
    #[error(
        "AF_XDP's frames lie in memory that ends with its process, so no other takes it over: choose driver = \"sockets\" or \
         \"af-packet\" for placement = \"processes\", or placement = \"threads\""
    )]
    ProcessesOfAfXdp,
    /// A killed process would never release a lock.
    #[error("placement = \"processes\" needs locking = \"fine\": a lock that a killed worker holds is held for ever")]
    ProcessesLocking,
    /// The hot table lies in the memory of one process.
    #[error("placement = \"processes\" needs hot-users = 0: the hot level of users is not shared with processes")]
    ProcessesHot,
    /// The processes do not start.
    #[error(
        "the processes of the data workers do not start ({0}): see the limits on processes and memory, or set placement = \
         \"threads\""
    )]
    Processes(io::Error),
    /// The system has no threads or descriptors left.
    #[error("cannot start the user plane: {0}")]
    Io(#[from] io::Error),
}
