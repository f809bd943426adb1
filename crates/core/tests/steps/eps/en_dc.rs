//! Dual connectivity of a UE with NR (EN-DC, TS 37.340): capability, restriction, extended rates.

use super::network::{Network, emm};
use super::pdus::{self, ALGORITHMS, TARGET_ID};
use super::{sent, succeeded};
use crate::golden::eps as golden;
use vireo_core::amf::context::UeSecurityCapability;
use vireo_core::step::{Kind, Note};
use vireo_core::subscription::Ambr;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{S1APPDU, S1apPduKind as Pdu, ie, *};

/// EEA0 to EEA2, EIA1 and EIA2; dual connectivity with NR in the seventh octet.
const DCNR: [u8; 7] = [0xe0, 0x60, 0, 0, 0, 0, 0x10];
/// 5G-EA0 to 3 and 8, 5G-IA1 to 3 and 15.
const ADDITIONAL: [u8; 4] = [0xf0, 0x80, 0x70, 0x01];
/// These as an eNB has them: without the null algorithms.
const NR: (u16, u16) = (0xe100, 0xe002);

fn supports_nr(request: &mut NasAttachRequest) {
    request.ue_network_capability = NasUeNetworkCapability::new(DCNR.to_vec());
    request.ue_additional_security_capability = Some(NasUeAdditionalSecurityCapability::new(ADDITIONAL));
}

/// Has a UE that supports EN-DC attach.
fn attach(network: &mut Network) {
    let mut request = network.attach_request();
    supports_nr(&mut request);
    network.initial_message(&request);
    assert_eq!(succeeded(network, Kind::Registration), 1, "{:?}", network.notes);
}

fn attached() -> Network {
    let mut network = Network::new();
    attach(&mut network);
    network
}

/// Returns the NR UE security capabilities of a PDU.
fn nr_capability(pdu: &S1APPDU<'_>) -> Option<(u16, u16)> {
    let capability = pdu.ie::<ie::NRUESecurityCapabilities>()?.expect("capabilities");
    let bits = |bits: &BitString<'_>| u16::from_be_bytes(bits.as_octets().try_into().expect("16 bits"));
    let NRUESecurityCapabilities { nr_encryption_algorithms: ea, nr_integrity_protection_algorithms: ia, .. } =
        &capability;
    Some((bits(&ea.0), bits(&ia.0)))
}

/// Returns true if the Handover Restriction List restricts NR as secondary RAT.
fn is_restricted(pdu: &S1APPDU<'_>) -> bool {
    let Some(list) = pdu.ie::<ie::HandoverRestrictionList>() else { return false };
    let list = list.expect("a list");
    assert_eq!(list.serving_plmn.0.0, [0x99, 0xf9, 0x07]);
    list.ie_extensions.is_some_and(|extensions| extensions.0.iter().any(|extension| extension.id.0 == 261))
}

/// Returns RestrictDCNR of every accept.
fn restrictions(network: &Network) -> Vec<bool> {
    let support = network.ue.received.iter().filter_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => accept.eps_network_feature_support.as_ref(),
        NasEmmMessage::TrackingAreaUpdateAccept(accept) => accept.eps_network_feature_support.as_ref(),
        _ => None,
    });
    support.map(NasEpsNetworkFeatureSupport::restrict_dcnr).collect()
}

/// The UE detects a bidding-down attack on its algorithms of NR (TS 33.401 7.2.4.4), and the eNB
/// learns them.
#[test]
fn nr_algorithms_go_to_ue_and_enb() {
    let network = attached();
    let command = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::SecurityModeCommand(command) => Some(command),
        _ => None,
    });
    let mut command = command.expect("a command").clone();
    assert!(command.hash_mme.take().is_some(), "the attach was not protected");
    let octets = emm(*command).encode().expect("it encodes");
    assert_eq!(hex::encode(octets), hex::encode(golden("SecurityModeCommand-en-dc")));
    let setup = sent(&network, Pdu::Initiating_InitialContextSetup);
    assert_eq!((nr_capability(&setup), is_restricted(&setup)), (Some(NR), false));
    assert_eq!(restrictions(&network), [false]);
    // In records that an operator reads.
    let capability = network.context().expect("a context").security_capability;
    let text = serde_json::to_string(&capability).expect("it encodes");
    assert_eq!(serde_json::from_str::<UeSecurityCapability>(&text).expect("it decodes"), capability, "{text}");
}

