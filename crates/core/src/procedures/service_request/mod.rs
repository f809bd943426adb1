//! UE-triggered service request (TS 24.501 5.6.1, TS 23.502 4.2.3.2): from idle to connected, with the user plane of
//! the sessions that have data.

pub mod nr;

use crate::n2::{Cause, SessionSetup};
use crate::procedures::common::{context_setup, smf_requests, user_plane};
use crate::sba::PendingServiceAccept;
use crate::step::{Kind, Note, StepContext};
use serde::{Deserialize, Serialize};
use vireo_types::Instant;
use vireo_wire::nas::GmmCause;
use vireo_wire::ngap::CauseNas;

/// What a Service Request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Sessions with uplink data, a bit each.
    pub uplink_data: u16,
    /// Sessions that the UE has, a bit each, if it said so.
    pub session_status: Option<u16>,
}

/// A service request in progress: accepted, and the RAN has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRequestPending {
    started: Instant,
    deadline: Instant,
}

impl ServiceRequestPending {
    /// When it is given up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// A Service Request of a registered UE, verified.
pub fn begin(turn: &mut StepContext<'_, '_>, request: Request) -> Option<ServiceRequestPending> {
    turn.note(Note::Started(Kind::ServiceRequest));
    let started = turn.received_at();
    turn.ue.expires = None;
    context_setup::begin(turn);
    if let Some(status) = request.session_status {
        user_plane::drop_unknown(turn, status);
    }
    // What the UE was paged for comes with what it asks for (TS 23.502 4.2.3.2 step 4).
    let wanted = request.uplink_data | std::mem::take(&mut turn.ue.wanted.sessions);
    let sessions = user_plane::activate(turn, |psi| wanted >> psi & 1 == 1);
    match smf_requests::activate(turn, wanted) {
        0 => accept(turn, request, sessions),
        waiting => turn.ue.chain.pending_accept = Some(PendingServiceAccept { request, waiting, items: Vec::new() }),
    }
    let deadline = turn.now() + turn.env.config.timers.ran_response;
    Some(ServiceRequestPending { started, deadline })
}

/// The UE and the RAN get their answers.
fn accept(turn: &mut StepContext<'_, '_>, request: Request, sessions: Vec<SessionSetup>) {
    let back: u16 = sessions.iter().fold(0, |bits, s| bits | 1 << s.psi);
    let nas = nr::accept(turn, request, back);
    context_setup::set_up(turn, nas, sessions);
}

/// The SMF has answered for a session whose user plane the UE wants back, with this for the RAN if it comes back (TS 23.502
/// 4.2.3.2 step 11). Whether that was waited for; the UE is answered when all have.
pub fn smf_answered(turn: &mut StepContext<'_, '_>, psi: u8, transfer: Option<Vec<u8>>) -> bool {
    let Some(accepting) = &mut turn.ue.chain.pending_accept else { return false };
    if accepting.waiting >> psi & 1 == 0 {
        return false;
    }
    accepting.waiting &= !(1 << psi);
    accepting.items.extend(transfer.map(|transfer| (psi, transfer)));
    smfs_have_answered(turn);
    true
}

/// The UE and the RAN get the answers that have waited for SMFs elsewhere: not while the UE is on its way from one RAN node to
/// another, as it would not hear the node that it has left.
pub fn smfs_have_answered(turn: &mut StepContext<'_, '_>) {
    if turn.ue.is_between_nodes() {
        return;
    }
    if let Some(PendingServiceAccept { request, items, .. }) =
        turn.ue.chain.pending_accept.take_if(|accepting| accepting.waiting == 0)
    {
        let setup = |(psi, transfer)| {
            let snssai = turn.ue.chain.by_psi(psi)?.snssai;
            Some(SessionSetup { psi, snssai, nas: None, transfer })
        };
        let sessions = items.into_iter().filter_map(setup).collect();
        accept(turn, request, sessions);
    }
}

/// The RAN has set the context up: the UE is served.
pub fn served(turn: &mut StepContext<'_, '_>, serving: ServiceRequestPending) {
    turn.note(Note::Succeeded(Kind::ServiceRequest, serving.started));
}

/// The RAN did not, or the connection is gone.
pub fn failed(turn: &mut StepContext<'_, '_>) {
    turn.ue.chain.pending_accept = None;
    turn.note(Note::Failed(Kind::ServiceRequest, 0));
}

/// A Service Request that cannot be served: the cause says what the UE does about it (5.6.1.5).
pub fn reject(turn: &mut StepContext<'_, '_>, cause: GmmCause) {
    turn.note(Note::Started(Kind::ServiceRequest));
    turn.note(Note::Failed(Kind::ServiceRequest, cause.as_u8()));
    nr::send_reject(turn, cause);
    turn.release(Cause::nas(CauseNas::normal_release));
}
