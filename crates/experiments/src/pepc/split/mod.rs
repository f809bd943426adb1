//! Baseline of the PEPC experiments: a core with user state split by function.
//!
//! The core resembles a classical EPC. Three parts, like an MME, an S-GW and a P-GW, each hold a
//! copy of the user state that they need:
//!
//! * MME: location and bearer;
//! * S-GW: the tunnels on both sides and a count;
//! * P-GW: address, QoS, charging and the other end of the tunnel.
//!
//! Requests and responses keep the copies up to date. An attach or a detach goes MME, S-GW, P-GW
//! and back; a handover goes MME, S-GW and back. A packet crosses the S-GW-like and the P-GW-like
//! part. Each of them looks the user up and writes a header.
//!
//! The MME-like part is a thread on the control processor. The gateways share a thread on the
//! packet processor, like gateways that terminate GTP-C where they terminate GTP-U. Both threads
//! handle waiting messages between batches of packets.
//!
//! Costs by construction: the second lookup and header; encoding, decoding and transport of
//! messages; and packets of the gateways that wait meanwhile. Nothing else adds cost:
//!
//! * The parts are threads of one process without locks between them.
//! * The gateways share a thread, so packets pass between them without a queue or a copy.
//! * A part without messages makes no system call. Messages are sent and received in batches.
//! * An index leads to every state.
//! * The P-GW-like part decides by the same tables as a slice.
//! * One pass of messages sets up a bearer; GTP-C needs a second one for the eNB's tunnel.
//! * A handover does not involve the P-GW (TS 23.401 5.5.1.1.2 involves it only if charging depends
//!   on the location).

mod link;
mod messages;
mod mme;
mod pgw;
mod relay;
mod sgw;

use super::{Packets, Signalling, VISITORS, WorkResult};
pub(super) use link::Carrier;
use mme::Mme;
use pgw::Pgw;
use sgw::Sgw;
use std::net::Ipv4Addr;
use std::time::Duration;
use vireo_bench::upf::compute::{self, Compute};
use vireo_bench::upf::network::Network;
use vireo_config::Failure;
use vireo_datapath::Locking;
use vireo_traffic::frame_loop::{self, Direction};
use vireo_types::Teid;

/// Address of the eNB.
const ENB: Ipv4Addr = vireo_bench::upf::network::GNB;

/// The parts of the core with their users.
pub(super) struct Split {
    pub(super) gateways: Gateways,
    pub(super) mme: Mme,
}

/// The gateways: packets and signalling of both parts.
pub(super) struct Gateways {
    compute: Compute,
    sgw: Sgw,
    pgw: Pgw,
}

impl Split {
    /// Returns a core with `users` users, attached by messages.
    pub(super) fn new(network: &Network, users: u32, carrier: Carrier) -> Result<Self, Failure> {
        let records = users + VISITORS;
        let tables = compute::tables(records, Locking::Fine);
        let packets = frame_loop::Packets { upf: relay::S1, ..network.packets(Teid::from_index(0, 1)) };
        let compute = Compute::from_tables(network, tables, users, &packets, relay::S5)?;
        let ((mme_side, sgw_side), (pgw_side, core_side)) = (link::link(carrier)?, link::link(carrier)?);
        let pgw = Pgw::new(compute.tables().clone(), records, core_side);
        let mut gateways = Gateways { compute, sgw: Sgw::new(records, sgw_side, pgw_side), pgw };
        let mut mme = Mme::new(users, mme_side);
        while mme.missing() > 0 {
            mme.work(mme.missing())?;
            gateways.work(0)?;
        }
        Ok(Split { gateways, mme })
    }
}

impl Signalling for Gateways {
    fn work(&mut self, _: u64) -> Result<WorkResult, Failure> {
        let mut busy = false;
        loop {
            let (sgw, pgw) = (self.sgw.work()?, self.pgw.work()?);
            if !sgw && !pgw {
                return Ok(WorkResult { ended: 0, busy });
            }
            busy = true;
        }
    }
}

impl Packets for Gateways {
    fn batch(&mut self, direction: Direction) -> Result<Duration, Failure> {
        let spent = self.compute.batch_behind(direction, &mut self.sgw.relay)?;
        match self.sgw.relay.unknown {
            0 => Ok(spent),
            unknown => Err(Failure(format!("{unknown} packets are of no bearer of the S-GW-like part"))),
        }
    }
}
