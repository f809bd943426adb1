//! The two parts of a stored context. The *perpetual* part changes when a procedure ends: who the UE is, its keys, what it
//! may do, what its sessions are. The *ephemeral* part is what every message changes and what a procedure or a connection
//! leaves behind when it ends: COUNTs, the connection, the procedure, how far its sessions are.

use super::{
    Capability, Connection, Identity, NasSecurity, NextHop, Procedure, Registration, UeContext, Wanted, octets,
};
use crate::procedures::common::user_plane::Held;
use crate::procedures::handover::{Handover, Source};
use crate::session::{N4, Ran, Relocation, SmContext, Stage, Tunnel, Usage};
use crate::subscription::{Ambr, Subscription};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::SocketAddr;
use vireo_types::{Dnn, Instant, Ltmsi, PduSessionType, Seid, SessionAddress, SessionIndex, Snssai, Tai};

/// What a UE's sessions say, without an allocation for those that most UEs have.
type PerSession<T> = SmallVec<[T; 2]>;

/// The perpetual part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Perpetual<'a> {
    ltmsi: Ltmsi,
    identity: Identity,
    registration: Registration,
    keys: Option<Keys>,
    capability: Capability,
    subscription: Cow<'a, Option<Subscription>>,
    allowed: SmallVec<[Snssai; 2]>,
    #[serde(with = "octets")]
    radio_capability: Cow<'a, [u8]>,
    sessions: PerSession<Lasting>,
    next_session: u32,
    area: SmallVec<[Tai; 4]>,
}

/// The ephemeral part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ephemeral<'a> {
    sequence: u64,
    counts: Option<Counts>,
    sessions: PerSession<Passing<'a>>,
    connection: Option<Connection>,
    connections: u16,
    procedure: Cow<'a, Option<Procedure>>,
    handover: Option<Handover>,
    held: Cow<'a, [Held]>,
    source: Option<Source>,
    wanted: Wanted,
    unreachable: bool,
    expires: Option<Instant>,
}

/// What of a NAS security context lasts: keys and algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Keys {
    /// ngKSI and the codes of NIA and NEA.
    algorithms: (u8, u8, u8),
    /// KAMF, KNASint, KNASenc.
    #[serde(with = "octets")]
    keys: [u8; 64],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("algorithms", &self.algorithms).finish_non_exhaustive()
    }
}

/// What of it every message changes, and the next hop, which an idle UE has none of.
#[derive(Debug, Serialize, Deserialize)]
struct Counts {
    uplink: u32,
    downlink: u32,
    next_hop: Option<Hop>,
}

#[derive(Serialize, Deserialize)]
struct Hop {
    #[serde(with = "octets")]
    nh: [u8; 32],
    ncc: u8,
}

impl std::fmt::Debug for Hop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hop").field("ncc", &self.ncc).finish_non_exhaustive()
    }
}

/// What a session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// How far a session is.
#[derive(Debug, Serialize, Deserialize)]
struct Passing<'a> {
    downlink: Option<Tunnel>,
    target: Option<Tunnel>,
    end_marker: bool,
    stage: Cow<'a, Stage>,
    ran: Ran,
    n4: N4,
    usage: Usage,
    relocation: Cow<'a, Option<Box<Relocation>>>,
    deadline: Option<Instant>,
    since: Instant,
}

/// The parts of a context; nothing of it is in none of them.
pub(super) fn perpetual(ue: &UeContext) -> Perpetual<'_> {
    Perpetual {
        ltmsi: ue.ltmsi,
        identity: ue.identity,
        registration: ue.registration,
        keys: ue.security.as_ref().map(Keys::of),
        capability: ue.security_capability,
        subscription: Cow::Borrowed(&ue.subscription),
        allowed: SmallVec::from_slice(&ue.allowed),
        radio_capability: Cow::Borrowed(&ue.radio_capability),
        sessions: ue.sessions.iter().map(Lasting::of).collect(),
        next_session: ue.next_session,
        area: SmallVec::from_slice(&ue.area),
    }
}

