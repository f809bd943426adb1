//! Errors of the shards.

/// Error of the shards.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The operating system does not start a process or thread.
    #[error("a shard cannot be started: {0}; see the limits on processes and memory, or reduce pools.shards")]
    Spawn(#[from] std::io::Error),
    /// A shard ended before it served.
    #[error("shard {shard} does not start: {why}")]
    Start { shard: usize, why: String },
}
