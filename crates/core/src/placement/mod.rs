//! Placement of UEs: owner, serving host and replicas of each UE.
//!
//! [`balance`] maps buckets to hosts and chooses hosts for messages. [`balancer`], [`cluster`] and
//! [`host`] are the state machines of balancer, controller and host. [`ran_nodes`] has a host's RAN
//! nodes and their associations. [`replica`] has the owner's and the replicas' side of replication.
//! [`message`] has the messages between controller, balancers and hosts.

pub mod balance;
pub mod balancer;
pub mod cluster;
mod connection;
pub mod host;
pub mod message;
pub mod ran_nodes;
pub mod replica;

pub use connection::ConnectionId;
