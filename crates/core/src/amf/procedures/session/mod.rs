//! PDU session procedures on the 5GMM side (TS 23.502 4.3.2 to 4.3.4), and PDN connections.
//!
//! It selects slice and data network of a new session, and passes messages between UE or RAN and
//! the session logic, which makes the decisions.

pub mod eps;
pub mod nr;

use crate::amf::context::{RanContext, Registration};
use crate::amf::n2::SessionItems;
use crate::amf::procedures::common::{smf_requests, user_plane};
use crate::config::SliceProfile;
use crate::sba::SmfUpdateRequest;
use crate::smf::{self, Create, Input, N2Sm};
use crate::step::{Kind, Note, StepContext};
use crate::subscription::{Ambr, DnnSubscription, Subscription, is_gbr};
use std::net::SocketAddr;
use vireo_types::{Dialect, Dnn, Snssai, limits};
use vireo_wire::nas::GmmCause;
use vireo_wire::nas_eps::EsmCause;

/// Contents of UL NAS TRANSPORT with a 5GSM message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UlNasTransport<'a> {
    /// PDU session ID, 1 to 15; 0 if a UE of EPS assigns none.
    pub psi: u8,
    /// True if the request type is "initial request" or "initial emergency request".
    pub initial: bool,
    /// True if the UE requests an emergency PDU session or PDN connection.
    pub is_emergency: bool,
    /// Requested S-NSSAI, if any.
    pub snssai: Option<Snssai>,
    /// Requested DNN, if any.
    pub dnn: Option<Dnn>,
    pub n1: &'a [u8],
}

impl UlNasTransport<'_> {
    /// Returns true if the UE requests a service: a session, or the modification of one, not for
    /// emergency services.
    pub fn is_service_of_ue(&self) -> bool {
        const MODIFICATION_REQUEST: u8 = 0xc9;
        let modifies = self.n1.get(3) == Some(&MODIFICATION_REQUEST);
        !self.is_emergency && (self.initial || modifies)
    }
}

/// Returns a request for a service in a non-allowed area to the UE (TS 24.501 5.4.5.2.4,
/// 5.4.5.3.1).
pub fn refuse_in_non_allowed_area(ctx: &mut StepContext<'_, '_>, transport: &UlNasTransport<'_>) {
    let cause = GmmCause::RestrictedServiceArea;
    if transport.initial {
        ctx.note(Note::Started(Kind::Session));
        ctx.note(Note::Failed(Kind::Session, cause.as_u8()));
        ctx.note_refusal(Kind::Session, cause.as_u8(), "the UE is in a non-allowed area");
    }
    nr::send_back(ctx, transport.psi, transport.n1, cause);
}

/// Handles a 5GSM message of the UE.
pub fn uplink(ctx: &mut StepContext<'_, '_>, transport: UlNasTransport<'_>) {
    if ctx.env.config.smf_is_remote {
        return uplink_to_smf(ctx, transport);
    }
    let at = ctx.ue.sessions.iter().position(|s| s.psi == transport.psi && s.is_live());
    match (at, transport.initial) {
        // A repeat (T3580) is answered as the first request, which is outstanding (6.4.1.6 a).
        (Some(at), true) if smf::repeats_request(&ctx.ue.sessions[at], transport.n1) => {
            user_plane::step(ctx, at, Input::N1(transport.n1));
        }
        (Some(at), true) => {
            // 5.4.5.2.3 a 2: the UE has lost the session with this ID. Release it and create a new
            // one.
            let (psi, waits) = (transport.psi, smf::is_at_ran(&ctx.ue.sessions[at]));
            user_plane::step(ctx, at, Input::LostByUe);
            create(ctx, transport);
            if let Some(sm) = ctx.ue.sessions.iter_mut().find(|s| waits && s.psi == psi && s.is_live()) {
                smf::wait_for_ran(sm, ctx.env);
            }
        }
        (None, true) => create(ctx, transport),
        (Some(at), false) => user_plane::step(ctx, at, Input::N1(transport.n1)),
        // 5.4.5.2.5 a 2: there is no session to route the message to.
        (None, false) => nr::send_back(ctx, transport.psi, transport.n1, GmmCause::PayloadWasNotForwarded),
    }
}

