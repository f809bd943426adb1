//! Copy of lookups for the kernel program.

use crate::network::Network;
use vireo_types::Teid;

/// Kernel copy of the lookups that are not in arrays.
pub(crate) trait KernelMirror: Send + Sync + std::fmt::Debug {
    /// Maps a foreign TEID, which encodes no index, to an entry index, or removes it.
    fn foreign(&mut self, teid: Teid, index: Option<u32>);
    /// Maps a network to the address index value of its UE and its MTU in octets, or removes it.
    fn framed(&mut self, network: Network, to: Option<(u32, u16)>);
}
