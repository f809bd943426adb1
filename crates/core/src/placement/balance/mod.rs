//! Placement of UE state on hosts, and selection of the serving host of a procedure.
//!
//! It implements the inter-host decisions of MMLite (Algorithm 1, skewed consistent hashing) and
//! the policies that it is compared with, as pure functions over load reports.
//!
//! - [`ring`]: hash ring of the hosts of a slice.
//! - [`machines`]: hosts that share a machine.
//! - [`map`]: rings as a table of buckets, which balancers look up.
//! - [`load_table`]: load reports of hosts, and their age.
//! - [`steer`]: host selection for one procedure.
//! - [`migration`]: migration of buckets between live hosts.
//! - [`maglev`]: table of the Maglev paper.
//!
//! Nothing here uses sockets, clocks or messages.

pub mod load_table;
pub mod machines;
pub mod maglev;
pub mod map;
pub mod migration;
pub mod ring;
pub mod steer;

use serde::{Deserialize, Serialize};

/// ID of a host. The controller assigns it, and to no other host while it is in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

/// ID of a balancer, 0 to 15: association IDs and input numbers have 4 bits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BalancerId(pub u8);

impl BalancerId {
    /// Number of balancer IDs.
    pub const COUNT: u8 = 16;

    /// Returns the balancer that assigned an input number: its 4 highest bits.
    pub const fn from_input(number: u64) -> Self {
        BalancerId((number >> 60) as u8)
    }

    /// Returns the cluster-wide number of this balancer's input `own`.
    pub const fn input(self, own: u64) -> u64 {
        (self.0 as u64) << 60 | own & (u64::MAX >> 4)
    }
}

impl HostId {
    /// Returns the index in tables of hosts.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
