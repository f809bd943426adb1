//! State of one UE in a worker: UE state machine, connection and script position.

use crate::dialect::Device;
use crate::mix::Activity;
use crate::ran::ConnectionId;
use crate::report::Times;
use crate::scenario::Step;
use std::net::IpAddr;
use vireo_types::{Teid, Tmsi};

/// Bits for the events of the current step.
pub(super) mod flag {
    pub(in crate::engine) const REGISTERED: u32 = 1;
    pub(in crate::engine) const REJECTED: u32 = 2;
    /// The fault of [`crate::scenario::Step::Faulty`] was observed.
    pub(in crate::engine) const FAULTED: u32 = 4;
    pub(in crate::engine) const SERVED: u32 = 8;
    pub(in crate::engine) const DEREGISTERED: u32 = 16;
    pub(in crate::engine) const PAUSED: u32 = 32;
    /// T3346 runs; the step starts again when it expires.
    pub(in crate::engine) const BACKING_OFF: u32 = 64;
    pub(in crate::engine) const PAGED: u32 = 128;
    /// The packet that triggers paging was sent.
    pub(in crate::engine) const CALLED: u32 = 1024;
    /// The gNB has requested the release of a UE that backs off.
    pub(in crate::engine) const RELEASING: u32 = 256;
    /// A handover is complete.
    pub(in crate::engine) const MOVED: u32 = 512;
    /// The core has released a tunnel that the gNB had lost, or the UE of an eNB; or the node has
    /// restarted.
    pub(in crate::engine) const LOST: u32 = 4096;
    /// The core has updated the configuration of the UE since it was last idle.
    pub(in crate::engine) const UPDATED: u32 = 8192;
    /// The core has taken other keys into use since the UE last rested.
    pub(in crate::engine) const RENEWED: u32 = 65_536;
    /// The core has requested location reports of the UE's node.
    pub(in crate::engine) const LOCATED: u32 = 32_768;
    /// The core has returned the radio capability of the UE.
    pub(in crate::engine) const CAPABLE: u32 = 16_384;
    /// A new script begins with the next [`super::super::timers::Kind::Resume`].
    pub(in crate::engine) const RESUMING: u32 = 2048;
}

/// State of a UE slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Waiting,
    Running,
    /// In its rest state in a steady load, and free for its next procedure.
    Free,
    /// All steps are complete.
    Done,
    Failed,
}

/// State of the current procedure of a steady load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcedureState {
    Ok,
    /// The procedure has failed; the UE returns to its rest state.
    Failed,
    /// The UE has lost its registration and registers again.
    Lost,
}

/// One echo flow of a traffic step: a session and an IP version.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) psi: u8,
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    /// Interface identifier while the prefix is requested.
    pub(super) soliciting: Option<[u8; 8]>,
    pub(super) remaining: u32,
    pub(super) sequence: u16,
    pub(super) sent_us: u64,
    pub(super) tries: u32,
    /// Time until which an answer to a resent packet may arrive, in microseconds.
    pub(super) quiet_us: u64,
}

/// State of a UE that moves to another node.
#[derive(Debug, Default)]
pub(super) struct SlotMove {
    /// Target of its handover.
    pub(super) prepared: Option<Box<PreparedTarget>>,
    /// Echoes that it sends meanwhile.
    pub(super) pings: Option<Box<Pings>>,
    /// Packets at its target, while the source forwards packets.
    pub(super) arrival: Option<Box<Arrival>>,
}

/// Packets at the target of a handover whose source forwards packets.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Tunnel of the new path.
    pub(super) teid: Teid,
    /// Packets of the new path that wait for the End Marker.
    pub(super) packets: Vec<Vec<u8>>,
    /// Number of the deadline.
    pub(super) number: u32,
}

/// Key that the target of a handover has received, until the UE has its own.
#[derive(Debug)]
pub(super) struct PreparedTarget {
    pub(super) key: [u8; 32],
    pub(super) chaining: u8,
}

