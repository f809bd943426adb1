//! Operating system set-up of the user plane: TUN device, addresses, routes and forwarding.
//!
//! It also installs address translation by nftables if the configuration requests it.

use crate::sys::netlink::{self, Netlink};
use crate::sys::tun::Tun;
use crate::tables::Pool;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use tracing::{info, warn};

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
    #[error("XDP takes at most {most} {what}: configure fewer, or choose the sockets driver")]
    XdpTooMany {
        /// Capacity of the table.
        most: usize,
        /// Plural noun for the items.
        what: &'static str,
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
        "{interface} takes no filters of address ranges ({says}): they need a network card that has them (veth has \
         none) and `ethtool -K {interface} ntuple on`; or remove `nic-filters`, and the card divides packets by a hash"
    )]
    NicFilters {
        /// Name of the interface.
        interface: String,
        /// Output of ethtool.
        says: String,
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
    BareHop(std::net::IpAddr),
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

/// Returns the first address of a pool's network, which the machine itself uses.
fn gateway_v4(network: Ipv4Addr, length: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    Ipv4Addr::from_bits((network.to_bits() & mask) + 1)
}

fn gateway_v6(network: Ipv6Addr, length: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    Ipv6Addr::from_bits((network.to_bits() & mask) + 1)
}

/// Returns the pools as networks with their MTU.
///
/// # Errors
///
/// Returns an error if the size of a pool is not supported.
fn networks(pools: &[Pool]) -> Result<Vec<(IpAddr, u8, u16)>, StartError> {
    let mut networks = vec![];
    for pool in pools {
        if let Some((network, length)) = pool.ipv4 {
            if !(8..=30).contains(&length) {
                return Err(StartError::Pool(format!("{network}/{length}")));
            }
            let mask = u32::MAX << (32 - length);
            networks.push((Ipv4Addr::from_bits(network.to_bits() & mask).into(), length, pool.mtu));
        }
        if let Some((network, length)) = pool.ipv6 {
            if !(16..=64).contains(&length) {
                return Err(StartError::Pool(format!("{network}/{length}")));
            }
            let mask = u128::MAX << (128 - length);
            networks.push((Ipv6Addr::from_bits(network.to_bits() & mask).into(), length, pool.mtu));
        }
    }
    Ok(networks)
}

/// Creates the TUN device with `queues` queues, its addresses and its routes. With `shared`,
/// another user plane may have routes of the pools.
pub(crate) fn tun(name: &str, queues: usize, pools: &[Pool], shared: bool) -> Result<Vec<Tun>, StartError> {
    let networks = networks(pools)?;
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => StartError::TunPermission(name.to_owned()),
        io::ErrorKind::NotFound => StartError::NoTun,
        io::ErrorKind::ResourceBusy => StartError::TunInUse(name.to_owned()),
        // The name belongs to an interface of another kind.
        io::ErrorKind::InvalidInput if netlink::index_of(name).is_ok() => StartError::TunInUse(name.to_owned()),
        _ => StartError::Tun { name: name.to_owned(), source: error },
    };
    if netlink::index_of(name).is_ok() {
        return Err(StartError::TunInUse(name.to_owned()));
    }
    let queues: Vec<Tun> =
        (0..queues).map(|_| Tun::open(name, queues > 1)).collect::<Result<_, _>>().map_err(refused)?;
    let kernel = Netlink::open().map_err(refused)?;
    let index = netlink::index_of(name).map_err(refused)?;
    let mtu = networks.iter().map(|(_, _, mtu)| *mtu).max().unwrap_or(1400);
    // Containers often disable IPv6 for every device. The device belongs to this process. A failure
    // shows below.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "0");
    kernel.up(index, mtu.into()).map_err(refused)?;
    for (network, length, mtu) in networks {
        let gateway = match network {
            IpAddr::V4(v4) => gateway_v4(v4, length).into(),
            IpAddr::V6(v6) => gateway_v6(v6, length).into(),
        };
        let pool = format!("{network}/{length}");
        let source = |source: io::Error| match source.raw_os_error() {
            // The kernel would not refuse an IPv4 address of the same device with these errors.
            Some(libc::EACCES | libc::EAFNOSUPPORT | libc::EOPNOTSUPP) if network.is_ipv6() => {
                StartError::NoIpv6(pool.clone())
            }
            _ => StartError::Route { pool: pool.clone(), name: name.to_owned(), source },
        };
        kernel.address(index, gateway).map_err(source)?;
        match kernel.route(index, network, length, mtu.into()) {
            Err(error) if shared && error.raw_os_error() == Some(libc::EEXIST) => {
                info!("{network}/{length} is routed to another device: packets come here by the routes of single UEs");
            }
            routed => routed.map_err(source)?,
        }
    }
    Ok(queues)
}

