use super::messages;
use crate::pfcp::Error;
use crate::pfcp::ie::List;
use crate::pfcp::rule::*;
use crate::pfcp::value::*;

messages! {
    /// Session Modification Request (TS 29.244 7.5.4). Absent elements leave the session unchanged.
    #[derive(Default)]
    session SessionModificationRequest = SESSION_MODIFICATION_REQUEST {
        /// New F-SEID of the session at the control plane, if it changes.
        cp_f_seid: Option<FSeid>,
        remove_pdrs: List<RemovePdr, 1>,
        remove_fars: List<RemoveFar, 1>,
        remove_urrs: List<RemoveUrr, 1>,
        remove_qers: List<RemoveQer, 1>,
        remove_bars: List<RemoveBar, 1>,
        create_pdrs: Vec<CreatePdr>,
        create_fars: Vec<CreateFar>,
        create_urrs: Vec<CreateUrr>,
        create_qers: Vec<CreateQer>,
        create_bars: List<CreateBar, 1>,
        update_pdrs: Vec<UpdatePdr>,
        update_fars: List<UpdateFar, 2>,
        update_urrs: Vec<UpdateUrr>,
        update_qers: Vec<UpdateQer>,
        update_bars: List<UpdateBar, 1>,
        flags: Option<SmReqFlags>,
        /// URRs to report at once.
        query_urrs: List<QueryUrr, 2>,
        /// Time without packets after which the UPF reports inactivity.
        user_plane_inactivity_timer: Option<UserPlaneInactivityTimer>,
        /// Reference number of this query, which the reports repeat.
        query_urr_reference: Option<QueryUrrReference>,
        /// New Node ID of the control plane, if it changes.
        node_id: Option<NodeId>,
    }

    /// Session Modification Response (TS 29.244 7.5.5).
    session SessionModificationResponse = SESSION_MODIFICATION_RESPONSE {
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
        /// Allocations of the UPF.
        created_pdrs: List<CreatedPdr, 1>,
        /// Usage of queried and removed URRs.
        usage_reports: Vec<UsageReportInModification>,
        /// The rule that could not be applied.
        failed_rule_id: Option<FailedRuleId>,
        /// Announces further usage reports in session reports.
        additional_usage_reports: Option<AdditionalUsageReportsInformation>,
    }
}

impl SessionModificationResponse {
    /// Creates a response with only a cause.
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