/// See [`perpetual`].
pub(super) fn ephemeral(ue: &UeContext) -> Ephemeral<'_> {
    Ephemeral {
        sequence: ue.sequence,
        counts: ue.security.as_ref().map(Counts::of),
        sessions: ue.sessions.iter().map(Passing::of).collect(),
        connection: ue.connection,
        connections: ue.connections,
        procedure: Cow::Borrowed(&ue.procedure),
        handover: ue.handover.clone(),
        held: Cow::Borrowed(&ue.held),
        source: ue.source,
        wanted: ue.wanted,
        unreachable: ue.unreachable,
        expires: ue.expires,
    }
}

/// The context of its two parts; `None` if they are not of the same one.
pub(super) fn join(perpetual: Perpetual<'_>, ephemeral: Ephemeral<'_>) -> Option<UeContext> {
    if perpetual.sessions.len() != ephemeral.sessions.len() || perpetual.keys.is_some() != ephemeral.counts.is_some() {
        return None;
    }
    let sessions = perpetual.sessions.into_iter().zip(ephemeral.sessions);
    Some(UeContext {
        ltmsi: perpetual.ltmsi,
        sequence: ephemeral.sequence,
        identity: perpetual.identity,
        registration: perpetual.registration,
        security: perpetual.keys.zip(ephemeral.counts).map(|(keys, counts)| security(&keys, counts)),
        security_capability: perpetual.capability,
        subscription: perpetual.subscription.into_owned(),
        allowed: perpetual.allowed,
        radio_capability: perpetual.radio_capability.into_owned(),
        sessions: sessions.map(|(lasting, passing)| session(lasting, passing)).collect(),
        next_session: perpetual.next_session,
        connection: ephemeral.connection,
        connections: ephemeral.connections,
        procedure: ephemeral.procedure.into_owned(),
        handover: ephemeral.handover,
        held: ephemeral.held.into_owned(),
        source: ephemeral.source,
        area: perpetual.area,
        wanted: ephemeral.wanted,
        unreachable: ephemeral.unreachable,
        expires: ephemeral.expires,
    })
}

impl Perpetual<'_> {
    /// Whether a context has this perpetual part: what changes often first.
    pub(super) fn is_of(&self, ue: &UeContext) -> bool {
        let Perpetual {
            ltmsi,
            identity,
            registration,
            keys,
            capability,
            subscription,
            allowed,
            radio_capability,
            sessions,
            next_session,
            area,
        } = self;
        *identity == ue.identity
            && sessions.len() == ue.sessions.len()
            && sessions.iter().zip(&ue.sessions).all(|(lasting, sm)| lasting.is_of(sm))
            && keys.is_some() == ue.security.is_some()
            && keys.iter().zip(&ue.security).all(|(keys, security)| keys.are_of(security))
            && (*ltmsi, *registration, *next_session) == (ue.ltmsi, ue.registration, ue.next_session)
            && allowed[..] == ue.allowed[..]
            && area[..] == ue.area[..]
            && *capability == ue.security_capability
            && **subscription == ue.subscription
            && radio_capability.len() == ue.radio_capability.len()
            // Nothing is slow to compare with nothing: the processor looks at the octets that an empty slice does not have.
            && (radio_capability.is_empty() || radio_capability[..] == ue.radio_capability[..])
    }

    /// A copy that the context is not needed for.
    pub(super) fn into_static(self) -> Perpetual<'static> {
        Perpetual {
            ltmsi: self.ltmsi,
            identity: self.identity,
            registration: self.registration,
            keys: self.keys,
            capability: self.capability,
            subscription: Cow::Owned(self.subscription.into_owned()),
            allowed: self.allowed,
            radio_capability: Cow::Owned(self.radio_capability.into_owned()),
            sessions: self.sessions,
            next_session: self.next_session,
            area: self.area,
        }
    }
}

