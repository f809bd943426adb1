//! Where the user plane is measured: its own namespace and one for everything around it, with two pairs of interfaces
//! for the UPF and two for what it is compared with.
//!
//! ```text
//!              +-- ran ===== n3 --+
//!   outside ---+                  +--- UPF's
//!              +-- dn ====== n6 --+
//! ```

use crate::cli::Failure;
use crate::lab::netns::{self, Netns};
use std::net::Ipv4Addr;
use vireo_traffic::frame_loop::{Interface, LinkPairs, Packets, Teids};

/// The UPF on N3.
pub(crate) const UPF_N3: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 1);
/// The only RAN node.
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 2);
const UPF_N6: Ipv4Addr = Ipv4Addr::new(192, 168, 128, 1);
/// The host that UEs talk to.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 128, 2);
/// The UEs' addresses.
pub(crate) const POOL: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 11);
/// The first UE's.
pub(crate) const FIRST_UE: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);

/// Octets of the users' packets.
pub(crate) const LENGTH: u16 = 128;

/// The namespaces while they exist; the calling thread is in the UPF's.
pub(crate) struct Network {
    /// The UPF's.
    pub(crate) upf: Netns,
    outside: Netns,
    /// Where the UPF is.
    pub(crate) ours: LinkPairs,
    /// Where nothing is but what it is compared with.
    pub(crate) bare: LinkPairs,
}

impl Network {
    /// Builds it. To be called from the main thread, before there are others.
    pub(crate) fn build() -> Result<Self, Failure> {
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
            let of = |netns: &Netns, name: &str| netns.run(|| Interface::of(name))?.map_err(Failure::from);
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

    /// Runs `work` on a thread outside of the UPF.
    pub(crate) fn outside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        self.outside.run(work)
    }

    /// The packets of the load, for sessions whose first has this TEID.
    pub(crate) fn packets(&self, teids: impl Into<Teids>) -> Packets {
        Packets { length: LENGTH, gnb: GNB, upf: UPF_N3, server: SERVER, ue: FIRST_UE, teids: teids.into(), qfi: 1 }
    }
}

fn mac(interface: &Interface) -> String {
    interface.mac.map(|octet| format!("{octet:02x}")).join(":")
}