/// As [`uplink`], for sessions of a separate SMF.
fn uplink_to_smf(ctx: &mut StepContext<'_, '_>, transport: UlNasTransport<'_>) {
    if transport.initial {
        let forgotten = ctx.ue.remote_sessions.sessions.iter().position(|s| s.psi == transport.psi && s.is_live());
        if let Some(at) = forgotten {
            smf_requests::end_at_ran(ctx, at);
        }
        create(ctx, transport);
    } else if !smf_requests::update(ctx, transport.psi, SmfUpdateRequest::N1(transport.n1.to_vec())) {
        nr::send_back(ctx, transport.psi, transport.n1, GmmCause::PayloadWasNotForwarded);
    }
}

/// Selects the slice and data network of a new session: the requested ones, else the defaults (TS
/// 23.501 5.6.1).
fn choose<'s>(
    subscription: &'s Subscription,
    allowed: &[Snssai],
    snssai: Option<Snssai>,
    dnn: Option<&Dnn>,
) -> Result<(Snssai, &'s DnnSubscription), GmmCause> {
    let mut slices = subscription.slices.iter().filter(|s| allowed.contains(&s.snssai));
    let has = |s: &&crate::subscription::SliceSubscription| dnn.is_none_or(|d| s.dnns.iter().any(|n| n.dnn == *d));
    let slice = match snssai {
        Some(snssai) => slices.find(|s| s.snssai == snssai),
        None => slices.clone().find(has).or_else(|| slices.next()),
    };
    let slice = slice.ok_or(GmmCause::PayloadWasNotForwarded)?;
    let network = match dnn {
        Some(dnn) => slice.dnns.iter().find(|n| n.dnn == *dnn),
        None => slice.dnns.first(),
    };
    Ok((slice.snssai, network.ok_or(GmmCause::DnnNotSupportedOrNotSubscribedInTheSlice)?))
}

/// Returns slice and data network of an emergency PDU session or PDN connection, which needs no
/// subscription (TS 23.501 5.16.4.9, TS 23.401 4.3.12.3); `None` for another one. A UE has at most
/// one, and none beside it if it has registered or attached for it.
fn emergency(
    ctx: &StepContext<'_, '_>,
    transport: &UlNasTransport<'_>,
) -> Option<Result<(Snssai, DnnSubscription), GmmCause>> {
    /// QCI of IMS signalling (TS 23.203 table 6.1.7-A), with the highest priority.
    const QCI: u8 = 5;
    const ARP_PRIORITY: u8 = 1;
    let (config, dialect) = (ctx.env.config, ctx.ue.dialect());
    let Some(name) = config.emergency(dialect) else {
        let is_refused = transport.is_emergency && dialect == Dialect::Nr;
        return is_refused.then_some(Err(GmmCause::PayloadWasNotForwarded));
    };
    let mut live = ctx.ue.sessions.iter().filter(|session| session.is_live()).peekable();
    let has_only = live.peek().is_some() && live.clone().all(|session| session.terms.dnn == *name);
    let has_one = live.any(|session| session.terms.dnn == *name);
    if !transport.is_emergency {
        let has_registered_for_it = match dialect {
            Dialect::Nr => ctx.ue.registration == Registration::Emergency,
            Dialect::Eps => has_only,
        };
        return has_registered_for_it.then_some(Err(GmmCause::PayloadWasNotForwarded));
    }
    // In 5G, the slice is the network's own and need not be allowed.
    let own = config.slices.iter().map(|slice| slice.snssai).filter(|_| dialect == Dialect::Nr);
    let mut slices = ctx.ue.allowed.iter().copied().chain(own);
    let served = slices.find_map(|snssai| Some((snssai, config.dnn(name, snssai)?)));
    let Some((snssai, dnn)) = served.filter(|_| !has_one) else { return Some(Err(GmmCause::PayloadWasNotForwarded)) };
    let (types, ambr) = (dnn.types.clone(), Ambr::default());
    let terms = DnnSubscription {
        dnn: name.clone(),
        types,
        ambr,
        five_qi: QCI,
        arp_priority: ARP_PRIORITY,
        ..DnnSubscription::default()
    };
    Some(Ok((snssai, terms)))
}

