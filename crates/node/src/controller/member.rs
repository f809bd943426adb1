//! One connection to the controller.

use vireo_core::placement::cluster::Member;
use vireo_core::placement::message::{ToController, ToMember};
use vireo_fabric::Role;
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::Stream;
use vireo_types::Instant;

/// Maximum number of reads from one connection before others are served.
const PIECES: usize = 16;

/// Connection of a member, or of a process that has not joined.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) member: Option<Member>,
    /// Member whose heartbeats the connection carries, if it does.
    pub(super) pulse: Option<Member>,
    /// Join request that was not answered yet.
    pub(super) join: Option<ToController>,
    /// True if the peer was refused or evicted.
    pub(super) refused: bool,
    /// True if the member has drained and left: later messages are ignored until it closes the
    /// connection.
    pub(super) left: bool,
    /// Start of the connection; for heartbeats, time of the last one.
    pub(super) since: Instant,
}

impl Connection {
    pub(super) fn new(stream: Stream, since: Instant) -> Self {
        Connection { stream, member: None, pulse: None, join: None, refused: false, left: false, since }
    }

    /// Reads and decodes messages, up to a limit.
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

    /// Returns true if this may become the heartbeat connection of a member.
    pub(super) fn may_be_pulse(&self, of: Member) -> bool {
        let role = match of {
            Member::Host(_) => Role::Host,
            Member::Balancer(_) => Role::Balancer,
        };
        self.join.is_none() && self.pulse.is_none() && self.stream.role() == Some(role)
    }

    /// Refuses the peer, which may not join or is evicted.
    pub(super) fn refuse(&mut self, why: String) {
        self.stream.put(&ToMember::Refused(why));
        (self.refused, self.join) = (true, None);
    }
}
