//! Access checks: destinations that UEs must not reach, and permitted sources of G-PDUs.
//!
//! No packet of a UE reaches an address of this machine, of the core or of a RAN node. Such a UE
//! could set up NG to the AMF, PFCP to the control plane, or tunnels to a RAN node.
//!
//! A G-PDU is accepted from an address that N4 has named in an F-TEID, that the core knows from N2,
//! or that the configuration names. A G-PDU from another address is held for a short time
//! (`held_datagrams`): after an Xn handover the target RAN node sends before N4 has named it.
//!
//! Every packet is checked against one table (`table`), which workers, worker processes and the
//! kernel program share. [`KnownAddresses`] is the writer's state of each address.

pub(crate) mod held_datagrams;
pub(crate) mod table;

use crate::network::Network;
use crate::sys::shared::Shared;
use held_datagrams::HeldDatagrams;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use table::{ADDRESSES, AddressTable, Bits, Line, PREFIXES, PROTECTED, RAN};
use tracing::warn;
use vireo_types::Teid;

/// Access configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Prefixes that no UE may send to, in addition to this machine, known RAN nodes and control
    /// planes.
    pub protected: Vec<Network>,
    /// Addresses of this machine that UEs may send to nonetheless.
    pub reachable: Vec<Network>,
    /// Prefixes of permitted G-PDU sources, in addition to known peers. No UE may send there,
    /// unless the length is 0.
    pub ran: Vec<Network>,
    /// Networks of RAN nodes and other UPFs, to which tunnels may lead. If empty, tunnels lead
    /// anywhere else than to services of UEs and to `core`.
    pub tunnel_ends: Vec<Network>,
    /// Networks of the core, and loopback unless N3 is there. A tunnel leads to an address of them
    /// only if an N2 association is with it, or `tunnel_ends` has the single address: a RAN node or
    /// another UPF shares it.
    pub core: Vec<Network>,
}

impl Access {
    /// Maximum number of prefixes in each list. Single addresses do not count.
    pub const PREFIXES: usize = 20;

    /// Accepts G-PDUs from any address, for load generators and tests whose senders no F-TEID
    /// names.
    pub fn from_anywhere() -> Self {
        let any = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
        Access { ran: any.map(|address| Network { address, length: 0 }).to_vec(), ..Access::default() }
    }
}

/// Prefixes that packets of a UE are never forwarded to: "this network" and link-local addresses
/// (RFC 6890, RFC 3927 7), loopback, multicast and broadcast.
const NEVER: [([u8; 4], u8); 5] =
    [([0; 4], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 4), ([255; 4], 32)];
const NEVER_V6: [(u16, u8); 1] = [(0xff00, 8)];

/// Access checks of packets, without a lock.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) table: AddressTable,
    /// G-PDUs of a tunnel come from its own peer only ([`crate::Limits::own_peer_only`]).
    pub(crate) own_peer_only: bool,
}

impl Checks {
    /// Creates the checks in memory of [`table::LINES`] lines.
    pub(crate) fn over(lines: Shared<Line>, own_peer_only: bool) -> Self {
        Checks { table: AddressTable::over(lines), own_peer_only }
    }
}

/// Reasons why an address is in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Flags from the configuration.
    configured: u32,
    /// True for an address of this machine.
    local: bool,
    /// Number of PFCP associations with this address.
    control_planes: u32,
    /// Number of N2 associations with this address.
    nodes: u32,
    /// Number of tunnels to this address.
    tunnels: u32,
    /// True if the address belongs or belonged to a RAN node.
    ran: bool,
    /// Round of [`KnownAddresses::age`] in which the last association or tunnel ended.
    unused_since: u64,
}

impl Entry {
    fn flags(&self) -> u32 {
        let protected = self.local || self.control_planes > 0 || self.ran;
        let ran = if self.ran { RAN } else { 0 };
        self.configured | ran | if protected { PROTECTED } else { 0 }
    }

    fn is_used(&self) -> bool {
        self.nodes > 0 || self.tunnels > 0
    }

