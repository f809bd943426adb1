//! The user plane: what happens to a packet between N3 and N6.
//!
//! [`Tables`] holds every rule and has one owner; deciding on what is usual needs no lock (`fast`), so any number of
//! workers do it at once, while the owner changes rules. The decision (`verdict`), the answers a UPF gives by itself, buffering and counting are the
//! same for every driver: [`Memory`] runs them on lists of packets, [`Sockets`] on UDP sockets and a TUN device,
//! with or without a program in the kernel (`xdp`) that does what is usual on the same records, or workers that do it
//! on whole Ethernet frames (`frames`: AF_PACKET, AF_XDP).
//!
//! A session that needs more than a record for each direction (filters, relaying, quotas, routes behind the UE) has rules
//! in `overflow`, and its records are marked (`UP_OVERFLOW`, `DOWN_OVERFLOW`) and lead to the lists of these rules that
//! the program in the kernel goes by.
//!
//! It knows nothing of PFCP, sessions beyond a number, or configuration files.

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
