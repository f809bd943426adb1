//! Step function: dispatches an event of one UE to its procedure.
//!
//! [`step`] is `(context, event, now, random) -> (context', effects)`. It does not load, store or
//! send. The caller commits the context and then executes the effects. Deadlines are in the context
//! ([`UeContext::deadline`]); when one passes, the caller runs [`Event::Deadline`].

mod authentication;
mod emm;
mod handover;
mod nas;
mod network_deregistration;
mod smf_events;
mod subscription;
mod termination;

use crate::Env;
use crate::amf::access;
use crate::amf::context::{Connection, Procedure, RadioCapability, RanContext, UeContext};
use crate::amf::n2::{Cause, Fault, InitialUeMessage, UeMessage};
use crate::amf::procedures::common::{areas, smf_requests, user_data, user_plane};
use crate::amf::procedures::{
    self, an_release, configuration_update, deregistration, paging, registration, service_request, session,
};
use crate::amf::ran::{self, ResetItem};
use crate::sba::{N1N2Transfer, PiggybackedSmContext, SessionNumber, SmfRequest, SmfResponse};
use crate::smf::{Input, N2Sm};
use crate::step::{Effect, Kind, Note, StepContext, StepOutput};
use crate::subscription::{Ambr, AuthenticationError, AuthenticationVector, Subscription};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use termination::{abort_procedure, detach_without_bearer};
use vireo_types::{AmfUeNgapId, AssocId, DeregistrationCause, Dialect, Ltmsi, NrCgi, RanUeNgapId, Seid, Snssai, Tai};
use vireo_wire::gtpu;
use vireo_wire::nas::GmmCause;
use vireo_wire::ngap::{CauseNas, CauseRadioNetwork};

pub use emm::protection as emm_protection;
pub use handover::{UNKNOWN_PATH_SWITCH, refuse_path_switch};
pub use nas::{is_authentic, protection};

