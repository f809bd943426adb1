//! Settings of the shards.

use super::message::ConfigText;
use std::time::Duration;
use vireo_ops::supervisor::Program;

/// Settings of the shards.
#[derive(Clone, Debug)]
pub struct ShardsConfig {
    pub count: u8,
    /// How to start a shard.
    pub program: Program,
    /// Processors of the shards, in turn; empty = all.
    pub cores: Vec<usize>,
    /// Maximum time until a stopped shard is killed.
    pub stopped_after: Duration,
    /// Configuration of the shards.
    pub config: ConfigText,
}
