//! Settings of the cluster controller.

use super::scaling::Scaling;
use vireo_types::Duration;

/// Settings of a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// Number of hosts that the first map waits for.
    pub hosts: usize,
    /// Maximum number of hosts at a time. Each has a pool partition, which is assigned again when
    /// its host has departed and no UE uses it.
    pub max_hosts: u16,
    /// True if a host failure loses no acknowledged commit as long as there are copies.
    pub lossless: bool,
    /// Number of replicas for UEs of unknown slice (element 0) and for each slice.
    pub replicas: Vec<usize>,
    /// True if UEs can migrate between live hosts: false if no host has their contexts in shared
    /// memory.
    pub migrates: bool,
    /// Maximum number of buckets, of all [`crate::placement::balance::map::BUCKETS`], that migrate
    /// at once. The next ones follow when all owners have what they were assigned.
    pub max_migrating_buckets: usize,
    /// Settings for the number of serving hosts; `None`: all hosts that have joined serve.
    pub scaling: Option<Scaling>,
    /// Time for which the loads of hosts must differ before their weights change, and minimum time
    /// between two migrations for that reason. `None`: all hosts have the same weight.
    pub rebalance_pause: Option<Duration>,
    /// Time without a message after which a member is silent.
    pub silence: Duration,
    /// Time for which a new controller waits until known members have reconnected.
    pub reconnect_timeout: Duration,
    /// Time for which a controller without state waits for members of an existing cluster before it
    /// creates one.
    pub discovery_time: Duration,
    /// True if the controller runs in the process of the only balancer: when it starts, the
    /// previous balancer is dead.
    pub is_embedded: bool,
}