fn create(ctx: &mut StepContext<'_, '_>, transport: UlNasTransport<'_>) {
    ctx.note(Note::Started(Kind::Session));
    let refuse = |ctx: &mut StepContext<'_, '_>, cause: GmmCause| match ctx.ue.dialect() {
        Dialect::Nr => {
            ctx.note(Note::Failed(Kind::Session, cause.as_u8()));
            let dnn = transport.dnn.as_ref().map_or("default", Dnn::as_str);
            let slice = transport.snssai.map_or_else(|| "default".to_owned(), |snssai| snssai.to_string());
            let reason = match cause {
                GmmCause::MaximumNumberOfPduSessionsReached => "as many sessions as allowed".to_owned(),
                _ => format!("data network {dnn} of slice {slice} is not subscribed or not served"),
            };
            ctx.note_refusal(Kind::Session, cause.as_u8(), reason);
            nr::send_back(ctx, transport.psi, transport.n1, cause);
        }
        Dialect::Eps => eps::refuse(ctx, transport.n1, esm_cause(cause)),
    };
    let (Some(supi), Some(subscription)) = (ctx.ue.identity.supi, ctx.ue.subscription.take()) else {
        return refuse(ctx, GmmCause::PayloadWasNotForwarded);
    };
    let emergency = emergency(ctx, &transport);
    let chosen = match &emergency {
        Some(Ok((snssai, network))) => Ok((*snssai, network)),
        Some(Err(cause)) => Err(*cause),
        None => choose(&subscription, &ctx.ue.allowed, transport.snssai, transport.dnn.as_ref()),
    };
    // A UE with a session in an IoT slice has only that session.
    let is_simple = |slice: Snssai| ctx.env.config.profile(slice) == SliceProfile::Iot;
    let here = ctx.ue.sessions.iter().filter(|session| session.is_live()).map(|session| session.terms.snssai);
    let remote =
        ctx.ue.remote_sessions.sessions.iter().filter(|session| session.is_live()).map(|session| session.snssai);
    let is_second =
        here.chain(remote).any(|other| is_simple(other) || chosen.as_ref().is_ok_and(|new| is_simple(new.0)));
    let count = ctx.ue.sessions.len() + ctx.ue.remote_sessions.sessions.len();
    // Unused index, which becomes the session part of the SEID, and determines the EPS bearer
    // identity.
    let used = |i: u8| ctx.ue.sessions.iter().any(|s| s.index == i);
    let index = (0..=u8::MAX).find(|i| !used(*i)).unwrap_or(u8::MAX);
    let id = match ctx.ue.dialect() {
        Dialect::Nr => Some(transport.psi),
        Dialect::Eps => smf::ebi(index),
    };
    let limit = is_second || count >= limits::SESSIONS_PER_UE || id.is_none();
    match chosen {
        Err(cause) => refuse(ctx, cause),
        Ok(_) if limit => refuse(ctx, GmmCause::MaximumNumberOfPduSessionsReached),
        Ok((snssai, network)) if ctx.env.config.dnn(&network.dnn, snssai).is_none() => {
            refuse(ctx, GmmCause::DnnNotSupportedOrNotSubscribedInTheSlice);
        }
        Ok((snssai, network)) if ctx.env.config.smf_is_remote => {
            let dnn = network.dnn.clone();
            smf_requests::create(ctx, supi, (transport.psi, transport.n1), (snssai, dnn));
        }
        Ok((snssai, network)) => {
            let request = Create {
                supi,
                ltmsi: ctx.ue.ltmsi,
                index,
                psi: transport.psi,
                dialect: ctx.ue.dialect(),
                n1: transport.n1,
                snssai,
                dnn: &network.dnn,
                subscription: network,
            };
            let (mut sm, outputs) = smf::create(&request, ctx.env);
            if let Some(cause) = outputs.iter().find_map(smf::reject_cause) {
                let reason = match is_gbr(network.five_qi) {
                    true => format!("five_qi of data network {} is that of a GBR flow", network.dnn),
                    false => format!("data network {} of slice {snssai}", network.dnn),
                };
                ctx.note_refusal(Kind::Session, cause, reason);
            }
            if let Some(sm) = &mut sm {
                sm.pfcp.over_nas = ctx.ue.ciot().control_plane;
            }
            if transport.is_emergency && sm.is_some() && ctx.ue.dialect() == Dialect::Nr {
                // The UE ends MICO mode, too, until its next registration (TS 24.501 5.3.6).
                ctx.ue.reachability.paging.power_saving = None;
            }
            ctx.ue.sessions.extend(sm);
            user_plane::deliver(ctx, id.unwrap_or_default(), index, outputs);
        }
    }
    ctx.ue.subscription = Some(subscription);
}

