//! What a slice is compared with: a core whose user state is split by function, as a classical EPC has it. Three parts, like
//! an MME, an S-GW and a P-GW, each hold a copy of what they need of a user (location and bearer; the tunnels on
//! both sides and a count; address, QoS, charging and the other end of the tunnel), and bring each other's copies up to date by
//! requests and answers: an attach and a detach go MME, S-GW, P-GW and back, a handover MME, S-GW and back. A packet crosses
//! the S-GW-like and the P-GW-like part, and each looks its user up and writes a header.
//!
//! The MME-like part is a thread on the processor of control, the gateways are one on the processor of packets, as gateways
//! do that end GTP-C where they end GTP-U; both carry out what waits between batches of packets.
//!
//! Its costs by construction: that second look-up and header; writing and reading messages; carrying them; and that
//! gateways' packets wait while they do that. Nothing else was put in. The parts are threads of one process without locks
//! between them; the gateways share a thread, so that packets go from one to the other without a queue or a copy; whoever has
//! nothing to receive does not ask the kernel, and what there is comes and goes many messages at a time; an index leads to
//! every state; the P-GW-like part decides by the very tables of a slice; a bearer is set up by one pass of messages, where
//! GTP-C needs a second one for the eNB's tunnel, and a handover leaves the P-GW alone (TS 23.401 5.5.1.1.2 does where
//! nobody charges by location).

mod link;
mod messages;
mod mme;
mod pgw;
mod relay;
mod sgw;

use super::{Done, Packets, Signalling, VISITORS};
use crate::bench::upf::compute::{self, Compute};
use crate::bench::upf::network::Network;
use crate::cli::Failure;
pub(super) use link::Carrier;
use mme::Mme;
use pgw::Pgw;
use sgw::Sgw;
use std::net::Ipv4Addr;
use std::time::Duration;
use vireo_datapath::Locking;
use vireo_traffic::frame_loop::{self, Direction};
use vireo_types::Teid;

/// The eNB.
const ENB: Ipv4Addr = crate::bench::upf::network::GNB;

/// The parts of the core, with their users.
pub(super) struct Split {
    pub(super) gateways: Gateways,
    pub(super) mme: Mme,
}

/// The gateways: both parts' packets and signalling.
pub(super) struct Gateways {
    compute: Compute,
    sgw: Sgw,
    pgw: Pgw,
}

impl Split {
    /// With so many users, who have attached by messages.
    pub(super) fn new(network: &Network, users: u32, carrier: Carrier) -> Result<Self, Failure> {
        let records = users + VISITORS;
        let tables = compute::tables(records, Locking::Fine);
        let packets = frame_loop::Packets { upf: relay::S1, ..network.packets(Teid::from_index(0, 1)) };
        let compute = Compute::of(network, tables, users, &packets, relay::S5)?;
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
    fn work(&mut self, _: u64) -> Result<Done, Failure> {
        let mut busy = false;
        loop {
            let (sgw, pgw) = (self.sgw.work()?, self.pgw.work()?);
            if !sgw && !pgw {
                return Ok(Done { ended: 0, busy });
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
