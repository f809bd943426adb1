//! One UE in a worker: the pure UE, where it is connected, and how far it is in its script.

use crate::mix::Activity;
use crate::report::Times;
use crate::scenario::Step;
use crate::ue::Ue;
use std::net::IpAddr;
use vireo_types::{RanUeNgapId, Tmsi};

/// What happened during the current step, as bits.
pub(super) mod flag {
    pub(in crate::engine) const REGISTERED: u16 = 1;
    pub(in crate::engine) const REJECTED: u16 = 2;
    /// The fault of [`crate::scenario::Step::Faulty`] showed.
    pub(in crate::engine) const FAULTED: u16 = 4;
    pub(in crate::engine) const SERVED: u16 = 8;
    pub(in crate::engine) const DEREGISTERED: u16 = 16;
    pub(in crate::engine) const PAUSED: u16 = 32;
    /// A T3346 back-off is under way: the step starts again when it is over.
    pub(in crate::engine) const BACKING_OFF: u16 = 64;
    pub(in crate::engine) const PAGED: u16 = 128;
    /// The packet that the UE is to be paged for was sent.
    pub(in crate::engine) const CALLED: u16 = 1024;
    /// The NG connection of a UE that backs off was asked to be released.
    pub(in crate::engine) const RELEASING: u16 = 256;
    /// A handover is complete.
    pub(in crate::engine) const MOVED: u16 = 512;
    /// The core has had a tunnel released that the gNB had lost.
    pub(in crate::engine) const LOST: u16 = 4096;
    /// A new script begins with the next [`super::super::timers::Kind::Resume`].
    pub(in crate::engine) const RESUMING: u16 = 2048;
}

/// The life of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Not started.
    Waiting,
    /// In its script.
    Running,
    /// At home in a steady load, and ready for its next procedure.
    Free,
    /// Did all its steps.
    Done,
    /// Gave up.
    Failed,
}

/// How the current procedure of a steady load goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcedureState {
    /// Nothing is wrong.
    Ok,
    /// It has failed; the UE is on its way home.
    Failed,
    /// It cost the UE its registration; the UE registers anew.
    Lost,
}

/// One echo flow of a traffic step: a session and an IP version.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) psi: u8,
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    /// The interface identifier, while the prefix is still asked for.
    pub(super) soliciting: Option<[u8; 8]>,
    pub(super) remaining: u32,
    pub(super) sequence: u16,
    pub(super) sent_us: u64,
    pub(super) tries: u32,
}

/// One UE.
#[derive(Debug)]
pub(super) struct UeSlot {
    pub(super) ue: Ue,
    pub(super) script: &'static [Step],
    /// The procedure of a steady load that is carried out.
    pub(super) activity: Option<Activity>,
    pub(super) fate: ProcedureState,
    /// Index of the group in a steady load.
    pub(super) group: u8,
    /// The point of that procedure is reached; what follows is the way home.
    pub(super) served: bool,
    /// [`Step::Connect`] has brought the UE up.
    pub(super) fresh: bool,
    /// How often the script was started again.
    pub(super) attempts: u8,
    pub(super) link: u16,
    pub(super) step: u16,
    pub(super) flags: u16,
    pub(super) life: SlotState,
    pub(super) ran: Option<RanUeNgapId>,
    /// Under which it is listed for paging.
    pub(super) tmsi: Option<Tmsi>,
    pub(super) round: u32,
    /// Changes with every step, so that old deadlines are recognised.
    pub(super) sequence: u32,
    /// When the UE (in a steady load: the procedure) and the step were meant to start, in microseconds, and when the last
    /// registration was and did.
    pub(super) born_us: u64,
    pub(super) step_us: u64,
    pub(super) registration_us: Option<(u64, u64)>,
    /// When the procedure of a steady load and the step did start.
    pub(super) sent_us: u64,
    pub(super) began_us: u64,
    pub(super) flows: Vec<Flow>,
    /// When the data of its last [`Activity::Data`] was answered, in microseconds; 0: there was none.
    pub(super) data_us: u64,
}

impl UeSlot {
    pub(super) fn new(ue: Ue, link: u16, script: &'static [Step]) -> Self {
        UeSlot {
            ue,
            script,
            activity: None,
            fate: ProcedureState::Ok,
            group: 0,
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
            born_us: 0,
            step_us: 0,
            registration_us: None,
            sent_us: 0,
            began_us: 0,
            flows: Vec::new(),
            data_us: 0,
        }
    }

    /// The times of the step that ends now.
    pub(super) fn current(&self, now_us: u64) -> Times {
        Times { intended_us: self.step_us, began_us: self.began_us, ended_us: now_us }
    }

    /// The times of the whole script (of a steady load) that ends now.
    pub(super) fn whole(&self, now_us: u64) -> Times {
        Times { intended_us: self.born_us, began_us: self.sent_us, ended_us: now_us }
    }

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_million_ues_fit() {
        // issue 2 asks for at most about 1 KB each; what a registered UE with a session has on the heap is a session
        // (32), an accepted SQN (64) and a tunnel with its connection (about 200)
        assert!(size_of::<super::UeSlot>() <= 512, "{}", size_of::<super::UeSlot>());
    }
}