    /// Returns true if only an earlier use as RAN node keeps the address in the table.
    fn is_evictable(&self) -> bool {
        self.ran && !self.is_used() && self.configured == 0 && !self.local && self.control_planes == 0
    }
}

/// Rounds of [`KnownAddresses::age`], one a second, that a RAN node's address is kept after its
/// last use: a day.
const RAN_ADDRESS_RETENTION_ROUNDS: u64 = 24 * 3600;
/// Rounds between two scans for addresses to evict.
const FORGETTING: u64 = 60;

/// Kind of use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// An N2 association with a RAN node.
    Node,
    /// A PFCP association.
    ControlPlane,
    /// A GTP-U tunnel to the address.
    Tunnel,
}

/// Required source of the packets with one TEID, under [`crate::Limits::own_peer_only`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerBinding {
    /// This address only.
    One(IpAddr),
    /// Any known address, because the session has tunnels to several.
    Known,
}

/// All addresses in the table with the reasons. At most [`ADDRESSES`].
#[derive(Debug, Default)]
pub(crate) struct KnownAddresses {
    entries: HashMap<IpAddr, Entry>,
    access: Access,
    /// Addresses of the machine. `local` are the protected ones of them.
    machine: Vec<Network>,
    local: Vec<Network>,
    rounds: u64,
    /// Addresses rejected by the full table since the last log message.
    left_out: u64,
}

impl KnownAddresses {
    /// Replaces the configuration. Rules common to both configurations stay in force throughout.
    pub(crate) fn configure(&mut self, access: Access, checks: &Checks) {
        self.access = access;
        let mut single: HashMap<IpAddr, u32> = HashMap::new();
        for (network, flags) in self.configured().filter(|(network, _)| is_single(network)) {
            *single.entry(network.address).or_default() |= flags;
        }
        let configured = self.entries.iter().filter(|(_, entry)| entry.configured != 0).map(|(address, _)| *address);
        let gone: Vec<IpAddr> = configured.filter(|address| !single.contains_key(address)).collect();
        for (address, flags) in single {
            self.change(address, checks, |entry| entry.configured = flags);
        }
        for address in gone {
            self.change(address, checks, |entry| entry.configured = 0);
        }
        self.protect_local(checks);
        self.set_prefixes(checks);
    }

