use crate::pfcp::ie::group;
use crate::pfcp::value::*;

group! {
    /// Create QER (TS 29.244 table 7.5.2.5-1): limits and markings of packets.
    CreateQer = 7 {
        qer_id: QerId,
        /// Common value of QERs in several sessions that share their limits.
        qer_correlation_id: Option<QerCorrelationId>,
        gate_status: GateStatus,
        /// Maximum bit rate (MBR).
        mbr: Option<Mbr>,
        /// Guaranteed bit rate (GBR).
        gbr: Option<Gbr>,
        /// QoS flow of downlink packets.
        qfi: Option<Qfi>,
        /// Indication of reflective QoS to the UE.
        rqi: Option<Rqi>,
        /// Paging policy of downlink packets.
        paging_policy_indicator: Option<PagingPolicyIndicator>,
        /// Time over which the rates are measured.
        averaging_window: Option<AveragingWindow>,
        control_indications: Option<QerControlIndications>,
    }

    /// Update QER (TS 29.244 table 7.5.4.5-1). Absent elements are unchanged.
    UpdateQer = 14 {
        qer_id: QerId,
        /// Common value of QERs in several sessions that share their limits.
        qer_correlation_id: Option<QerCorrelationId>,
        gate_status: Option<GateStatus>,
        /// Maximum bit rate (MBR).
        mbr: Option<Mbr>,
        /// Guaranteed bit rate (GBR).
        gbr: Option<Gbr>,
        /// QoS flow of downlink packets.
        qfi: Option<Qfi>,
        /// Indication of reflective QoS to the UE.
        rqi: Option<Rqi>,
        /// Paging policy of downlink packets.
        paging_policy_indicator: Option<PagingPolicyIndicator>,
        /// Time over which the rates are measured.
        averaging_window: Option<AveragingWindow>,
        control_indications: Option<QerControlIndications>,
    }

    /// Remove QER (TS 29.244 table 7.5.4.9-1).
    RemoveQer = 18 {
        qer_id: QerId,
    }
}
