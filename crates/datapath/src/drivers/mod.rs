//! Drivers: input and output of packets. They know the engine, not the workers.

pub(crate) mod af_packet;
pub(crate) mod af_xdp;
pub(crate) mod bare;
mod bpf;
pub(crate) mod frames;
mod kernel_config;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod next_hops;
pub(crate) mod slice_steering;
pub(crate) mod udp;
pub(crate) mod xdp;
