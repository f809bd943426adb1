//! The threads, queues, clocks and effects of a running core. See ARCHITECTURE.md.
pub mod config;