    /// Returns the networks of the configuration with their flags.
    fn configured(&self) -> impl Iterator<Item = (Network, u32)> {
        let ran =
            self.access.ran.iter().map(|network| (*network, if network.length == 0 { RAN } else { RAN | PROTECTED }));
        let protected = self.access.protected.iter().map(|network| (*network, PROTECTED));
        let never = NEVER.map(|(octets, length)| Network { address: octets.into(), length });
        let never_v6 = NEVER_V6.map(|(first, length)| Network { address: [first, 0, 0, 0, 0, 0, 0, 0].into(), length });
        never
            .into_iter()
            .chain(never_v6)
            .map(|network| (network, PROTECTED))
            .chain(ran)
            .chain(protected)
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn set_prefixes(&mut self, checks: &Checks) {
        let local = self.local.iter().map(|network| (*network, PROTECTED));
        let prefixes: Vec<_> = self.configured().chain(local).filter(|(network, _)| !is_single(network)).collect();
        if prefixes.len() > PREFIXES {
            warn!(count = prefixes.len(), limit = PREFIXES, "too many protected prefixes; the last ones are left out");
        }
        checks.table.set_prefixes(&prefixes);
    }

    /// Sets the addresses of the machine.
    pub(crate) fn set_local(&mut self, local: &[Network], checks: &Checks) {
        self.machine = local.to_vec();
        if self.protect_local(checks) {
            self.set_prefixes(checks);
        }
    }

    /// Protects the addresses of the machine, except the reachable ones ([`Access::reachable`]).
    /// Returns true if the set changed.
    fn protect_local(&mut self, checks: &Checks) -> bool {
        let reachable = |network: &Network| self.access.reachable.iter().any(|r| r.contains(network.address));
        let local: Vec<Network> = self.machine.iter().copied().filter(|network| !reachable(network)).collect();
        if local == self.local {
            return false;
        }
        let single =
            |networks: &[Network]| networks.iter().filter(|n| is_single(n)).map(|n| n.address).collect::<Vec<_>>();
        let (before, now) = (single(&self.local), single(&local));
        self.local = local;
        // New addresses first, so that an address stays protected while it moves to another
        // interface.
        for address in &now {
            self.change(*address, checks, |entry| entry.local = true);
        }
        for address in before.iter().filter(|address| !now.contains(address)) {
            self.change(*address, checks, |entry| entry.local = false);
        }
        true
    }

    /// Begins a use of an address. Returns true if G-PDUs from it become permitted.
    pub(crate) fn begin(&mut self, address: IpAddr, what: Use, checks: &Checks) -> bool {
        let known = self.entries.get(&address).is_some_and(|entry| entry.ran);
        self.change(address, checks, |entry| {
            match what {
                Use::Node => entry.nodes += 1,
                Use::Tunnel => entry.tunnels += 1,
                Use::ControlPlane => entry.control_planes += 1,
            }
            entry.ran |= what != Use::ControlPlane;
        });
        !known && what != Use::ControlPlane
    }

    /// Ends a use of an address. A RAN node's address stays known for
    /// [`RAN_ADDRESS_RETENTION_ROUNDS`] rounds.
    pub(crate) fn end(&mut self, address: IpAddr, what: Use, checks: &Checks) {
        let rounds = self.rounds;
        if !self.entries.contains_key(&address) {
            return;
        }
        self.change(address, checks, |entry| {
            let count = match what {
                Use::Node => &mut entry.nodes,
                Use::Tunnel => &mut entry.tunnels,
                Use::ControlPlane => &mut entry.control_planes,
            };
            *count = count.saturating_sub(1);
            entry.unused_since = rounds;
        });
    }

    /// Changes the state of an address and its flags in the table.
    fn change(&mut self, address: IpAddr, checks: &Checks, change: impl FnOnce(&mut Entry)) {
        if !self.entries.contains_key(&address) && !self.make_room(checks) {
            self.left_out += 1;
            return;
        }
        let entry = self.entries.entry(address).or_default();
        let before = entry.flags();
        change(entry);
        let (flags, is_used) = (entry.flags(), entry.is_used());
        if flags != before && !self.set_flags(address, flags, checks) {
            self.left_out += 1;
        }
        if flags == 0 && !is_used {
            self.entries.remove(&address);
        }
    }

    /// Sets the flags of an address in the table. If its buckets are full, evicts the RAN node
    /// address among them that was unused for longest. Returns false if all are in use.
    fn set_flags(&mut self, address: IpAddr, flags: u32, checks: &Checks) -> bool {
        let bits = Bits::from_address(address);
        if checks.table.set(bits, flags) {
            return true;
        }
        let entries = checks.table.neighbours(bits).filter_map(|other| Some((other, self.entries.get(&other)?)));
        let idle = entries.filter(|(_, entry)| entry.is_evictable());
        let Some((oldest, _)) = idle.min_by_key(|(_, entry)| entry.unused_since) else { return false };
        self.forget(oldest, checks);
        checks.table.set(bits, flags)
    }

    /// Returns true if there is room for one more address. Evicts the RAN node address unused for
    /// longest if necessary.
    fn make_room(&mut self, checks: &Checks) -> bool {
        if self.entries.len() < ADDRESSES {
            return true;
        }
        let idle = self.entries.iter().filter(|(_, entry)| entry.is_evictable());
        let Some(oldest) = idle.min_by_key(|(_, entry)| entry.unused_since).map(|(address, _)| *address) else {
            return false;
        };
        self.forget(oldest, checks);
        self.entries.len() < ADDRESSES
    }

    fn forget(&mut self, address: IpAddr, checks: &Checks) {
        self.change(address, checks, |entry| entry.ran = false);
    }

    /// Evicts addresses of RAN nodes that were not used for a long time. Must be called once a
    /// second.
    pub(crate) fn age(&mut self, checks: &Checks) {
        self.rounds += 1;
        if !self.rounds.is_multiple_of(FORGETTING) {
            return;
        }
        let is_old = |entry: &Entry| {
            entry.ran && !entry.is_used() && self.rounds - entry.unused_since > RAN_ADDRESS_RETENTION_ROUNDS
        };
        let old: Vec<IpAddr> = self.entries.iter().filter(|(_, entry)| is_old(entry)).map(|(a, _)| *a).collect();
        old.into_iter().for_each(|address| self.forget(address, checks));
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            warn!(count = left_out, limit = ADDRESSES, "addresses of RAN nodes are not protected; there are too many");
        }
    }

