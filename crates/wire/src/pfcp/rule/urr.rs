use crate::pfcp::Error;
use crate::pfcp::ie::{Element, List, group};
use crate::pfcp::value::*;

group! {
    /// Create URR (TS 29.244 table 7.5.2.4-1): measurement of packets, and its reports.
    CreateUrr = 6 {
        urr_id: UrrId,
        /// Measured quantities: duration, volume, events.
        measurement_method: MeasurementMethod,
        /// Events that trigger a report.
        reporting_triggers: ReportingTriggers,
        /// Interval of periodic reports.
        measurement_period: Option<MeasurementPeriod>,
        /// Volume that triggers a report.
        volume_threshold: Option<VolumeThreshold>,
        /// Volume after which packets are stopped.
        volume_quota: Option<VolumeQuota>,
        /// Duration that triggers a report.
        time_threshold: Option<TimeThreshold>,
        /// Duration after which packets are stopped.
        time_quota: Option<TimeQuota>,
        /// Idle time that triggers a report.
        quota_holding_time: Option<QuotaHoldingTime>,
        /// Dropped downlink traffic that triggers a report.
        dropped_dl_traffic_threshold: Option<DroppedDlTrafficThreshold>,
        /// Time for which a quota is valid.
        quota_validity_time: Option<QuotaValidityTime>,
        /// Time at which the measurement restarts with the subsequent thresholds.
        monitoring_time: Option<MonitoringTime>,
        /// Volume threshold after the monitoring time.
        subsequent_volume_threshold: Option<SubsequentVolumeThreshold>,
        /// Time threshold after the monitoring time.
        subsequent_time_threshold: Option<SubsequentTimeThreshold>,
        /// Volume quota after the monitoring time.
        subsequent_volume_quota: Option<SubsequentVolumeQuota>,
        /// Time quota after the monitoring time.
        subsequent_time_quota: Option<SubsequentTimeQuota>,
        /// Idle time that stops time metering.
        inactivity_detection_time: Option<InactivityDetectionTime>,
        /// URRs whose reports trigger a report of this URR.
        linked_urr_ids: List<LinkedUrrId, 2>,
        /// Details of the measurement.
        measurement_information: Option<MeasurementInformation>,
        /// FAR for packets after a quota is exhausted.
        far_id_for_quota_action: Option<FarId>,
        /// Maximum number of reports.
        number_of_reports: Option<NumberOfReports>,
    }

    /// Update URR (TS 29.244 table 7.5.4.4-1). Absent elements are unchanged.
    UpdateUrr = 13 {
        urr_id: UrrId,
        /// Measured quantities: duration, volume, events.
        measurement_method: Option<MeasurementMethod>,
        /// Events that trigger a report.
        reporting_triggers: Option<ReportingTriggers>,
        /// Interval of periodic reports.
        measurement_period: Option<MeasurementPeriod>,
        /// Volume that triggers a report.
        volume_threshold: Option<VolumeThreshold>,
        /// Volume after which packets are stopped.
        volume_quota: Option<VolumeQuota>,
        /// Duration that triggers a report.
        time_threshold: Option<TimeThreshold>,
        /// Duration after which packets are stopped.
        time_quota: Option<TimeQuota>,
        /// Idle time that triggers a report.
        quota_holding_time: Option<QuotaHoldingTime>,
        /// Dropped downlink traffic that triggers a report.
        dropped_dl_traffic_threshold: Option<DroppedDlTrafficThreshold>,
        /// Time for which a quota is valid.
        quota_validity_time: Option<QuotaValidityTime>,
        /// Time at which the measurement restarts with the subsequent thresholds.
        monitoring_time: Option<MonitoringTime>,
        /// Volume threshold after the monitoring time.
        subsequent_volume_threshold: Option<SubsequentVolumeThreshold>,
        /// Time threshold after the monitoring time.
        subsequent_time_threshold: Option<SubsequentTimeThreshold>,
        /// Volume quota after the monitoring time.
        subsequent_volume_quota: Option<SubsequentVolumeQuota>,
        /// Time quota after the monitoring time.
        subsequent_time_quota: Option<SubsequentTimeQuota>,
        /// Idle time that stops time metering.
        inactivity_detection_time: Option<InactivityDetectionTime>,
        /// URRs whose reports trigger a report of this URR.
        linked_urr_ids: List<LinkedUrrId, 2>,
        /// Details of the measurement.
        measurement_information: Option<MeasurementInformation>,
        /// FAR for packets after a quota is exhausted.
        far_id_for_quota_action: Option<FarId>,
        /// Maximum number of reports.
        number_of_reports: Option<NumberOfReports>,
    }

    /// Remove URR (TS 29.244 table 7.5.4.8-1).
    RemoveUrr = 17 {
        urr_id: UrrId,
    }

    /// Query URR (TS 29.244 table 7.5.4.10-1): requests an immediate report.
    QueryUrr = 77 {
        urr_id: UrrId,
    }

    /// Usage Report of a session report (TS 29.244 table 7.5.8.3-1).
    UsageReport = 80 {
        /// The URR with the measurement.
        urr_id: UrrId,
        /// Sequence number of the report.
        ur_seqn: UrSeqn,
        /// Events that triggered the report.
        trigger: UsageReportTrigger,
        /// Start of the measurement.
        start_time: Option<StartTime>,
        /// End of the measurement.
        end_time: Option<EndTime>,
        volume: Option<VolumeMeasurement>,
        duration: Option<DurationMeasurement>,
        ue_ip_address: Option<UeIpAddress>,
        /// Data network of the packets.
        network_instance: Option<NetworkInstance>,
        time_of_first_packet: Option<TimeOfFirstPacket>,
        time_of_last_packet: Option<TimeOfLastPacket>,
        /// Reference number of the query that this report answers.
        query_urr_reference: Option<QueryUrrReference>,
    }
}

/// Defines the same report with the element types of responses.
macro_rules! renamed {
    ($($(#[$m:meta])* $name:ident = $id:literal;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(pub UsageReport);

        impl Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, Error> {
                UsageReport::decode(octets).map($name)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
        }
    )*};
}

renamed! {
    /// Usage Report of a session modification response (TS 29.244 table 7.5.5.2-1).
    UsageReportInModification = 78;
    /// Usage Report of a session deletion response (TS 29.244 table 7.5.7.2-1).
    UsageReportInDeletion = 79;
}
