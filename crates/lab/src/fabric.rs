//! Network between the processes of a cluster, as a switch with pluggable cables.
//!
//! The switch has its own namespace. Each process has a namespace with a cable to the switch, which
//! can be pulled. Balancers have a second cable, to the RAN.
//!
//! ```text
//!                            ran
//!                             |
//!   core   etcd  controller  balancer     host      host   ...
//!    |      |        |          |          |         |
//!   -+------+--------+----------+----------+---------+------ switch
//! ```

use crate::addresses::RAN;
use crate::netns::{Netns, NetnsError, VethEnd};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Port of the balancer for hosts.
pub(crate) const FABRIC_PORT: u16 = 7770;
/// Address of the core's namespace on the switch: the balancer, or the UPF if balancers have their
/// own namespaces.
pub const CORE: Ipv4Addr = Ipv4Addr::new(192, 168, 129, 1);
/// Interface of a process's namespace towards the switch.
const INTERFACE: &str = "fabric0";
/// Link-layer address that no interface has.
const NOBODY: &str = "02:00:00:00:00:01";
/// Name of the bridge in the switch's namespace.
const BRIDGE: &str = "switch";

/// Process that a network port belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeRole {
    /// Host with a number.
    Host(u8),
    /// Balancer with a number.
    Balancer(u8),
    /// Cluster controller.
    Controller,
    /// The etcd server.
    Etcd,
}

impl NodeRole {
    /// Returns the address on the switch.
    pub(crate) const fn address(self) -> Ipv4Addr {
        match self {
            NodeRole::Host(number) => Ipv4Addr::new(192, 168, 129, 10 + number),
            NodeRole::Balancer(number) => Ipv4Addr::new(192, 168, 129, 2 + number),
            NodeRole::Controller => Ipv4Addr::new(192, 168, 129, 251),
            NodeRole::Etcd => Ipv4Addr::new(192, 168, 129, 252),
        }
    }

    /// Returns the name of the process and of its switch port.
    pub(crate) fn name(self) -> String {
        match self {
            NodeRole::Host(number) => format!("host{number}"),
            NodeRole::Balancer(number) => format!("balancer{number}"),
            NodeRole::Controller => "controller".to_owned(),
            NodeRole::Etcd => "etcd".to_owned(),
        }
    }
}

/// Returns the N2 address of a balancer.
pub fn n2(balancer: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 140 + balancer, 1)
}

/// Switch with its network ports.
#[derive(Debug)]
pub(crate) struct LabSwitch {
    switch: Arc<Netns>,
    ports: BTreeMap<NodeRole, Arc<NetworkPort>>,
}

/// Namespace of a process, with its cable to the switch.
#[derive(Debug)]
pub struct NetworkPort {
    /// Namespace in which the process runs.
    pub netns: Netns,
    /// Address on the switch.
    pub address: Ipv4Addr,
    switch: Arc<Netns>,
    port: String,
}

impl LabSwitch {
    /// Creates a switch that is connected to the core. The calling thread is in another namespace
    /// afterwards.
    pub(crate) fn build(core: &Netns) -> Result<Self, NetnsError> {
        let switch = Netns::new()?;
        switch.ip(&format!("link add {BRIDGE} type bridge"))?;
        switch.ip(&format!("link set {BRIDGE} up"))?;
        join(&switch, "core", core, CORE)?;
        Ok(LabSwitch { switch: Arc::new(switch), ports: BTreeMap::new() })
    }

    /// Returns the network port of a process, with its cable plugged in. The calling thread may be
    /// in another namespace afterwards.
    pub(crate) fn connect(&mut self, place: NodeRole, ran: &Netns) -> Result<Arc<NetworkPort>, NetnsError> {
        if let Some(port) = self.ports.get(&place) {
            port.plug()?;
            return Ok(Arc::clone(port));
        }
        let (address, port, netns) = (place.address(), place.name(), Netns::new()?);
        join(&self.switch, &port, &netns, address)?;
        if let NodeRole::Balancer(number) = place {
            let near = n2(number);
            let far = Ipv4Addr::from(near.to_bits() + 1);
            let (near, ran_interface) = (format!("{near}/24"), format!("ran{}", number + 1));
            Netns::join(
                VethEnd { netns: &netns, interface: "n2", address: &near },
                VethEnd { netns: ran, interface: &ran_interface, address: &format!("{far}/24") },
            )?;
            // All gNBs have the same address, whichever cable they use.
            netns.ip(&format!("route add {RAN}/32 via {far}"))?;
        }
        let port = Arc::new(NetworkPort { netns, address, switch: Arc::clone(&self.switch), port });
        self.ports.insert(place, Arc::clone(&port));
        Ok(port)
    }
}

impl NetworkPort {
    /// Pulls the cable. No packet passes; processes notice only the silence.
    pub(crate) fn pull(&self) -> Result<(), NetnsError> {
        self.switch.ip(&format!("link set {} down", self.port))
    }

