//! Signalling events and the control side of a slice, which carries them out.

use super::{Signalling, VISITORS, WorkResult};
use std::collections::VecDeque;
use vireo_bench::upf::compute::{self, User};
use vireo_config::Failure;
use vireo_datapath::{Released, SharedTables, Tables};

/// A signalling event, which inserts or updates the state of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Handover of a user (first value) to a new tunnel to the RAN. The second value is the event's
    /// number, from which the new TEID derives. The old tunnel ends.
    Handover(u32, u32),
    /// Attach of a visitor with this session.
    Attach(u32),
    /// Detach of the visitor that attached first.
    Detach,
}

/// Sequence of events. Every second event is a handover of a random user. The others alternate
/// between the attach of a visitor and the detach of the oldest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    users: u32,
    /// Session of the next visitor.
    next: u32,
    random: u64,
    moves: u32,
}

impl Script {
    pub(super) fn new(users: u32) -> Self {
        Script { users, next: users, random: 1, moves: 0 }
    }

    /// Returns the next event, given the number of attached visitors.
    pub(super) fn next(&mut self, visitors: usize) -> Event {
        self.moves = self.moves.wrapping_add(1);
        if self.moves.is_multiple_of(2) {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = ((self.random >> 32) * u64::from(self.users)) >> 32;
            return Event::Handover(number as u32, self.moves);
        }
        let attach = self.moves % 4 == 1 && visitors < VISITORS as usize;
        if visitors > 0 && !attach {
            return Event::Detach;
        }
        let session = self.next;
        self.next = if session + 1 < self.users + VISITORS { session + 1 } else { self.users };
        Event::Attach(session)
    }
}

/// Control side of a slice. It changes the users' state through the interface of the state's owner.
pub(super) struct Control {
    tables: SharedTables,
    users: Vec<User>,
    visitors: VecDeque<User>,
    script: Script,
    /// Maximum number of events per change of the tables.
    together: u64,
    /// Number of End Markers sent.
    markers: u64,
}

impl Control {
    pub(super) fn new(tables: SharedTables, users: Vec<User>, together: u64) -> Self {
        let script = Script::new(users.len() as u32);
        Control { tables, users, visitors: VecDeque::new(), script, together, markers: 0 }
    }
}

/// Applies an event to the tables.
fn carry_out(
    event: Event,
    tables: &mut Tables,
    released: &mut Released,
    users: &[User],
    visitors: &mut VecDeque<User>,
) -> Result<(), Failure> {
    match event {
        Event::Handover(number, moves) => {
            if let Some(User { session, downlink, .. }) = users.get(number as usize) {
                tables.set_downlink(*downlink, compute::downlink_rule(*session, moves), true, released);
            }
        }
        Event::Attach(session) => visitors.push_back(compute::add(tables, session, released)?),
        Event::Detach => {
            if let Some(user) = visitors.pop_front() {
                tables.hold_packets(&[user.teid], [user.downlink]);
                tables.remove_uplink(user.teid);
                tables.remove_downlink(user.downlink, released);
            }
        }
    }
    Ok(())
}

impl Signalling for Control {
    fn work(&mut self, due: u64) -> Result<WorkResult, Failure> {
        if due == 0 {
            return Ok(WorkResult::default());
        }
        let count = due.min(self.together);
        let Control { tables, users, visitors, script, markers, .. } = self;
        tables.change(
            |tables, released| {
                (0..count).try_for_each(|_| {
                    let event = script.next(visitors.len());
                    carry_out(event, tables, released, users, visitors)
                })
            },
            |released| *markers += released.datagrams.len() as u64,
        )?;
        Ok(WorkResult { ended: count, busy: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_alternate_handover_and_visitors() {
        let mut script = Script::new(100);
        let mut visitors = 0;
        let mut events = vec![];
        for _ in 0..8 {
            let event = script.next(visitors);
            match event {
                Event::Attach(_) => visitors += 1,
                Event::Detach => visitors -= 1,
                Event::Handover(number, _) => assert!(number < 100),
            }
            events.push(event);
        }
        assert!(events.iter().skip(1).step_by(2).all(|event| matches!(event, Event::Handover(..))));
        let others: Vec<_> = events.into_iter().step_by(2).collect();
        assert_eq!(others, [Event::Attach(100), Event::Detach, Event::Attach(101), Event::Detach]);
        // The number of visitors is bounded by the capacity.
        assert_eq!(script.next(VISITORS as usize), Event::Detach);
    }
}
