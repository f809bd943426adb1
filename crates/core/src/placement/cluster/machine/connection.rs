//! Connection of a member, or of a process that has not joined.

use crate::placement::cluster::Member;
use crate::placement::message::ToController;
use vireo_types::Instant;

/// State of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConnectionState {
    /// The peer has not joined.
    Unidentified {
        /// Join request that is not answered yet.
        join: Option<ToController>,
    },
    /// The peer is a member.
    Member(Member),
    /// The connection carries only heartbeats of a member.
    HeartbeatOnly(Member),
    /// The peer has drained and left: messages are ignored until it closes the connection.
    Departed,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) state: ConnectionState,
    /// Start of the connection or of readiness; for heartbeats, time of the last one.
    pub(super) since: Instant,
}

impl Connection {
    pub(super) fn new(since: Instant) -> Self {
        Connection { state: ConnectionState::Unidentified { join: None }, since }
    }

    /// Returns the member whose main connection this is.
    pub(super) fn member(&self) -> Option<Member> {
        match self.state {
            ConnectionState::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Returns the member whose heartbeats the connection carries.
    pub(super) fn heartbeat_member(&self) -> Option<Member> {
        match self.state {
            ConnectionState::HeartbeatOnly(member) => Some(member),
            _ => None,
        }
    }

    pub(super) fn has_pending_join(&self) -> bool {
        matches!(self.state, ConnectionState::Unidentified { join: Some(_) })
    }
}
