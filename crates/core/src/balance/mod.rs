//! Which host a UE's state lies on and which of them carries out a procedure: seed 1's inter-host decisions (its Algorithm
//! 1, skewed consistent hashing) and the policies that it is compared with, as pure functions over what hosts report.
//!
//! [`ring`]: the circle of hosts that a slice's keys go to. [`map`]: the circles as a table of buckets, which is what a
//! balancer looks up (DESIGN decision 7). [`board`]: what hosts have reported, and how old that is. [`steer`]: the choice for
//! one procedure. [`moves`]: how buckets go from host to host while all live. [`maglev`]: the table of the Maglev paper. Nothing here knows sockets, clocks or messages.

pub mod load_table;
pub mod maglev;
pub mod map;
pub mod migration;
pub mod ring;
pub mod steer;

use serde::{Deserialize, Serialize};

/// A host of the cluster: a small number that the controller gives, and gives to no other host while it is in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

/// A balancer of the cluster: 0 to 15, as there are 4 bits for it in numbers of associations and inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BalancerId(pub u8);

impl BalancerId {
    /// How many there can be.
    pub const COUNT: u8 = 16;

    /// The balancer that gave an input its number: its 4 highest bits.
    pub const fn of_input(number: u64) -> Self {
        BalancerId((number >> 60) as u8)
    }

    /// The number of an input at this balancer.
    pub const fn input(self, own: u64) -> u64 {
        (self.0 as u64) << 60 | own & (u64::MAX >> 4)
    }
}

impl HostId {
    /// Its position in tables of hosts.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