    /// Blocks traffic from this port to another port, and no other traffic.
    pub fn block(&self, other: &NetworkPort) -> Result<(), NetnsError> {
        self.netns.ip(&format!("neigh replace {} lladdr {NOBODY} nud permanent dev {INTERFACE}", other.address))
    }

    /// Ends the block.
    pub(crate) fn unblock(&self, other: &NetworkPort) -> Result<(), NetnsError> {
        self.netns.ip(&format!("neigh del {} dev {INTERFACE}", other.address))
    }

    /// Plugs the cable in.
    pub(crate) fn plug(&self) -> Result<(), NetnsError> {
        self.switch.ip(&format!("link set {} up", self.port))
    }
}

/// Connects a namespace to a port of the switch, with this address.
fn join(switch: &Netns, port: &str, netns: &Netns, address: Ipv4Addr) -> Result<(), NetnsError> {
    switch.ip(&format!("link add {port} type veth peer name {INTERFACE} netns {}", netns.path()))?;
    switch.ip(&format!("link set {port} master {BRIDGE} up"))?;
    netns.ip(&format!("address add {address}/24 dev {INTERFACE}"))?;
    netns.ip(&format!("link set {INTERFACE} up"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// Packets of a network port reach the core, except while its cable is pulled.
    #[test]
    fn pulled_port_recovers_after_plug() {
        let (Ok(core), Ok(ran)) = (Netns::new(), Netns::new()) else {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        };
        let mut fabric = LabSwitch::build(&core).unwrap();
        let port = fabric.connect(NodeRole::Host(1), &ran).unwrap();
        assert_eq!(port.address, Ipv4Addr::new(192, 168, 129, 11));
        core.enter().unwrap();
        let receiver = UdpSocket::bind((CORE, 7000)).unwrap();
        let comes = |within_ms| {
            receiver.set_read_timeout(Some(Duration::from_millis(within_ms))).unwrap();
            let sent = port.netns.run(|| {
                let sender = UdpSocket::bind((port.address, 0))?;
                sender.send_to(b"?", (CORE, 7000))
            });
            sent.unwrap().is_ok() && receiver.recv(&mut [0; 8]).is_ok()
        };
        assert!(comes(5000));
        port.pull().unwrap();
        assert!(!comes(200));
        assert_eq!(
            fabric.connect(NodeRole::Host(1), &ran).unwrap().address,
            port.address,
            "whoever takes it finds it joined"
        );
        // Packets are not stored, so the first one may be lost while the link comes up.
        assert!((0..25).any(|_| comes(200)));
    }

    #[test]
    fn block_cuts_one_pair_of_ports() {
        let (Ok(core), Ok(ran)) = (Netns::new(), Netns::new()) else {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        };
        let mut fabric = LabSwitch::build(&core).unwrap();
        let [one, two] = [1, 2].map(|n| fabric.connect(NodeRole::Host(n), &ran).unwrap());
        core.enter().unwrap();
        let receivers = [&one, &two].map(|port| {
            let receiver = port.netns.run(|| UdpSocket::bind((port.address, 7000))).unwrap().unwrap();
            receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            receiver
        });
        let sent = Cell::new(0_u32);
        let comes = |from: &NetworkPort, to: usize| {
            let address = [one.address, two.address][to];
            // A packet may be late, so each has its number.
            let number = sent.replace(sent.get() + 1).to_be_bytes();
            let sent = from.netns.run(|| UdpSocket::bind((from.address, 0))?.send_to(&number, (address, 7000)));
            let mut received = [0; 4];
            sent.unwrap().is_ok()
                && std::iter::from_fn(|| receivers[to].recv(&mut received).ok().map(|_| received)).any(|n| n == number)
        };
        let comes_soon = |from, to| (0..25).any(|_| comes(from, to));
        assert!(comes_soon(&one, 1) && comes_soon(&two, 0));
        one.block(&two).unwrap();
        assert!(!comes(&one, 1) && comes_soon(&two, 0));
        one.unblock(&two).unwrap();
        assert!(comes_soon(&one, 1));
    }

    #[test]
    fn balancer_port_reaches_gnb_address() {
        let (Ok(core), Ok(ran)) = (Netns::new(), Netns::new()) else {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        };
        let mut fabric = LabSwitch::build(&core).unwrap();
        let port = fabric.connect(NodeRole::Balancer(1), &ran).unwrap();
        ran.ip(&format!("address add {RAN}/24 dev lo")).unwrap();
        port.netns.enter().unwrap();
        let receiver = UdpSocket::bind((n2(1), 7000)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        ran.enter().unwrap();
        let sender = UdpSocket::bind((RAN, 7001)).unwrap();
        sender.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        sender.send_to(b"?", (n2(1), 7000)).unwrap();
        let (_, from) = receiver.recv_from(&mut [0; 8]).unwrap();
        receiver.send_to(b"!", from).unwrap();
        assert_eq!(sender.recv(&mut [0; 8]).unwrap(), 1);
    }
}
