use crate::machine::control_planes::AssociationConfig;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use vireo_datapath::{Access, BufferLimits, FramesConfig, Locking, Module, SliceWorkers, XdpConfig};
use vireo_ops::supervisor::Program;
use vireo_types::{Dnn, Snssai};

/// Configuration of a UPF at start.
#[derive(Clone, Debug)]
pub struct UpfConfig {
    /// PFCP address: one address of the machine, not the unspecified one. It is sent to peers as
    /// Node ID and in F-SEIDs.
    pub n4: SocketAddr,
    /// Addresses on N3, at least one. The UPF listens on all; F-TEIDs contain the first of each
    /// family.
    pub n3: Vec<IpAddr>,
    /// TUN device on N6.
    pub tun: String,
    /// Data networks and their address pools. In each pool the first /32 or /128 belongs to the
    /// UPF, and the network address is unused. UEs receive addresses from the third on, and
    /// prefixes from the second /64 on.
    pub pools: Vec<Pool>,
    /// Networks behind UEs (Framed-Route, TS 29.244 5.16). Their packets are routed to the UPF. The
    /// first address of each belongs to the machine, as with pools.
    pub framed: Vec<(IpAddr, u8)>,
    /// Destinations denied to UEs in addition to this machine, and sources of G-PDUs allowed in
    /// addition to known peers.
    pub access: Access,
    /// If true, a G-PDU must come from the peer of its session's downlink tunnel, or from
    /// [`Access::ran`].
    pub own_peer_only: bool,
    /// If true, UEs reach external networks with the machine's address (nftables, table `inet
    /// vireo`).
    pub nat: bool,
    /// If true, the kernel has a route for each UE with a session here. Its packets then arrive at
    /// this UPF although another UPF of the machine has the same pool; relocation of sessions needs
    /// it. Excludes `nat`.
    pub host_routes: bool,
    /// If set, an XDP program runs the fast path and the packet threads run the slow path.
    pub xdp: Option<XdpConfig>,
    /// If set, the packet threads run the fast path on Ethernet frames and one more thread runs the
    /// slow path.
    pub frames: Option<FramesConfig>,
    /// Number of packet threads without modules. The threads of the sockets driver divide packets
    /// by sending RAN node.
    pub workers: usize,
    /// Synchronisation of packet threads with rule changes.
    pub locking: Locking,
    /// Approximate number of users in the hot table; 0 disables it. Not with XDP.
    pub hot_users: usize,
    /// Slices, whose workers replace `workers`. If empty, all workers serve all users.
    pub slices: Vec<DataSlice>,
    /// If true, users of a slice migrate to its worker with the fewest packets.
    pub rebalance: bool,
    /// IoT slices. Their sessions have no usage counters if their rules allow that.
    pub lean: Vec<LeanSlice>,
    /// If set, each packet thread is a process started by this program. A new process takes over
    /// the work of a dead one.
    pub processes: Option<Program>,
    /// Maximum number of sessions, at most 2^24.
    pub max_sessions: usize,
    /// Buffer limits of downlink packets for idle UEs.
    pub buffer: BufferLimits,
    /// Time to wait for the response to a request of the UPF (T1, TS 29.244 6.4).
    pub response_time: Duration,
    /// Number of transmissions of a request, including the first (N1, TS 29.244 6.4).
    pub attempts: u8,
    /// Interval of Echo Requests to the GTP-U peers of sessions; `None` sends none. TS 29.281 7.2.1
    /// requires at least 60 s.
    pub path_check: Option<Duration>,
    /// Permitted control planes and their supervision.
    pub associations: AssociationConfig,
}

/// Configuration of a slice of the user plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSlice {
    pub name: String,
    /// S-NSSAI of the slice's sessions.
    pub snssai: Option<Snssai>,
    /// Data networks whose sessions belong to the slice if they name no known S-NSSAI.
    pub dnns: Vec<Dnn>,
    /// Packet threads of the slice, and their processors.
    pub workers: SliceWorkers,
}

