use crate::pfcp::Error;
use crate::pfcp::ie::{Element, List, group};
use crate::pfcp::value::*;

group! {
    /// Create URR (TS 29.244 table 7.5.2.4-1): how packets are counted and when that is reported.
    CreateUrr = 6 {
        /// The rule.
        urr_id: UrrId,
        /// What is measured.
        measurement_method: MeasurementMethod,
        /// When a report is sent.
        reporting_triggers: ReportingTriggers,
        /// How often a report is sent.
        measurement_period: Option<MeasurementPeriod>,
        /// The volume after which a report is sent.
        volume_threshold: Option<VolumeThreshold>,
        /// The volume after which packets are stopped.
        volume_quota: Option<VolumeQuota>,
        /// The time after which a report is sent.
        time_threshold: Option<TimeThreshold>,
        /// The time after which packets are stopped.
        time_quota: Option<TimeQuota>,
        /// The idle time after which a report is sent.
        quota_holding_time: Option<QuotaHoldingTime>,
        /// The dropped downlink traffic after which a report is sent.
        dropped_dl_traffic_threshold: Option<DroppedDlTrafficThreshold>,
        /// How long a quota holds.
        quota_validity_time: Option<QuotaValidityTime>,
        /// When the measurement begins anew with the subsequent thresholds.
        monitoring_time: Option<MonitoringTime>,
        /// Volume threshold after the monitoring time.
        subsequent_volume_threshold: Option<SubsequentVolumeThreshold>,
        /// Time threshold after the monitoring time.
        subsequent_time_threshold: Option<SubsequentTimeThreshold>,
        /// Volume quota after the monitoring time.
        subsequent_volume_quota: Option<SubsequentVolumeQuota>,
        /// Time quota after the monitoring time.
        subsequent_time_quota: Option<SubsequentTimeQuota>,
        /// The idle time that ends time metering.
        inactivity_detection_time: Option<InactivityDetectionTime>,
        /// URRs whose reports bring one of this too.
        linked_urr_ids: List<LinkedUrrId, 2>,
        /// How it is measured.
        measurement_information: Option<MeasurementInformation>,
        /// What is done with packets once a quota is used up.
        far_id_for_quota_action: Option<FarId>,
        /// How many reports are sent at most.
        number_of_reports: Option<NumberOfReports>,
    }

    /// Update URR (TS 29.244 table 7.5.4.4-1): what is absent stays.
    UpdateUrr = 13 {
        /// The rule.
        urr_id: UrrId,
        /// What is measured.
        measurement_method: Option<MeasurementMethod>,
        /// When a report is sent.
        reporting_triggers: Option<ReportingTriggers>,
        /// How often a report is sent.
        measurement_period: Option<MeasurementPeriod>,
        /// The volume after which a report is sent.
        volume_threshold: Option<VolumeThreshold>,
        /// The volume after which packets are stopped.
        volume_quota: Option<VolumeQuota>,
        /// The time after which a report is sent.
        time_threshold: Option<TimeThreshold>,
        /// The time after which packets are stopped.
        time_quota: Option<TimeQuota>,
        /// The idle time after which a report is sent.
        quota_holding_time: Option<QuotaHoldingTime>,
        /// The dropped downlink traffic after which a report is sent.
        dropped_dl_traffic_threshold: Option<DroppedDlTrafficThreshold>,
        /// How long a quota holds.
        quota_validity_time: Option<QuotaValidityTime>,
        /// When the measurement begins anew with the subsequent thresholds.
        monitoring_time: Option<MonitoringTime>,
        /// Volume threshold after the monitoring time.
        subsequent_volume_threshold: Option<SubsequentVolumeThreshold>,
        /// Time threshold after the monitoring time.
        subsequent_time_threshold: Option<SubsequentTimeThreshold>,
        /// Volume quota after the monitoring time.
        subsequent_volume_quota: Option<SubsequentVolumeQuota>,
        /// Time quota after the monitoring time.
        subsequent_time_quota: Option<SubsequentTimeQuota>,
        /// The idle time that ends time metering.
        inactivity_detection_time: Option<InactivityDetectionTime>,
        /// URRs whose reports bring one of this too.
        linked_urr_ids: List<LinkedUrrId, 2>,
        /// How it is measured.
        measurement_information: Option<MeasurementInformation>,
        /// What is done with packets once a quota is used up.
        far_id_for_quota_action: Option<FarId>,
        /// How many reports are sent at most.
        number_of_reports: Option<NumberOfReports>,
    }

    /// Remove URR (TS 29.244 table 7.5.4.8-1).
    RemoveUrr = 17 {
        /// The rule.
        urr_id: UrrId,
    }

    /// Query URR (TS 29.244 table 7.5.4.10-1): report now.
    QueryUrr = 77 {
        /// The rule.
        urr_id: UrrId,
    }

    /// Usage Report of a session report (TS 29.244 table 7.5.8.3-1).
    UsageReport = 80 {
        /// The rule that counted.
        urr_id: UrrId,
        /// The report's number.
        ur_seqn: UrSeqn,
        /// Why it is sent.
        trigger: UsageReportTrigger,
        /// Since when was counted.
        start_time: Option<StartTime>,
        /// Until when was counted.
        end_time: Option<EndTime>,
        /// The volume.
        volume: Option<VolumeMeasurement>,
        /// The time.
        duration: Option<DurationMeasurement>,
        /// The UE's address.
        ue_ip_address: Option<UeIpAddress>,
        /// The data network.
        network_instance: Option<NetworkInstance>,
        /// The first packet.
        time_of_first_packet: Option<TimeOfFirstPacket>,
        /// The last packet.
        time_of_last_packet: Option<TimeOfLastPacket>,
        /// Which query it answers.
        query_urr_reference: Option<QueryUrrReference>,
    }
}

/// The same report under the types that responses have.
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
