use crate::pfcp::ie::group;
use crate::pfcp::value::*;

group! {
    /// Create BAR (TS 29.244 table 7.5.2.6-1): parameters of packet buffering.
    CreateBar = 85 {
        bar_id: BarId,
        /// Delay of the report to the control plane.
        downlink_data_notification_delay: Option<DownlinkDataNotificationDelay>,
        /// Number of packets to buffer.
        suggested_buffering_packets_count: Option<SuggestedBufferingPacketsCount>,
    }

    /// Update BAR of a session modification (TS 29.244 table 7.5.4.11-1). Absent elements are
    /// unchanged.
    UpdateBar = 86 {
        bar_id: BarId,
        /// Delay of the report to the control plane.
        downlink_data_notification_delay: Option<DownlinkDataNotificationDelay>,
        /// Number of packets to buffer.
        suggested_buffering_packets_count: Option<SuggestedBufferingPacketsCount>,
    }

    /// Update BAR of a session report response (TS 29.244 table 7.5.9.2-1).
    UpdateBarInReport = 12 {
        bar_id: BarId,
        /// Delay of the report to the control plane.
        downlink_data_notification_delay: Option<DownlinkDataNotificationDelay>,
        /// Time to buffer, while the UE is unreachable.
        dl_buffering_duration: Option<DlBufferingDuration>,
        /// Number of packets to buffer in that time.
        dl_buffering_suggested_packet_count: Option<DlBufferingSuggestedPacketCount>,
        /// Number of packets to buffer.
        suggested_buffering_packets_count: Option<SuggestedBufferingPacketsCount>,
    }

    /// Remove BAR (TS 29.244 table 7.5.4.12-1).
    RemoveBar = 87 {
        bar_id: BarId,
    }
}
