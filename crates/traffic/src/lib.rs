//! Traffic for the user plane, from outside of it: a control plane that sets up sessions in numbers ([`pfcp`]), a load
//! through sockets ([`generate`]) with its mirror ([`respond`]), and one that runs in the kernel without a generator
//! ([`circuit`]).
//!
//! It speaks PFCP and GTP-U like anybody else and knows nothing of how a UPF is made.

pub mod distribution;
pub mod frame_loop;
pub mod generate;
pub mod mutate;
pub mod packets;
pub mod pfcp;
pub mod respond;
pub mod stamp;
mod sys;