    /// Returns true if tunnels may lead to the address by the configuration. UEs lose an address to
    /// which a tunnel leads, so that no tunnel may lead to a service of theirs. A network of
    /// reachable addresses counts as far as this machine has them.
    pub(crate) fn may_be_tunnel_end(&self, address: IpAddr) -> bool {
        let contains = |network: &Network| network.contains(address);
        let Access { reachable, tunnel_ends, core, .. } = &self.access;
        let is_local = || self.machine.iter().any(contains);
        let is_service =
            reachable.iter().any(|network| network.contains(address) && (is_single(network) || is_local()));
        let is_listed = tunnel_ends.is_empty() || tunnel_ends.iter().any(contains);
        let is_single_end = || tunnel_ends.iter().any(|network| network.contains(address) && is_single(network));
        let is_shared = || self.entries.get(&address).is_some_and(|entry| entry.nodes > 0) || is_single_end();
        !is_service && is_listed && (!core.iter().any(contains) || is_shared())
    }

    /// Returns the number of known RAN node addresses.
    pub(crate) fn nodes(&self) -> usize {
        self.entries.values().filter(|entry| entry.ran).count()
    }
}

/// Access state of the writer of the tables.
#[derive(Debug, Default)]
pub(crate) struct AccessState {
    pub(crate) known: KnownAddresses,
    /// G-PDUs from unknown senders.
    pub(crate) held_datagrams: Mutex<HeldDatagrams>,
    /// Peers of the tunnels that this change added.
    pub(crate) joined: Vec<IpAddr>,
    /// Required source of the packets with these TEIDs ([`crate::Limits::own_peer_only`]).
    pub(crate) bound: HashMap<Teid, PeerBinding>,
}