/// Echoes of a moving UE. Each is sent once.
#[derive(Debug)]
pub(super) struct Pings {
    /// Addresses of the UE and of the data network.
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    /// Sequence number of the next echo.
    pub(super) next: u16,
    /// Sequence numbers of echoes without an answer.
    pub(super) open: Vec<u16>,
    /// Sequence number of the latest echo with an answer.
    pub(super) answered: Option<u16>,
    /// Number of the step that started them. Their deadlines have it.
    pub(super) number: u32,
    /// True if no further echo is sent.
    pub(super) ends: bool,
}

/// Times of a UE, in microseconds of the run's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotTimes {
    /// Intended start times of the UE (in a steady load: of the procedure) and of the step, in
    /// microseconds. Then the intended and actual start of the last registration.
    pub(super) born_us: u64,
    pub(super) step_us: u64,
    pub(super) registration_us: Option<(u64, u64)>,
    /// Actual start times of the procedure of a steady load and of the step.
    pub(super) sent_us: u64,
    pub(super) began_us: u64,
    /// Time of the last answer to [`Activity::Data`], in microseconds; 0 if there was none.
    pub(super) data_us: u64,
}

/// One UE with its script.
#[derive(Debug)]
pub(super) struct UeSlot {
    pub(super) ue: Device,
    pub(super) script: &'static [Step],
    /// Current procedure of a steady load.
    pub(super) activity: Option<Activity>,
    pub(super) fate: ProcedureState,
    /// Index of the group in a steady load.
    pub(super) group: u8,
    /// It is one of [`crate::BusyUes`].
    pub(super) is_busy: bool,
    /// The measured part of the procedure is complete; the remaining steps return to the rest
    /// state.
    pub(super) served: bool,
    /// [`Step::Connect`] has connected the UE.
    pub(super) fresh: bool,
    /// Number of restarts of the script.
    pub(super) attempts: u8,
    pub(super) link: u16,
    pub(super) step: u16,
    pub(super) flags: u32,
    pub(super) life: SlotState,
    pub(super) ran: Option<ConnectionId>,
    /// 5G-TMSI or M-TMSI under which the UE is listed for paging.
    pub(super) tmsi: Option<Tmsi>,
    pub(super) round: u32,
    /// Grows with every step and thus invalidates older deadlines.
    pub(super) sequence: u32,
    pub(super) times: SlotTimes,
    pub(super) flows: Vec<Flow>,
    pub(super) moving: SlotMove,
}

impl UeSlot {
    pub(super) fn new(ue: Device, link: u16, script: &'static [Step]) -> Self {
        UeSlot {
            ue,
            script,
            activity: None,
            fate: ProcedureState::Ok,
            group: 0,
            is_busy: false,
            served: false,
            fresh: false,
            attempts: 0,
            link,
            step: 0,
            flags: 0,
            life: SlotState::Waiting,
            ran: None,
            tmsi: None,
            round: 0,
            sequence: 0,
            times: SlotTimes::default(),
            flows: Vec::new(),
            moving: SlotMove::default(),
        }
    }

    /// Returns the times of the step that ends.
    pub(super) fn current(&self, now_us: u64) -> Times {
        Times { intended_us: self.times.step_us, began_us: self.times.began_us, ended_us: now_us }
    }

    /// Returns the times of the whole steady-load script that ends.
    pub(super) fn whole(&self, now_us: u64) -> Times {
        Times { intended_us: self.times.born_us, began_us: self.times.sent_us, ended_us: now_us }
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn million_ues_fit_in_memory() {
        // Issue 2 requires at most about 1 KB for each UE. On the heap a registered UE with a
        // session has the session (32 bytes), an accepted SQN (64) and a tunnel with its connection
        // (about 200).
        assert!(size_of::<super::UeSlot>() <= 512, "{}", size_of::<super::UeSlot>());
    }
}
