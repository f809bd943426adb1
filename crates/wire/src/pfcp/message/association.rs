use super::messages;
use crate::pfcp::ie::{List, group};
use crate::pfcp::value::*;

group! {
    /// Session Retention Information (TS 29.244 table 7.4.4.1-2).
    SessionRetentionInformation = 183 {
        /// The addresses of the control plane whose sessions are kept; all if there are none.
        addresses: List<CpPfcpEntityIpAddress, 2>,
    }
}

messages! {
    /// Association Setup Request (TS 29.244 7.4.4.1).
    node AssociationSetupRequest = ASSOCIATION_SETUP_REQUEST {
        /// The sender.
        node_id: NodeId,
        /// When it started.
        recovery_time_stamp: RecoveryTimeStamp,
        /// What it can, if it is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// What it can, if it is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
        /// Sessions of an association that was there before live on.
        session_retention: Option<SessionRetentionInformation>,
    }

    /// Association Setup Response (TS 29.244 7.4.4.2).
    node AssociationSetupResponse = ASSOCIATION_SETUP_RESPONSE {
        /// The sender.
        node_id: NodeId,
        /// Whether there is an association now.
        cause: Cause,
        /// When the sender started.
        recovery_time_stamp: RecoveryTimeStamp,
        /// What it can, if it is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// What it can, if it is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
        /// Further indications.
        flags: Option<AsRspFlags>,
    }

    /// Association Update Request (TS 29.244 7.4.4.3).
    node AssociationUpdateRequest = ASSOCIATION_UPDATE_REQUEST {
        /// The sender.
        node_id: NodeId,
        /// What the sender can now, if it is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// What the sender can now, if it is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
        /// Whether a UPF asks for the association's release.
        release_requested: Option<AssociationReleaseRequested>,
        /// How long sessions may live on until then.
        graceful_release_period: Option<GracefulReleasePeriod>,
        /// Further indications.
        flags: Option<AuReqFlags>,
    }

    /// Association Update Response (TS 29.244 7.4.4.4).
    node AssociationUpdateResponse = ASSOCIATION_UPDATE_RESPONSE {
        /// The sender.
        node_id: NodeId,
        /// Whether it took the update.
        cause: Cause,
        /// What it can, if it is a UPF.
        up_function_features: Option<UpFunctionFeatures>,
        /// What it can, if it is a control plane.
        cp_function_features: Option<CpFunctionFeatures>,
    }

    /// Association Release Request (TS 29.244 7.4.4.5).
    node AssociationReleaseRequest = ASSOCIATION_RELEASE_REQUEST {
        /// The sender.
        node_id: NodeId,
    }

    /// Association Release Response (TS 29.244 7.4.4.6).
    node AssociationReleaseResponse = ASSOCIATION_RELEASE_RESPONSE {
        /// The sender.
        node_id: NodeId,
        /// Whether the association is gone.
        cause: Cause,
    }
}