/// Event of a UE. Every response and every expired deadline arrives as an event.
///
/// The host sends events to its workers as they are, except the first message of a connection,
/// which the worker decodes. The variants of that message are the last: postcard numbers the
/// variants that it encodes.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event<'a> {
    /// Message on the UE's NG or S1 connection, in the protocol of the association.
    Ngap {
        assoc: AssocId,
        /// AMF-UE-NGAP-ID in the message.
        amf_id: AmfUeNgapId,
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// Response of the subscriber service.
    Authentication(Result<AuthenticationVector, AuthenticationError>),
    /// PFCP message for a session, or a G-PDU of the UPF with user data that are sent over NAS. The
    /// latter has the SEID of its TEID (`Teid::session_at_control_plane`).
    Pfcp {
        /// SEID of the control plane.
        seid: Seid,
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// PFCP request for a session without a response.
    PfcpTimeout {
        /// SEID of the control plane.
        seid: Seid,
    },
    /// A UPF lost its PFCP sessions.
    UpfLost {
        /// Address of the UPF's PFCP endpoint.
        upf: SocketAddr,
    },
    /// The context's deadline has passed.
    Deadline,
    /// The association of the NG connection was lost, or the RAN node has reset the connection.
    ConnectionLost {
        /// Association of the lost connection.
        assoc: AssocId,
    },
    /// The RAN node has started another connection under the RAN-UE-NGAP-ID of this UE on this
    /// association. It has thus silently dropped this UE's context (TS 38.413 9.3.3.2: the ID is
    /// unique within a RAN node). Nothing is sent on the old connection, because the RAN node would
    /// take it for the new one's.
    RanIdReused {
        assoc: AssocId,
        /// RAN-UE-NGAP-ID that the RAN node has reused.
        ran_id: RanUeNgapId,
    },
    /// Another context became the subscriber's.
    Superseded,
    /// The memory of an unauthenticated UE is needed for other UEs. Its registration ends with
    /// cause #22 and a back-off timer. A UE that has been authenticated since is kept.
    Evicted,
    /// The operator requests deregistration of the UE.
    Deregister {
        /// True if the UE is to register again.
        reregister: bool,
        /// Cause of a UE that is not to register again.
        cause: Option<DeregistrationCause>,
    },
    /// The operator requests relocation of the UE's sessions to another UPF.
    Relocate {
        /// PFCP address of the target UPF.
        upf: SocketAddr,
    },
    /// SBA mode: result of a request to the SMF.
    Smf {
        number: SessionNumber,
        /// Request that this event answers.
        request: SmfRequest,
        response: SmfResponse,
        /// SM context after the request, if it is piggybacked.
        sm_context: Option<PiggybackedSmContext>,
    },
    /// SBA mode: N1N2 transfer of an SMF.
    Transfer(N1N2Transfer),
    /// SBA mode: an SMF has released a session.
    SmContextReleased {
        /// Number under which the AMF stores the session.
        number: SessionNumber,
    },
    /// The record of the UE's subscriber has changed.
    SubscriberChanged {
        /// `None` if the subscriber was removed.
        subscription: Option<Subscription>,
        /// True if the UE may have had this event before, when it could not be served.
        is_repeated: bool,
    },
    /// The operator requests the cell where the UE is.
    Locate,
    /// First message of an NG connection.
    #[serde(skip)]
    Initial {
        /// Association that received the message.
        assoc: AssocId,
        message: InitialUeMessage,
    },
    /// First message of an NG connection of a UE that is rejected because of overload or because
    /// there is no room for its context. A registration or service request is rejected with cause
    /// #22 and a back-off timer. Other messages are served.
    #[serde(skip)]
    Congested {
        /// Association that received the message.
        assoc: AssocId,
        message: InitialUeMessage,
    },
}

/// Runs one step. Changes the context in place and returns the effects and notes.
pub fn step(ue: &mut UeContext, event: Event<'_>, env: &mut Env<'_>) -> StepOutput {
    let mut ctx = StepContext { ue, env, out: StepOutput::default(), postponed_release: None, request_hash: None };
    let before = served_at(ctx.ue);
    match event {
        Event::Initial { assoc, message } => initial(&mut ctx, assoc, message),
        Event::Congested { assoc, message } => reject_for_congestion(&mut ctx, assoc, message),
        Event::Ngap { assoc, amf_id, pdu } => ngap(&mut ctx, assoc, amf_id, pdu),
        Event::Authentication(answer) => authentication::on_vector(&mut ctx, answer),
        Event::Pfcp { seid, message } => n4(&mut ctx, seid, message),
        Event::PfcpTimeout { seid } => pfcp(&mut ctx, seid, Input::PfcpTimeout, Input::TargetPfcpTimeout),
        Event::UpfLost { upf } => on_upf_loss(&mut ctx, upf),
        Event::Deadline => deadline(&mut ctx),
        Event::ConnectionLost { assoc } => {
            handover::on_connection_lost(&mut ctx, assoc);
            if ctx.ue.connection.is_some_and(|c| c.assoc == assoc) {
                on_connection_loss(&mut ctx);
            }
        }
        Event::RanIdReused { assoc, ran_id } => {
            handover::on_ran_id_reuse(&mut ctx, assoc, ran_id);
            if ctx.ue.connection.is_some_and(|c| (c.assoc, c.ran_id) == (assoc, ran_id)) {
                on_connection_loss(&mut ctx);
            }
        }
        Event::Superseded => {
            ctx.ue.procedure = None;
            deregistration::supersede(&mut ctx);
        }
        Event::Evicted => evict(&mut ctx),
        Event::Deregister { reregister, cause } => deregister(&mut ctx, reregister, cause),
        Event::SubscriberChanged { subscription, is_repeated } => {
            subscription::apply_change(&mut ctx, subscription, is_repeated)
        }
        Event::Relocate { upf } => session::relocate(&mut ctx, upf),
        Event::Locate => request_cell(&mut ctx),
        Event::Smf { number, request, response, sm_context } => {
            smf_events::on_answer(&mut ctx, number, request, (response, sm_context))
        }
        Event::Transfer(transfer) => smf_events::transfer(&mut ctx, transfer),
        Event::SmContextReleased { number } => smf_events::on_release(&mut ctx, number),
    }
    let switches = ctx.ue.is_switching_path();
    procedures::handover::proceed(&mut ctx);
    if switches && ctx.ue.handover.is_none() {
        detach_without_bearer(&mut ctx);
    }
    set_up_attach_bearer(&mut ctx);
    user_plane::send_deferred(&mut ctx);
    service_request::accept_after_smfs(&mut ctx);
    smf_requests::send_waiting(&mut ctx);
    // After the answer to a handover that has failed.
    if let Some(cause) = ctx.postponed_release.take_if(|_| !ctx.ue.is_in_handover()) {
        ctx.release(cause);
    }
    procedures::handover::drop_void_keys(ctx.ue);
    reach_ue(&mut ctx);
    deregister_in_forbidden_area(&mut ctx);
    areas::end_user_plane(&mut ctx);
    subscription::send_commands(&mut ctx);
    request_location(&mut ctx, before);
    an_release::forget_if_empty(&mut ctx);
    ctx.out
}

/// Returns the connection of a RAN node that has the context of the UE. After PATH SWITCH REQUEST
/// it does once it has the answer (TS 38.413 10.6: the first returned message).
fn served_at(ue: &UeContext) -> Option<(AssocId, RanUeNgapId)> {
    let served = ue.connection.filter(|connection| connection.ran.is_set_up() && !ue.is_switching_path());
    served.map(|connection| (connection.assoc, connection.ran_id))
}

/// Requests location reports of a RAN node that has got the context of the UE in this step.
fn request_location(ctx: &mut StepContext<'_, '_>, before: Option<(AssocId, RanUeNgapId)>) {
    let now = served_at(ctx.ue);
    if ctx.env.config.ran.requests_location && now.is_some() && now != before {
        ctx.send(|c| access::location_reporting_control(c, false));
    }
}

/// Requests one report of the cell of a connected UE, which the connection then has. An idle UE is
/// not paged.
fn request_cell(ctx: &mut StepContext<'_, '_>) {
    if served_at(ctx.ue).is_some() && !ctx.ue.is_between_nodes() {
        ctx.send(|c| access::location_reporting_control(c, true));
    }
}

/// Deregisters the UE: at once if it is connected, else after it has been paged.
fn deregister(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<DeregistrationCause>) {
    if ctx.ue.is_registered() && ctx.ue.connection.is_some() && !ctx.ue.is_between_nodes() {
        abort_procedure(ctx);
        begin_deregistration(ctx, reregister, cause);
    } else if ctx.ue.is_registered() {
        (ctx.ue.pending.deregister, ctx.ue.pending.cause) = (Some(reregister), cause);
    }
}

/// Starts the deregistration of a UE, with the cause that its subscriber's record has, else with
/// that of the operator.
fn begin_deregistration(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<DeregistrationCause>) {
    match subscription::cause(ctx) {
        None => {
            let dialect = ctx.ue.dialect();
            let procedure = deregistration::by_network(ctx, reregister, cause.map(|cause| cause.value_in(dialect)));
            ctx.ue.procedure = procedure.map(Procedure::Deregistration);
        }
        cause => network_deregistration::begin_with(ctx, false, cause),
    }
}

/// Deregisters a UE that has come to a forbidden area without a message that could be refused.
fn deregister_in_forbidden_area(ctx: &mut StepContext<'_, '_>) {
    let is_set_up = ctx.ue.connection.is_some_and(|connection| connection.ran == RanContext::SetUp);
    let is_free = ctx.ue.procedure.is_none() && ctx.ue.handover.is_none() && ctx.ue.is_registered();
    if is_set_up && is_free && areas::forbidden_area_cause(ctx.ue, ctx.env.config).is_some() {
        begin_deregistration(ctx, false, None);
    }
}

/// Has the session part set up the default bearer of an attach, and answers the UE once it has.
fn set_up_attach_bearer(ctx: &mut StepContext<'_, '_>) {
    let request = match &mut ctx.ue.procedure {
        Some(Procedure::Registration(registering)) => registering.take_bearer_request(),
        _ => None,
    };
    if let Some(esm) = request {
        session::eps::connect(ctx, &esm);
    }
    registration::eps::proceed(ctx);
}

/// Returns the home slice of a UE, whose NFs serve it: the first S-NSSAI of its allowed NSSAI (the
/// default S-NSSAI if the UE requested none). Returns `None` while it is unknown; such a UE is
/// served by slice 0.
pub fn slice_of(ue: &UeContext) -> Option<Snssai> {
    ue.allowed.first().copied()
}

/// Executes pending work of the UE as soon as possible. An idle UE is paged.
fn reach_ue(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.is_served_by_nas() {
        // Its connection ends with its packets. In EPS, when a GUTI is changed is the network's
        // choice (TS 24.301 5.4.1.1).
        ctx.ue.pending.reallocate = false;
    }
    if !ctx.ue.pending.is_due() {
        return;
    }
    if !ctx.ue.is_registered() {
        ctx.ue.pending.take();
        return;
    }
    if ctx.ue.procedure.is_some() || ctx.ue.is_between_nodes() {
        return;
    }
    match ctx.ue.connection.map(|c| c.ran) {
        // The work waits for the next request of the UE, and packets in the buffer of the UPF (TS
        // 23.401 5.3.4.3, 4.3.22).
        // A new GUTI was for the connection that has ended.
        None if !ctx.ue.pending.needs_page() => ctx.ue.pending.reallocate = false,
        None if ctx.ue.reachability.sleeps() => on_unreachable(ctx),
        None => match paging::begin(ctx) {
            Some(paging) => ctx.ue.procedure = Some(Procedure::Paging(paging)),
            None => on_unreachable(ctx),
        },
        // The UE is paged once it is idle, and its bearers are set up with its context.
        Some(RanContext::SetUp) if ctx.ue.pending.deregister.is_none() && pending_bearers(ctx.ue) != 0 => {
            ctx.release(Cause::nas(CauseNas::normal_release));
        }
        Some(ran) if ran == RanContext::SetUp || ctx.ue.is_served_by_nas() => {
            let wanted = ctx.ue.pending.take();
            if let Some(reregister) = wanted.deregister {
                return begin_deregistration(ctx, reregister, wanted.cause);
            }
            if wanted.signalling {
                user_plane::step_all(ctx, || Input::Reachable);
            }
            let sessions = areas::permitted_sessions(ctx, wanted.sessions);
            user_plane::restore(ctx, sessions);
            let updating = configuration_update::begin(ctx, wanted);
            ctx.ue.procedure = updating.map(Procedure::ConfigurationUpdate);
        }
        Some(_) => {}
    }
}

fn pending_bearers(ue: &UeContext) -> u16 {
    user_plane::bearers_of_next_context(ue, |ebi| ue.pending.sessions >> ebi & 1 == 1)
}

/// Executes pending work that does not need the UE, which did not respond.
fn on_unreachable(ctx: &mut StepContext<'_, '_>) {
    if let Some(reregister) = ctx.ue.pending.deregister.take() {
        ctx.ue.pending.cause = None;
        deregistration::by_network(ctx, reregister, None);
    }
}

fn initial(ctx: &mut StepContext<'_, '_>, assoc: AssocId, message: InitialUeMessage) {
    on_new_connection(ctx, assoc, &message);
    handover::on_first_message(ctx, assoc.dialect(), &message.nas);
    match assoc.dialect() {
        Dialect::Nr => nas::initial(ctx, &message.nas),
        Dialect::Eps => emm::initial(ctx, &message.nas),
    }
    release_if_unneeded(ctx);
}

fn reject_for_congestion(ctx: &mut StepContext<'_, '_>, assoc: AssocId, message: InitialUeMessage) {
    on_new_connection(ctx, assoc, &message);
    handover::on_first_message(ctx, assoc.dialect(), &message.nas);
    match assoc.dialect() {
        Dialect::Nr => nas::on_rejected_for_congestion(ctx, &message.nas),
        Dialect::Eps => emm::on_rejected_for_congestion(ctx, &message.nas),
    }
    release_if_unneeded(ctx);
}

/// Rejects the first message of a UE for which no context is stored, as [`Event::Congested`] does.
/// `ltmsi` must belong to no UE; the RAN node sends it once more when it has released the
/// connection. Returns only NGAP messages and notes.
pub fn turn_away(ltmsi: Ltmsi, assoc: AssocId, message: InitialUeMessage, env: &mut Env<'_>) -> StepOutput {
    let mut ue = UeContext::new(ltmsi);
    let mut outcome = step(&mut ue, Event::Congested { assoc, message }, env);
    outcome.effects.retain(|effect| matches!(effect, Effect::Ngap { .. }));
    // Without a context, the end of the release is not awaited.
    outcome.notes.retain(|note| !matches!(note, Note::Started(Kind::Release)));
    outcome
}

/// Evicts an unauthenticated UE.
fn evict(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.identity.supi.is_some() || ctx.ue.is_registered() {
        return;
    }
    let registering = match ctx.ue.procedure.take() {
        Some(Procedure::Registration(registering)) => Some(registering),
        _ => None,
    };
    registration::evict(ctx, registering.as_deref());
}

/// Replaces the UE's connection by a new one.
fn on_new_connection(ctx: &mut StepContext<'_, '_>, assoc: AssocId, message: &InitialUeMessage) {
    user_plane::drop_deferred(ctx);
    procedures::handover::abort(ctx);
    if let Some(old) = ctx.ue.connection.take() {
        // The RAN node releases the UE's old connection (TS 23.502 4.2.6), unless UE CONTEXT
        // RELEASE COMMAND was already sent (SCTP streams can overtake each other). If the RAN node
        // itself has replaced the old connection by the new one, there is nothing to release.
        let replaced = (old.assoc, old.ran_id) == (assoc, message.ran_id);
        if !replaced && !matches!(old.ran, RanContext::Releasing { .. }) {
            let cause = Cause::radioNetwork(CauseRadioNetwork::release_due_to_5gc_generated_reason);
            ctx.effect(Effect::Ngap { assoc: old.assoc, pdu: access::context_release_command(&old, cause) });
        }
        abort_procedure(ctx);
        user_plane::step_all(ctx, || Input::Deactivate);
    }
    if let Some(Procedure::Paging(paging)) = ctx.ue.procedure.take_if(|p| matches!(p, Procedure::Paging(_))) {
        paging::on_response(ctx, paging);
        // TS 33.501 6.12.3. A registration assigns one itself.
        ctx.ue.pending.reallocate = true;
    }
    connect(ctx, assoc, message);
}

/// Releases a connection that no procedure needs.
fn release_if_unneeded(ctx: &mut StepContext<'_, '_>) {
    // The first message requested no procedure, so that the connection will not be used.
    let idle = ctx.ue.procedure.is_none() && ctx.ue.connection.is_some_and(|c| c.ran.is_none());
    if idle && !ctx.ue.is_served_by_nas() {
        ctx.release(Cause::radioNetwork(CauseRadioNetwork::release_due_to_5gc_generated_reason));
    }
}

fn connect(ctx: &mut StepContext<'_, '_>, assoc: AssocId, message: &InitialUeMessage) {
    let amf_id = ctx.next_amf_id(assoc);
    ctx.ue.connection = Some(Connection {
        assoc,
        ran_id: message.ran_id,
        amf_id,
        tai: message.tai,
        cell: message.cell,
        ran: RanContext::None,
    });
    ctx.ue.reachability.unreachable = false;
    ctx.ue.reachability.last_node = None;
    ctx.ue.reachability.recommended = Vec::new();
    ctx.ue.reachability.paging.ciot.ends_after_downlink = false;
}

/// Returns the fault of a message about a UE that does not exist; `None` if the message is to be
/// ignored.
pub fn unknown_ue(dialect: Dialect, pdu: &[u8]) -> Option<Box<Fault>> {
    let ids = access::ue_ids(dialect, pdu);
    match access::ue_message(dialect, pdu) {
        Ok((_, UeMessage::ReleaseComplete { .. } | UeMessage::Error(_) | UeMessage::NonDelivery)) => None,
        Ok(_) => {
            let cause = Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID);
            Some(Fault::logical("unknown-local-ue-ngap-id", cause, ids.0, ids.1))
        }
        Err(fault) => Some(fault),
    }
}

