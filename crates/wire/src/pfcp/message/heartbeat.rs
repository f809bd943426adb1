use super::messages;
use crate::pfcp::value::RecoveryTimeStamp;

messages! {
    /// Heartbeat Request (TS 29.244 7.4.2.1).
    node HeartbeatRequest = HEARTBEAT_REQUEST {
        /// Start time of the sender.
        recovery_time_stamp: RecoveryTimeStamp,
    }

    /// Heartbeat Response (TS 29.244 7.4.2.2).
    node HeartbeatResponse = HEARTBEAT_RESPONSE {
        /// Start time of the sender.
        recovery_time_stamp: RecoveryTimeStamp,
    }

    /// Version Not Supported Response (TS 29.244 7.4.4.7); its header contains the supported
    /// version.
    node VersionNotSupportedResponse = VERSION_NOT_SUPPORTED_RESPONSE {}
}
