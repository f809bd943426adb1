//! Perpetual and ephemeral part of a stored context.
//!
//! The *perpetual* part changes when a procedure ends: identity, keys, subscription, allowed NSSAI
//! and sessions. The *ephemeral* part changes with every message or belongs to a procedure or
//! connection: NAS COUNTs, the connection, the procedure and the progress of sessions. Every field
//! of a context is in one of them.

use super::packed::{PackedConnection, SessionProgress, StoredTerms, relative_seid};
use super::security::KeySet;
use super::{
    Connection, DeferredSessionMessage, Identity, NasSecurity, NextHopChain, PagingInfo, PendingWork, Procedure,
    Reachability, Registration, UeContext, UeSecurityCapability, security,
};
use crate::amf::procedures::handover::{Handover, SourceNode};
use crate::octets;
use crate::smf::{N4State, PfcpSession, RanState, SessionHandover, SmContext, Stage, Tunnel, Usage};
use crate::subscription::{FurtherTerms, Subscription};
use serde::{Deserialize, Serialize, Serializer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use vireo_types::{Dialect, Instant, Ltmsi, PduSessionType, Seid, SessionAddress, SessionIndex, Snssai, Tai, Tmsi};

/// One value per session, without an allocation for the number of sessions that most UEs have.
type PerSession<T> = SmallVec<[T; 2]>;

/// The perpetual part, in three pieces encoded one after the other. The subscription is by far the
/// most expensive to encode, and usually stays unchanged when the others change.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Perpetual<'a> {
    pub(super) identity: IdentityPart,
    pub(super) subscription: SubscriptionPart,
    pub(super) allocation: AllocationPart<'a>,
}

/// Identity, registration state and keys of the UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct IdentityPart {
    ltmsi: Ltmsi,
    #[serde(with = "super::packed")]
    identity: Identity,
    registration: Registration,
    keys: Option<Keys>,
    #[serde(with = "super::packed")]
    capability: UeSecurityCapability,
}

/// Reads the current and the former 5G-TMSI from an encoded perpetual part, without decoding the
/// rest.
pub(super) fn temporary_identities(perpetual: &[u8]) -> [Option<Tmsi>; 2] {
    match postcard::take_from_bytes::<IdentityPart>(perpetual) {
        Ok((IdentityPart { identity, .. }, _)) => [identity.tmsi, identity.old_tmsi],
        Err(_) => [None; 2],
    }
}

/// Reads the connection of the UE with this LTMSI from an encoded ephemeral part, without decoding
/// the rest.
pub(super) fn connection(ephemeral: &[u8], ltmsi: Ltmsi) -> Option<Connection> {
    type Head = (u64, Option<NasCounts>, PerSession<SessionProgress>, Option<PackedConnection>);
    let ((.., connection), _) = postcard::take_from_bytes::<Head>(ephemeral).ok()?;
    connection?.connection(ltmsi)
}

/// Subscription of the UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SubscriptionPart {
    #[serde(with = "super::packed")]
    subscription: Option<Arc<Subscription>>,
}

/// Maximum number of subscriptions that a [`SharedSubscriptions`] has.
const SHARED: usize = 8;
/// Maximum length of their encodings in octets: longer ones are hardly those of many UEs.
const SHARED_OCTETS: usize = 512;

/// A subscription and its encoding.
#[derive(Debug)]
struct DecodedSubscription {
    encoding: Box<[u8]>,
    part: SubscriptionPart,
}

/// Subscriptions that were decoded last. Most UEs of a network have one of a few, and a
/// subscription needs more allocations than the rest of a context.
#[derive(Debug, Default)]
pub(super) struct SharedSubscriptions {
    recent: Vec<DecodedSubscription>,
    /// Index of the next one to replace.
    next: usize,
}

