use crate::pfcp::ie::group;
use crate::pfcp::value::*;

group! {
    /// Create QER (TS 29.244 table 7.5.2.5-1): how packets are limited and marked.
    CreateQer = 7 {
        /// The rule.
        qer_id: QerId,
        /// The same in QERs of several sessions that share their limits.
        qer_correlation_id: Option<QerCorrelationId>,
        /// Whether packets pass.
        gate_status: GateStatus,
        /// The most that passes.
        mbr: Option<Mbr>,
        /// What passes surely.
        gbr: Option<Gbr>,
        /// The QoS flow that downlink packets are marked with.
        qfi: Option<Qfi>,
        /// Whether reflective QoS is indicated to the UE.
        rqi: Option<Rqi>,
        /// The paging policy that downlink packets are marked with.
        paging_policy_indicator: Option<PagingPolicyIndicator>,
        /// Over what the rates are measured.
        averaging_window: Option<AveragingWindow>,
        /// Further indications.
        control_indications: Option<QerControlIndications>,
    }

    /// Update QER (TS 29.244 table 7.5.4.5-1): what is absent stays.
    UpdateQer = 14 {
        /// The rule.
        qer_id: QerId,
        /// The same in QERs of several sessions that share their limits.
        qer_correlation_id: Option<QerCorrelationId>,
        /// Whether packets pass.
        gate_status: Option<GateStatus>,
        /// The most that passes.
        mbr: Option<Mbr>,
        /// What passes surely.
        gbr: Option<Gbr>,
        /// The QoS flow that downlink packets are marked with.
        qfi: Option<Qfi>,
        /// Whether reflective QoS is indicated to the UE.
        rqi: Option<Rqi>,
        /// The paging policy that downlink packets are marked with.
        paging_policy_indicator: Option<PagingPolicyIndicator>,
        /// Over what the rates are measured.
        averaging_window: Option<AveragingWindow>,
        /// Further indications.
        control_indications: Option<QerControlIndications>,
    }

    /// Remove QER (TS 29.244 table 7.5.4.9-1).
    RemoveQer = 18 {
        /// The rule.
        qer_id: QerId,
    }
}
