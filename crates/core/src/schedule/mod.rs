//! Who runs a procedure next, and with which part of a core: seed 1's intra-host decisions as pure functions over
//! queue lengths, shares and measured times.
//!
//! [`estimate`]: how long a procedure would take at an NF (its equations 1 and 2). [`forward`]: which NF it goes to
//! (its Algorithm 2 and the baselines). [`kind`]: what an NF is for and what a message needs. [`shares`]: which part of a core each NF has. [`deficit`]: how a worker keeps to
//! these parts. [`shed`]: what is turned away when it is too much. Nothing here knows threads, queues as data structures, or clocks.

pub mod deficit;
pub mod dispatch;
pub mod estimate;
pub mod kind;
pub mod shares;
pub mod shed;
