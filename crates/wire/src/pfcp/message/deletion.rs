use super::messages;
use crate::pfcp::Error;
use crate::pfcp::rule::UsageReportInDeletion;
use crate::pfcp::value::*;

messages! {
    /// Session Deletion Request (TS 29.244 7.5.6).
    #[derive(Default)]
    session SessionDeletionRequest = SESSION_DELETION_REQUEST {}

    /// Session Deletion Response (TS 29.244 7.5.7).
    session SessionDeletionResponse = SESSION_DELETION_RESPONSE {
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
        /// Usage until the deletion.
        usage_reports: Vec<UsageReportInDeletion>,
        /// Announces further usage reports in session reports.
        additional_usage_reports: Option<AdditionalUsageReportsInformation>,
    }
}

impl SessionDeletionResponse {
    /// Creates a response with only a cause.
    pub fn new(cause: Cause) -> Self {
        SessionDeletionResponse { cause, offending_ie: None, usage_reports: Vec::new(), additional_usage_reports: None }
    }
}

impl From<Error> for SessionDeletionResponse {
    fn from(error: Error) -> Self {
        SessionDeletionResponse {
            offending_ie: error.offending_ie.map(OffendingIe),
            ..SessionDeletionResponse::new(error.cause)
        }
    }
}