/// Enables forwarding for the families of the pools. Logs a warning where it may not.
pub(crate) fn forwarding(pools: &[Pool]) {
    let families = [
        ("/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward", pools.iter().any(|pool| pool.ipv4.is_some())),
        (
            "/proc/sys/net/ipv6/conf/all/forwarding",
            "net.ipv6.conf.all.forwarding",
            pools.iter().any(|pool| pool.ipv6.is_some()),
        ),
    ];
    for (file, name, wanted) in families {
        let on = std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
        if !wanted || on {
            continue;
        }
        match std::fs::write(file, "1") {
            Ok(()) => info!("forwarding was off: {name} is 1 now"),
            Err(error) => warn!(
                "forwarding is off and cannot be turned on ({error}): no UE reaches beyond this machine; \
                 run `sysctl -w {name}=1`"
            ),
        }
    }
}

/// Checks that the kernel accepts packets of UEs from these interfaces, though their addresses are
/// routed to the TUN device. The strict filter of RFC 3704 refuses them. The higher of the
/// interface's and the common setting applies.
///
/// # Errors
///
/// Returns an error if the strict filter is active on an interface.
pub(crate) fn reverse_path(interfaces: &[String]) -> Result<(), StartError> {
    let filter = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    match interfaces.iter().find(|name| filter(name).max(filter("all")) == 1) {
        Some(name) => Err(StartError::XdpNatFilter(name.clone())),
        None => Ok(()),
    }
}

/// The nftables table that belongs to the user plane.
const TABLE: &str = "inet vireo";

/// Address translation. Dropping the value removes it.
#[derive(Debug)]
pub(crate) struct Nat(());

impl Nat {
    /// Installs the table in one transaction. Replaces a table that an earlier run left.
    pub(crate) fn install(name: &str, pools: &[Pool]) -> Result<Self, StartError> {
        let mut rules = format!("table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n chain postrouting {{\n");
        rules.push_str("  type nat hook postrouting priority srcnat; policy accept;\n");
        for (network, length, _) in networks(pools)? {
            let family = if network.is_ipv4() { "ip" } else { "ip6" };
            let _ = writeln!(rules, "  {family} saddr {network}/{length} oifname != \"{name}\" masquerade");
        }
        rules.push_str(" }\n}\n");
        nft(&rules)?;
        Ok(Nat(()))
    }

    /// Removes the table of a run with address translation that was killed.
    pub(crate) fn remove_leftover() {
        let _ = nft(&format!("delete table {TABLE}\n"));
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        if let Err(error) = nft(&format!("delete table {TABLE}\n")) {
            warn!("the nftables table is still there: {error}; run `nft delete table {TABLE}`");
        }
    }
}

fn nft(rules: &str) -> Result<(), StartError> {
    let start = |program: &str| {
        let mut command = Command::new(program);
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn()
    };
    // nft lies in /usr/sbin, which is not in every PATH.
    let mut child = match start("nft").or_else(|_| start("/usr/sbin/nft")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StartError::NoNft),
        other => other?,
    };
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(StartError::Nft(text.lines().next().unwrap_or("no reason given").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_the_first_address_of_the_network() {
        assert_eq!(gateway_v4(Ipv4Addr::new(10, 45, 3, 7), 16), Ipv4Addr::new(10, 45, 0, 1));
        assert_eq!(gateway_v4(Ipv4Addr::new(10, 45, 3, 7), 30), Ipv4Addr::new(10, 45, 3, 5));
        let network: Ipv6Addr = "2001:db8:45:7::".parse().expect("an address");
        assert_eq!(gateway_v6(network, 48), "2001:db8:45::1".parse::<Ipv6Addr>().expect("an address"));
    }

    #[test]
    fn pools_that_cannot_be_are_refused() {
        let v4 = |length| networks(&[Pool { ipv4: Some((Ipv4Addr::new(10, 45, 1, 1), length)), ..Pool::default() }]);
        assert!(v4(31).is_err() && v4(7).is_err() && v4(0).is_err());
        assert_eq!(v4(16).expect("a pool")[0].0, IpAddr::V4(Ipv4Addr::new(10, 45, 0, 0)));
        let v6 = |length| networks(&[Pool { ipv6: Some((Ipv6Addr::LOCALHOST, length)), ..Pool::default() }]);
        assert!(v6(65).is_err() && v6(15).is_err() && v6(48).is_ok());
    }
}