/// Returns the ESM cause for a session that the AMF part does not create.
fn esm_cause(cause: GmmCause) -> EsmCause {
    match cause {
        GmmCause::DnnNotSupportedOrNotSubscribedInTheSlice => EsmCause::MissingOrUnknownApn,
        GmmCause::MaximumNumberOfPduSessionsReached => EsmCause::MaximumNumberOfEpsBearersReached,
        _ => EsmCause::RequestRejectedUnspecified,
    }
}

/// Handles NGAP transfers of the RAN for sessions.
pub fn transfers(ctx: &mut StepContext<'_, '_>, kind: N2Sm, items: SessionItems) {
    for (psi, transfer) in items {
        let is_known = if ctx.env.config.smf_is_remote {
            smf_requests::update(ctx, psi, SmfUpdateRequest::N2(kind, transfer))
        } else if let Some(at) = ctx.ue.sessions.iter().position(|s| s.id() == psi && s.is_live()) {
            user_plane::step(ctx, at, Input::N2(kind, &transfer));
            true
        } else {
            false
        };
        // A session may end while the RAN node releases it.
        if !is_known && kind != N2Sm::ReleaseResponse {
            ctx.note(Note::fault("session-unknown"));
        }
    }
}

/// Handles PDU SESSION RESOURCE NOTIFY (TS 23.502 4.3.3.2, 4.3.4.2). A session that the RAN has
/// released ends; its user plane cannot be relied on.
pub fn on_ran_notify(ctx: &mut StepContext<'_, '_>, notified: SessionItems, released: SessionItems) {
    for (psi, _) in &released {
        if let Some(session) = ctx.ue.remote_sessions.by_psi(*psi) {
            session.up = false;
        }
    }
    transfers(ctx, N2Sm::NotifyReleased, released);
    transfers(ctx, N2Sm::Notify, notified);
}

/// Starts the relocation of the UE's sessions to another UPF, requested by the operator. It fails
/// if the UE is in a procedure or handover; the operator can request it again.
pub fn relocate(ctx: &mut StepContext<'_, '_>, upf: SocketAddr) {
    let settled = ctx.ue.connection.is_none_or(|connection| connection.ran == RanContext::SetUp);
    let busy = ctx.ue.procedure.is_some() || ctx.ue.is_in_handover() || !ctx.ue.is_registered() || !settled;
    for at in (0..ctx.ue.sessions.len()).rev() {
        let session = &ctx.ue.sessions[at];
        if !session.is_live() || session.pfcp.upf == upf {
            continue;
        }
        // S1AP has no change of the S-GW end of a tunnel without a path switch.
        let is_nr = ctx.ue.dialect() == Dialect::Nr;
        let can = is_nr && ctx.env.config.upfs.iter().any(|to| to.n4 == upf && to.reaches(&session.terms.dnn));
        let (index, old) = (session.index, session.pfcp.cp_seid);
        ctx.note(Note::Started(Kind::Relocation));
        if busy || !can {
            ctx.note(Note::Failed(Kind::Relocation, 0));
            continue;
        }
        let fresh = |generation: u32| smf::seid(ctx.ue.ltmsi, index, generation);
        let generation = u32::from_be_bytes(ctx.env.random());
        let seid = Some(fresh(generation)).filter(|new| *new != old).unwrap_or_else(|| fresh(!generation));
        user_plane::step(ctx, at, Input::Relocate(upf, seid));
    }
}
