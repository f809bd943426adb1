//! Scheduling of procedures within a host: decisions of MMLite as pure functions.
//!
//! The inputs are queue lengths, shares and measured times:
//!
//! - [`estimate`]: completion time of a procedure at an NF (equations 1 and 2 of MMLite),
//! - [`dispatch`]: NF of a procedure (Algorithm 2 of MMLite, and baselines),
//! - [`kind`]: kinds of procedures and messages,
//! - [`shares`]: part of a core of each NF,
//! - [`deficit`]: enforcement of the shares by a worker,
//! - [`shed`]: rejection of messages during overload.
//!
//! The module has no threads, queue data structures or clocks.

pub mod deficit;
pub mod dispatch;
pub mod estimate;
pub mod kind;
pub mod shares;
pub mod shed;
