//! What the controller and the members of its cluster, hosts and balancers, say to each other. Variants are numbered in
//! their order: new ones are added at the end alone (see [`super`]).

use super::message::{PoolLoad, Welcome};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_core::balance::{BalancerId, HostId};
use vireo_core::cluster::{ClusterMap, Member, RejoinInfo};

/// What a balancer is told when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerAssignment {
    /// Its number.
    pub balancer: BalancerId,
    /// The key of the 5G-TMSIs, by which it finds the bucket of a UE.
    pub tmsi_key: [u8; 16],
    /// The recovery time stamp of the cluster's N4 (TS 29.244 8.2.65): seconds since 1900.
    pub recovery: u32,
    /// How often each side says something, in milliseconds, and after how many silences it is taken for dead.
    pub heartbeat: (u32, u32),
}

/// From a member to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    /// A host wants to join.
    Host {
        /// Where it takes other hosts' copies.
        copies: SocketAddr,
        /// What it knows if it was a member before.
        past: Option<Box<RejoinInfo<HostId>>>,
    },
    /// A balancer wants to join.
    Balancer {
        /// Where it takes hosts.
        address: SocketAddr,
        /// What it knows if it was a member before.
        past: Option<Box<RejoinInfo<BalancerId>>>,
    },
    /// It is ready: a host has started its workers, a balancer takes hosts. From here on it is heard.
    Ready,
    /// Nothing else to say.
    Beat,
    /// The hosts of the map that the balancer does not hear.
    SilentHosts(Vec<HostId>),
    /// How loaded the host is.
    Report {
        /// The part of its processors that is in use, 0 to 1, averaged.
        cpu: f32,
        /// Messages that it has dealt with a second, averaged.
        rate: f32,
        /// Its pools: by slice (first that of UEs whose slice is not known), in each by kind.
        pools: Vec<PoolLoad>,
    },
    /// Another host has all copies of this one's UEs that an epoch wants it to have.
    CaughtUp {
        /// The epoch.
        epoch: u64,
        /// The other host.
        host: HostId,
    },
    /// The host wants to leave: others are to get its UEs.
    Leave,
    /// The hosts of the map that do not take this host's copies.
    UnreachablePeers(Vec<HostId>),
    /// Of which parts of the UE addresses, whose hosts are gone, the host's UEs have some: all of them, each time. While it said
    /// so none were on their way to it or from it.
    PoolPartitions {
        /// The epoch.
        epoch: u64,
        /// The parts.
        parts: Vec<u16>,
    },
    /// Nothing but heartbeats comes by this connection: those of a member, which has another one.
    Pulse(Member),
}

/// From the controller to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToMember {
    /// The host may join.
    Welcome(Welcome),
    /// The balancer may join.
    Assignment(BalancerAssignment),
    /// It may not, or no longer.
    Refused(String),
    /// Nothing else to say.
    Beat,
    /// From here on this map holds.
    Map(Box<ClusterMap>),
    /// The host has nothing any more that others have not, and may end.
    LeaveGranted,
}
