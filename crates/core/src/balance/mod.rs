//! Which host a UE's state lies on and which of them carries out a procedure: seed 1's inter-host decisions (its Algorithm
//! 1, skewed consistent hashing) and the policies that it is compared with, as pure functions over what hosts report.
//!
//! [`ring`]: the circle of hosts that a slice's keys go to. [`map`]: the circles as a table of buckets, which is what a
//! balancer looks up (DESIGN decision 7). [`board`]: what hosts have reported, and how old that is. [`steer`]: the choice for
//! one procedure. [`moves`]: how buckets go from host to host while all live. [`maglev`]: the table of the Maglev paper. Nothing here knows sockets, clocks or messages.

pub mod board;
pub mod maglev;
pub mod map;
pub mod moves;
pub mod ring;
pub mod steer;

use serde::{Deserialize, Serialize};

/// A host of the cluster: a small number that the controller gives, and gives to no other host while it is in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u16);

impl HostId {
    /// Its position in tables of hosts.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
