//! User plane: packet processing between N3 and N6.
//!
//! [`Tables`] holds every rule and has one writer, the *control side*: the code that owns the
//! sessions (the PFCP part of the UPF). The fast path (`engine::arrays`) classifies packets without
//! a lock. Any number of workers run it while the control side changes rules.
//!
//! The parts, each of which knows only those before it:
//! - `os_setup` prepares the operating system: TUN device, routes, address translation, network
//!   cards. It stands alone.
//! - `engine` holds the rules, classifies packets, answers, buffers and counts.
//! - `drivers` receive and send packets: UDP sockets with a TUN device, AF_PACKET, AF_XDP, a kernel
//!   program (XDP), and lists in memory ([`Memory`], [`MemoryFrames`]).
//! - `workers` run drivers on the engine, in threads or in processes.
//! - [`UserPlane`] composes them.
//!
//! A session that needs more than one entry for each direction has rules in `engine::flow_rules`:
//! filters, relaying, quotas, routes behind the UE. Its entries are marked (`UP_OVERFLOW`,
//! `DOWN_OVERFLOW`) and point to the lists of these rules, which the kernel program evaluates.
//!
//! The crate does not know PFCP or configuration files, and it knows sessions only as numbers.

mod drivers;
mod engine;
mod network;
mod os_setup;
mod start_error;
mod sys;
#[cfg(test)]
mod tests;
mod user_plane;
mod workers;

pub use drivers::bare::Bare;
pub use drivers::frames::{Fanout, FrameIo, FramesConfig};
pub use drivers::memory::Memory;
pub use drivers::memory::frames::{MemoryFrames, NextHop, SideOutput};
pub use drivers::module::Module;
pub use drivers::xdp::{XdpConfig, XdpMode};
pub use engine::access::{Access, PeerBinding, Use};
pub use engine::buffer::BufferLimits;
pub use engine::counters::{Counters, DROP_REASONS, DropReason, Stats, Volume};
pub use engine::entry::watch_for;
pub use engine::event::{Event, EventSink};
pub use engine::filter::Filter;
pub use engine::flow_rules::{
    FlowPackets, FlowRule, FlowSessions, Marking, Metered, Quota, SessionFlows, Source, Target,
};
pub use engine::index::DownlinkId;
pub use engine::limits::Limits;
pub use engine::locking::Locking;
pub use engine::rate::Rate;
pub use engine::rule::{ALL_FLOWS, Action, DownlinkRule, Tunnel, UplinkRule};
pub use engine::shared_tables::SharedTables;
pub use engine::tables::{Released, TableError, Tables};
pub use engine::worker_load::WorkerLoad;
pub use engine::worker_map::{WORKERS as SLICE_WORKERS, WorkerMap};
pub use network::{Network, Pool};
pub use start_error::StartError;
pub use sys::clock::Clock;
pub use sys::poll::{Poller, Waker};
pub use sys::udp::{Receiver as UdpReceiver, Sender as UdpSender};
pub use sys::{BATCH as UDP_BATCH, request_short_time_slices};
pub use user_plane::{StatsHandle, TablesHandle, UserPlane, UserPlaneConfig};
pub use workers::process::{ChildProcess, ProcessSpawner, TakeoverStats, WorkError, run_worker};
pub use workers::slices::SliceWorkers;
