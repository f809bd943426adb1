//! Messages between the members of a cluster: controller, balancers and hosts.
//!
//! The messages are plain data. The fabric encodes them with postcard, which numbers the variants
//! in their order: new ones are appended only.

mod balancer;
mod controller;
mod event;
mod output;
mod replica;

pub use balancer::{AssociationOwner, BalancerNotice, PoolLoad, ToBalancer, ToHost};
pub use controller::{BalancerAssignment, ToController, ToMember, Welcome};
pub use event::{Envelope, PeerEvent, Receiver, SERVING_TIMEOUT};
pub use output::{ClusterOutput, HostNotice, RanOutput};
pub use replica::{ToOwner, ToReplica};
