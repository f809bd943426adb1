//! Power saving mode, extended DRX and the parameters of paging (TS 24.301 5.3.11, 5.3.12).

use super::network::{CAPABILITY, Network, TUNNEL};
use super::{pdus, succeeded};
use vireo_core::config::{PowerSavingConfig, PowerSavingMode};
use vireo_core::step::{Kind, Note};
use vireo_types::{Duration, Instant, limits};
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{PagingDRX, PagingEDRXCycle, PagingTimeWindow, S1AP_PDU, S1APPDU, S1apPduKind, ie};

/// T3324 of 10 s and T3412 extended value of 2 hours.
const ACTIVE: u8 = 0x05;
const PERIODIC: u8 = 0x0c;

pub(super) fn saving() -> PowerSavingConfig {
    let mode = PowerSavingMode { active_time: Duration::from_secs(60), periodic_update: Duration::from_secs(86_400) };
    PowerSavingConfig { mode: Some(mode), extended_drx: Some(Instant(0)) }
}

/// Returns a network with these permissions, whose UE has attached with a changed request.
fn attached(config: PowerSavingConfig, change: impl FnOnce(&mut NasAttachRequest)) -> Network {
    let mut network = Network::new();
    network.config.paging.power_saving = config;
    let mut request = network.attach_request();
    change(&mut request);
    network.initial_message(&request);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    network
}

fn requested(request: &mut NasAttachRequest) {
    request.t3324_value = Some(NasGprsTimer2::new(vec![ACTIVE]));
    request.t3412_extended_value = Some(NasT3412ExtendedValue::new(vec![PERIODIC]));
}

/// Requests power saving mode and extended DRX.
pub(super) fn request_all(request: &mut NasAttachRequest) {
    requested(request);
    request.extended_drx_parameters = Some(NasExtendedDrxParameters::new(vec![0x35]));
}

/// As [`request_all`], in an update.
pub(super) fn request_all_in_update(request: &mut NasTrackingAreaUpdateRequest) {
    request.t3324_value = Some(NasGprsTimer2::new(vec![ACTIVE]));
    request.t3412_extended_value = Some(NasT3412ExtendedValue::new(vec![PERIODIC]));
    request.extended_drx_parameters = Some(NasExtendedDrxParameters::new(vec![0x35]));
}

/// Returns T3324, T3412 extended value and extended DRX parameters of ATTACH ACCEPT.
pub(super) fn granted(network: &Network) -> [Option<u8>; 3] {
    let accept = network.ue.received.iter().rev().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => Some(accept),
        _ => None,
    });
    let accept = accept.expect("an accept");
    let first = |octets: &[u8]| octets.first().copied();
    [
        accept.t3324_value.as_ref().and_then(|ie| first(&ie.value)),
        accept.t3412_extended_value.as_ref().and_then(|ie| first(&ie.value)),
        accept.extended_drx_parameters.as_ref().and_then(|ie| first(&ie.value)),
    ]
}

fn pages(network: &Network) -> Vec<S1APPDU<'_>> {
    let pdus = network.sent.iter().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.filter(|pdu| pdu.kind() == S1apPduKind::Initiating_Paging).collect()
}

#[test]
fn power_saving_is_refused_by_default() {
    let mut network = attached(PowerSavingConfig::default(), |request| {
        requested(request);
        request.extended_drx_parameters = Some(NasExtendedDrxParameters::new(vec![0x35]));
    });
    assert_eq!(granted(&network), [None; 3]);
    network.idle();
    network.wait(Duration::from_secs(600));
    network.downlink_data();
    let [page] = &pages(&network)[..] else { panic!("{:?}", network.kinds) };
    assert!(page.ie::<ie::Paging_eDRXInformation>().is_none());
}

#[test]
fn granted_timers_are_limited() {
    let network = attached(saving(), |request| {
        request.t3324_value = Some(NasGprsTimer2::new(vec![0x3f]));
        request.t3412_extended_value = Some(NasT3412ExtendedValue::new(vec![0xc1]));
    });
    // 31 minutes and 320 hours are requested; one minute and a day are the limits.
    assert_eq!(granted(&network), [Some(0x1e), Some(0x38), None]);
    let network = attached(saving(), |request| {
        request.t3324_value = Some(NasGprsTimer2::new(vec![0xe0]));
        request.t3412_extended_value = Some(NasT3412ExtendedValue::new(vec![PERIODIC]));
    });
    assert_eq!(granted(&network), [None; 3], "T3324 is deactivated");
}

#[test]
fn sleeping_ue_gets_data_at_next_update() {
    let mut network = attached(saving(), requested);
    assert_eq!(granted(&network), [Some(ACTIVE), Some(PERIODIC), None]);
    network.idle();
    network.wait(Duration::from_secs(9));
    network.downlink_data();
    assert_eq!(pages(&network).len(), 1, "the active timer runs");
    network.service_request();
    network.idle();
    network.wait(Duration::from_secs(11));
    network.downlink_data();
    network.wait(Duration::from_secs(60));
    assert_eq!(pages(&network).len(), 1, "the UE sleeps");
    assert_eq!(network.tunnel(), None);
    network.update_with(UpdateType::PeriodicUpdating, |request| {
        request.t3324_value = Some(NasGprsTimer2::new(vec![ACTIVE]));
    });
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(a) if a.t3324_value.is_some()));
    assert_eq!(network.tunnel(), Some(TUNNEL), "its packets follow the update");
}