impl SharedSubscriptions {
    /// Decodes the subscription at the begin of `octets`. Returns it with the rest of the octets;
    /// `None` if it is damaged.
    fn take_from<'a>(&mut self, octets: &'a [u8]) -> Option<(SubscriptionPart, &'a [u8])> {
        // An encoding shows its own end: octets that begin with one decode to its value.
        let rest = |known: &DecodedSubscription| Some((known.part.clone(), octets.strip_prefix(&known.encoding[..])?));
        if let Some(found) = self.recent.iter().find_map(rest) {
            return Some(found);
        }
        let (part, rest): (SubscriptionPart, _) = postcard::take_from_bytes(octets).ok()?;
        let encoding = &octets[..octets.len() - rest.len()];
        if part.subscription.is_some() && encoding.len() <= SHARED_OCTETS {
            let decoded = DecodedSubscription { encoding: encoding.into(), part: part.clone() };
            match self.recent.get_mut(self.next) {
                Some(oldest) => *oldest = decoded,
                None => self.recent.push(decoded),
            }
            self.next = (self.next + 1) % SHARED;
        }
        Some((part, rest))
    }
}

/// Allowed NSSAI, sessions and registration area of the UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AllocationPart<'a> {
    allowed: SmallVec<[Snssai; 2]>,
    #[serde(with = "octets")]
    radio_capability: Cow<'a, [u8]>,
    sessions: PerSession<StoredSession>,
    next_session: u32,
    area: SmallVec<[Tai; 4]>,
    /// It follows the other pieces, and is absent if it is empty: most UEs have none, and release
    /// 0.2.0 ignores octets there.
    #[serde(skip)]
    paging: PagingInfo,
    /// Terms of the subscription that most lack, after the parameters of paging.
    #[serde(skip)]
    further: FurtherTerms,
    /// [`NasSecurity::agreed_at`], after these terms.
    #[serde(skip)]
    agreed_at: Instant,
}

/// The ephemeral part. When written, `S` and `D` borrow from the context.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ephemeral<S = PerSession<SessionProgress>, D = ProcedurePart> {
    sequence: u64,
    counts: Option<NasCounts>,
    sessions: S,
    connection: Option<PackedConnection>,
    connections: u16,
    /// `None` for most UEs most of the time.
    doing: Option<D>,
    expires: Option<Instant>,
}

/// Progress of each session, borrowed from the context for writing.
pub(super) struct SessionProgressRef<'a>(&'a [SmContext]);

impl Serialize for SessionProgressRef<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.iter().map(SessionProgress::from_session))
    }
}

/// Procedure in progress, deferred messages and pending work.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProcedurePart<P = Option<Procedure>, H = Option<Handover>, M = Vec<DeferredSessionMessage>> {
    procedure: P,
    handover: H,
    deferred: M,
    source: Option<SourceNode>,
    pending: PendingWork,
    unreachable: bool,
}

/// Borrowing form of [`ProcedurePart`] for writing.
pub(super) type ProcedurePartRef<'a> =
    ProcedurePart<&'a Option<Procedure>, &'a Option<Handover>, &'a [DeferredSessionMessage]>;

/// Perpetual part of a NAS security context: keys and algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Keys {
    /// Key set, NIA code and NEA code.
    algorithms: (KeySet, u8, u8),
    keys: KeyOctets,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum KeyOctets {
    /// KAMF, KNASint and KNASenc, in this order.
    All(#[serde(with = "octets")] [u8; 64]),
    /// KAMF only; KNASint and KNASenc are derived from it when the context is loaded.
    Root(#[serde(with = "octets")] [u8; 32]),
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("algorithms", &self.algorithms).finish_non_exhaustive()
    }
}

/// Ephemeral part of a NAS security context: the NAS COUNTs, and the NH chain, which an idle UE
/// does not have.
#[derive(Debug, Serialize, Deserialize)]
struct NasCounts {
    uplink: u32,
    downlink: u32,
    next_hop: Option<NextHopChain>,
}

/// Perpetual part of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredSession {
    psi: u8,
    index: SessionIndex,
    terms: StoredTerms,
    kind: PduSessionType,
    address: SessionAddress,
    always_on: bool,
    /// Bitwise complement of [`SmContext::integrity_rate`]: most UEs have no limit.
    integrity_rate: u16,
    upf: SocketAddr,
    cp_seid: u64,
    #[serde(with = "postcard::fixint::le")]
    up_seid: u64,
    uplink: Option<Tunnel>,
    /// True if a change of the terms was in progress: its end may have restored earlier ones.
    #[serde(skip)]
    changes: bool,
}

