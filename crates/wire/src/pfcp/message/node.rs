use super::messages;
use crate::pfcp::ie::{List, group};
use crate::pfcp::value::*;

group! {
    /// User Plane Path Failure Report (TS 29.244 table 7.4.5.1.2-1).
    UserPlanePathFailureReport = 102 {
        /// The GTP-U peers that answer no more.
        remote_peers: List<RemoteGtpuPeer, 2>,
    }

    /// User Plane Path Recovery Report (TS 29.244 table 7.4.5.1.3-1).
    UserPlanePathRecoveryReport = 187 {
        /// The GTP-U peers that answer again.
        remote_peers: List<RemoteGtpuPeer, 2>,
    }
}

messages! {
    /// Node Report Request (TS 29.244 7.4.5.1).
    node NodeReportRequest = NODE_REPORT_REQUEST {
        /// The sender.
        node_id: NodeId,
        /// What is reported.
        report_type: NodeReportType,
        /// Which paths failed.
        path_failure: Option<UserPlanePathFailureReport>,
        /// Which paths are there again.
        path_recovery: Option<UserPlanePathRecoveryReport>,
    }

    /// Node Report Response (TS 29.244 7.4.5.2).
    node NodeReportResponse = NODE_REPORT_RESPONSE {
        /// The sender.
        node_id: NodeId,
        /// Whether it took the report.
        cause: Cause,
        /// The element at fault.
        offending_ie: Option<OffendingIe>,
    }

    /// Session Set Deletion Request (TS 29.244 7.4.6.1).
    node SessionSetDeletionRequest = SESSION_SET_DELETION_REQUEST {
        /// The sender.
        node_id: NodeId,
        /// The sets whose sessions end.
        fq_csids: Vec<FqCsid>,
    }

    /// Session Set Deletion Response (TS 29.244 7.4.6.2).
    node SessionSetDeletionResponse = SESSION_SET_DELETION_RESPONSE {
        /// The sender.
        node_id: NodeId,
        /// Whether the sessions are gone.
        cause: Cause,
        /// The element at fault.
        offending_ie: Option<OffendingIe>,
    }

    /// Session Set Modification Response (TS 29.244 7.4.7.2).
    node SessionSetModificationResponse = SESSION_SET_MODIFICATION_RESPONSE {
        /// The sender.
        node_id: NodeId,
        /// Whether the sessions have changed.
        cause: Cause,
        /// The element at fault.
        offending_ie: Option<OffendingIe>,
    }

    /// PFD Management Response (TS 29.244 7.4.3.2).
    node PfdManagementResponse = PFD_MANAGEMENT_RESPONSE {
        /// Whether the descriptions were taken.
        cause: Cause,
        /// The element at fault.
        offending_ie: Option<OffendingIe>,
    }
}
