//! Lookups of the kernel program that are not in arrays: foreign TEIDs and framed routes.

use crate::engine::tables::KernelMirror;
use crate::network::Network;
use aya::maps::lpm_trie::{self, LpmTrie};
use aya::maps::{HashMap, MapData};
use std::net::IpAddr;
use tracing::warn;
use vireo_types::Teid;

/// Lookups of the program that are not in arrays: foreign TEIDs and framed routes.
pub(super) struct LookupMaps {
    pub(super) foreign: HashMap<MapData, u32, u32>,
    pub(super) framed: LpmTrie<MapData, [u8; 20], [u32; 2]>,
}

impl std::fmt::Debug for LookupMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

impl KernelMirror for LookupMaps {
    fn foreign(&mut self, teid: Teid, index: Option<u32>) {
        let result = match index {
            Some(index) => self.foreign.insert(teid.0, index, 0),
            None => self.foreign.remove(&teid.0),
        };
        // The program passes packets that it does not find, and ignores an entry of another TEID:
        // slower, not wrong.
        if let Err(error) = result {
            warn!(%error, "TEID {:#x} not entered in the map of the XDP program", teid.0);
        }
    }

    fn framed(&mut self, network: Network, to: Option<(u32, u16)>) {
        // `struct network` of `bpf/entry.h`.
        let mut data = [0; 20];
        let family = if network.address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        data[..4].copy_from_slice(&family.to_ne_bytes());
        let most = match network.address {
            IpAddr::V4(v4) => {
                data[4..8].copy_from_slice(&v4.octets());
                32
            }
            IpAddr::V6(v6) => {
                data[4..].copy_from_slice(&v6.octets());
                128
            }
        };
        let key = lpm_trie::Key::new(32 + u32::from(network.length.min(most)), data);
        let result = match to {
            Some((entry, mtu)) => self.framed.insert(&key, [entry, mtu.into()], 0),
            None => self.framed.remove(&key),
        };
        if let Err(error) = result {
            warn!(%error, "framed route {network:?} not entered in the map of the XDP program");
        }
    }
}