/// Returns the perpetual part of a context. Together with [`ephemeral`] it covers every field but
/// [`UeContext::remote_sessions`].
pub(super) fn perpetual(ue: &UeContext) -> Perpetual<'_> {
    Perpetual {
        identity: IdentityPart::from_context(ue),
        subscription: SubscriptionPart::from_context(ue),
        allocation: AllocationPart::from_context(ue),
    }
}

fn agreed_at(ue: &UeContext) -> Instant {
    ue.security.as_ref().map(|security| security.agreed_at).unwrap_or_default()
}

/// Returns the ephemeral part of a context.
pub(super) fn ephemeral(ue: &UeContext) -> Ephemeral<SessionProgressRef<'_>, ProcedurePartRef<'_>> {
    Ephemeral {
        sequence: ue.sequence,
        counts: ue.security.as_ref().map(NasCounts::from_security),
        sessions: SessionProgressRef(&ue.sessions),
        connection: ue.connection.as_ref().map(|connection| PackedConnection::pack(connection, ue.ltmsi)),
        connections: ue.connections,
        doing: ProcedurePartRef::from_context(ue),
        expires: ue.reachability.expires,
    }
}

/// Combines the two parts to a context; `None` if they belong to different contexts.
pub(super) fn join(perpetual: Perpetual<'_>, ephemeral: Ephemeral) -> Option<UeContext> {
    let Perpetual { identity, subscription: SubscriptionPart { mut subscription }, allocation } = perpetual;
    if let (Some(subscription), false) = (&mut subscription, allocation.further.is_empty()) {
        Arc::make_mut(subscription).set_further(allocation.further);
    }
    if allocation.sessions.len() != ephemeral.sessions.len() || identity.keys.is_some() != ephemeral.counts.is_some() {
        return None;
    }
    let ltmsi = identity.ltmsi;
    let mut sessions = Vec::with_capacity(allocation.sessions.len());
    for (lasting, passing) in allocation.sessions.into_iter().zip(ephemeral.sessions) {
        let mut sm = lasting.session(ltmsi, subscription.as_deref())?;
        passing.apply_to(&mut sm);
        sessions.push(sm);
    }
    let connection = match ephemeral.connection {
        Some(link) => Some(link.connection(ltmsi)?),
        None => None,
    };
    let mut ue = UeContext {
        sequence: ephemeral.sequence,
        identity: identity.identity,
        registration: identity.registration,
        security: identity.keys.zip(ephemeral.counts).map(|(keys, counts)| keys.security(&counts)),
        security_capability: identity.capability,
        subscription,
        allowed: allocation.allowed,
        radio_capability: allocation.radio_capability.into_owned(),
        sessions,
        next_session: allocation.next_session,
        connection,
        connections: ephemeral.connections,
        reachability: Reachability {
            area: allocation.area,
            unreachable: false,
            expires: ephemeral.expires,
            paging: allocation.paging,
            last_node: None,
            recommended: Vec::new(),
        },
        ..UeContext::new(ltmsi)
    };
    if let Some(security) = &mut ue.security {
        security.agreed_at = allocation.agreed_at;
    }
    let dialect = ue.session_dialect();
    let control_plane = ue.ciot().control_plane;
    for session in &mut ue.sessions {
        (session.dialect, session.pfcp.over_nas) = (dialect, control_plane);
    }
    if let Some(doing) = ephemeral.doing {
        (ue.procedure, ue.handover) = (doing.procedure, doing.handover);
        (ue.deferred, ue.source) = (doing.deferred, doing.source);
        (ue.pending, ue.reachability.unreachable) = (doing.pending, doing.unreachable);
    }
    Some(ue)
}