/// Returns the connection that a message names.
///
/// # Errors
///
/// Returns the fault of a message that names another connection (TS 38.413 10.6).
fn named_connection(
    ctx: &StepContext<'_, '_>,
    assoc: AssocId,
    amf_id: AmfUeNgapId,
    ran_id: Option<RanUeNgapId>,
) -> Result<Connection, Box<Fault>> {
    let raw = (Some(access::core_id(assoc.dialect(), amf_id)), ran_id.map(|id| id.0));
    let fault = |kind, cause| Fault::logical(kind, Cause::radioNetwork(cause), raw.0, raw.1);
    let connection = ctx.ue.connection.filter(|c| c.amf_id == amf_id && c.assoc == assoc);
    let Some(connection) = connection else {
        return Err(fault("unknown-local-ue-ngap-id", CauseRadioNetwork::unknown_local_UE_NGAP_ID));
    };
    if ran_id.is_some_and(|id| id != connection.ran_id) {
        return Err(fault("inconsistent-remote-ue-ngap-id", CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID));
    }
    Ok(connection)
}

fn ngap(ctx: &mut StepContext<'_, '_>, assoc: AssocId, amf_id: AmfUeNgapId, pdu: &[u8]) {
    let read = access::ue_message(assoc.dialect(), pdu);
    // The response to a release of an earlier connection, and messages about errors, are never
    // answered with an error.
    let silent =
        matches!(read, Ok((_, UeMessage::ReleaseComplete { .. } | UeMessage::Error(_) | UeMessage::NonDelivery)));
    let connected = read.as_ref().ok().and_then(|(ran_id, message)| ran_id.filter(|_| message.has_connection()));
    let usage = read.as_ref().ok().and_then(|(_, message)| access::usage_report(assoc.dialect(), message, pdu));
    let read = read.and_then(|(ran_id, message)| {
        let message = handover::on_other_connection(ctx, assoc, amf_id, ran_id, message)?;
        message.map(|message| named_connection(ctx, assoc, amf_id, ran_id).map(|_| message)).transpose()
    });
    if let (Ok(_), Some(usage)) = (&read, usage) {
        ue_message(ctx, usage);
    }
    match read {
        Ok(Some(message)) => ue_message(ctx, message),
        Ok(None) => {}
        Err(_) if silent => {}
        Err(fault) => {
            ctx.note(Note::fault(fault.kind));
            if let Some(ran_id) = connected.filter(|ran_id| fault.is_unknown_ue() && is_stale(ctx, assoc, *ran_id)) {
                ctx.effect(Effect::ReleaseStale { assoc, amf_id, ran_id });
            } else if let Some(pdu) = access::answer(assoc.dialect(), &fault) {
                ctx.effect(Effect::Ngap { assoc, pdu });
            }
        }
    }
}