#[test]
fn update_without_request_ends_power_saving() {
    let mut network = attached(saving(), requested);
    network.idle();
    network.wait(Duration::from_secs(11));
    network.update(UpdateType::PeriodicUpdating);
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(a) if a.t3324_value.is_none()));
    network.wait(Duration::from_secs(20));
    network.downlink_data();
    assert_eq!(pages(&network).len(), 1);
}

/// T3412 extended value and 4 minutes, and the implicit detach timer (5.3.5).
#[test]
fn sleeping_ue_is_detached_after_its_timer() {
    let mut network = attached(saving(), requested);
    network.idle();
    network.wait(Duration::from_secs(7200 + 479));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.reachability.sleeps()));
    network.wait(Duration::from_secs(2));
    assert!(network.context().is_some_and(|c| !c.is_registered()));
}

#[test]
fn operator_detaches_sleeping_ue_at_once() {
    let mut network = attached(saving(), requested);
    network.idle();
    network.wait(Duration::from_secs(11));
    network.event(vireo_core::amf::engine::Event::Deregister { reregister: false, cause: None });
    network.settle();
    assert!(network.context().is_none_or(|c| !c.is_registered()));
    assert!(pages(&network).is_empty());
}

/// Extended DRX of 81.92 s with a window of 5.12 s.
#[test]
fn page_waits_for_paging_time_window() {
    let parameters = NasExtendedDrxParameters::new(vec![0x35]);
    let mut network = attached(saving(), |request| request.extended_drx_parameters = Some(parameters.clone()));
    assert_eq!(granted(&network), [None, None, Some(0x35)]);
    network.idle();
    let cycle = Duration::from_millis(81_920);
    // The window is open for a sixteenth of the cycle, and its page may come 2 s before.
    let quarter = Duration(cycle.0 / 4);
    let waits: Vec<_> = (0..4)
        .map(|_| {
            let before = pages(&network).len();
            network.downlink_data();
            let waits = pages(&network).len() == before;
            network.wait(if waits { cycle } else { quarter });
            assert!(pages(&network).len() > before, "a page within one cycle");
            network.service_request();
            network.idle();
            network.wait(quarter);
            waits
        })
        .collect();
    assert!(waits.contains(&true), "{waits:?}");
    let pages = pages(&network);
    let page = pages.first().expect("a page");
    let drx = page.ie::<ie::Paging_eDRXInformation>().expect("eDRX").expect("it decodes");
    assert_eq!(drx.paging_edrx_cycle, PagingEDRXCycle::hf8);
    assert_eq!(drx.paging_time_window, Some(PagingTimeWindow::s4));
}

#[test]
fn page_has_drx_cycle_and_capability() {
    let mut network = attached(saving(), |request| request.drx_parameter = Some(NasDrxParameter::new(vec![0, 0x70])));
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.take_from_enb(&pdus::capability_with(ids, 40_000, Some(&[7; 30])));
    network.idle();
    network.downlink_data();
    let [page] = &pages(&network)[..] else { panic!("{:?}", network.kinds) };
    assert_eq!(page.ie::<ie::pagingDRX>().map(|ie| ie.expect("a cycle")), Some(PagingDRX::v64));
    let capability = page.ie::<ie::UERadioCapabilityForPaging>().map(|ie| ie.expect("octets").0.into_vec());
    assert_eq!(capability, Some(vec![7; 30]));
    // One above the limit is not stored; the page is sent without it.
    network.service_request();
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    let large = vec![7; limits::PAGING_CAPABILITY_OCTETS + 1];
    network.take_from_enb(&pdus::capability_with(ids, 40_000, Some(&large)));
    assert!(network.notes.contains(&Note::fault("limit")));
    network.idle();
    network.downlink_data();
    assert!(pages(&network)[1].ie::<ie::UERadioCapabilityForPaging>().is_none());
}

/// The eNB asks a UE whose radio capability has changed (TS 23.401 5.11.2).
#[test]
fn update_needed_deletes_radio_capability() {
    let mut network = attached(saving(), |_| {});
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.take_from_enb(&pdus::capability_with(ids, 100, None));
    network.idle();
    let stored = |network: &Network| network.context().map(|c| c.radio_capability.len());
    network.update(UpdateType::TaUpdating);
    assert_eq!(stored(&network), Some(100));
    network.update_with(UpdateType::TaUpdating, |request| {
        request.ue_radio_capability_information_update_needed =
            Some(NasUeRadioCapabilityInformationUpdateNeeded::new(1));
    });
    assert_eq!(stored(&network), Some(0));
    assert_eq!(CAPABILITY.len(), 2);
}