#[test]
fn ue_without_nr_has_no_nr_algorithms() {
    let mut network = Network::new();
    network.config.eps.restricts_dcnr = true;
    network.attach();
    let command = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::SecurityModeCommand(command) => Some(command),
        _ => None,
    });
    assert_eq!(command.expect("a command").replayed_ue_additional_security_capability, None);
    let setup = sent(&network, Pdu::Initiating_InitialContextSetup);
    // The UE does not ask for EN-DC; the eNB does not configure it.
    assert_eq!((nr_capability(&setup), is_restricted(&setup)), (None, true));
    assert_eq!(restrictions(&network), [false]);
}

#[test]
fn restriction_goes_to_ue_and_enb() {
    for by_subscription in [true, false] {
        let mut network = Network::new();
        match by_subscription {
            true => network.subscription.restricts_dcnr = true,
            false => network.config.eps.restricts_dcnr = true,
        }
        attach(&mut network);
        assert!(is_restricted(&sent(&network, Pdu::Initiating_InitialContextSetup)));
        // An update without UE network capability does not withdraw it.
        network.idle();
        network.update(UpdateType::PeriodicUpdating);
        assert_eq!(restrictions(&network), [true, true]);
        let accept = sent(&network, Pdu::Initiating_downlinkNASTransport);
        assert_eq!((nr_capability(&accept), is_restricted(&accept)), (Some(NR), true));
        network.service_request();
        let setup = sent(&network, Pdu::Initiating_InitialContextSetup);
        assert_eq!((nr_capability(&setup), is_restricted(&setup)), (Some(NR), true));
    }
}

