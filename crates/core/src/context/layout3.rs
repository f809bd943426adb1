//! Layout 3, which the release before wrote: the whole context in one piece, in this order. What it is made of has not
//! changed its own encoding since; whoever changes that keeps a copy here. `tests/layout.rs` has octets of that release.

use super::*;

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
    sessions: Vec<SmContext>,
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
        sessions: old.sessions,
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
