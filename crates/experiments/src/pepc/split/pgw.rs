//! P-GW-like part of the split core: UE address, QoS and charging.
//!
//! It holds them in the tables of the user plane and decides on packets by these.

use super::link::LinkEnd;
use super::messages::{self, CreateSessionResponse};
use vireo_bench::upf::network::UPF_N3;
use vireo_config::Failure;
use vireo_datapath::{
    ALL_FLOWS, Action, DownlinkId, DownlinkRule, Rate, Released, SharedTables, Tables, Tunnel, UplinkRule,
};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::MessageType;

/// A session: the part's TEID, the downlink entry, and the S-GW's session identifier.
#[derive(Clone, Copy, Debug)]
struct Session {
    teid: Teid,
    downlink: DownlinkId,
    sgw: u64,
}

/// Signalling of the P-GW-like part.
pub(super) struct Pgw {
    tables: SharedTables,
    /// By the index of the TEID.
    sessions: Vec<Option<Session>>,
    sgw: LinkEnd,
    octets: Vec<u8>,
}

impl Pgw {
    pub(super) fn new(tables: SharedTables, records: u32, sgw: LinkEnd) -> Self {
        Pgw { tables, sessions: vec![None; records as usize], sgw, octets: vec![] }
    }

    /// Answers requests of the S-GW. Returns true if there were any.
    pub(super) fn work(&mut self) -> Result<bool, Failure> {
        let Pgw { tables, sessions, sgw, octets } = self;
        let out = &mut sgw.out;
        let busy = sgw.inbox.take(|octets_in| {
            let message = messages::view(octets_in)?;
            let sequence = message.sequence();
            if message.message_type() == MessageType::SESSION_ESTABLISHMENT_REQUEST {
                let asked = messages::created(&message)?;
                let ue = SessionAddress { ipv4: Some(asked.ue), ipv6_prefix: None };
                let session =
                    tables.change(|tables, released| add(tables, ue, asked.tunnel, asked.seid, released), |_| ())?;
                let seid = u64::from(session.teid.index());
                if let Some(place) = sessions.get_mut(seid as usize) {
                    *place = Some(session);
                }
                let tunnel = messages::end(session.teid.0, UPF_N3);
                messages::accept(asked.seid, &CreateSessionResponse { seid, tunnel }, sequence, octets)?;
                return out.send(octets);
            }
            let Some(session) = sessions.get_mut(message.seid() as usize).and_then(Option::take) else {
                return Err(Failure("the P-GW-like part is asked for a session that it does not have".into()));
            };
            tables.change(
                |tables, released| {
                    tables.hold_packets(&[session.teid], [session.downlink]);
                    tables.remove_uplink(session.teid);
                    tables.remove_downlink(session.downlink, released);
                },
                |_| (),
            );
            messages::session_deleted(session.sgw, sequence, octets)?;
            out.send(octets)
        })?;
        sgw.out.flush()?;
        Ok(busy)
    }
}

/// Adds the entries of a session with this address, whose downlink goes to this tunnel.
fn add(
    tables: &mut Tables,
    ue: SessionAddress,
    tunnel: Tunnel,
    sgw: u64,
    released: &mut Released,
) -> Result<Session, Failure> {
    let mbr = Rate::UNLIMITED;
    let teid = tables.add_uplink(None, UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr })?;
    let session = u64::from(teid.index());
    let downlink = tables.add_downlink(ue, session)?;
    let rule = DownlinkRule {
        session,
        pdr: 2,
        // An EPS bearer is identified by its tunnel alone.
        qfi: None,
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel: Some(tunnel),
        mbr,
    };
    tables.set_downlink(downlink, rule, false, released);
    Ok(Session { teid, downlink, sgw })
}