/// Returns true if the RAN node has a connection of the UE that this context does not have. The
/// context is idle, or connected by another RAN node or under another ID of this one. An Error
/// Indication (TS 38.413 10.6) would leave the UE connected there without service. A connection
/// that this context has is kept, whatever AMF-UE-NGAP-ID the message has.
fn is_stale(ctx: &StepContext<'_, '_>, assoc: AssocId, ran_id: RanUeNgapId) -> bool {
    let is_it = |connection: &Connection| (connection.assoc, connection.ran_id) == (assoc, ran_id);
    let target = ctx.ue.handover.as_ref().and_then(procedures::handover::Handover::target);
    let serving = ctx.ue.connection.as_ref().is_some_and(is_it);
    let source = ctx.ue.source.as_ref().is_some_and(|source| is_it(&source.connection));
    !serving && !source && target.is_none_or(|target| (target.assoc, target.ran_id) != (assoc, Some(ran_id)))
}

fn ue_message(ctx: &mut StepContext<'_, '_>, message: UeMessage) {
    match message {
        UeMessage::Initial(_) | UeMessage::NonDelivery | UeMessage::Report => {}
        UeMessage::Location(location) => locate(ctx, location),
        UeMessage::LocationReportingFailure => ctx.note(Note::fault("location-reporting-failure")),
        UeMessage::HandoverRequired(request) => procedures::handover::on_required(ctx, &request),
        UeMessage::HandoverCancel { .. } => procedures::handover::cancelled(ctx),
        UeMessage::StatusTransfer(container) => procedures::handover::status_transfer(ctx, &container),
        // Messages of a handover target without a handover.
        UeMessage::PathSwitch(_)
        | UeMessage::HandoverAcknowledge { .. }
        | UeMessage::HandoverFailure { .. }
        | UeMessage::HandoverNotify { .. } => ctx.note(Note::fault("handover-out-of-place")),
        UeMessage::UplinkNas { nas, location } => {
            locate(ctx, location);
            uplink_nas(ctx, &nas);
        }
        UeMessage::ContextSetupResponse { set_up, failed } => {
            context_is_set_up(ctx);
            let before = ctx.ue.ambr();
            session::transfers(ctx, N2Sm::SetupResponse, set_up);
            session::transfers(ctx, N2Sm::SetupUnsuccessful, failed);
            change_ambr(ctx, before);
        }
        UeMessage::ContextSetupFailure { cause, failed } => {
            session::transfers(ctx, N2Sm::SetupUnsuccessful, failed);
            ctx.note(Note::fault("context-setup-failure"));
            abort_procedure(ctx);
            ctx.release(cause);
        }
        UeMessage::ReleaseRequest { cause } => an_release::on_request(ctx, cause),
        UeMessage::ReleaseComplete { recommended } => {
            on_connection_loss(ctx);
            if ctx.ue.is_registered() {
                ctx.ue.reachability.recommended = recommended;
            }
        }
        UeMessage::SessionSetupResponse { set_up, failed } => {
            session::transfers(ctx, N2Sm::SetupResponse, set_up);
            // E-RAB SETUP REQUEST had the UE-AMBR with the refused bearer.
            let before = ctx.ue.ambr();
            session::transfers(ctx, N2Sm::SetupUnsuccessful, failed);
            change_ambr(ctx, before);
        }
        UeMessage::SessionReleaseResponse { released } => session::transfers(ctx, N2Sm::ReleaseResponse, released),
        UeMessage::SessionModifyResponse { modified, failed } => {
            session::transfers(ctx, N2Sm::ModifyResponse, modified);
            // E-RAB MODIFY REQUEST had the UE-AMBR of the refused terms.
            let before = ctx.ue.ambr();
            session::transfers(ctx, N2Sm::ModifyUnsuccessful, failed);
            change_ambr(ctx, before);
        }
        UeMessage::SessionReleaseIndication { released } => {
            let before = ctx.ue.ambr();
            procedures::handover::released_by_ran(ctx, &released);
            detach_without_bearer(ctx);
            change_ambr(ctx, before);
        }
        UeMessage::ErabModification(request) => procedures::handover::modification::on_indication(ctx, &request),
        UeMessage::SessionModifyIndication(sessions) => {
            procedures::handover::modification::indicated_by_gnb(ctx, &sessions);
        }
        UeMessage::SessionNotify { notified, released } => session::on_ran_notify(ctx, notified, released),
        UeMessage::SecondaryRatUsage { uplink, downlink } => {
            ctx.note(Note::SecondaryRatUsage { uplink, downlink });
        }
        UeMessage::ContextModificationResponse => authentication::on_key_renewed(ctx),
        UeMessage::ContextModificationFailure { cause } => authentication::on_modification_failure(ctx, &cause),
        UeMessage::RadioCapability { own, other } => radio_capability(ctx, own, other),
        UeMessage::Error(cause) => {
            ctx.note(Note::fault("error-indication-received"));
            if cause.is_some_and(|c| is_unknown_ue(&c)) {
                on_connection_loss(ctx);
            }
        }
    }
}

