use super::messages;
use crate::pfcp::Error;
use crate::pfcp::ie::List;
use crate::pfcp::rule::*;
use crate::pfcp::value::*;

messages! {
    /// Session Modification Request (TS 29.244 7.5.4): what it does not name stays.
    #[derive(Default)]
    session SessionModificationRequest = SESSION_MODIFICATION_REQUEST {
        /// The control plane's number of the session, if it changes.
        cp_f_seid: Option<FSeid>,
        /// Rules to remove.
        remove_pdrs: List<RemovePdr, 1>,
        /// Rules to remove.
        remove_fars: List<RemoveFar, 1>,
        /// Rules to remove.
        remove_urrs: List<RemoveUrr, 1>,
        /// Rules to remove.
        remove_qers: List<RemoveQer, 1>,
        /// Rule to remove.
        remove_bar: Option<RemoveBar>,
        /// Rules to make.
        create_pdrs: Vec<CreatePdr>,
        /// Rules to make.
        create_fars: Vec<CreateFar>,
        /// Rules to make.
        create_urrs: Vec<CreateUrr>,
        /// Rules to make.
        create_qers: Vec<CreateQer>,
        /// Rule to make.
        create_bar: Option<CreateBar>,
        /// Rules to change.
        update_pdrs: Vec<UpdatePdr>,
        /// Rules to change.
        update_fars: List<UpdateFar, 2>,
        /// Rules to change.
        update_urrs: Vec<UpdateUrr>,
        /// Rules to change.
        update_qers: Vec<UpdateQer>,
        /// Rule to change.
        update_bar: Option<UpdateBar>,
        /// Further indications.
        flags: Option<SmReqFlags>,
        /// Rules to report now.
        query_urrs: List<QueryUrr, 2>,
        /// How long without packets until the UPF reports it.
        user_plane_inactivity_timer: Option<UserPlaneInactivityTimer>,
        /// The number of this query.
        query_urr_reference: Option<QueryUrrReference>,
        /// The control plane, if it changes.
        node_id: Option<NodeId>,
    }

    /// Session Modification Response (TS 29.244 7.5.5).
    session SessionModificationResponse = SESSION_MODIFICATION_RESPONSE {
        /// Whether it is done.
        cause: Cause,
        /// The element at fault.
        offending_ie: Option<OffendingIe>,
        /// What the UPF chose.
        created_pdrs: List<CreatedPdr, 1>,
        /// What was counted, if asked for or if a rule is gone.
        usage_reports: Vec<UsageReportInModification>,
        /// The rule that could not be had.
        failed_rule_id: Option<FailedRuleId>,
        /// Whether more reports follow in session reports.
        additional_usage_reports: Option<AdditionalUsageReportsInformation>,
    }
}

impl SessionModificationResponse {
    /// A response that says no more than its cause.
    pub fn new(cause: Cause) -> Self {
        SessionModificationResponse {
            cause,
            offending_ie: None,
            created_pdrs: List::new(),
            usage_reports: Vec::new(),
            failed_rule_id: None,
            additional_usage_reports: None,
        }
    }
}

impl From<Error> for SessionModificationResponse {
    fn from(error: Error) -> Self {
        SessionModificationResponse {
            offending_ie: error.offending_ie.map(OffendingIe),
            ..SessionModificationResponse::new(error.cause)
        }
    }
}
