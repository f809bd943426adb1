//! Flow rules as the control side sets them, and what it reads about them.

use crate::engine::counters::Volume;
use crate::engine::filter::Filter;
use crate::engine::rate::Rate;
use crate::engine::rule::Tunnel;
use crate::network::Network;
use serde::{Deserialize, Serialize};
use vireo_types::Teid;
use vireo_wire::gtpu::PduSession;

/// Source of the packets of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// N3 or N9 tunnel with this TEID.
    Tunnel(Teid),
    /// The data network.
    DataNetwork,
}

/// PDU Session Container of packets that leave by a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marking {
    /// That of the received packet, if any.
    #[default]
    Received,
    /// None, as on S1-U.
    Absent,
    /// This one.
    Set(PduSession),
}

impl Marking {
    /// Returns the container of a packet that was received with this one.
    pub(crate) fn container(self, received: Option<PduSession>) -> Option<PduSession> {
        match self {
            Marking::Received => received,
            Marking::Absent => None,
            Marking::Set(session) => Some(session),
        }
    }
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Drop the packets.
    Drop,
    /// Forward to the data network.
    DataNetwork,
    /// Forward into a tunnel.
    Tunnel { tunnel: Tunnel, marking: Marking },
    /// Buffer the packets.
    Buffer {
        /// NOCP: report the first packet.
        notify: bool,
    },
}

/// One rule of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// PDR ID that reports carry.
    pub pdr: u16,
    /// Source of the packets.
    pub source: Source,
    /// Direction of filters, rates and counters: true for packets to the data network.
    pub uplink: bool,
    /// Allowed QoS flows of packets from tunnels, one bit each. [`crate::ALL_FLOWS`] also allows
    /// packets without a flow.
    pub flows: u64,
    /// Alternative filters. Empty = every packet matches.
    pub filters: Vec<Filter>,
    /// State of the gates of all QERs.
    pub gate_open: bool,
    /// Action for matching packets.
    pub target: Target,
    /// Maximum bit rates by QER ID. Rules of one direction that name the same QER share its rate.
    pub rates: Vec<(u32, Rate)>,
    /// IDs of the URRs that count the packets.
    pub meters: Vec<u32>,
}

/// Quota of a URR in octets (TS 29.244 5.2.2.2). `None` = unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Octets of both directions.
    pub total: Option<u64>,
    pub uplink: Option<u64>,
    pub downlink: Option<u64>,
}

/// Volume that a URR has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// Packets to the data network.
    pub uplink: Volume,
    /// Packets to the UE.
    pub downlink: Volume,
}

/// All flow rules of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFlows {
    /// Rules in matching order.
    pub rules: Vec<FlowRule>,
    /// URR IDs with their quotas. A quota is the limit of the count ([`crate::Tables::metered`]).
    pub meters: Vec<(u32, Quota)>,
    /// Framed routes of the UE.
    pub framed: Vec<Network>,
}

/// Number of sessions with flow rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSessions {
    pub all: usize,
    /// Sessions whose rules the kernel program holds. User space classifies all packets of the
    /// others.
    pub in_kernel: usize,
}

/// Packets of sessions with flow rules that the kernel program received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPackets {
    /// Classified in the kernel.
    pub decided: u64,
    /// Punted to user space: buffered packets, notifications, uncommon headers, and sessions that
    /// the program does not hold.
    pub punted: u64,
}
