//! Notifications for the control side.

use crate::engine::index::DownlinkId;
use crate::engine::rule::Tunnel;
use std::net::IpAddr;
use std::sync::Arc;
use vireo_types::SessionAddress;

/// Notification for the control side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// First packet for a UE whose packets are buffered with NOCP.
    DownlinkData {
        /// Session of the entry; see [`crate::DownlinkRule::session`].
        session: u64,
        /// PDR of the entry; see [`crate::DownlinkRule::pdr`].
        pdr: u16,
    },
    /// The RAN node reported that one of our tunnels does not exist (TS 23.527 5.3.3). Sent once
    /// for each tunnel.
    TunnelError {
        /// Session of the entry; see [`crate::DownlinkRule::session`].
        session: u64,
        /// Tunnel that the Error Indication names.
        tunnel: Tunnel,
    },
    /// A volume count of a session passed a watched multiple ([`crate::Tables::watch`]).
    Volume {
        /// Session of the entry; see [`crate::DownlinkRule::session`].
        session: u64,
    },
    /// A GTP-U peer sent an Echo Response. The source address may be forged.
    Alive { peer: IpAddr },
}

/// Callback for notifications of any worker. Returns false if its queue is full.
pub type EventSink = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// Notification that the fast path defers to the end of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingNotification {
    /// A count of the session with these addresses passed a watched multiple.
    Uplink(SessionAddress),
    /// A count of the session of this entry passed a watched multiple.
    Downlink(DownlinkId),
}