impl<'a> ProcedurePartRef<'a> {
    fn from_context(ue: &'a UeContext) -> Option<Self> {
        let nothing = ue.procedure.is_none() && ue.handover.is_none() && ue.deferred.is_empty() && ue.source.is_none();
        if nothing && ue.pending == PendingWork::default() && !ue.reachability.unreachable {
            return None;
        }
        Some(ProcedurePart {
            procedure: &ue.procedure,
            handover: &ue.handover,
            deferred: &ue.deferred,
            source: ue.source,
            pending: ue.pending,
            unreachable: ue.reachability.unreachable,
        })
    }
}

impl Perpetual<'_> {
    /// Decodes the perpetual part; `None` if it is damaged.
    pub(super) fn decode(octets: &[u8], shared: Option<&mut SharedSubscriptions>) -> Option<Self> {
        let (identity, rest) = postcard::take_from_bytes(octets).ok()?;
        let (subscription, rest) = match shared {
            Some(shared) => shared.take_from(rest)?,
            None => postcard::take_from_bytes(rest).ok()?,
        };
        let (allocation, rest) = postcard::take_from_bytes(rest).ok()?;
        let mut perpetual = Perpetual { identity, subscription, allocation };
        if !rest.is_empty() {
            let (paging, rest) = postcard::take_from_bytes(rest).ok()?;
            perpetual.allocation.paging = paging;
            if !rest.is_empty() {
                let (further, rest) = postcard::take_from_bytes(rest).ok()?;
                perpetual.allocation.further = further;
                if !rest.is_empty() {
                    perpetual.allocation.agreed_at = postcard::from_bytes(rest).ok()?;
                }
            }
        }
        Some(perpetual)
    }

    /// Returns an owned copy.
    pub(super) fn into_static(self) -> Perpetual<'static> {
        Perpetual {
            identity: self.identity,
            subscription: self.subscription,
            allocation: self.allocation.into_static(),
        }
    }
}

impl IdentityPart {
    pub(super) fn from_context(ue: &UeContext) -> Self {
        IdentityPart {
            ltmsi: ue.ltmsi,
            identity: ue.identity,
            registration: ue.registration,
            keys: ue.security.as_ref().map(Keys::from_security),
            capability: ue.security_capability,
        }
    }

    /// Returns true if the context has these values. Compares first what changes often.
    pub(super) fn matches(&self, ue: &UeContext) -> bool {
        let IdentityPart { ltmsi, identity, registration, keys, capability } = self;
        *identity == ue.identity
            && keys.is_some() == ue.security.is_some()
            && keys.iter().zip(&ue.security).all(|(keys, security)| keys.matches(security))
            && (*ltmsi, *registration) == (ue.ltmsi, ue.registration)
            && *capability == ue.security_capability
    }
}

impl SubscriptionPart {
    pub(super) fn from_context(ue: &UeContext) -> Self {
        SubscriptionPart { subscription: ue.subscription.clone() }
    }

    /// Returns true if the context has this subscription. Equal pointers need no further
    /// comparison; after a comparison of equal values, this part adopts the context's pointer.
    pub(super) fn matches(&mut self, ue: &UeContext) -> bool {
        let same = self.subscription == ue.subscription;
        if let (true, Some(own), Some(other)) = (same, &self.subscription, &ue.subscription)
            && !Arc::ptr_eq(own, other)
        {
            *self = SubscriptionPart::from_context(ue);
        }
        same
    }
}

