//! Placement of UEs: which host serves and owns which UEs, and who keeps copies of them.
//!
//! [`balance`] maps buckets to hosts and chooses hosts for messages. [`cluster`] is the
//! controller's state machine. [`host`] is the state machine of a host, over [`replica`], the owner's
//! and the replicas' side of replication. [`message`] has the messages between controller, balancers
//! and hosts.

pub mod balance;
pub mod cluster;
pub mod host;
pub mod message;
pub mod replica;
