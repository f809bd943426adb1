use super::control_planes::AssociationConfig;
use super::slices::{DataSlice, LeanSlice};
use crate::supervisor::Program;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use vireo_datapath::{Access, BufferLimits, FramesConfig, Locking, Module, XdpConfig};
use vireo_types::Dnn;

/// What a UPF is told at start.
#[derive(Clone, Debug)]
pub struct UpfConfig {
    /// Where the UPF listens for PFCP: one address of the machine, not all of them, because it is told to peers as
    /// Node ID and in F-SEIDs.
    pub n4: SocketAddr,
    /// Addresses on N3, at least one. The first of each family is told in F-TEIDs; all are listened on.
    pub n3: Vec<IpAddr>,
    /// Name of the TUN device on N6.
    pub tun: String,
    /// The data networks and their pools of UE addresses. Of each pool the first /32 or /128 is the UPF's own and the
    /// network address is unused: UEs get addresses from the third on, and prefixes from the second /64 on.
    pub pools: Vec<Pool>,
    /// Networks behind UEs (Framed-Route, TS 29.244 5.16): their packets are routed to the UPF too. Of each the first
    /// address is the machine's own, as with pools.
    pub framed: Vec<(IpAddr, u8)>,
    /// Where UEs may not send to beside this machine, and where G-PDUs may come from beside known peers.
    pub access: Access,
    /// Whether a G-PDU must come from the address that its session's downlink packets go to, or from [`Access::ran`].
    pub own_peer_only: bool,
    /// Whether UEs reach the outside by the machine's address (nftables, table `inet vireo`).
    pub nat: bool,
    /// Whether the kernel has a route for each UE with a session here, so that its packets come here although another UPF
    /// of the machine has its pool too: for sessions that move between them. Not with `nat`.
    pub host_routes: bool,
    /// With it, an XDP program does what is usual and the packet threads the rest.
    pub xdp: Option<XdpConfig>,
    /// With it, the packet threads do what is usual on Ethernet frames, and one more thread the rest.
    pub frames: Option<FramesConfig>,
    /// Packet threads, where there are no modules. Those of the sockets driver divide packets by the RAN nodes that send them.
    pub workers: usize,
    /// How packet threads and changes of rules keep out of each other's way.
    pub locking: Locking,
    /// Users whose records lie together while they have packets, about; 0 = all stay where they are. Not with XDP.
    pub hot_users: usize,
    /// Slices, whose workers take the place of `workers`; none = all users are handled by any of these.
    pub slices: Vec<DataSlice>,
    /// Whether users of a slice go by themselves to its worker with the fewest packets.
    pub rebalance: bool,
    /// Slices of simple devices, whose sessions are lean where their rules allow it: not counted one by one.
    pub lean: Vec<LeanSlice>,
    /// With it, packet threads are processes of their own, started as this: one that dies is taken over from by the next.
    pub processes: Option<Program>,
    /// Sessions at the same time; 2^24 at the most.
    pub max_sessions: usize,
    /// Buffering of downlink packets for idle UEs.
    pub buffer: BufferLimits,
    /// How long the UPF waits for the answer to a request of its own (T1, TS 29.244 6.4).
    pub response_time: Duration,
    /// How often it sends the request in all (N1, TS 29.244 6.4).
    pub attempts: u8,
    /// How often the GTP-U peers of sessions are asked whether they are there; `None` = never. TS 29.281 7.2.1: not more
    /// often than every 60 s.
    pub path_check: Option<Duration>,
    /// Control planes.
    pub associations: AssociationConfig,
}

/// A data network behind the UPF.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub dnn: Dnn,
    /// IPv4 network and prefix length, /8 to /30.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network and prefix length, /16 to /64; each UE has a /64 of it.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link MTU in octets: what the host's IP stack answers "too big" above, and what router advertisements tell.
    /// 1,400 leaves room for the tunnel's headers on links of 1,500.
    pub mtu: u16,
    /// DNS servers; the IPv6 ones are told in router advertisements.
    pub dns: Vec<IpAddr>,
    /// Whether its UEs neither send to UEs nor are sent to by UEs.
    pub isolated: bool,
}

impl Default for UpfConfig {
    /// The embedded UPF of a lab: loopback addresses apart from the control plane's, no pool.
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
    /// The modules of its datapath: each session is of one, whose address its F-TEIDs have.
    pub(super) fn modules(&self) -> &[Module] {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.modules);
        of_xdp.or(self.frames.as_ref().map(|frames| &frames.modules)).map_or(&[], Vec::as_slice)
    }

    /// The N3 addresses that F-TEIDs have, IPv4 and IPv6, for each module, or for all sessions.
    pub(super) fn told(&self) -> Vec<N3> {
        match self.modules() {
            [] => vec![N3::of(&self.n3)],
            modules => modules.iter().map(|module| N3::of(&[module.n3])).collect(),
        }
    }
}

/// An end of tunnels on N3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct N3 {
    pub(super) ipv4: Option<Ipv4Addr>,
    pub(super) ipv6: Option<Ipv6Addr>,
}

impl N3 {
    /// Both, for the datapath.
    pub(super) fn addresses(&self) -> [Option<IpAddr>; 2] {
        [self.ipv4.map(IpAddr::V4), self.ipv6.map(IpAddr::V6)]
    }

    /// The first address of each family.
    fn of(addresses: &[IpAddr]) -> Self {
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
