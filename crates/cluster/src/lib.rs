//! Membership of a process in a cluster, and the queues between balancer and host.
//!
//! - Balancer and host exchange [`Command`] and [`Input`]: by queues in one process, by the
//!   connections of [`Link`] in a cluster.
//! - Every member has a [`ControllerClient`] and sends heartbeats. Hosts also replicate their
//!   commits ([`replicator`]).
//!
//! The crate does not know how a balancer, a host or a controller decides: `vireo_core::placement`
//! has the decisions, and the crates above have the threads that act on them.

#![forbid(unsafe_code)]

mod command;
mod config;
mod controller_client;
mod error;
mod heartbeat;
mod host_thread;
mod input;
mod input_queue;
mod link;
mod local_host;
mod poll_set;
mod progress;
pub mod replicator;
mod resident_controller;
mod server_address;
mod status;
mod unacked;

pub use command::{COMMANDS, Command, CommandReceiver, CommandSender, channel};
pub use config::{Ack, ClusterConfig, EtcdTls, Mode, Rebalance, ReplicationConfig, ScalingConfig, StatefulSetConfig};
pub use controller_client::{
    CONTROLLER_SILENCE_FACTOR, ControllerClient, ControllerClientSnapshot, JoinReply, LocalMember,
};
pub use error::LinkError;
pub use heartbeat::{HeartbeatHandle, HeartbeatTargets};
pub use host_thread::HostThread;
pub use input::{ClaimedUe, Input, LoadedBuckets};
pub use input_queue::{HostReceiver, HostSender, HostWaker, SharedThreadWaker};
pub use link::{HostQueues, Link, LinkStatus};
pub use local_host::{HostTurn, HostTurns, LocalHost};
pub use progress::ProgressCounter;
pub use resident_controller::ResidentController;
pub use server_address::{ServerAddress, ServerAddressError, resolve};
pub use status::{member_status, note_dead_hosts};
pub use unacked::{UnackedMessage, UnreachableBalancer};