/// Stores where the UE is.
fn locate(ctx: &mut StepContext<'_, '_>, location: Option<(Tai, NrCgi)>) {
    if let (Some((tai, cell)), Some(connection)) = (location, &mut ctx.ue.connection) {
        (connection.tai, connection.cell) = (tai, cell);
    }
}

/// Sends the RAN node a UE-AMBR that has changed: of a subscription, or in EPS of the bearers that
/// the eNB has not released (TS 23.401 4.7.3). If the RAN node fails to apply it, the UE keeps the
/// earlier one.
fn change_ambr(ctx: &mut StepContext<'_, '_>, before: Ambr) {
    let ambr = ctx.ue.ambr();
    let is_set_up = ctx.ue.connection.is_some_and(|c| c.ran == RanContext::SetUp);
    let remains = ambr.uplink_bps > 0 || ambr.downlink_bps > 0;
    if is_set_up && remains && ambr != before {
        ctx.send(|c| access::context_modification_request(c, ambr));
    }
}

/// Stores what the RAN node has learnt of the UE's radio. The RAN node asks the UE again if it gets
/// none.
///
/// It has up to 64 KiB in each coding. A RAN node asks a UE for it once the UE is accepted (TS
/// 38.413 8.14.1, TS 36.413 8.9.2). UEs that are not registered would fill the memory of others
/// with it.
fn radio_capability(ctx: &mut StepContext<'_, '_>, own: RadioCapability, other: RadioCapability) {
    if !ctx.ue.is_registered() {
        return ctx.note(Note::fault("radio-capability-out-of-place"));
    }
    let coding = ctx.ue.dialect();
    let ((own, is_cut), (other, is_other_cut)) = (own.limited(), other.limited());
    if is_cut || is_other_cut {
        ctx.note(Note::fault("limit"));
    }
    ctx.ue.store_radio_capability(coding, own, other);
}

