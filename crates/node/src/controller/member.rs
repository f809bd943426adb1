//! One connection to the controller.

use vireo_core::cluster::Member;
use vireo_fabric::Role;
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::membership::{ToController, ToMember};
use vireo_fabric::stream::Stream;
use vireo_types::Instant;

/// Pieces that are read of one connection before others are.
const PIECES: usize = 16;

/// A connection, of a member or of somebody who has not joined.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) member: Option<Member>,
    /// Whose heartbeat it is, if it is one.
    pub(super) pulse: Option<Member>,
    /// What it has asked for and was not answered.
    pub(super) join: Option<ToController>,
    /// It was told to go.
    pub(super) refused: bool,
    /// It was a member that has left in good order: what it says still is said to nobody, until it ends this connection.
    pub(super) left: bool,
    /// Since when there is this connection.
    pub(super) since: Instant,
}

impl Connection {
    pub(super) fn new(stream: Stream, since: Instant) -> Self {
        Connection { stream, member: None, pulse: None, join: None, refused: false, left: false, since }
    }

    /// Reads what is there, some of it.
    pub(super) fn read(&mut self, said: &mut Vec<ToController>) -> Result<(), FrameError> {
        for _ in 0..PIECES {
            let read = self.stream.fill();
            while let Some(octets) = self.stream.frame()? {
                said.push(frame::decode(octets)?);
            }
            if read? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether it may be the heartbeat of a member, and of none else.
    pub(super) fn may_be_pulse(&self, of: Member) -> bool {
        let role = match of {
            Member::Host(_) => Role::Host,
            Member::Balancer(_) => Role::Balancer,
        };
        self.join.is_none() && self.pulse.is_none() && self.stream.role() == Some(role)
    }

    /// It may not join, or is a member no longer.
    pub(super) fn refuse(&mut self, why: String) {
        self.stream.put(&ToMember::Refused(why));
        (self.refused, self.join) = (true, None);
    }
}
