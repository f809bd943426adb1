//! Messages between the controller and the members of its cluster, hosts and balancers.

use super::PoolLoad;
use crate::placement::balance::{BalancerId, HostId};
use crate::placement::cluster::{ClusterMap, MachineLabel, Member, RejoinInfo};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Join reply of the controller to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Host ID; no other host of the cluster ever has it.
    pub host: HostId,
    /// Key from which 5G-TMSIs are derived: every host decodes those of every other.
    pub tmsi_key: [u8; 16],
    /// Pool partition of the host, and the number of partitions.
    pub part: (u16, u16),
    /// Heartbeat interval in milliseconds, and the number of missed heartbeats after which a peer
    /// is silent.
    pub heartbeat: (u32, u32),
    /// Interval of load reports in milliseconds.
    pub report: u32,
    /// Recovery Time Stamp of the cluster's N4 (TS 29.244 8.2.65), in seconds since 1900.
    pub recovery: u32,
}

/// Join reply of the controller to a balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerAssignment {
    pub balancer: BalancerId,
    /// Key from which 5G-TMSIs are derived; the balancer decodes the bucket of a UE with it.
    pub tmsi_key: [u8; 16],
    /// Recovery Time Stamp of the cluster's N4 (TS 29.244 8.2.65), in seconds since 1900.
    pub recovery: u32,
    /// Heartbeat interval in milliseconds, and the number of missed heartbeats after which a peer
    /// is silent.
    pub heartbeat: (u32, u32),
}

/// Message from a member to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    /// Join request of a host.
    JoinHost {
        /// Address at which the host receives copies of other hosts.
        copies: SocketAddr,
        /// State of an earlier membership, if any.
        past: Option<Box<RejoinInfo<HostId>>>,
    },
    /// Join request of a balancer.
    JoinBalancer {
        /// Address at which the balancer accepts hosts.
        address: SocketAddr,
        /// State of an earlier membership, if any.
        past: Option<Box<RejoinInfo<BalancerId>>>,
    },
    /// The member is ready: a host has started its workers, a balancer accepts hosts. From here on
    /// heartbeats are expected.
    Ready,
    /// Sent when there is nothing else to send.
    Heartbeat,
    /// Hosts of the map from which the balancer receives no heartbeats.
    SilentHosts(Vec<HostId>),
    /// Load report of the host.
    Report {
        /// CPU use of the host, 0 to 1, averaged.
        cpu: f32,
        /// Processed messages per second, averaged.
        rate: f32,
        /// Pools by slice (first that of UEs whose slice is not known), in each by kind.
        pools: Vec<PoolLoad>,
    },
    /// Another host has all copies of the sender's UEs that an epoch requires.
    CaughtUp {
        /// Epoch of the map that requires the copies.
        epoch: u64,
        host: HostId,
    },
    /// The host wants to leave: other hosts must take its UEs.
    Leave,
    /// Hosts of the map that do not accept the sender's copies.
    UnreachablePeers(Vec<HostId>),
    /// Pool partitions of departed hosts from which the sender's UEs use addresses, all of them. No
    /// bucket was migrating to or from the sender in this epoch.
    PoolPartitions { epoch: u64, parts: Vec<u16> },
    /// This connection carries only heartbeats of a member, which has another connection.
    HeartbeatOnly(Member),
    /// Number of procedures since the last such message for which a balancer found no host that
    /// would meet the objective.
    Violations(u32),
    /// Machine of the host, whose other hosts fail with it. Sent after each join, before
    /// [`ToController::Ready`], to a controller of fabric version 12 or later.
    Machine(MachineLabel),
    /// Last [`ToMember::Cordoned`] that the balancer has received. Sent after each join, to a
    /// controller of fabric version 12 or later.
    Cordoned(Vec<HostId>),
}

/// Message from the controller to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToMember {
    /// The host has joined.
    Welcome(Welcome),
    /// The balancer has joined.
    Assignment(BalancerAssignment),
    /// The join is refused, or the member is evicted; contains the reason.
    Refused(String),
    /// Sent when there is nothing else to send.
    Heartbeat,
    /// Map that is in effect from here on.
    Map(Box<ClusterMap>),
    /// Other hosts have all state of the host: it may end.
    LeaveGranted,
    /// Hosts to which the balancer sends no new UEs, all of them. Sent instead of heartbeats, to
    /// balancers of fabric version 12 or later.
    Cordoned(Vec<HostId>),
}
