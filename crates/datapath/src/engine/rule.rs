//! Rules for the packets of a session, as the control side sets them.

use crate::engine::rate::Rate;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use vireo_types::{SessionAddress, Teid};

/// Far end of a tunnel: the outer header to create (TS 29.244 8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tunnel {
    /// Assigned by the RAN node.
    pub teid: Teid,
    pub address: IpAddr,
}

/// Value of [`UplinkRule::flows`] that allows every QoS flow.
pub const ALL_FLOWS: u64 = u64::MAX;

/// Rule for the packets received with one TEID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UplinkRule {
    /// Addresses that the UE may use as source.
    pub ue: SessionAddress,
    /// Allowed QoS flows, one bit each. [`ALL_FLOWS`] also allows packets without a flow.
    pub flows: u64,
    /// State of the gate (QER).
    pub gate_open: bool,
    /// True for FAR action FORW; false drops the packets.
    pub forward: bool,
    /// Maximum bit rate of the IP packets.
    pub mbr: Rate,
}

/// Action for a downlink packet (FAR Apply Action, TS 29.244 8.2.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// FAR action DROP.
    Drop,
    /// FAR action FORW, through [`DownlinkRule::tunnel`].
    Forward,
    /// FAR action BUFF.
    Buffer {
        /// NOCP: report the first packet.
        notify: bool,
    },
}

/// Rule for the packets to one UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownlinkRule {
    /// Number that the control side assigned (the SEID of the UPF).
    pub session: u64,
    /// PDR ID that reports carry.
    pub pdr: u16,
    /// QoS flow that packets are marked with. `None` = no PDU Session Container.
    pub qfi: Option<u8>,
    /// Requests reflective QoS from the UE (TS 38.415 5.5.3.4).
    pub rqi: bool,
    /// State of the gate (QER).
    pub gate_open: bool,
    pub action: Action,
    /// Tunnel to the RAN node. `None` while the RAN side has no tunnel.
    pub tunnel: Option<Tunnel>,
    /// Maximum bit rate of the IP packets.
    pub mbr: Rate,
}
