//! What holds for the packets of a session, as its owner says it.

use crate::rate::Rate;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use vireo_types::{SessionAddress, Teid};

/// The far end of a tunnel: the outer header to create (TS 29.244 8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tunnel {
    /// The TEID the RAN node gave.
    pub teid: Teid,
    /// The RAN node's address.
    pub address: IpAddr,
}

/// Every QoS flow: for [`UplinkRule::flows`].
pub const ALL_FLOWS: u64 = u64::MAX;

/// What holds for the packets that come in by one TEID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UplinkRule {
    /// The addresses the UE may send from.
    pub ue: SessionAddress,
    /// The QoS flows allowed, a bit each; [`ALL_FLOWS`] also lets packets without a flow pass.
    pub flows: u64,
    /// Whether the gate is open (QER).
    pub gate_open: bool,
    /// Forward (FAR action FORW) or drop.
    pub forward: bool,
    /// Maximum bit rate of the IP packets.
    pub mbr: Rate,
}

/// What becomes of a downlink packet (FAR Apply Action, TS 29.244 8.2.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// DROP.
    Drop,
    /// FORW, through [`DownlinkRule::tunnel`].
    Forward,
    /// BUFF.
    Buffer {
        /// NOCP: report the first packet.
        notify: bool,
    },
}

/// What holds for the packets that go to one UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownlinkRule {
    /// The session, as its owner knows it (the UPF's SEID).
    pub session: u64,
    /// The PDR, for reports.
    pub pdr: u16,
    /// The QoS flow to mark packets with; `None` = no PDU Session Container.
    pub qfi: Option<u8>,
    /// Whether the UE is told to use reflective QoS (TS 38.415 5.5.3.4).
    pub rqi: bool,
    /// Whether the gate is open (QER).
    pub gate_open: bool,
    /// Forward, buffer or drop.
    pub action: Action,
    /// The tunnel to the RAN, while there is one.
    pub tunnel: Option<Tunnel>,
    /// Maximum bit rate of the IP packets.
    pub mbr: Rate,
}