/// The accepts equal those of pycrate, except that GUTI and bearer are those of the goldens.
#[test]
fn restricting_accepts_equal_those_of_pycrate() {
    let mut network = Network::new();
    network.config.eps.restricts_dcnr = true;
    attach(&mut network);
    network.update(UpdateType::TaUpdating);
    let guti = NasEpsMobileIdentity::new(hex::decode("f699f9078001c3deadbeef").expect("digits"));
    let mut checked = 0;
    for message in network.ue.received {
        let (name, message): (_, NasEmmMessage) = match message {
            NasEmmMessage::AttachAccept(mut accept) => {
                let sound = NasEpsMessage::decode(&golden("AttachAccept-restricted")).expect("a message");
                let NasEpsMessage::Emm(_, NasEmmMessage::AttachAccept(other)) = sound else { panic!("{sound:?}") };
                (accept.guti, accept.esm_message_container) = (Some(guti.clone()), other.esm_message_container);
                ("AttachAccept-restricted", NasEmmMessage::AttachAccept(accept))
            }
            NasEmmMessage::TrackingAreaUpdateAccept(mut accept) => {
                accept.guti = Some(guti.clone());
                ("TrackingAreaUpdateAccept-restricted", NasEmmMessage::TrackingAreaUpdateAccept(accept))
            }
            _ => continue,
        };
        let octets = NasEpsMessage::new_emm(message).encode().expect("it encodes");
        assert_eq!(hex::encode(octets), hex::encode(golden(name)), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 2);
}

/// A capability that changes while the UE is attached replaces the one before.
#[test]
fn update_changes_nr_capability() {
    let mut network = attached();
    network.config.eps.restricts_dcnr = true;
    network.update_with(UpdateType::TaUpdating, |request| {
        request.ue_network_capability = Some(NasUeNetworkCapability::new(vec![0xe0, 0x60]));
    });
    assert_eq!(restrictions(&network), [false, false], "it supports EN-DC no more");
    network.update_with(UpdateType::TaUpdating, |request| {
        request.ue_network_capability = Some(NasUeNetworkCapability::new(DCNR.to_vec()));
        request.ue_additional_security_capability = Some(NasUeAdditionalSecurityCapability::new([0xc0, 0, 0x60, 0]));
    });
    assert_eq!(restrictions(&network), [false, false, true]);
    assert_eq!(nr_capability(&sent(&network, Pdu::Initiating_downlinkNASTransport)), Some((0x8000, 0xc000)));
}

/// Has the UE at another eNB by X2, whose request has these NR UE security capabilities.
fn path_switch(network: &mut Network, nr: Option<(u16, u16)>) {
    network.set_up_enb(1);
    let mme = network.mme_id.expect("a connection");
    (network.serving, network.enb_id) = (1, TARGET_ID);
    network.take_from(1, &pdus::path_switch_en_dc(mme, ALGORITHMS, nr));
}

#[test]
fn path_switch_corrects_nr_algorithms() {
    for (nr, is_answered, is_wrong) in
        [(Some(NR), false, false), (None, true, false), (Some((0x8000, 0x8000)), true, true)]
    {
        let mut network = attached();
        path_switch(&mut network, nr);
        let answer = sent(&network, Pdu::Successful_PathSwitchRequest);
        assert_eq!(nr_capability(&answer), is_answered.then_some(NR), "{nr:?}");
        assert!(!is_restricted(&answer));
        assert_eq!(network.notes.contains(&Note::fault("security-capability-mismatch")), is_wrong, "{nr:?}");
    }
    let mut network = attached();
    network.config.eps.restricts_dcnr = true;
    path_switch(&mut network, Some(NR));
    assert!(is_restricted(&sent(&network, Pdu::Successful_PathSwitchRequest)));
}

#[test]
fn s1_handover_takes_nr_algorithms_along() {
    let mut network = attached();
    network.config.eps.restricts_dcnr = true;
    network.set_up_enb(1);
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.take_from_enb(&pdus::required(ids, 0x12346, true));
    let request = sent(&network, Pdu::Initiating_HandoverResourceAllocation);
    assert_eq!((nr_capability(&request), is_restricted(&request)), (Some(NR), true));
}

/// Rates above the ranges of APN-AMBR and UE-AMBR (TS 24.301 9.9.4.29, TS 36.413 9.2.1.20).
#[test]
fn high_rates_have_extended_forms() {
    let mut network = Network::new();
    let ambr = Ambr { downlink_bps: 100_000_000_000, uplink_bps: 1_000_000_000 };
    network.subscription.ambr = Ambr { downlink_bps: 90_000_000_000, ..ambr };
    network.subscription.slices[0].dnns[0].ambr = ambr;
    attach(&mut network);
    let accept = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => Some(accept),
        _ => None,
    });
    let bearer = accept.expect("an accept").esm_message_container.decode_as_esm_message().expect("a message");
    let NasEpsMessage::Esm(head, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(mut request)) = bearer else {
        panic!("{bearer:?}")
    };
    // The address is that of the golden, which has no options.
    request.pdn_address = NasPdnAddress::from_ipv4([10, 46, 0, 2]);
    request.protocol_configuration_options = None;
    let (ebi, pti) = (head.eps_bearer_identity, head.procedure_transaction_identity);
    let octets = NasEpsMessage::new_esm(*request, ebi, pti).encode().expect("it encodes");
    assert_eq!(hex::encode(octets), hex::encode(golden("ActivateDefaultEPSBearerContextRequest-fast")));
    let setup = sent(&network, Pdu::Initiating_InitialContextSetup);
    let ambr = setup.ie::<ie::uEaggregateMaximumBitrate>().expect("an IE").expect("rates");
    let rates = (ambr.ue_aggregate_maximum_bit_rate_dl.0, ambr.ue_aggregate_maximum_bit_rate_ul.0);
    assert_eq!(rates, (10_000_000_000, 1_000_000_000));
    let extended = ambr.ie_extensions.expect("an extended rate").0;
    assert_eq!(extended.iter().map(|extension| extension.id.0).collect::<Vec<_>>(), [259]);
    let rate = decode_open_type::<ExtendedBitRate>(&extended[0].extension_value).expect("a rate");
    assert_eq!(rate.0, 90_000_000_000);
}
