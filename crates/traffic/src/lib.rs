//! Traffic for the user plane, from outside of it: a control plane that sets up sessions in numbers ([`pfcp`]), and a load
//! that runs in the kernel without a generator ([`circuit`]).
//!
//! It speaks PFCP and GTP-U like anybody else and knows nothing of how a UPF is made.

pub mod circuit;
pub mod packets;
pub mod pfcp;
mod sys;