/// Handles a NAS message of the connected UE.
fn uplink_nas(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    match ctx.ue.dialect() {
        Dialect::Nr => nas::uplink(ctx, nas),
        Dialect::Eps => emm::uplink(ctx, nas),
    }
    authentication::renew_keys(ctx);
}

/// The RAN node has set up the UE context.
fn context_is_set_up(ctx: &mut StepContext<'_, '_>) {
    let Some(connection) = &mut ctx.ue.connection else { return };
    if matches!(connection.ran, RanContext::SettingUp { .. }) {
        connection.ran = RanContext::SetUp;
        if let Some(Procedure::ServiceRequest(serving)) = ctx.ue.procedure.take_if(is_service_request) {
            service_request::on_context_setup(ctx, serving);
        }
    }
}

fn is_service_request(procedure: &mut Procedure) -> bool {
    matches!(procedure, Procedure::ServiceRequest(_))
}

/// Returns true if the cause means that the RAN node does not know the UE, which makes the
/// connection useless (TS 38.413 10.6).
fn is_unknown_ue(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::radioNetwork(
            CauseRadioNetwork::unknown_local_UE_NGAP_ID | CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID
        )
    )
}

/// Ends the procedure that needs the lost connection. The UE is idle afterwards.
fn on_connection_loss(ctx: &mut StepContext<'_, '_>) {
    user_plane::drop_deferred(ctx);
    procedures::handover::abort(ctx);
    abort_procedure(ctx);
    an_release::on_release(ctx);
}

