//! Traffic for tests of the user plane, generated outside of it.
//!
//! - [`pfcp`]: control plane that sets up many sessions.
//! - [`generate`]: load through sockets, with its mirror [`respond`].
//! - [`frame_loop`]: load that runs in the kernel without a generator.
//! - [`mutate`]: campaign of invalid PFCP messages.
//!
//! It uses PFCP and GTP-U only, and does not depend on the implementation of the UPF.

pub mod distribution;
pub mod frame_loop;
pub mod generate;
pub mod mutate;
pub mod packets;
pub mod pfcp;
pub mod respond;
pub mod stamp;
mod sys;
