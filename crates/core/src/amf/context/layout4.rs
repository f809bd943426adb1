//! Decoder of layout 4, which the previous release wrote.
//!
//! The two parts are listed in encoding order. The component types still have the encoding of that
//! release; a change of one of them must keep a copy of the old type here. `tests/steps/layout.rs`
//! has octets that the release encoded.

use super::*;
use crate::amf::procedures::handover::{Handover, SourceNode};
use crate::smf::{N4State, RanState, Relocation, Stage, Tunnel, Usage};
use std::net::SocketAddr;
use vireo_types::{Dnn, PduSessionType, Seid, SessionAddress, SessionIndex};

#[derive(Deserialize)]
struct Perpetual {
    ltmsi: Ltmsi,
    identity: Identity,
    registration: Registration,
    keys: Option<Keys>,
    capability: UeSecurityCapability,
    subscription: Option<Subscription>,
    allowed: SmallVec<[Snssai; 2]>,
    radio_capability: Vec<u8>,
    sessions: Vec<Lasting>,
    next_session: u32,
    area: SmallVec<[Tai; 4]>,
}

#[derive(Deserialize)]
struct Ephemeral {
    sequence: u64,
    counts: Option<Counts>,
    sessions: Vec<Passing>,
    connection: Option<Connection>,
    connections: u16,
    procedure: Option<Procedure>,
    handover: Option<Handover>,
    held: Vec<DeferredSessionMessage>,
    source: Option<SourceNode>,
    wanted: PendingWork,
    unreachable: bool,
    expires: Option<Instant>,
}

#[derive(Deserialize)]
struct Keys {
    algorithms: (u8, u8, u8),
    /// KAMF, KNASint and KNASenc, in this order.
    #[serde(with = "octets")]
    keys: [u8; 64],
}

#[derive(Deserialize)]
struct Counts {
    uplink: u32,
    downlink: u32,
    next_hop: Option<StoredNextHop>,
}

#[derive(Deserialize)]
struct StoredNextHop {
    #[serde(with = "octets")]
    nh: [u8; 32],
    /// 8 means that `nh` holds the KgNB.
    ncc: u8,
}

#[derive(Deserialize)]
struct Lasting {
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
}

#[derive(Deserialize)]
struct Passing {
    downlink: Option<Tunnel>,
    target: Option<Tunnel>,
    end_marker: bool,
    stage: Stage,
    ran: RanState,
    n4: N4State,
    usage: Usage,
    relocation: Option<Box<Relocation>>,
    deadline: Option<Instant>,
    since: Instant,
}

fn security(Keys { algorithms, keys }: &Keys, counts: &Counts) -> NasSecurity {
    let mut kamf = [0; 32];
    kamf.copy_from_slice(&keys[..32]);
    let (mut knas_int, mut knas_enc) = ([0; 16], [0; 16]);
    knas_int.copy_from_slice(&keys[32..48]);
    knas_enc.copy_from_slice(&keys[48..]);
    let next_hop = counts.next_hop.as_ref().map(|hop| match hop.ncc {
        8 => NextHop::first(&kamf, &hop.nh),
        ncc => NextHop { nh: hop.nh, ncc },
    });
    NasSecurity {
        ngksi: algorithms.0,
        kamf,
        knas_int,
        knas_enc,
        integrity: algorithms.1,
        ciphering: algorithms.2,
        uplink: counts.uplink,
        downlink: counts.downlink,
        next_hop: next_hop.map(NextHopChain::At),
        derives_keys: false,
    }
}

fn session(lasting: Lasting, passing: Passing) -> SmContext {
    SmContext {
        psi: lasting.psi,
        index: lasting.index,
        snssai: lasting.snssai,
        dnn: lasting.dnn,
        kind: lasting.kind,
        address: lasting.address,
        ambr: lasting.ambr,
        five_qi: lasting.five_qi,
        arp_priority: lasting.arp_priority,
        always_on: lasting.always_on,
        integrity_rate: lasting.integrity_rate,
        upf: lasting.upf,
        cp_seid: lasting.cp_seid,
        up_seid: lasting.up_seid,
        uplink: lasting.uplink,
        downlink: passing.downlink,
        target: passing.target,
        end_marker: passing.end_marker,
        stage: passing.stage,
        ran: passing.ran,
        n4: passing.n4,
        usage: passing.usage,
        relocation: passing.relocation,
        deadline: passing.deadline,
        since: passing.since,
    }
}

/// Decodes the octets after the layout version.
pub(super) fn decode(octets: &[u8]) -> Option<UeContext> {
    let ([l0, l1, l2, ..], rest) = octets.split_first_chunk::<11>()?;
    let length = u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
    let (perpetual, ephemeral) = rest.split_at_checked(length)?;
    let perpetual: Perpetual = postcard::from_bytes(perpetual).ok()?;
    let ephemeral: Ephemeral = postcard::from_bytes(ephemeral).ok()?;
    if perpetual.sessions.len() != ephemeral.sessions.len() || perpetual.keys.is_some() != ephemeral.counts.is_some() {
        return None;
    }
    let sessions = perpetual.sessions.into_iter().zip(ephemeral.sessions);
    Some(UeContext {
        ltmsi: perpetual.ltmsi,
        sequence: ephemeral.sequence,
        identity: perpetual.identity,
        registration: perpetual.registration,
        security: perpetual.keys.zip(ephemeral.counts).map(|(keys, counts)| security(&keys, &counts)),
        security_capability: perpetual.capability,
        subscription: perpetual.subscription.map(Arc::new),
        allowed: perpetual.allowed,
        radio_capability: perpetual.radio_capability,
        sessions: sessions.map(|(lasting, passing)| session(lasting, passing)).collect(),
        chain: RemoteSessions::default(),
        next_session: perpetual.next_session,
        connection: ephemeral.connection,
        connections: ephemeral.connections,
        procedure: ephemeral.procedure,
        handover: ephemeral.handover,
        held: ephemeral.held,
        source: ephemeral.source,
        area: perpetual.area,
        wanted: ephemeral.wanted,
        unreachable: ephemeral.unreachable,
        expires: ephemeral.expires,
    })
}