/// Handles a message on N4: PFCP, or a G-PDU with a packet for the UE.
fn n4(ctx: &mut StepContext<'_, '_>, seid: Seid, message: &[u8]) {
    if gtpu::is_g_pdu(message) {
        return user_data::downlink(ctx, seid, message);
    }
    pfcp(ctx, seid, Input::Pfcp(message), Input::PfcpFromTarget(message));
}

fn pfcp<'a>(ctx: &mut StepContext<'_, '_>, seid: Seid, here: Input<'a>, elsewhere: Input<'a>) {
    match ctx.ue.sessions.iter().position(|s| s.seids().any(|own| own == seid)) {
        Some(at) if ctx.ue.sessions[at].pfcp.cp_seid == seid => user_plane::step(ctx, at, here),
        Some(at) => user_plane::step(ctx, at, elsewhere),
        None => ctx.note(Note::fault("pfcp-unknown-session")),
    }
}

fn on_upf_loss(ctx: &mut StepContext<'_, '_>, upf: SocketAddr) {
    for at in (0..ctx.ue.sessions.len()).rev() {
        let session = &ctx.ue.sessions[at];
        if session.pfcp.upf == upf {
            user_plane::step(ctx, at, Input::UpfLost);
        } else if session.relocation.as_ref().is_some_and(|other| other.pfcp.upf == upf) {
            user_plane::step(ctx, at, Input::TargetUpfLost);
        }
    }
}

