//! Conversion of causes between S1AP (TS 36.413 9.2.1.3) and NGAP (TS 38.413 9.3.1.2).
//!
//! The values that both protocols have are equal. TS 29.010 6.3 maps the others in handovers; a
//! value without a counterpart becomes *unspecified* of its group.

use crate::amf::n2::Cause;
use vireo_wire::ngap::{CauseMisc, CauseNas, CauseProtocol, CauseRadioNetwork, CauseTransport};
use vireo_wire::s1ap::{self, Cause as S1Cause};

/// Returns the S1AP cause for a cause of the core.
pub fn cause_to(cause: &Cause) -> S1Cause {
    use s1ap::CauseRadioNetwork as To;
    match cause {
        Cause::radioNetwork(from) => S1Cause::radioNetwork(match from {
            CauseRadioNetwork::successful_handover => To::successful_handover,
            CauseRadioNetwork::release_due_to_ngran_generated_reason => To::release_due_to_eutran_generated_reason,
            // S1AP has no radio network cause for a release that the core wants.
            CauseRadioNetwork::release_due_to_5gc_generated_reason => {
                return S1Cause::nas(s1ap::CauseNas::normal_release);
            }
            CauseRadioNetwork::handover_cancelled => To::handover_cancelled,
            CauseRadioNetwork::unknown_targetID => To::unknown_targetID,
            CauseRadioNetwork::unknown_local_UE_NGAP_ID => To::unknown_mme_ue_s1ap_id,
            CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID => To::unknown_pair_ue_s1ap_id,
            CauseRadioNetwork::user_inactivity => To::user_inactivity,
            CauseRadioNetwork::radio_connection_with_ue_lost => To::radio_connection_with_ue_lost,
            CauseRadioNetwork::radio_resources_not_available => To::radio_resources_not_available,
            CauseRadioNetwork::failure_in_radio_interface_procedure => To::failure_in_radio_interface_procedure,
            CauseRadioNetwork::unknown_PDU_session_ID => To::unknown_E_RAB_ID,
            CauseRadioNetwork::multiple_PDU_session_ID_instances => To::multiple_E_RAB_ID_instances,
            CauseRadioNetwork::interaction_with_other_procedure => To::interaction_with_other_procedure,
            other => other_radio_to(*other),
        }),
        Cause::nas(from) => S1Cause::nas(match from {
            CauseNas::normal_release => s1ap::CauseNas::normal_release,
            CauseNas::authentication_failure => s1ap::CauseNas::authentication_failure,
            CauseNas::deregister => s1ap::CauseNas::detach,
            _ => s1ap::CauseNas::unspecified,
        }),
        Cause::protocol(from) => S1Cause::protocol(protocol_to(*from)),
        Cause::misc(from) => S1Cause::misc(match from {
            CauseMisc::control_processing_overload => s1ap::CauseMisc::control_processing_overload,
            CauseMisc::not_enough_user_plane_processing_resources => {
                s1ap::CauseMisc::not_enough_user_plane_processing_resources
            }
            CauseMisc::hardware_failure => s1ap::CauseMisc::hardware_failure,
            CauseMisc::om_intervention => s1ap::CauseMisc::om_intervention,
            CauseMisc::unknown_PLMN_or_SNPN => s1ap::CauseMisc::unknown_PLMN,
            _ => s1ap::CauseMisc::unspecified,
        }),
        Cause::transport(CauseTransport::transport_resource_unavailable) => {
            S1Cause::transport(s1ap::CauseTransport::transport_resource_unavailable)
        }
        _ => S1Cause::transport(s1ap::CauseTransport::unspecified),
    }
}