impl<'a> AllocationPart<'a> {
    pub(super) fn from_context(ue: &'a UeContext) -> Self {
        AllocationPart {
            allowed: SmallVec::from_slice(&ue.allowed),
            radio_capability: Cow::Borrowed(&ue.radio_capability),
            sessions: ue.sessions.iter().map(|sm| StoredSession::from_session(sm, ue)).collect(),
            next_session: ue.next_session,
            area: SmallVec::from_slice(&ue.reachability.area),
            paging: ue.reachability.paging.clone(),
            further: ue.subscription.as_deref().map(Subscription::further).unwrap_or_default(),
            agreed_at: agreed_at(ue),
        }
    }

    /// Returns true if the context, whose subscription is unchanged, has these values. Compares
    /// first what changes often.
    pub(super) fn matches(&self, ue: &UeContext) -> bool {
        let AllocationPart {
            allowed,
            radio_capability,
            sessions,
            next_session,
            area,
            paging,
            further: _,
            agreed_at: agreed,
        } = self;
        sessions.len() == ue.sessions.len()
            && sessions.iter().zip(&ue.sessions).all(|(lasting, sm)| lasting.matches(sm, ue))
            && *next_session == ue.next_session
            && allowed[..] == ue.allowed[..]
            && area[..] == ue.reachability.area[..]
            && *paging == ue.reachability.paging
            && *agreed == agreed_at(ue)
            && radio_capability.len() == ue.radio_capability.len()
            // Comparing two empty slices is slow: the processor reads the octets that an empty
            // slice does not have.
            && (radio_capability.is_empty() || radio_capability[..] == ue.radio_capability[..])
    }

    /// Returns the parameters of paging if they are stored.
    pub(super) fn paging(&self) -> Option<&PagingInfo> {
        Some(&self.paging).filter(|paging| !paging.is_empty() || self.further().is_some())
    }

    /// Returns the terms that most subscriptions lack if they are stored.
    pub(super) fn further(&self) -> Option<&FurtherTerms> {
        Some(&self.further).filter(|further| !further.is_empty() || self.agreed_at().is_some())
    }

    /// Returns the time of the authentication if it is stored.
    pub(super) fn agreed_at(&self) -> Option<Instant> {
        (self.agreed_at != Instant::default()).then_some(self.agreed_at)
    }

    /// Returns an owned copy.
    pub(super) fn into_static(self) -> AllocationPart<'static> {
        let AllocationPart { allowed, radio_capability, sessions, next_session, area, paging, further, agreed_at } =
            self;
        AllocationPart {
            allowed,
            radio_capability: Cow::Owned(radio_capability.into_owned()),
            sessions,
            next_session,
            area,
            paging,
            further,
            agreed_at,
        }
    }
}

impl Keys {
    fn from_security(security: &NasSecurity) -> Self {
        let algorithms = (security.key_set, security.integrity, security.ciphering);
        if security.derives_keys {
            return Keys { algorithms, keys: KeyOctets::Root(security.kamf) };
        }
        let mut keys = [0; 64];
        keys[..32].copy_from_slice(&security.kamf);
        keys[32..48].copy_from_slice(&security.knas_int);
        keys[48..].copy_from_slice(&security.knas_enc);
        Keys { algorithms, keys: KeyOctets::All(keys) }
    }

    fn matches(&self, security: &NasSecurity) -> bool {
        let same = match &self.keys {
            KeyOctets::All(keys) => {
                !security.derives_keys
                    && keys[..32] == security.kamf
                    && keys[32..48] == security.knas_int
                    && keys[48..] == security.knas_enc
            }
            KeyOctets::Root(kamf) => security.derives_keys && *kamf == security.kamf,
        };
        same && self.algorithms == (security.key_set, security.integrity, security.ciphering)
    }

