use crate::pfcp::ie::group;
use crate::pfcp::value::*;

group! {
    /// Create BAR (TS 29.244 table 7.5.2.6-1): how packets are buffered.
    CreateBar = 85 {
        /// The rule.
        bar_id: BarId,
        /// How long the control plane is not told yet.
        downlink_data_notification_delay: Option<DownlinkDataNotificationDelay>,
        /// How many packets to keep.
        suggested_buffering_packets_count: Option<SuggestedBufferingPacketsCount>,
    }

    /// Update BAR of a session modification (TS 29.244 table 7.5.4.11-1): what is absent stays.
    UpdateBar = 86 {
        /// The rule.
        bar_id: BarId,
        /// How long the control plane is not told yet.
        downlink_data_notification_delay: Option<DownlinkDataNotificationDelay>,
        /// How many packets to keep.
        suggested_buffering_packets_count: Option<SuggestedBufferingPacketsCount>,
    }

    /// Update BAR of a session report response (TS 29.244 table 7.5.9.2-1).
    UpdateBarInReport = 12 {
        /// The rule.
        bar_id: BarId,
        /// How long the control plane is not told yet.
        downlink_data_notification_delay: Option<DownlinkDataNotificationDelay>,
        /// How long to buffer, while the UE sleeps.
        dl_buffering_duration: Option<DlBufferingDuration>,
        /// How many packets to keep in that time.
        dl_buffering_suggested_packet_count: Option<DlBufferingSuggestedPacketCount>,
        /// How many packets to keep.
        suggested_buffering_packets_count: Option<SuggestedBufferingPacketsCount>,
    }

    /// Remove BAR (TS 29.244 table 7.5.4.12-1).
    RemoveBar = 87 {
        /// The rule.
        bar_id: BarId,
    }
}