impl Keys {
    fn of(security: &NasSecurity) -> Self {
        let mut keys = [0; 64];
        keys[..32].copy_from_slice(&security.kamf);
        keys[32..48].copy_from_slice(&security.knas_int);
        keys[48..].copy_from_slice(&security.knas_enc);
        Keys { algorithms: (security.ngksi, security.integrity, security.ciphering), keys }
    }

    fn are_of(&self, security: &NasSecurity) -> bool {
        let Keys { algorithms, keys } = self;
        *algorithms == (security.ngksi, security.integrity, security.ciphering)
            && keys[..32] == security.kamf
            && keys[32..48] == security.knas_int
            && keys[48..] == security.knas_enc
    }
}

impl Counts {
    fn of(security: &NasSecurity) -> Self {
        let next_hop = security.next_hop.map(|NextHop { nh, ncc }| Hop { nh, ncc });
        Counts { uplink: security.uplink, downlink: security.downlink, next_hop }
    }
}

fn security(keys: &Keys, counts: Counts) -> NasSecurity {
    let (ngksi, integrity, ciphering) = keys.algorithms;
    let mut security = NasSecurity {
        ngksi,
        kamf: [0; 32],
        knas_int: [0; 16],
        knas_enc: [0; 16],
        integrity,
        ciphering,
        uplink: counts.uplink,
        downlink: counts.downlink,
        next_hop: counts.next_hop.map(|Hop { nh, ncc }| NextHop { nh, ncc }),
    };
    security.kamf.copy_from_slice(&keys.keys[..32]);
    security.knas_int.copy_from_slice(&keys.keys[32..48]);
    security.knas_enc.copy_from_slice(&keys.keys[48..]);
    security
}

impl Lasting {
    fn is_of(&self, sm: &SmContext) -> bool {
        let Lasting {
            psi,
            index,
            snssai,
            dnn,
            kind,
            address,
            ambr,
            five_qi,
            arp_priority,
            always_on,
            integrity_rate,
            upf,
            cp_seid,
            up_seid,
            uplink,
        } = self;
        (*cp_seid, *up_seid, *uplink) == (sm.cp_seid, sm.up_seid, sm.uplink)
            && (*psi, *index, *snssai, *kind) == (sm.psi, sm.index, sm.snssai, sm.kind)
            && (*address, *ambr, *five_qi, *arp_priority) == (sm.address, sm.ambr, sm.five_qi, sm.arp_priority)
            && (*always_on, *integrity_rate, *upf) == (sm.always_on, sm.integrity_rate, sm.upf)
            && *dnn == sm.dnn
    }

    fn of(sm: &SmContext) -> Self {
        Lasting {
            psi: sm.psi,
            index: sm.index,
            snssai: sm.snssai,
            dnn: sm.dnn.clone(),
            kind: sm.kind,
            address: sm.address,
            ambr: sm.ambr,
            five_qi: sm.five_qi,
            arp_priority: sm.arp_priority,
            always_on: sm.always_on,
            integrity_rate: sm.integrity_rate,
            upf: sm.upf,
            cp_seid: sm.cp_seid,
            up_seid: sm.up_seid,
            uplink: sm.uplink,
        }
    }
}

impl<'a> Passing<'a> {
    fn of(sm: &'a SmContext) -> Self {
        Passing {
            downlink: sm.downlink,
            target: sm.target,
            end_marker: sm.end_marker,
            stage: Cow::Borrowed(&sm.stage),
            ran: sm.ran,
            n4: sm.n4,
            usage: sm.usage,
            relocation: Cow::Borrowed(&sm.relocation),
            deadline: sm.deadline,
            since: sm.since,
        }
    }
}

fn session(lasting: Lasting, passing: Passing<'_>) -> SmContext {
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
        stage: passing.stage.into_owned(),
        ran: passing.ran,
        n4: passing.n4,
        usage: passing.usage,
        relocation: passing.relocation.into_owned(),
        deadline: passing.deadline,
        since: passing.since,
    }
}
