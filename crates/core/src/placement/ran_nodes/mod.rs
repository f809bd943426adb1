//! RAN nodes of a host, their associations and the UEs connected by each of them.
//!
//! [`RanNodeTable`] decides for one host: which association carries a RAN node and its UEs, which
//! RAN node an additional association belongs to, which messages are repeats after the loss of an
//! association, and what the restart of a RAN node or the loss of a balancer ends. It is driven by
//! events of associations and by messages of RAN nodes, and returns [`NodeOutput`]s. The caller is
//! `amf::host` in a running core and the fault campaign in the simulator.
//!
//! The number of a RAN node is the association on which it was set up. The number stays when that
//! association is lost and others carry the node. It names one lifetime of the node; UE contexts
//! store it. Messages to the node use an association that is up.
//!
//! Invariants:
//!
//! - A RAN node has at least one association that is up. If the connection to the balancer of its
//!   only association is lost, it keeps that one as unreachable until the balancer's end is known.
//! - Each identity has at most one RAN node; that of an eNB at most one for each balancer, which is
//!   an MME.
//! - The UEs of a RAN node that has lost its last association become idle.
//! - A UE message is executed once, even if the RAN node repeats it by another association.
//!
//! Stored UEs, their steps, connections and clocks belong to the caller.

mod contest;
mod loss;
mod message;
mod output;
mod relay;
mod relay_budget;
mod table;
#[cfg(test)]
mod tests;

pub use message::{MessageTarget, NodeStepInput};
pub use output::{NodeEvent, NodeOutput};
pub use table::{RanNodeEntry, RanNodeTable, each_node_once};
