//! A running user plane: drivers, workers and tables together.
//!
//! Workers run the fast path without a lock while the control side changes rules
//! (`engine::arrays`). The slow path and each change take the lock of the tables. This has three
//! effects:
//! - A change applies to all packets classified after it, so the PFCP response is truthful.
//! - All workers share one copy of the tables.
//! - No later packet overtakes the output of a change (buffered packets, End Markers).
//!
//! A command queue per worker would need one copy of the tables for each worker. It would also need
//! an acknowledgement before every PFCP response.

mod config;
mod frame_workers;
mod parts;
mod start;
mod stats;
mod tables_handle;

pub use config::UserPlaneConfig;
pub use stats::StatsHandle;
pub use tables_handle::TablesHandle;

use crate::drivers::af_packet::link::Link;
use crate::drivers::frames::FrameIo;
use crate::drivers::frames::steering::FrameSteering;
use crate::drivers::next_hops::NextHops;
use crate::drivers::xdp::Xdp;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::tables::{Released, Tables};
use crate::os_setup::nat::Nat;
use crate::os_setup::nic::NicFilters;
use crate::sys::clock::Clock;
use crate::workers::process::WorkerPool;
use crate::workers::thread::WorkerThreads;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing::error;

/// A running user plane. Dropping it stops it. Address translation is removed from the network
/// namespace of the thread that drops it, which must be that of the thread that started it.
pub struct UserPlane {
    handle: TablesHandle,
    clock: Clock,
    threads: WorkerThreads,
    _nat: Option<Nat>,
    xdp: Option<Xdp>,
    steering: Option<(FrameSteering, FrameIo)>,
    next_hops: NextHops,
    filters: Option<NicFilters>,
    /// AF_PACKET rings, with the numbers of their workers.
    rings: Vec<(usize, Link)>,
    /// True if the log contains the loss of an interface.
    logged_missing: AtomicBool,
    processes: Option<WorkerPool>,
}

impl std::fmt::Debug for UserPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserPlane").field("workers", &self.threads.len()).finish_non_exhaustive()
    }
}

impl UserPlane {
    /// Changes the tables. Sends the output of the change before any later packet.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        self.handle.change(change)
    }

    /// Returns a handle to change the tables from any thread while the user plane runs.
    pub fn handle(&self) -> TablesHandle {
        self.handle.clone()
    }

    /// Drops expired buffered packets and sends router advertisements. Must be called once a
    /// second.
    pub fn upkeep(&self) {
        let (view, now) = (&self.handle.stats, self.clock.now());
        let mut stats = Stats::default();
        stats.drops[DropReason::BufferExpired as usize] = view.read(|tables| tables.expire_buffers(now));
        for (worker, ring) in &self.rings {
            // A ring without statistics was closed: its worker has ended.
            let drops = ring.take_drops().map_or(0, u64::from);
            stats.drops[DropReason::RingFull as usize] += drops;
            if let Some(load) = view.counters.loads.get(*worker) {
                load.no_room(drops);
            }
        }
        let expired = view.read(|tables| tables.expire_held(now));
        stats.drops[DropReason::UnknownPeer as usize] += self.handle.note_unknown(&expired);
        view.counters.total.flush(&mut stats);
        self.change(|tables, released| {
            tables.advertise_again(released);
            tables.maintain_cells();
            tables.age_peers();
        });
        self.next_hops.refresh();
        self.log_missing_interface();
    }

    /// Logs the loss of an interface, once.
    fn log_missing_interface(&self) {
        let of_xdp = self.xdp.iter().flat_map(Xdp::missing_interfaces);
        let of_frames = self.steering.iter().flat_map(|(steering, _)| steering.missing_interfaces());
        if let Some(name) = of_xdp.chain(of_frames).next()
            && !self.logged_missing.swap(true, Relaxed)
        {
            error!("the interface {name} has gone, and its driver with it; user packets go by the slow path: restart");
        }
    }

    /// Returns true if a worker has ended without being stopped.
    pub fn has_failed(&self) -> bool {
        self.threads.has_ended() || self.processes.as_ref().is_some_and(WorkerPool::has_failed)
    }

    /// Returns the clock of buffers and rates.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns a read handle of unlimited lifetime.
    pub fn stats(&self) -> StatsHandle {
        self.handle.stats.clone()
    }
}

impl Drop for UserPlane {
    fn drop(&mut self) {
        self.xdp = None;
        self.threads.stop();
        self.processes = None;
        self.threads.join();
        // Removed last, so that no frame takes both the kernel's and the driver's path.
        self.steering = None;
    }
}
