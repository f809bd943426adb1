//! Layout 3, which the release before wrote: the whole context in one piece, in this order. What it is made of has not
//! changed its own encoding since; whoever changes that keeps a copy here. `tests/layout.rs` has octets of that release.

use super::*;
use crate::session::{N4, Ran, Stage, Tunnel, Usage};
use crate::subscription::Ambr;
use std::net::SocketAddr;
use vireo_types::{Dnn, PduSessionType, Seid, SessionAddress, SessionIndex};

#[derive(Deserialize)]
struct Context {
    ltmsi: Ltmsi,
    sequence: u64,
    identity: Identity,
    registration: Registration,
    security: Option<NasSecurity>,
    security_capability: Capability,
    subscription: Option<Subscription>,
    allowed: Vec<Snssai>,
    radio_capability: Vec<u8>,
    sessions: Vec<Session>,
    next_session: u32,
    connection: Option<Connection>,
    connections: u16,
    procedure: Option<Procedure>,
    handover: Option<handover::Handover>,
    area: Vec<Tai>,
    wanted: Wanted,
    unreachable: bool,
    expires: Option<Instant>,
}

/// A session.
#[derive(Deserialize)]
struct Session {
    psi: u8,
    index: SessionIndex,
    snssai: Snssai,
    dnn: Dnn,
    kind: PduSessionType,
    address: SessionAddress,
    ambr: Ambr,
    five_qi: u8,
    arp_priority: u8,
    always_on: bool,
    integrity_rate: u16,
    upf: SocketAddr,
    cp_seid: Seid,
    up_seid: u64,
    uplink: Option<Tunnel>,
    downlink: Option<Tunnel>,
    target: Option<Tunnel>,
    end_marker: bool,
    stage: Stage,
    ran: Ran,
    n4: N4,
    deadline: Option<Instant>,
    since: Instant,
}

impl Session {
    fn now(self) -> SmContext {
        SmContext {
            psi: self.psi,
            index: self.index,
            snssai: self.snssai,
            dnn: self.dnn,
            kind: self.kind,
            address: self.address,
            ambr: self.ambr,
            five_qi: self.five_qi,
            arp_priority: self.arp_priority,
            always_on: self.always_on,
            integrity_rate: self.integrity_rate,
            upf: self.upf,
            cp_seid: self.cp_seid,
            up_seid: self.up_seid,
            uplink: self.uplink,
            downlink: self.downlink,
            target: self.target,
            end_marker: self.end_marker,
            stage: self.stage,
            ran: self.ran,
            n4: self.n4,
            usage: Usage::default(),
            relocation: None,
            deadline: self.deadline,
            since: self.since,
        }
    }
}

/// The context of what follows the layout's number.
pub(super) fn decode(octets: &[u8]) -> Option<UeContext> {
    let old: Context = postcard::from_bytes(octets).ok()?;
    Some(UeContext {
        ltmsi: old.ltmsi,
        sequence: old.sequence,
        identity: old.identity,
        registration: old.registration,
        security: old.security,
        security_capability: old.security_capability,
        subscription: old.subscription,
        allowed: old.allowed.into(),
        radio_capability: old.radio_capability,
        sessions: old.sessions.into_iter().map(Session::now).collect(),
        next_session: old.next_session,
        connection: old.connection,
        connections: old.connections,
        procedure: old.procedure,
        handover: old.handover,
        held: Vec::new(),
        source: None,
        area: old.area.into(),
        wanted: old.wanted,
        unreachable: old.unreachable,
        expires: old.expires,
    })
}