/// Returns the radio network cause for one of those that RAN nodes send in handovers and requests
/// for release. A cause that S1AP lacks is unspecified.
fn other_radio_to(from: CauseRadioNetwork) -> s1ap::CauseRadioNetwork {
    use s1ap::CauseRadioNetwork as To;
    match from {
        CauseRadioNetwork::txnrelocoverall_expiry => To::tx2relocoverall_expiry,
        CauseRadioNetwork::partial_handover => To::partial_handover,
        CauseRadioNetwork::ho_failure_in_target_5GC_ngran_node_or_target_system => {
            To::ho_failure_in_target_EPC_eNB_or_target_system
        }
        CauseRadioNetwork::ho_target_not_allowed => To::ho_target_not_allowed,
        CauseRadioNetwork::tngrelocoverall_expiry => To::tS1relocoverall_expiry,
        CauseRadioNetwork::tngrelocprep_expiry => To::tS1relocprep_expiry,
        CauseRadioNetwork::cell_not_available => To::cell_not_available,
        CauseRadioNetwork::no_radio_resources_available_in_target_cell => {
            To::no_radio_resources_available_in_target_cell
        }
        CauseRadioNetwork::handover_desirable_for_radio_reason => To::handover_desirable_for_radio_reason,
        CauseRadioNetwork::time_critical_handover => To::time_critical_handover,
        CauseRadioNetwork::resource_optimisation_handover => To::resource_optimisation_handover,
        CauseRadioNetwork::reduce_load_in_serving_cell => To::reduce_load_in_serving_cell,
        CauseRadioNetwork::not_supported_5QI_value => To::not_supported_QCI_value,
        CauseRadioNetwork::encryption_and_or_integrity_protection_algorithms_not_supported => {
            To::encryption_and_or_integrity_protection_algorithms_not_supported
        }
        CauseRadioNetwork::ng_intra_system_handover_triggered => To::s1_intra_system_handover_triggered,
        CauseRadioNetwork::ng_inter_system_handover_triggered => To::s1_inter_system_handover_triggered,
        CauseRadioNetwork::xn_handover_triggered => To::x2_handover_triggered,
        CauseRadioNetwork::insufficient_ue_capabilities => To::insufficient_ue_capabilities,
        CauseRadioNetwork::redirection => To::interrat_redirection,
        CauseRadioNetwork::invalid_qos_combination => To::invalid_qos_combination,
        CauseRadioNetwork::n26_interface_not_available => To::n26_interface_not_available,
        CauseRadioNetwork::release_due_to_pre_emption => To::release_due_to_pre_emption,
        CauseRadioNetwork::up_integrity_protection_not_possible => To::up_integrity_protection_not_possible,
        _ => To::unspecified,
    }
}

fn protocol_to(from: CauseProtocol) -> s1ap::CauseProtocol {
    use s1ap::CauseProtocol as To;
    match from {
        CauseProtocol::transfer_syntax_error => To::transfer_syntax_error,
        CauseProtocol::abstract_syntax_error_reject => To::abstract_syntax_error_reject,
        CauseProtocol::abstract_syntax_error_ignore_and_notify => To::abstract_syntax_error_ignore_and_notify,
        CauseProtocol::message_not_compatible_with_receiver_state => To::message_not_compatible_with_receiver_state,
        CauseProtocol::semantic_error => To::semantic_error,
        CauseProtocol::abstract_syntax_error_falsely_constructed_message => {
            To::abstract_syntax_error_falsely_constructed_message
        }
        _ => To::unspecified,
    }
}

/// Returns the cause of the core for a cause of S1AP.
pub fn cause_of(cause: &S1Cause) -> Cause {
    use s1ap::CauseRadioNetwork as From;
    match cause {
        S1Cause::radioNetwork(from) => Cause::radioNetwork(match from {
            From::successful_handover => CauseRadioNetwork::successful_handover,
            From::release_due_to_eutran_generated_reason => CauseRadioNetwork::release_due_to_ngran_generated_reason,
            From::handover_cancelled => CauseRadioNetwork::handover_cancelled,
            From::unknown_targetID => CauseRadioNetwork::unknown_targetID,
            From::unknown_mme_ue_s1ap_id | From::unknown_enb_ue_s1ap_id => CauseRadioNetwork::unknown_local_UE_NGAP_ID,
            From::unknown_pair_ue_s1ap_id => CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID,
            From::user_inactivity => CauseRadioNetwork::user_inactivity,
            From::radio_connection_with_ue_lost => CauseRadioNetwork::radio_connection_with_ue_lost,
            From::radio_resources_not_available => CauseRadioNetwork::radio_resources_not_available,
            From::failure_in_radio_interface_procedure => CauseRadioNetwork::failure_in_radio_interface_procedure,
            From::unknown_E_RAB_ID => CauseRadioNetwork::unknown_PDU_session_ID,
            From::multiple_E_RAB_ID_instances => CauseRadioNetwork::multiple_PDU_session_ID_instances,
            From::interaction_with_other_procedure => CauseRadioNetwork::interaction_with_other_procedure,
            other => other_radio_of(*other),
        }),
        S1Cause::nas(from) => Cause::nas(match from {
            s1ap::CauseNas::normal_release => CauseNas::normal_release,
            s1ap::CauseNas::authentication_failure => CauseNas::authentication_failure,
            s1ap::CauseNas::detach => CauseNas::deregister,
            _ => CauseNas::unspecified,
        }),
        S1Cause::protocol(from) => Cause::protocol(protocol_of(*from)),
        S1Cause::misc(from) => Cause::misc(match from {
            s1ap::CauseMisc::control_processing_overload => CauseMisc::control_processing_overload,
            s1ap::CauseMisc::not_enough_user_plane_processing_resources => {
                CauseMisc::not_enough_user_plane_processing_resources
            }
            s1ap::CauseMisc::hardware_failure => CauseMisc::hardware_failure,
            s1ap::CauseMisc::om_intervention => CauseMisc::om_intervention,
            s1ap::CauseMisc::unknown_PLMN => CauseMisc::unknown_PLMN_or_SNPN,
            _ => CauseMisc::unspecified,
        }),
        S1Cause::transport(s1ap::CauseTransport::transport_resource_unavailable) => {
            Cause::transport(CauseTransport::transport_resource_unavailable)
        }
        _ => Cause::transport(CauseTransport::unspecified),
    }
}