/// Returns true if the network is a single address.
fn is_single(network: &Network) -> bool {
    network.length >= if network.address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use table::{HashKey, SEARCHED};

    fn checks() -> Checks {
        let lines = Shared::private(table::LINES);
        // All addresses find a slot with this key.
        HashKey([0x9e37_79b9_7f4a_7c15, 0x94d0_49bb_1331_11eb]).store(&lines);
        Checks::over(lines, false)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn network(text: &str) -> Network {
        let (address, length) = text.split_once('/').expect("a prefix");
        Network { address: ip(address), length: length.parse().expect("a length") }
    }

    fn is_protected(checks: &Checks, address: &str) -> bool {
        checks.table.is_protected(Bits::from_address(ip(address)))
    }

    fn is_known(checks: &Checks, address: &str) -> bool {
        checks.table.source(Bits::from_address(ip(address))) != table::SourceEntry::Unknown
    }

    #[test]
    fn configuration_protects_and_allows_prefixes() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        known.configure(Access::default(), &checks);
        for never in ["0.1.2.3", "127.0.0.9", "169.254.169.254", "224.0.0.1", "255.255.255.255", "ff05::2"] {
            assert!(is_protected(&checks, never), "{never}");
        }
        assert!(!is_protected(&checks, "198.51.100.7") && !is_known(&checks, "198.51.100.7"));
        let access = Access {
            protected: vec![network("10.1.0.0/16"), network("2001:db8:1::5/128")],
            ran: vec![network("10.2.0.0/16"), network("10.3.0.1/32")],
            ..Access::default()
        };
        known.configure(access, &checks);
        for protected in ["10.1.9.9", "2001:db8:1::5", "10.2.0.1", "10.3.0.1"] {
            assert!(is_protected(&checks, protected), "{protected}");
        }
        assert!(is_known(&checks, "10.2.7.7") && is_known(&checks, "10.3.0.1"));
        assert!(!is_known(&checks, "10.1.9.9") && !is_protected(&checks, "10.3.0.2"));
        known.configure(Access::from_anywhere(), &checks);
        assert!(is_known(&checks, "203.0.113.1") && is_known(&checks, "2001:db8::1"));
        assert!(!is_protected(&checks, "203.0.113.1") && !is_protected(&checks, "10.3.0.1"));
    }

    #[test]
    fn local_addresses_are_protected_while_they_are() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        known.configure(Access { reachable: vec![network("10.45.0.1/32")], ..Access::default() }, &checks);
        known.set_local(&[network("192.0.2.1/32"), network("10.45.0.1/32"), network("10.9.0.0/24")], &checks);
        assert!(is_protected(&checks, "192.0.2.1") && is_protected(&checks, "10.9.0.77"));
        assert!(!is_protected(&checks, "10.45.0.1"), "the configuration says that UEs reach it");
        // A RAN node with an address of this machine.
        known.begin(ip("192.0.2.1"), Use::Tunnel, &checks);
        known.set_local(&[network("192.0.2.2/32")], &checks);
        assert!(is_protected(&checks, "192.0.2.1") && is_protected(&checks, "192.0.2.2"));
        assert!(!is_protected(&checks, "10.9.0.77"));
    }

    #[test]
    fn tunnels_lead_to_no_service_and_not_to_core() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        let core = ["192.0.2.5/32", "2001:db8::5/128", "127.0.0.0/8", "::1/128"].map(network).to_vec();
        let reachable = vec![network("10.7.0.0/16"), network("10.8.0.9/32")];
        let access = Access { reachable, core, ..Access::default() };
        known.configure(access.clone(), &checks);
        known.set_local(&[network("10.7.0.1/32"), network("192.0.2.1/32")], &checks);
        let refuses = |known: &KnownAddresses, address: &str| !known.may_be_tunnel_end(ip(address));
        for address in ["192.0.2.5", "2001:db8::5", "10.7.0.1", "10.8.0.9", "127.0.0.3", "::1"] {
            assert!(refuses(&known, address), "{address}");
        }
        known.begin(ip("127.0.0.3"), Use::Node, &checks);
        assert!(!refuses(&known, "127.0.0.3") && refuses(&known, "127.0.0.4"), "a RAN node is there");
        known.end(ip("127.0.0.3"), Use::Node, &checks);
        assert!(refuses(&known, "127.0.0.3"));
        // A RAN node may be on this machine.
        for address in ["192.0.2.6", "192.0.2.1", "10.7.0.2"] {
            assert!(!refuses(&known, address), "{address}");
        }
        let tunnel_ends = vec![network("192.0.2.0/24")];
        known.configure(Access { tunnel_ends, ..access.clone() }, &checks);
        assert!(refuses(&known, "192.0.2.5") && refuses(&known, "10.7.0.2") && !refuses(&known, "192.0.2.6"));
        let tunnel_ends = vec![network("192.0.2.0/24"), network("192.0.2.5/32")];
        known.configure(Access { tunnel_ends, ..access }, &checks);
        assert!(!refuses(&known, "192.0.2.5") && refuses(&known, "2001:db8::5"));
    }

    #[test]
    fn access_configuration_changes_in_use() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        let access = |protected: &[&str], reachable: &[&str], ran: &[&str]| {
            let [protected, reachable, ran] =
                [protected, reachable, ran].map(|l| l.iter().map(|n| network(n)).collect());
            Access { protected, reachable, ran, ..Access::default() }
        };
        known.configure(access(&["10.1.0.1/32", "10.1.0.2/32"], &[], &["10.2.0.0/16"]), &checks);
        known.set_local(&[network("192.0.2.1/32"), network("192.0.2.2/32")], &checks);
        known.begin(ip("10.1.0.1"), Use::Tunnel, &checks);
        known.configure(access(&["10.1.0.2/32", "10.5.0.0/16"], &["192.0.2.2/32"], &["10.3.0.7/32"]), &checks);
        for protected in ["10.1.0.1", "10.1.0.2", "10.5.0.9", "192.0.2.1", "10.3.0.7"] {
            assert!(is_protected(&checks, protected), "{protected}");
        }
        assert!(!is_protected(&checks, "192.0.2.2"), "reachable from now on");
        assert!(is_known(&checks, "10.3.0.7") && !is_known(&checks, "10.2.0.1"));
        known.configure(access(&[], &[], &[]), &checks);
        assert!(is_protected(&checks, "10.1.0.1") && is_known(&checks, "10.1.0.1"), "a tunnel leads there");
        assert!(is_protected(&checks, "192.0.2.2") && !is_protected(&checks, "10.1.0.2"));
        assert!(!is_known(&checks, "10.3.0.7") && !is_protected(&checks, "10.5.0.9"));
    }

    #[test]
    fn ran_addresses_are_known_a_day_after_last_use() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        assert!(known.begin(ip("192.0.2.9"), Use::Tunnel, &checks));
        assert!(!known.begin(ip("192.0.2.9"), Use::Node, &checks), "known already");
        assert!(!known.begin(ip("192.0.2.5"), Use::ControlPlane, &checks));
        assert!(is_known(&checks, "192.0.2.9") && is_protected(&checks, "192.0.2.9"));
        assert!(!is_known(&checks, "192.0.2.5") && is_protected(&checks, "192.0.2.5"));
        known.end(ip("192.0.2.9"), Use::Tunnel, &checks);
        known.end(ip("192.0.2.5"), Use::ControlPlane, &checks);
        assert!(!is_protected(&checks, "192.0.2.5"));
        for _ in 0..2 * RAN_ADDRESS_RETENTION_ROUNDS {
            known.age(&checks);
        }
        assert!(is_known(&checks, "192.0.2.9"), "it has an association");
        known.end(ip("192.0.2.9"), Use::Node, &checks);
        for _ in 0..RAN_ADDRESS_RETENTION_ROUNDS {
            known.age(&checks);
        }
        assert!(is_known(&checks, "192.0.2.9"));
        for _ in 0..2 * FORGETTING {
            known.age(&checks);
        }
        assert!(!is_known(&checks, "192.0.2.9") && known.entries.is_empty());
    }

    #[test]
    fn full_table_evicts_longest_unused_address() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n));
        for n in 0..ADDRESSES as u32 {
            known.begin(address(n), Use::Tunnel, &checks);
        }
        known.begin(ip("192.0.2.9"), Use::Tunnel, &checks);
        assert!(!is_known(&checks, "192.0.2.9"), "all are used");
        assert_eq!(known.left_out, 1);
        known.end(ip("192.0.2.9"), Use::Tunnel, &checks);
        known.age(&checks);
        known.end(address(7), Use::Tunnel, &checks);
        known.age(&checks);
        known.end(address(3), Use::Tunnel, &checks);
        known.begin(ip("192.0.2.9"), Use::Tunnel, &checks);
        assert!(is_known(&checks, "192.0.2.9") && is_known(&checks, "10.0.0.3") && !is_known(&checks, "10.0.0.7"));
        assert_eq!(known.nodes(), ADDRESSES);
    }

    #[test]
    fn full_buckets_evict_longest_unused_address() {
        let (checks, mut known) = (checks(), KnownAddresses::default());
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n));
        let bucket = |address: &IpAddr| checks.table.bucket(Bits::from_address(*address));
        let first = bucket(&address(0));
        // As many as its buckets hold, and two more.
        let chosen: Vec<IpAddr> =
            (0..).map(address).filter(|other| bucket(other) == first).take(SEARCHED + 2).collect();
        for address in &chosen[..=SEARCHED] {
            known.begin(*address, Use::Tunnel, &checks);
        }
        let is_known = |n: usize| is_known(&checks, &chosen[n].to_string());
        assert!((0..SEARCHED).all(is_known));
        assert_eq!((is_known(SEARCHED), known.left_out), (false, 1), "all are in use");
        for n in [5, 3] {
            known.end(chosen[n], Use::Tunnel, &checks);
            known.age(&checks);
        }
        known.begin(chosen[SEARCHED + 1], Use::Tunnel, &checks);
        assert!(is_known(SEARCHED + 1) && is_known(3) && !is_known(5));
        assert_eq!(known.left_out, 1);
    }
}
