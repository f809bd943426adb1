//! User plane: packet processing between N3 and N6.
//!
//! [`Tables`] holds every rule and has one writer, the *control side*: the code that owns the
//! sessions (the PFCP part of the UPF). The fast path (`fast`) classifies packets without a lock.
//! Any number of workers run it while the control side changes rules.
//!
//! All drivers share the classification (`verdict`), the answers of the UPF, buffering and
//! counting:
//! - [`Memory`] runs them on lists of packets.
//! - [`Sockets`] runs them on UDP sockets and a TUN device.
//! - `xdp` adds a kernel program to [`Sockets`], which runs the fast path on the same entries.
//! - `frames` adds workers to [`Sockets`], which run the fast path on Ethernet frames (AF_PACKET,
//!   AF_XDP).
//!
//! A session that needs more than one entry for each direction has rules in `flow_rules`: filters,
//! relaying, quotas, routes behind the UE. Its entries are marked (`UP_OVERFLOW`, `DOWN_OVERFLOW`)
//! and point to the lists of these rules, which the kernel program evaluates.
//!
//! The crate does not know PFCP or configuration files, and it knows sessions only as numbers.

mod access;
#[cfg(test)]
mod allocations;
mod answer;
mod buffer;
mod counters;
mod entry;
mod fast;
mod filter;
mod flow_rules;
mod frames;
mod host_routes;
mod hot;
mod index;
mod inner;
mod memory;
mod modules;
mod ndp;
mod next_hops;
mod nic;
mod os_setup;
mod pipeline;
mod processes;
mod rate;
mod rule;
mod slab;
mod slices;
mod sockets;
mod sys;
mod tables;
mod tunnel_target;
mod tunnels;
mod verdict;
mod xdp;

pub use access::{Access, PeerBinding, Use};
pub use buffer::BufferLimits;
pub use counters::{Counters, DROP_REASONS, DropReason, Stats, Volume};
pub use entry::watch_for;
pub use fast::{Locking, SharedTables};
pub use filter::{Filter, Network};
pub use flow_rules::{FlowPackets, FlowRule, FlowSessions, Metered, Quota, SessionFlows, Source, Target};
pub use frames::bare::Bare;
pub use frames::memory::{MemoryFrames, NextHop, SideOutput};
pub use frames::{Fanout, FrameIo, FramesConfig};
pub use memory::Memory;
pub use modules::Module;
pub use os_setup::StartError;
pub use processes::{ChildProcess, ProcessSpawner, TakeoverStats, WorkError, work};
pub use rate::Rate;
pub use rule::{ALL_FLOWS, Action, DownlinkRule, Tunnel, UplinkRule};
pub use slices::{SliceWorkers, WORKERS as SLICE_WORKERS, WorkerLoad, WorkerMap};
pub use sockets::{Clock, EventSink, Sockets, SocketsConfig, StatsHandle, TablesHandle};
pub use sys::{poll, take_short_turns, udp};
pub use tables::{DownlinkId, Limits, Pool, Released, TableError, Tables};
pub use verdict::Event;
pub use xdp::{XdpConfig, XdpMode};