fn deadline(ctx: &mut StepContext<'_, '_>) {
    let now = ctx.now();
    procedures::handover::on_deadline(ctx);
    for at in (0..ctx.ue.sessions.len()).rev() {
        if crate::smf::deadline(&ctx.ue.sessions[at]).is_some_and(|d| d <= now) {
            user_plane::step(ctx, at, Input::Deadline);
        }
    }
    match ctx.ue.procedure.take() {
        Some(Procedure::Registration(registering)) => {
            ctx.ue.procedure = registration::on_deadline(ctx, *registering).map(Procedure::registration);
        }
        Some(Procedure::Authentication(authenticating)) => authentication::on_deadline(ctx, *authenticating),
        Some(Procedure::ServiceRequest(serving)) if serving.deadline() <= now => service_request::on_setup_failure(ctx),
        Some(Procedure::Deregistration(deregistering)) => {
            ctx.ue.procedure = deregistration::on_deadline(ctx, deregistering).map(Procedure::Deregistration);
        }
        Some(Procedure::Paging(paging)) => match paging::on_deadline(ctx, paging) {
            Some(paging) => ctx.ue.procedure = Some(Procedure::Paging(paging)),
            None => on_unreachable(ctx),
        },
        Some(Procedure::ConfigurationUpdate(updating)) => {
            ctx.ue.procedure = configuration_update::on_deadline(ctx, updating).map(Procedure::ConfigurationUpdate);
        }
        other => ctx.ue.procedure = other,
    }
    match ctx.ue.connection.map(|c| c.ran) {
        Some(RanContext::SettingUp { deadline } | RanContext::Rekeying { deadline, .. }) if deadline <= now => {
            ctx.note(Note::fault("context-setup-timeout"));
            abort_procedure(ctx);
            ctx.release(registration::network_release());
        }
        Some(RanContext::Releasing { deadline }) if deadline <= now => {
            // The RAN node did not respond: a reset of the connection makes both sides agree that
            // it is released (TS 38.413 8.7.4).
            ctx.note(Note::fault("release-timeout"));
            ctx.send(|c| {
                let item = ResetItem { amf_id: Some(c.amf_id), ran_id: Some(c.ran_id) };
                let cause = Cause::radioNetwork(CauseRadioNetwork::release_due_to_5gc_generated_reason);
                ran::reset_part(c.assoc.dialect(), cause, &[item])
            });
            on_connection_loss(ctx);
        }
        _ => {}
    }
    if ctx.ue.reachability.expires.is_some_and(|e| e <= now) {
        ctx.ue.reachability.expires = None;
        let config = ctx.env.config;
        if !ctx.ue.is_registered() {
            ctx.ue.security = None;
        } else if !ctx.ue.on_reachability_expiry(config, now) {
            ctx.ue.procedure = None;
            // Implicit deregistration timer.
            deregistration::by_network(ctx, false, Some(GmmCause::ImplicitlyDeregistered.as_u8()));
        }
    }
}
