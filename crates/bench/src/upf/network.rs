//! Network of the user-plane benchmark: namespaces and links.
//!
//! The UPF has one namespace; another contains everything around it. Two pairs of interfaces serve
//! the UPF and two serve the baseline.
//!
//! ```text
//!              +-- ran ===== n3 --+
//!   outside ---+                  +--- UPF's
//!              +-- dn ====== n6 --+
//! ```

use std::net::Ipv4Addr;
use vireo_config::Failure;
use vireo_lab::netns::{self, Netns};
use vireo_traffic::frame_loop::{Interface, LinkPairs, Packets, Teids};

/// N3 address of the UPF.
pub const UPF_N3: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 1);
/// Address of the only RAN node.
pub const GNB: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 2);
const UPF_N6: Ipv4Addr = Ipv4Addr::new(192, 168, 128, 1);
/// Address of the server in the data network.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 128, 2);
/// Address pool of the UEs.
pub const POOL: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 11);
/// Address of the first UE.
pub const FIRST_UE: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);

/// Length of the users' packets in bytes.
pub const LENGTH: u16 = 128;

/// The namespaces; dropping the value removes them. The calling thread is in the UPF's namespace.
#[derive(Debug)]
pub struct Network {
    /// Namespace of the UPF.
    pub upf: Netns,
    outside: Netns,
    /// Links of the UPF.
    pub ours: LinkPairs,
    /// Links of the baseline.
    pub bare: LinkPairs,
}

impl Network {
    /// Builds the network. Must be called from the main thread, before other threads exist.
    pub fn build() -> Result<Self, Failure> {
        netns::isolate()?;
        let (outside, upf) = (Netns::new()?, Netns::new()?);
        let mut pairs = vec![];
        for suffix in ["", "b"] {
            let [n3, n6, ran, dn] = ["n3", "n6", "ran", "dn"].map(|name| format!("{name}{suffix}"));
            for (near, far) in [(&n3, &ran), (&n6, &dn)] {
                upf.ip(&format!("link add {near} type veth peer name {far} netns {}", outside.path()))?;
                for (netns, interface) in [(&upf, near), (&outside, far)] {
                    netns.ip(&format!("link set {interface} up"))?;
                    netns.run(|| netns::peer_of_xdp(interface))??;
                }
            }
            let of = |netns: &Netns, name: &str| netns.run(|| Interface::find(name))?.map_err(Failure::from);
            let (n3, n6) = (of(&upf, &n3)?, of(&upf, &n6)?);
            pairs.push(LinkPairs { n3, n6, ran: of(&outside, &ran)?, dn: of(&outside, &dn)? });
        }
        let (Some(bare), Some(ours)) = (pairs.pop(), pairs.pop()) else {
            return Err(Failure("the network has no interfaces".into()));
        };
        for (interface, peer, own, far) in [(&ours.n3, &ours.ran, UPF_N3, GNB), (&ours.n6, &ours.dn, UPF_N6, SERVER)] {
            upf.ip(&format!("address add {own}/24 dev {}", interface.name))?;
            upf.ip(&format!("neigh add {far} lladdr {} dev {} nud permanent", mac(peer), interface.name))?;
        }
        upf.enter()?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        Ok(Network { upf, outside, ours, bare })
    }

    /// Runs `work` on a thread in the outside namespace.
    pub fn outside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        self.outside.run(work)
    }

    /// Returns the packets of the load for the sessions with the given TEIDs.
    pub fn packets(&self, teids: impl Into<Teids>) -> Packets {
        Packets { length: LENGTH, gnb: GNB, upf: UPF_N3, server: SERVER, ue: FIRST_UE, teids: teids.into(), qfi: 1 }
    }
}

fn mac(interface: &Interface) -> String {
    interface.mac.map(|octet| format!("{octet:02x}")).join(":")
}