/// Returns the radio network cause that [`other_radio_to`] maps back. A cause that NGAP lacks, as
/// those of CS fallback, is unspecified.
fn other_radio_of(from: s1ap::CauseRadioNetwork) -> CauseRadioNetwork {
    let causes = [
        CauseRadioNetwork::txnrelocoverall_expiry,
        CauseRadioNetwork::partial_handover,
        CauseRadioNetwork::ho_failure_in_target_5GC_ngran_node_or_target_system,
        CauseRadioNetwork::ho_target_not_allowed,
        CauseRadioNetwork::tngrelocoverall_expiry,
        CauseRadioNetwork::tngrelocprep_expiry,
        CauseRadioNetwork::cell_not_available,
        CauseRadioNetwork::no_radio_resources_available_in_target_cell,
        CauseRadioNetwork::handover_desirable_for_radio_reason,
        CauseRadioNetwork::time_critical_handover,
        CauseRadioNetwork::resource_optimisation_handover,
        CauseRadioNetwork::reduce_load_in_serving_cell,
        CauseRadioNetwork::not_supported_5QI_value,
        CauseRadioNetwork::encryption_and_or_integrity_protection_algorithms_not_supported,
        CauseRadioNetwork::ng_intra_system_handover_triggered,
        CauseRadioNetwork::ng_inter_system_handover_triggered,
        CauseRadioNetwork::xn_handover_triggered,
        CauseRadioNetwork::insufficient_ue_capabilities,
        CauseRadioNetwork::redirection,
        CauseRadioNetwork::invalid_qos_combination,
        CauseRadioNetwork::n26_interface_not_available,
        CauseRadioNetwork::release_due_to_pre_emption,
        CauseRadioNetwork::up_integrity_protection_not_possible,
    ];
    causes.into_iter().find(|cause| other_radio_to(*cause) == from).unwrap_or(CauseRadioNetwork::unspecified)
}

fn protocol_of(from: s1ap::CauseProtocol) -> CauseProtocol {
    use s1ap::CauseProtocol as From;
    match from {
        From::transfer_syntax_error => CauseProtocol::transfer_syntax_error,
        From::abstract_syntax_error_reject => CauseProtocol::abstract_syntax_error_reject,
        From::abstract_syntax_error_ignore_and_notify => CauseProtocol::abstract_syntax_error_ignore_and_notify,
        From::message_not_compatible_with_receiver_state => CauseProtocol::message_not_compatible_with_receiver_state,
        From::semantic_error => CauseProtocol::semantic_error,
        From::abstract_syntax_error_falsely_constructed_message => {
            CauseProtocol::abstract_syntax_error_falsely_constructed_message
        }
        _ => CauseProtocol::unspecified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UE CONTEXT RELEASE COMMAND has the cause of the eNB's request, if NGAP has it, too.
    #[test]
    fn release_cause_of_enb_maps_back() {
        use s1ap::CauseRadioNetwork as Radio;
        let returned = |cause: Radio| cause_to(&cause_of(&S1Cause::radioNetwork(cause)));
        for cause in [
            Radio::user_inactivity,
            Radio::radio_connection_with_ue_lost,
            Radio::failure_in_radio_interface_procedure,
            Radio::release_due_to_eutran_generated_reason,
            Radio::reduce_load_in_serving_cell,
            Radio::interrat_redirection,
            Radio::invalid_qos_combination,
            Radio::release_due_to_pre_emption,
            Radio::n26_interface_not_available,
            Radio::up_integrity_protection_not_possible,
        ] {
            assert_eq!(returned(cause), S1Cause::radioNetwork(cause));
        }
        for cause in [Radio::cs_fallback_triggered, Radio::ue_not_available_for_ps_service] {
            assert_eq!(returned(cause), S1Cause::radioNetwork(Radio::unspecified));
        }
    }

    #[test]
    fn cause_of_both_protocols_maps_back() {
        for cause in [
            Cause::radioNetwork(CauseRadioNetwork::user_inactivity),
            Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID),
            Cause::radioNetwork(CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID),
            Cause::radioNetwork(CauseRadioNetwork::tngrelocprep_expiry),
            Cause::radioNetwork(CauseRadioNetwork::interaction_with_other_procedure),
            Cause::nas(CauseNas::deregister),
            Cause::protocol(CauseProtocol::semantic_error),
            Cause::misc(CauseMisc::unknown_PLMN_or_SNPN),
            Cause::transport(CauseTransport::transport_resource_unavailable),
        ] {
            assert_eq!(cause_of(&cause_to(&cause)), cause);
        }
    }
}