/// Configuration of an IoT slice (`profile = "iot"`). It does not affect the choice of the worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeanSlice {
    /// S-NSSAI of the slice's sessions.
    pub snssai: Option<Snssai>,
    /// Data networks whose sessions belong to the slice if they name no S-NSSAI.
    pub dnns: Vec<Dnn>,
    /// True for the only slice: all sessions that name no S-NSSAI belong to it.
    pub is_only_slice: bool,
}

/// A data network of the UPF.
#[derive(Clone, Debug)]
pub struct Pool {
    pub dnn: Dnn,
    /// IPv4 network and prefix length, /8 to /30.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network and prefix length, /16 to /64; each UE has a /64 of it.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link MTU in bytes. The IP stack of the machine answers larger packets with "too big", and
    /// router advertisements contain the value. 1,400 leaves room for the tunnel's headers on links
    /// of 1,500.
    pub mtu: u16,
    /// DNS servers. Router advertisements contain the IPv6 ones.
    pub dns: Vec<IpAddr>,
    /// If true, UEs of this network cannot exchange packets with UEs.
    pub isolated: bool,
}

impl Default for UpfConfig {
    /// Returns the configuration of an embedded UPF in a lab: loopback addresses other than the
    /// control plane's, no pool.
    fn default() -> Self {
        UpfConfig {
            n4: SocketAddr::from((Ipv4Addr::new(127, 0, 0, 8), 8805)),
            n3: vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8))],
            tun: "vireo0".to_owned(),
            pools: vec![],
            framed: vec![],
            access: Access::default(),
            own_peer_only: false,
            nat: false,
            host_routes: false,
            xdp: None,
            frames: None,
            workers: 1,
            locking: Locking::default(),
            hot_users: 0,
            slices: vec![],
            rebalance: false,
            lean: vec![],
            processes: None,
            max_sessions: 65_536,
            buffer: BufferLimits::default(),
            response_time: Duration::from_secs(3),
            attempts: 3,
            path_check: None,
            associations: AssociationConfig::default(),
        }
    }
}

impl UpfConfig {
    /// Returns the modules of the datapath. Each session belongs to one, and its F-TEIDs contain
    /// the module's address.
    pub(crate) fn modules(&self) -> &[Module] {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.modules);
        of_xdp.or(self.frames.as_ref().map(|frames| &frames.modules)).map_or(&[], Vec::as_slice)
    }

    /// Returns all N3 addresses, including those of the modules.
    pub(crate) fn n3_addresses(&self) -> Vec<IpAddr> {
        self.n3.iter().copied().chain(self.modules().iter().map(|module| module.n3)).collect()
    }

    /// Returns true if RAN nodes of other machines reach N3, and may name any address as the end of
    /// a tunnel.
    pub fn accepts_any_tunnel_end(&self) -> bool {
        self.access.tunnel_ends.is_empty() && !self.n3_addresses().iter().all(IpAddr::is_loopback)
    }

    /// Returns true if N3 has a loopback address, so that RAN nodes are on this machine.
    pub fn has_n3_on_loopback(&self) -> bool {
        self.n3_addresses().iter().any(IpAddr::is_loopback)
    }

    /// Returns the N3 addresses for F-TEIDs, IPv4 and IPv6: one element for each module, or one for
    /// all sessions.
    pub(crate) fn n3_endpoints(&self) -> Vec<N3> {
        match self.modules() {
            [] => vec![N3::first_of_each_family(&self.n3)],
            modules => modules.iter().map(|module| N3::first_of_each_family(&[module.n3])).collect(),
        }
    }
}

/// N3 addresses of a module, at most one of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct N3 {
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
}

impl N3 {
    /// Returns both addresses as the datapath takes them.
    pub(crate) fn addresses(&self) -> [Option<IpAddr>; 2] {
        [self.ipv4.map(IpAddr::V4), self.ipv6.map(IpAddr::V6)]
    }

    /// Returns the first address of each family.
    fn first_of_each_family(addresses: &[IpAddr]) -> Self {
        let mut n3 = N3::default();
        for address in addresses {
            match address {
                IpAddr::V4(v4) => n3.ipv4 = n3.ipv4.or(Some(*v4)),
                IpAddr::V6(v6) => n3.ipv6 = n3.ipv6.or(Some(*v6)),
            }
        }
        n3
    }
}
