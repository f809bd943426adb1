//! Configuration of the frame drivers.

use crate::drivers::module::Module;
use crate::drivers::xdp::XdpMode;
use std::net::IpAddr;

/// Distribution of frames to the workers of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// By a hash of the outer addresses and ports of the frame. On N3, one worker handles all
    /// frames of a RAN node.
    #[default]
    Hash,
    /// By the receive queue of the interface.
    Queue,
}

/// Configuration of a frame driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramesConfig {
    /// Ethernet interfaces on N3 and N6. Frames leave only through these, by the kernel's routes.
    /// Packets routed elsewhere go through the sockets driver.
    pub interfaces: Vec<String>,
    /// Next hops of uplink packets, at most one of each family, as [`crate::XdpConfig::next_hops`].
    pub next_hops: Vec<IpAddr>,
    /// Kernel interface for frames.
    pub io: FrameIo,
    /// Modules with separate interfaces, N3 addresses, next hops and workers. Empty = no division.
    pub modules: Vec<Module>,
    /// If true, the network cards distribute packets to their queues by address ranges.
    pub nic_filters: bool,
}

/// Workers that read the same interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Range in the list of all interfaces.
    pub(crate) interfaces: std::ops::Range<usize>,
    /// N3 addresses, starting with the group's.
    pub(crate) n3: Vec<IpAddr>,
    pub(crate) next_hops: Vec<IpAddr>,
    pub(crate) workers: usize,
    /// Processors of the workers. Empty = any processor.
    pub(crate) cores: Vec<usize>,
}

impl FramesConfig {
    /// Returns the modules, or all interfaces with `workers` workers. The interfaces of modules are
    /// consecutive.
    pub(crate) fn groups(&self, n3: &[IpAddr], workers: usize) -> Vec<Group> {
        if self.modules.is_empty() {
            let (n3, next_hops, interfaces) = (n3.to_vec(), self.next_hops.clone(), 0..self.interfaces.len());
            return vec![Group { interfaces, n3, next_hops, workers: workers.max(1), cores: vec![] }];
        }
        let mut next = 0;
        let groups = self.modules.iter().map(|module| {
            let interfaces = next..next + module.interfaces.len();
            next = interfaces.end;
            let others = n3.iter().copied().filter(|address| *address != module.n3);
            Group {
                interfaces,
                n3: std::iter::once(module.n3).chain(others).collect(),
                next_hops: module.next_hops.clone(),
                workers: module.workers(),
                cores: module.cores.clone(),
            }
        });
        groups.collect()
    }
}

/// Kernel interface for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameIo {
    /// AF_PACKET rings.
    AfPacket(Fanout),
    /// AF_XDP, with the place of its program. It has one worker for each queue of the interfaces.
    AfXdp(XdpMode),
}

impl Default for FrameIo {
    fn default() -> Self {
        FrameIo::AfPacket(Fanout::default())
    }
}
