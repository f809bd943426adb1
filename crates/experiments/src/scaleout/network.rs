//! Interfaces of the modules: pairs between the UPF's namespace and the load's.
//!
//! ```text
//!              +-- ran0 ===== n3x0 --+          separate: a pair of pairs for each module
//!   outside ---+-- dn0  ===== n6x0 --+--- UPF
//!              +-- ran1 ===== n3x1 --+          fanout: one pair of pairs, a queue for each module
//!              +-- dn1  ===== n6x1 --+
//! ```

use super::modules::InterfaceMode;
use std::net::Ipv4Addr;
use vireo_config::Failure;
use vireo_lab::Lab;
use vireo_lab::netns::{self, Netns};
use vireo_traffic::frame_loop::{Interface, LinkPairs, Packets, Teids};

/// Length of the users' packets in bytes, as in the paper.
pub(crate) const LENGTH: u16 = 128;
/// Address pool of the UEs.
pub(crate) const POOL: &str = "10.64.0.0/11";
/// Address of the first UE.
pub(crate) const FIRST_UE: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);
const FIRST_N3: u8 = 10;
const FIRST_N6: u8 = 110;

/// The interfaces; dropping the value removes them.
pub(crate) struct Network<'l> {
    lab: &'l Lab,
    mode: InterfaceMode,
    modules: usize,
    /// One per module, or one for all modules.
    pub(crate) ends: Vec<LinkPairs>,
}

fn n3_address(place: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, FIRST_N3 + place as u8, host)
}

fn n6_address(place: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, FIRST_N6 + place as u8, host)
}

impl<'l> Network<'l> {
    /// Builds the network in the lab. The UPF runs in the core's namespace, the load in the RAN's.
    pub(crate) fn build(lab: &'l Lab, mode: InterfaceMode, modules: usize) -> Result<Self, Failure> {
        let mut network = Network { lab, mode, modules, ends: vec![] };
        let (pairs, queues) = match mode {
            InterfaceMode::Separate => (modules, 1),
            InterfaceMode::Fanout => (1, modules),
        };
        let (upf, outside) = (&lab.core, &lab.ran);
        let many = format!("numrxqueues {queues} numtxqueues {queues}");
        for place in 0..pairs {
            let [n3, n6, ran, dn] = ["n3x", "n6x", "ran", "dn"].map(|name| format!("{name}{place}"));
            // The name `ran0` is used by the lab.
            let ran = format!("{ran}x");
            for (near, far) in [(&n3, &ran), (&n6, &dn)] {
                upf.ip(&format!("link add {near} {many} type veth peer name {far} {many} netns {}", outside.path()))?;
                for (netns, interface) in [(upf, near), (outside, far)] {
                    netns.ip(&format!("link set {interface} up"))?;
                    netns.run(|| netns::peer_of_xdp(interface))??;
                }
            }
            let of = |netns: &Netns, name: &str| netns.run(|| Interface::find(name))?.map_err(Failure::from);
            let ends =
                LinkPairs { n3: of(upf, &n3)?, n6: of(upf, &n6)?, ran: of(outside, &ran)?, dn: of(outside, &dn)? };
            let sides = [
                (&ends.n3, &ends.ran, n3_address(place, 1), n3_address(place, 2)),
                (&ends.n6, &ends.dn, n6_address(place, 1), n6_address(place, 2)),
            ];
            for (interface, peer, own, far) in sides {
                let mac = peer.mac.map(|octet| format!("{octet:02x}")).join(":");
                upf.ip(&format!("address add {own}/24 dev {}", interface.name))?;
                upf.ip(&format!("neigh add {far} lladdr {mac} dev {} nud permanent", interface.name))?;
            }
            network.ends.push(ends);
        }
        Ok(network)
    }

    /// Returns the UPF's configuration with capacity for `sessions` sessions.
    pub(super) fn config(&self, sessions: u32) -> String {
        let mut datapath = "[datapath]\ndriver = \"xdp\"\n".to_owned();
        let mut n3 = String::new();
        match self.mode {
            InterfaceMode::Fanout => {
                let LinkPairs { n3: one, n6: other, .. } = &self.ends[0];
                n3 = format!("n3 = [\"{}\"]\n", n3_address(0, 1));
                datapath += &format!("interfaces = [\"{}\", \"{}\"]\n", one.name, other.name);
                datapath += &format!("next-hops = [\"{}\"]\n", n6_address(0, 2));
            }
            InterfaceMode::Separate => {
                for (place, LinkPairs { n3, n6, .. }) in self.ends.iter().enumerate() {
                    let (address, next) = (n3_address(place, 1), n6_address(place, 2));
                    datapath += &format!(
                        "[[datapath.module]]\nn3-interface = \"{}\"\nn3-address = \"{address}\"\nn6-interface = \
                         \"{}\"\nnext-hops = [\"{next}\"]\n",
                        n3.name, n6.name
                    );
                }
            }
        }
        format!(
            "[upf]\nn4 = \"{}\"\n{n3}max-sessions = {sessions}\n[dnn.internet]\nipv4-pool = \"{POOL}\"\n[api]\nlisten \
             = \"off\"\n[log]\nlevel = \"error\"\n{datapath}",
            vireo_lab::upf::N4
        )
    }

    /// Returns the index in [`Network::ends`] of a session, from its set-up order.
    pub(super) fn place(&self, session: u32) -> usize {
        session as usize % self.ends.len()
    }

    /// Returns the UPF's N3 address for the sessions of a place.
    pub(crate) fn n3(&self, place: usize) -> Ipv4Addr {
        n3_address(place, 1)
    }

    /// Returns the next hop of uplink packets of a place.
    pub(crate) fn server(&self, place: usize) -> Ipv4Addr {
        n6_address(place, 2)
    }

    /// Returns the gNB of the sessions of a place.
    pub(crate) fn gnb(&self, place: usize) -> Ipv4Addr {
        n3_address(place, 2)
    }

    /// Returns the packets of the sessions of a place. `ue` is the UE address of the first session.
    pub(crate) fn packets(&self, place: usize, ue: Ipv4Addr, teids: Teids) -> Packets {
        let (gnb, upf, server) = (n3_address(place, 2), n3_address(place, 1), n6_address(place, 2));
        Packets { length: LENGTH, gnb, upf, server, ue, teids, qfi: 1 }
    }

    /// Runs `work` in the load's namespace.
    pub(crate) fn outside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        self.lab.ran.run(work)
    }

    /// Returns the namespace of the UPF.
    pub(crate) fn upf(&self) -> &Netns {
        &self.lab.core
    }

    /// Returns the distribution of packets among modules.
    pub(super) fn mode(&self) -> InterfaceMode {
        self.mode
    }

    /// Returns the number of modules.
    pub(super) fn modules(&self) -> usize {
        self.modules
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        for LinkPairs { n3, n6, .. } in &self.ends {
            for interface in [n3, n6] {
                // Deleting an interface deletes its peer. The lab removes interfaces that remain.
                let _ = self.lab.core.ip(&format!("link delete {}", interface.name));
            }
        }
    }
}