    fn security(&self, counts: &NasCounts) -> NasSecurity {
        let (key_set, integrity, ciphering) = self.algorithms;
        let (mut kamf, mut knas_int, mut knas_enc) = ([0; 32], [0; 16], [0; 16]);
        match &self.keys {
            KeyOctets::All(keys) => {
                kamf.copy_from_slice(&keys[..32]);
                knas_int.copy_from_slice(&keys[32..48]);
                knas_enc.copy_from_slice(&keys[48..]);
            }
            KeyOctets::Root(root) => {
                kamf = *root;
                (knas_int, knas_enc) = security::nas_keys(key_set.dialect(), root, integrity, ciphering);
            }
        }
        NasSecurity {
            key_set,
            kamf,
            knas_int,
            knas_enc,
            integrity,
            ciphering,
            uplink: counts.uplink,
            downlink: counts.downlink,
            next_hop: counts.next_hop,
            derives_keys: matches!(self.keys, KeyOctets::Root(_)),
            agreed_at: Instant::default(),
        }
    }
}

impl NasCounts {
    fn from_security(security: &NasSecurity) -> Self {
        NasCounts { uplink: security.uplink, downlink: security.downlink, next_hop: security.next_hop }
    }
}

impl StoredSession {
    fn from_session(sm: &SmContext, ue: &UeContext) -> Self {
        StoredSession {
            psi: sm.psi,
            index: sm.index,
            terms: StoredTerms::pack(&sm.terms, ue.subscription.as_deref()),
            kind: sm.kind,
            address: sm.address,
            always_on: sm.always_on,
            integrity_rate: !sm.integrity_rate,
            upf: sm.pfcp.upf,
            cp_seid: relative_seid(sm.pfcp.cp_seid, ue.ltmsi, sm.index),
            up_seid: sm.pfcp.up_seid,
            uplink: sm.uplink,
            changes: sm.terms.change.is_some(),
        }
    }

    /// Returns true if this is the perpetual part of `sm`, in a context whose subscription is
    /// unchanged.
    fn matches(&self, sm: &SmContext, ue: &UeContext) -> bool {
        let StoredSession {
            psi,
            index,
            terms,
            kind,
            address,
            always_on,
            integrity_rate,
            upf,
            cp_seid,
            up_seid,
            uplink,
            changes,
        } = self;
        let same = (*cp_seid, *up_seid, *uplink)
            == (relative_seid(sm.pfcp.cp_seid, ue.ltmsi, sm.index), sm.pfcp.up_seid, sm.uplink)
            && (*psi, *index, *kind, *address) == (sm.psi, sm.index, sm.kind, sm.address)
            && (*always_on, *integrity_rate, *upf) == (sm.always_on, !sm.integrity_rate, sm.pfcp.upf);
        // Terms change only with a change in progress, and a SEID belongs to one session. Comparing
        // them would load the subscription into the cache.
        let same = same && sm.terms.change.is_none() && !changes;
        debug_assert!(!same || terms.matches(&sm.terms, ue.subscription.as_deref()), "a session's terms have changed");
        same
    }

    /// Returns the session, established and idle.
    fn session(self, ltmsi: Ltmsi, subscription: Option<&Subscription>) -> Option<SmContext> {
        let cp_seid = Seid(relative_seid(Seid(self.cp_seid), ltmsi, self.index));
        Some(SmContext {
            psi: self.psi,
            dialect: Dialect::default(),
            index: self.index,
            terms: self.terms.unpack(subscription)?,
            kind: self.kind,
            address: self.address,
            always_on: self.always_on,
            integrity_rate: !self.integrity_rate,
            pfcp: PfcpSession { upf: self.upf, cp_seid, up_seid: self.up_seid, over_nas: false },
            uplink: self.uplink,
            downlink: None,
            handover: SessionHandover::default(),
            end_marker: false,
            stage: Stage::Established,
            ran: RanState::Idle,
            n4: N4State::Synced,
            usage: Usage::default(),
            relocation: None,
            deadline: None,
            since: Instant(0),
        })
    }
}
