use super::messages;
use crate::pfcp::Error;
use crate::pfcp::ie::{Element, List};
use crate::pfcp::rule::*;
use crate::pfcp::value::*;

messages! {
    /// Session Establishment Request (TS 29.244 7.5.2).
    session SessionEstablishmentRequest = SESSION_ESTABLISHMENT_REQUEST, check has_rules {
        /// The control plane.
        node_id: NodeId,
        /// Its number of the session.
        cp_f_seid: FSeid,
        /// Which packets; at least one rule.
        create_pdrs: List<CreatePdr, 2>,
        /// What is done with them; at least one rule.
        create_fars: List<CreateFar, 2>,
        /// What is counted.
        create_urrs: List<CreateUrr, 1>,
        /// What is limited.
        create_qers: List<CreateQer, 2>,
        /// How is buffered.
        create_bar: Option<CreateBar>,
        /// The sets of sessions that it belongs to, one for each kind of control plane.
        fq_csids: List<FqCsid, 1>,
        /// The kind of session.
        pdn_type: Option<PdnType>,
        /// How long without packets until the UPF reports it.
        user_plane_inactivity_timer: Option<UserPlaneInactivityTimer>,
        /// The subscriber.
        user_id: Option<UserId>,
        /// Further indications.
        flags: Option<SeReqFlags>,
        /// The data network.
        apn_dnn: Option<ApnDnn>,
        /// The slice.
        snssai: Option<SliceId>,
        /// The radio access.
        rat_type: Option<RatType>,
        /// When the control plane started.
        recovery_time_stamp: Option<RecoveryTimeStamp>,
    }

    /// Session Establishment Response (TS 29.244 7.5.3).
    session SessionEstablishmentResponse = SESSION_ESTABLISHMENT_RESPONSE, check has_f_seid {
        /// The UPF.
        node_id: NodeId,
        /// Whether the session is there.
        cause: Cause,
        /// The element at fault.
        offending_ie: Option<OffendingIe>,
        /// The UPF's number of the session, if it is there.
        up_f_seid: Option<FSeid>,
        /// What the UPF chose.
        created_pdrs: List<CreatedPdr, 2>,
        /// The rule that could not be had.
        failed_rule_id: Option<FailedRuleId>,
    }
}

fn has_rules(request: &SessionEstablishmentRequest) -> Result<(), Error> {
    if request.create_pdrs.is_empty() {
        return Err(Error::missing(CreatePdr::ID));
    }
    if request.create_fars.is_empty() {
        return Err(Error::missing(CreateFar::ID));
    }
    Ok(())
}

fn has_f_seid(response: &SessionEstablishmentResponse) -> Result<(), Error> {
    if response.cause.is_accepted() && response.up_f_seid.is_none() {
        return Err(Error::conditional_missing(FSeid::ID));
    }
    Ok(())
}

impl SessionEstablishmentRequest {
    /// A request without rules yet.
    pub fn new(node_id: NodeId, cp_f_seid: FSeid) -> Self {
        SessionEstablishmentRequest {
            node_id,
            cp_f_seid,
            create_pdrs: List::new(),
            create_fars: List::new(),
            create_urrs: List::new(),
            create_qers: List::new(),
            create_bar: None,
            fq_csids: List::new(),
            pdn_type: None,
            user_plane_inactivity_timer: None,
            user_id: None,
            flags: None,
            apn_dnn: None,
            snssai: None,
            rat_type: None,
            recovery_time_stamp: None,
        }
    }
}

impl SessionEstablishmentResponse {
    /// The session is there.
    pub fn accepted(node_id: NodeId, up_f_seid: FSeid) -> Self {
        SessionEstablishmentResponse {
            node_id,
            cause: Cause::REQUEST_ACCEPTED,
            offending_ie: None,
            up_f_seid: Some(up_f_seid),
            created_pdrs: List::new(),
            failed_rule_id: None,
        }
    }

    /// The session is refused.
    pub fn rejected(node_id: NodeId, error: Error) -> Self {
        SessionEstablishmentResponse {
            node_id,
            cause: error.cause,
            offending_ie: error.offending_ie.map(OffendingIe),
            up_f_seid: None,
            created_pdrs: List::new(),
            failed_rule_id: None,
        }
    }
}
