use super::messages;
use crate::pfcp::ie::{List, group};
use crate::pfcp::value::*;

group! {
    /// User Plane Path Failure Report (TS 29.244 table 7.4.5.1.2-1).
    UserPlanePathFailureReport = 102 {
        /// GTP-U peers that do not respond.
        remote_peers: List<RemoteGtpuPeer, 2>,
    }

    /// User Plane Path Recovery Report (TS 29.244 table 7.4.5.1.3-1).
    UserPlanePathRecoveryReport = 187 {
        /// GTP-U peers that respond again.
        remote_peers: List<RemoteGtpuPeer, 2>,
    }
}

messages! {
    /// Node Report Request (TS 29.244 7.4.5.1).
    node NodeReportRequest = NODE_REPORT_REQUEST {
        /// Node ID of the sender.
        node_id: NodeId,
        report_type: NodeReportType,
        path_failure: Option<UserPlanePathFailureReport>,
        path_recovery: Option<UserPlanePathRecoveryReport>,
    }

    /// Node Report Response (TS 29.244 7.4.5.2).
    node NodeReportResponse = NODE_REPORT_RESPONSE {
        /// Node ID of the sender.
        node_id: NodeId,
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
    }

    /// Session Set Deletion Request (TS 29.244 7.4.6.1).
    node SessionSetDeletionRequest = SESSION_SET_DELETION_REQUEST {
        /// Node ID of the sender.
        node_id: NodeId,
        /// Sets whose sessions must be deleted.
        fq_csids: Vec<FqCsid>,
    }

    /// Session Set Deletion Response (TS 29.244 7.4.6.2).
    node SessionSetDeletionResponse = SESSION_SET_DELETION_RESPONSE {
        /// Node ID of the sender.
        node_id: NodeId,
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
    }

    /// Session Set Modification Response (TS 29.244 7.4.7.2).
    node SessionSetModificationResponse = SESSION_SET_MODIFICATION_RESPONSE {
        /// Node ID of the sender.
        node_id: NodeId,
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
    }

    /// PFD Management Response (TS 29.244 7.4.3.2).
    node PfdManagementResponse = PFD_MANAGEMENT_RESPONSE {
        cause: Cause,
        /// Type of the faulty element.
        offending_ie: Option<OffendingIe>,
    }
}
