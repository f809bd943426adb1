use super::messages;
use crate::pfcp::Error;
use crate::pfcp::ie::{Element, List, group};
use crate::pfcp::rule::{UpdateBarInReport, UsageReport};
use crate::pfcp::value::*;

group! {
    /// Downlink Data Report (TS 29.244 table 7.5.8.2-1): packets arrived for an idle UE.
    DownlinkDataReport = 83 {
        /// PDRs that matched the packets.
        pdr_ids: List<PdrId, 2>,
        /// Properties of the first packets.
        service_information: List<DownlinkDataServiceInformation, 2>,
    }

    /// Error Indication Report (TS 29.244 table 7.5.8.4-1): a GTP-U peer does not have a tunnel.
    ErrorIndicationReport = 99 {
        /// Tunnel ends that the peer does not have.
        remote_f_teids: List<FTeid, 1>,
    }
}

messages! {
    /// Session Report Request (TS 29.244 7.5.8), by the UPF.
    #[derive(Default)]
    session SessionReportRequest = SESSION_REPORT_REQUEST, check check_reported_elements {
        report_type: ReportType,
        downlink_data: Option<DownlinkDataReport>,
        usage_reports: Vec<UsageReport>,
        error_indication: Option<ErrorIndicationReport>,
        flags: Option<SrReqFlags>,
    }

    /// Session Report Response (TS 29.244 7.5.9), by the control plane.
    session SessionReportResponse = SESSION_REPORT_RESPONSE {
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
        /// New buffering parameters of the session.
        update_bar: Option<UpdateBarInReport>,
        /// Treatment of buffered packets.
        flags: Option<SrRspFlags>,
        /// New F-SEID of the session at the control plane, if it changes.
        cp_f_seid: Option<FSeid>,
    }
}

fn check_reported_elements(request: &SessionReportRequest) -> Result<(), Error> {
    let reports = |kind| request.report_type.contains(kind);
    if reports(ReportType::DLDR) && request.downlink_data.is_none() {
        return Err(Error::conditional_missing(DownlinkDataReport::ID));
    }
    if reports(ReportType::USAR) && request.usage_reports.is_empty() {
        return Err(Error::conditional_missing(UsageReport::ID));
    }
    if reports(ReportType::ERIR) && request.error_indication.is_none() {
        return Err(Error::conditional_missing(ErrorIndicationReport::ID));
    }
    Ok(())
}

impl SessionReportResponse {
    /// Creates a response with only a cause.
    pub fn new(cause: Cause) -> Self {
        SessionReportResponse { cause, offending_ie: None, update_bar: None, flags: None, cp_f_seid: None }
    }
}

impl From<Error> for SessionReportResponse {
    fn from(error: Error) -> Self {
        SessionReportResponse {
            offending_ie: error.offending_ie.map(OffendingIe),
            ..SessionReportResponse::new(error.cause)
        }
    }
}
