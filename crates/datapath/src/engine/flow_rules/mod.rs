//! Flow rules: rules of sessions that one entry cannot hold.
//!
//! Examples are several filtered rules for one tunnel or one UE, forwarding into another tunnel,
//! quotas, and framed routes of the UE. The entries of such a session are marked. The first rule
//! that matches a packet applies. A kernel driver has the same rules as lists in
//! [`cells::Cells`], and punts packets that exceed it to user space.

pub(crate) mod cells;
pub(crate) mod lists;
pub(crate) mod state;
mod table;
mod types;

pub(crate) use table::{FlowTable, Flows, relays, tunnels_of};
pub use types::{FlowPackets, FlowRule, FlowSessions, Marking, Metered, Quota, SessionFlows, Source, Target};
