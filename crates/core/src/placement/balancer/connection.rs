//! Connection of a host, or of a peer that is not identified yet.

use crate::placement::balance::HostId;
use crate::placement::message::Envelope;
use crate::placement::replica::{InflightInputs, RecentEffects};
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ConnectionState {
    /// The peer has not sent its host ID, or no known map contains the host.
    Unidentified,
    /// The peer is a host of the map.
    Serving,
    /// The connection carries only a host's heartbeats.
    HeartbeatOnly,
    /// The peer is not a host of the cluster, or has been removed from the map, and has been
    /// notified. The balancer drops its further messages. The peer closes the connection. Closing
    /// it here would discard unreceived data, and a peer that misses the notification would take
    /// this balancer for dead.
    Refused,
}

/// Inputs and effects of a host that a takeover needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct InProgress {
    pub(super) inputs: InflightInputs<Envelope>,
    pub(super) effects: RecentEffects,
}

/// A connection and the state of its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Connection {
    pub(super) host: Option<HostId>,
    pub(super) state: ConnectionState,
    /// Start of the connection, or for heartbeat connections the time of the last check.
    pub(super) since: Instant,
    /// True if data has arrived since the last check.
    pub(super) has_received: bool,
    pub(super) in_progress: InProgress,
    /// Number of NGAP PDUs received from the host.
    pub(super) ngap_received: u64,
    /// Number of NGAP PDUs that are acknowledged to the host as sent.
    pub(super) ngap_acknowledged: u64,
}

impl Connection {
    pub(super) fn new(since: Instant) -> Self {
        Connection {
            host: None,
            state: ConnectionState::Unidentified,
            since,
            has_received: true,
            in_progress: InProgress::default(),
            ngap_received: 0,
            ngap_acknowledged: 0,
        }
    }

    /// Returns true if the peer was removed from the map and may still wait for a barrier.
    pub(super) fn is_removed_host(&self, host: HostId) -> bool {
        self.host == Some(host) && self.state == ConnectionState::Refused
    }
}
