//! Ethernet frames in user space: common part of the frame drivers (AF_PACKET, AF_XDP).
//!
//! A worker passes a batch of frames to [`FrameProcessor::process`]. The processor classifies them
//! by the pipeline, writes the headers of sent frames in place, and returns a verdict for each
//! frame. The kernel handles the remaining packets:
//! - An uplink packet without a known next hop, for a UE, with options or on its last hop goes
//!   through the TUN device and is routed.
//! - A downlink packet without a known next hop to the RAN node, or above its MTU, goes through the
//!   UDP socket.
//!
//! The programs of [`steering`] decide which frames go to the driver and not to the kernel.

mod batch;
mod config;
mod kernel_path;
mod processor;
pub(crate) mod steering;

pub(crate) use batch::{FrameMemory, FrameVerdict, Frames};
pub(crate) use config::Group;
pub use config::{Fanout, FrameIo, FramesConfig};
pub(crate) use kernel_path::{Kernel, KernelPath};
pub(crate) use processor::FrameProcessor;
