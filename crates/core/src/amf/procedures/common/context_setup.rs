//! UE context in the RAN (TS 38.413 8.3.1, TS 36.413 8.3.1, TS 23.502 4.2.3.2).
//!
//! It is set up with the response to an initial NAS message, and with the user plane of the
//! sessions that the UE activates.

use crate::amf::access;
use crate::amf::context::{Connection, NextHop, RanContext};
use crate::amf::n2::{AcceptTransport, Cause, ContextSetup, SessionSetup, UeInformation};
use crate::step::StepContext;
use vireo_types::Dialect;
use vireo_wire::ngap::CauseRadioNetwork;

/// Prepares the KgNB for [`set_up`], from the COUNT of the UE's message that was just accepted.
/// [`set_up`] may run after SMFs have responded and the UE has sent more messages. A RAN node that
/// has a UE context, or was asked to set one up, has its key already.
pub fn begin(ctx: &mut StepContext<'_, '_>) {
    let none = ctx.ue.connection.is_some_and(|c| c.ran.is_none());
    if let Some(security) = ctx.ue.security.as_mut().filter(|_| none) {
        security.begin_access();
    }
}

/// Sends the RAN node the NAS message and the sessions: by Initial Context Setup if it has no UE
/// context yet, else each in its own message. E-RAB SETUP REQUEST always has a NAS message (TS
/// 36.413 9.1.3.1).
pub fn set_up(ctx: &mut StepContext<'_, '_>, mut nas: Option<Vec<u8>>, mut sessions: Vec<SessionSetup>) {
    let Some(connection) = ctx.ue.connection else { return };
    // An eNB sets up no context without a bearer (TS 36.413 9.1.4.1).
    let is_eps = connection.assoc.dialect() == Dialect::Eps;
    let node = (connection.assoc.dialect(), connection.tai.plmn);
    if !connection.ran.is_none() || sessions.is_empty() && is_eps {
        if let Some(first) = sessions.first_mut().filter(|first| is_eps && first.nas.is_none()) {
            first.nas = nas.take();
        }
        if let Some(nas) = nas.filter(|_| !ctx.is_being_released()) {
            // Without a context, an eNB gets the radio capability here (TS 36.413,
            // Downlink NAS Transport).
            let is_over_nas = connection.ran.is_none() && !ctx.ue.ciot().is_empty();
            let known = if is_over_nas { ctx.ue.radio_capability_for(Dialect::Eps).to_vec() } else { Vec::new() };
            let information = UeInformation::from_context(ctx.ue, ctx.env.config, node);
            let nr_algorithms = ctx.ue.security_capability.nr_algorithms();
            let has_slices = !is_eps && !connection.ran.is_none();
            let allowed = if has_slices { ctx.ue.allowed.clone() } else { Default::default() };
            ctx.send(|c| {
                let (information, radio_capability) = (&information, &known[..]);
                let content = AcceptTransport { information, nr_algorithms, radio_capability, allowed: &allowed };
                access::accept_transport(c, nas, content)
            });
        }
        let ambr = ctx.ue.ambr();
        for session in sessions {
            ctx.send(|c| access::session_setup_request(c, ambr, session));
        }
        return;
    }
    let Some(kgnb) = ctx.ue.security.as_mut().map(|security| security.initial_kgnb()) else { return };
    let setup = ContextSetup {
        guami: ctx.env.config.guami(),
        allowed: &ctx.ue.allowed,
        capability: ctx.ue.security_capability,
        kgnb,
        ambr: ctx.ue.ambr(),
        radio_capability: ctx.ue.radio_capability_for(connection.assoc.dialect()),
        nr_algorithms: ctx.ue.security_capability.nr_algorithms(),
        information: UeInformation::from_context(ctx.ue, ctx.env.config, node),
        paging_capability: ctx.ue.reachability.paging.capability_for(Dialect::Nr),
        sessions,
        nas,
    };
    let pdu = access::context_setup_request(&connection, setup);
    ctx.send(|_| pdu);
    let deadline = ctx.now() + ctx.env.config.timers.ran_response;
    if let Some(connection) = &mut ctx.ue.connection {
        connection.ran = RanContext::SettingUp { deadline };
    }
}

/// Returns the next NH of the keys in use, if an eNB has a key that follows from them. A path
/// switch that crosses the renewal of this key needs it, because S1AP has no mark of other keys (TS
/// 33.401 7.2.10).
pub fn former_hop(ctx: &mut StepContext<'_, '_>) -> Option<NextHop> {
    let is_enb = |c: Connection| c.ran == RanContext::SetUp && c.assoc.dialect() == Dialect::Eps;
    let has_key = ctx.ue.connection.is_some_and(is_enb);
    ctx.ue.security.as_mut().filter(|_| has_key).and_then(|security| security.advance())
}

/// Sends a RAN node that has a UE context the KgNB or KeNB of NAS keys that were taken into use,
/// and waits for its answer (TS 33.501 6.9.4.4, TS 33.401 7.2.9.4). `former` is that of
/// [`former_hop`] before.
///
/// A gNB whose path switch has no answer yet gets the key with that answer (TS 33.501 6.9.2.3.2).
/// Any other handover would give the target a key of the former NAS keys, and a node whose key is
/// being renewed may have the former one or the other: the connection is released instead.
pub fn renew_key(ctx: &mut StepContext<'_, '_>, former: Option<NextHop>) {
    let Some(connection) = ctx.ue.connection.filter(|connection| connection.ran.is_set_up()) else { return };
    let switches = ctx.ue.is_switching_path() && connection.assoc.dialect() == Dialect::Nr;
    if !switches && (ctx.ue.is_in_handover() || connection.ran.is_rekeying()) {
        return ctx.release(Cause::radioNetwork(CauseRadioNetwork::interaction_with_other_procedure));
    }
    let Some(security) = &mut ctx.ue.security else { return };
    security.begin_access();
    match switches {
        true => await_key(ctx, former),
        false => send_key(ctx, former),
    }
}

/// Sends the RAN node the key that [`renew_key`] prepared, and waits for its answer.
pub fn send_key(ctx: &mut StepContext<'_, '_>, former: Option<NextHop>) {
    let (Some(connection), Some(security)) = (ctx.ue.connection, &mut ctx.ue.security) else { return };
    let (key, capability) = (security.initial_kgnb(), ctx.ue.security_capability);
    ctx.send(|_| access::key_renewal_request(&connection, key, capability));
    await_key(ctx, former);
}

fn await_key(ctx: &mut StepContext<'_, '_>, former: Option<NextHop>) {
    let deadline = ctx.now() + ctx.env.config.timers.ran_response;
    if let Some(connection) = &mut ctx.ue.connection {
        connection.ran = RanContext::Rekeying { deadline, former };
    }
}
