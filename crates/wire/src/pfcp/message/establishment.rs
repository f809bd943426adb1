use super::messages;
use crate::pfcp::Error;
use crate::pfcp::ie::{Element, List};
use crate::pfcp::rule::*;
use crate::pfcp::value::*;

messages! {
    /// Session Establishment Request (TS 29.244 7.5.2).
    session SessionEstablishmentRequest = SESSION_ESTABLISHMENT_REQUEST, check check_rules {
        /// Node ID of the control plane.
        node_id: NodeId,
        /// F-SEID of the session at the control plane.
        cp_f_seid: FSeid,
        /// Packet detection; at least one rule.
        create_pdrs: List<CreatePdr, 2>,
        /// Packet treatment; at least one rule.
        create_fars: List<CreateFar, 2>,
        create_urrs: List<CreateUrr, 1>,
        create_qers: List<CreateQer, 2>,
        create_bars: List<CreateBar, 1>,
        /// Sets of sessions that include this one, one for each kind of control plane.
        fq_csids: List<FqCsid, 1>,
        pdn_type: Option<PdnType>,
        /// Time without packets after which the UPF reports inactivity.
        user_plane_inactivity_timer: Option<UserPlaneInactivityTimer>,
        /// Identity of the subscriber.
        user_id: Option<UserId>,
        flags: Option<SeReqFlags>,
        apn_dnn: Option<ApnDnn>,
        snssai: Option<SliceId>,
        rat_type: Option<RatType>,
        /// Start time of the control plane.
        recovery_time_stamp: Option<RecoveryTimeStamp>,
    }

    /// Session Establishment Response (TS 29.244 7.5.3).
    session SessionEstablishmentResponse = SESSION_ESTABLISHMENT_RESPONSE, check check_f_seid {
        /// Node ID of the UPF.
        node_id: NodeId,
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
        /// F-SEID of the session at the UPF, if the session exists.
        up_f_seid: Option<FSeid>,
        /// Allocations of the UPF.
        created_pdrs: List<CreatedPdr, 2>,
        /// The rule that could not be applied.
        failed_rule_id: Option<FailedRuleId>,
    }
}

fn check_rules(request: &SessionEstablishmentRequest) -> Result<(), Error> {
    if request.create_pdrs.is_empty() {
        return Err(Error::missing(CreatePdr::ID));
    }
    if request.create_fars.is_empty() {
        return Err(Error::missing(CreateFar::ID));
    }
    Ok(())
}

fn check_f_seid(response: &SessionEstablishmentResponse) -> Result<(), Error> {
    if response.cause.is_accepted() && response.up_f_seid.is_none() {
        return Err(Error::conditional_missing(FSeid::ID));
    }
    Ok(())
}

impl SessionEstablishmentRequest {
    /// Creates a request without rules.
    pub fn new(node_id: NodeId, cp_f_seid: FSeid) -> Self {
        SessionEstablishmentRequest {
            node_id,
            cp_f_seid,
            create_pdrs: List::new(),
            create_fars: List::new(),
            create_urrs: List::new(),
            create_qers: List::new(),
            create_bars: List::new(),
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
    /// Creates the response that accepts a session.
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

    /// Creates the response that rejects a session.
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
