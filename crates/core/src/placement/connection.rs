//! Number of a connection between members.

use serde::{Deserialize, Serialize};

/// Connection of a peer to a member. The member's process assigns the number and does not reuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);
