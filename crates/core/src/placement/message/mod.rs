//! Messages between the members of a cluster: controller, balancers and hosts.
//!
//! The messages are plain data. The fabric encodes them with postcard, which numbers the variants
//! in their order: new ones are appended only.

mod balancer;
mod controller;
mod replica;

pub use balancer::{AssociationOwner, PoolLoad, ToBalancer, ToHost};
pub use controller::{BalancerAssignment, ToController, ToMember, Welcome};
pub use replica::{ToOwner, ToReplica};
