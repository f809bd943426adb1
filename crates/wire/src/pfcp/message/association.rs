use super::messages;
use crate::pfcp::ie::{List, group};
use crate::pfcp::value::*;

group! {
    /// Session Retention Information (TS 29.244 table 7.4.4.1-2).
    SessionRetentionInformation = 183 {
        /// Addresses of the control plane whose sessions are retained; empty means all.
        addresses: List<CpPfcpEntityIpAddress, 2>,
    }
}

messages! {
    /// Association Setup Request (TS 29.244 7.4.4.1).
    node AssociationSetupRequest = ASSOCIATION_SETUP_REQUEST {
        /// Node ID of the sender.
        node_id: NodeId,
        /// Start time of the sender.
        recovery_time_stamp: RecoveryTimeStamp,
        /// Present if the sender is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// Present if the sender is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
        /// Requests to retain the sessions of an existing association.
        session_retention: Option<SessionRetentionInformation>,
    }

    /// Association Setup Response (TS 29.244 7.4.4.2).
    node AssociationSetupResponse = ASSOCIATION_SETUP_RESPONSE {
        /// Node ID of the sender.
        node_id: NodeId,
        cause: Cause,
        /// Start time of the sender.
        recovery_time_stamp: RecoveryTimeStamp,
        /// Present if the sender is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// Present if the sender is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
        flags: Option<AsRspFlags>,
    }

    /// Association Update Request (TS 29.244 7.4.4.3).
    node AssociationUpdateRequest = ASSOCIATION_UPDATE_REQUEST {
        /// Node ID of the sender.
        node_id: NodeId,
        /// New features, if the sender is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// New features, if the sender is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
        /// Request of a UPF to release the association.
        release_requested: Option<AssociationReleaseRequested>,
        /// Time for which sessions may continue until the release.
        graceful_release_period: Option<GracefulReleasePeriod>,
        flags: Option<AuReqFlags>,
    }

    /// Association Update Response (TS 29.244 7.4.4.4).
    node AssociationUpdateResponse = ASSOCIATION_UPDATE_RESPONSE {
        /// Node ID of the sender.
        node_id: NodeId,
        cause: Cause,
        /// Present if the sender is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// Present if the sender is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
    }

    /// Association Release Request (TS 29.244 7.4.4.5).
    node AssociationReleaseRequest = ASSOCIATION_RELEASE_REQUEST {
        /// Node ID of the sender.
        node_id: NodeId,
    }

    /// Association Release Response (TS 29.244 7.4.4.6).
    node AssociationReleaseResponse = ASSOCIATION_RELEASE_RESPONSE {
        /// Node ID of the sender.
        node_id: NodeId,
        cause: Cause,
    }
}
