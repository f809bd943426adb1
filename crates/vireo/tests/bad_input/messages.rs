//! NGAP PDUs of a gNB, valid and damaged.

use vireo_wire::ngap::*;

fn network() -> PLMNIdentity {
    helpers::plmn("999", "70").expect("a PLMN")
}

fn encoded(pdu: Result<NGAPPDU<'_>, Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

/// Returns the NG SETUP REQUEST of gNB `gnb`: TAC 1, SST 1.
pub(crate) fn ng_setup(gnb: u32) -> Vec<u8> {
    ng_setup_with(gnb, network(), &[helpers::s_nssai(1, None)])
}

/// Returns the S1 SETUP REQUEST of a macro eNB in TAC 1.
pub(crate) fn s1_setup() -> Vec<u8> {
    use vireo_wire::s1ap::*;
    let plmn = PLMNidentity(TBCDSTRING([0x99, 0xf9, 0x07]));
    let area = SupportedTAsItem::new(TAC([0, 1]), BPLMNs(vec![plmn]), None);
    let pdu = build_s1ap!(
        InitiatingMessage,
        S1Setup,
        S1SetupRequest,
        Global_ENB_ID(helpers::global_enb_id(plmn, helpers::EnbKind::Macro, 0x12345).expect("20 bits")),
        SupportedTAs(SupportedTAs(vec![area])),
        DefaultPagingDRX(PagingDRX::v128),
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

/// Returns an NG SETUP REQUEST with another network or other slices.
pub(crate) fn ng_setup_with(gnb: u32, plmn: PLMNIdentity, slices: &[SNSSAI]) -> Vec<u8> {
    ng_setup_in(gnb, vec![SupportedTAItem::new(TAC([0, 0, 1]), broadcast(&[plmn], slices), None)])
}

/// Returns the NG SETUP REQUEST of a gNB with the longest list of tracking areas: 256 TACs, each of
/// 12 networks (TS 38.413 9.2.6.1).
pub(crate) fn ng_setup_with_longest_list(gnb: u32) -> Vec<u8> {
    let other = |number: u32| helpers::plmn("001", &format!("{number:02}")).expect("a PLMN");
    let plmns: Vec<_> = std::iter::once(network()).chain((1..12).map(other)).collect();
    let plmns = broadcast(&plmns, &[helpers::s_nssai(1, None)]);
    let area = |tac: u16| {
        let [high, low] = tac.to_be_bytes();
        SupportedTAItem::new(TAC([0, high, low]), plmns.clone(), None)
    };
    ng_setup_in(gnb, (1..=256).map(area).collect())
}

fn broadcast(plmns: &[PLMNIdentity], slices: &[SNSSAI]) -> BroadcastPLMNList {
    let slices = SliceSupportList(slices.iter().map(|s| SliceSupportItem::new(s.clone(), None)).collect());
    BroadcastPLMNList(plmns.iter().map(|plmn| BroadcastPLMNItem::new(*plmn, slices.clone(), None)).collect())
}

fn ng_setup_in(gnb: u32, areas: Vec<SupportedTAItem>) -> Vec<u8> {
    let id = GlobalRANNodeID::globalGNB_ID(helpers::global_gnb_id(network(), gnb, 24).expect("a gNB ID"));
    let areas = SupportedTAList(areas);
    encoded(build_ngap!(
        InitiatingMessage,
        NGSetup,
        NGSetupRequest,
        GlobalRANNodeID(id),
        RANNodeName("bad-input"),
        SupportedTAList(areas),
        DefaultPagingDRX(PagingDRX::v128)
    ))
}

/// Returns a RAN CONFIGURATION UPDATE that binds the association to gNB `gnb`.
pub(crate) fn further_association(gnb: u32) -> Vec<u8> {
    let id = GlobalRANNodeID::globalGNB_ID(helpers::global_gnb_id(network(), gnb, 24).expect("a gNB ID"));
    encoded(build_ngap!(InitiatingMessage, RANConfigurationUpdate, RANConfigurationUpdate, GlobalRANNodeID(id)))
}

pub(crate) fn foreign_plmn() -> PLMNIdentity {
    helpers::plmn("001", "01").expect("a PLMN")
}

fn location() -> UserLocationInformation<'static> {
    let cell = helpers::nr_cgi(network(), 1, 24, 1).expect("a cell");
    let location = UserLocationInformationNR::new(cell, helpers::tai(network(), [0, 0, 1]), None, None);
    UserLocationInformation::userLocationInformationNR(location)
}

/// Returns an INITIAL UE MESSAGE, with a 5G-S-TMSI if given (AMF Set 1, Pointer 0).
pub(crate) fn initial_ue(ran_id: u32, nas: &[u8], tmsi: Option<[u8; 4]>) -> Vec<u8> {
    initial_ue_for(RRCEstablishmentCause::mo_Signalling, ran_id, nas, tmsi)
}

/// As `initial_ue`, with the emergency establishment cause.
pub(crate) fn emergency(ran_id: u32, nas: &[u8]) -> Vec<u8> {
    initial_ue_for(RRCEstablishmentCause::emergency, ran_id, nas, None)
}

fn initial_ue_for(cause: RRCEstablishmentCause, ran_id: u32, nas: &[u8], tmsi: Option<[u8; 4]>) -> Vec<u8> {
    let mut ies = vec![
        build_ngap_ie!(InitialUEMessage, RAN_UE_NGAP_ID(ran_id)),
        build_ngap_ie!(InitialUEMessage, NAS_PDU(nas.to_vec())),
        build_ngap_ie!(InitialUEMessage, UserLocationInformation(location())),
        build_ngap_ie!(InitialUEMessage, RRCEstablishmentCause(cause)),
    ];
    if let Some(tmsi) = tmsi {
        let (set, pointer) = (aper::Bits::new(1, 10).expect("10 bits"), aper::Bits::new(0, 6).expect("6 bits"));
        let tmsi = FiveGSTMSI::new(AMFSetID(set), AMFPointer(pointer), FiveGTMSI(tmsi), None);
        ies.push(build_ngap_ie!(InitialUEMessage, FiveG_S_TMSI(tmsi)));
    }
    let ies = ies.into_iter().map(|ie| ie.expect("it builds")).collect();
    let message = InitialUEMessage::new(ProtocolIEContainer(ies));
    encoded(NGAP_PDU::of_message(&message, InitialUEMessage::CRITICALITY))
}

/// Returns an UPLINK NAS TRANSPORT.
pub(crate) fn uplink_nas(amf_id: u64, ran_id: u32, nas: &[u8]) -> Vec<u8> {
    encoded(build_ngap!(
        InitiatingMessage,
        UplinkNASTransport,
        UplinkNASTransport,
        AMF_UE_NGAP_ID(amf_id),
        RAN_UE_NGAP_ID(ran_id),
        NAS_PDU(nas.to_vec()),
        UserLocationInformation(location())
    ))
}

/// Returns a PATH SWITCH REQUEST with PDU session 1.
pub(crate) fn path_switch(amf_id: u64, ran_id: u32) -> Vec<u8> {
    let item = PDUSessionResourceToBeSwitchedDLItem::new(PDUSessionID(1), vec![0].into(), None);
    encoded(build_ngap!(
        InitiatingMessage,
        PathSwitchRequest,
        PathSwitchRequest,
        RAN_UE_NGAP_ID(ran_id),
        SourceAMF_UE_NGAP_ID(amf_id),
        UserLocationInformation(location()),
        PDUSessionResourceToBeSwitchedDLList(PDUSessionResourceToBeSwitchedDLList(vec![item])),
    ))
}

/// Returns an INITIAL CONTEXT SETUP RESPONSE without sessions.
pub(crate) fn context_set_up(amf_id: u64, ran_id: u32) -> Vec<u8> {
    encoded(build_ngap!(
        SuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupResponse,
        AMF_UE_NGAP_ID(amf_id),
        RAN_UE_NGAP_ID(ran_id)
    ))
}

/// Returns a UE CONTEXT RELEASE REQUEST.
pub(crate) fn release_request(amf_id: u64, ran_id: u32) -> Vec<u8> {
    encoded(build_ngap!(
        InitiatingMessage,
        UEContextReleaseRequest,
        UEContextReleaseRequest,
        AMF_UE_NGAP_ID(amf_id),
        RAN_UE_NGAP_ID(ran_id),
        Cause(Cause::radioNetwork(CauseRadioNetwork::user_inactivity))
    ))
}

/// Returns a UE CONTEXT RELEASE COMPLETE.
pub(crate) fn release_complete(amf_id: u64, ran_id: u32) -> Vec<u8> {
    encoded(build_ngap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        AMF_UE_NGAP_ID(amf_id),
        RAN_UE_NGAP_ID(ran_id)
    ))
}

/// Returns an NG RESET of one connection.
pub(crate) fn partial_reset(amf_id: u64, ran_id: u32) -> Vec<u8> {
    reset_of(vec![UEAssociatedLogicalNGConnectionItem::new(Some(AMFUENGAPID(amf_id)), Some(RANUENGAPID(ran_id)), None)])
}

/// Returns an NG RESET of connections that are named by their RAN-UE-NGAP-IDs alone.
pub(crate) fn reset_by_ran_ids(ran_ids: impl Iterator<Item = u32>) -> Vec<u8> {
    let item = |id| UEAssociatedLogicalNGConnectionItem::new(None, Some(RANUENGAPID(id)), None);
    reset_of(ran_ids.map(item).collect())
}

fn reset_of(items: Vec<UEAssociatedLogicalNGConnectionItem>) -> Vec<u8> {
    let part = ResetType::partOfNG_Interface(UEAssociatedLogicalNGConnectionList(items));
    encoded(build_ngap!(
        InitiatingMessage,
        NGReset,
        NGReset,
        Cause(Cause::radioNetwork(CauseRadioNetwork::unspecified)),
        ResetType(part)
    ))
}

/// Returns the PDU without the IEs of this identifier.
pub(crate) fn without(pdu: &[u8], id: ProtocolIEID) -> Vec<u8> {
    change(pdu, |ies| ies.retain(|ie| ie.id != id))
}

/// Returns the PDU with an additional IE that no release has, of this criticality.
pub(crate) fn with_unknown_ie(pdu: &[u8], criticality: Criticality) -> Vec<u8> {
    change(pdu, |ies| ies.push(ProtocolIEField::new(ProtocolIEID(65_000), criticality, vec![0xc0, 0xff].into())))
}

/// Returns the PDU padded to this number of octets by an unknown IE with criticality ignore.
pub(crate) fn padded_to(pdu: &[u8], octets: usize) -> Vec<u8> {
    let field = |n: usize| ProtocolIEField::new(ProtocolIEID(65_000), Criticality::ignore, vec![0; n].into());
    let with = |n: usize| change(pdu, |ies| ies.push(field(n)));
    // Length fields have a length as well.
    let mut n = octets - pdu.len();
    for _ in 0..8 {
        n = n + octets - with(n).len();
    }
    let padded = with(n);
    assert_eq!(padded.len(), octets);
    padded
}

fn change(pdu: &[u8], how: impl FnOnce(&mut Vec<ProtocolIEField<'static>>)) -> Vec<u8> {
    let mut decoded = NGAP_PDU::decode(pdu).expect("a PDU");
    let mut ies = decoded.protocol_ies().expect("IEs").into_owned();
    how(&mut ies.0);
    decoded.set_protocol_ies(ies).expect("IEs");
    decoded.encode().expect("it encodes")
}

/// Returns the cause of an ERROR INDICATION; panics on another message.
pub(crate) fn error_cause(pdu: &NGAPPDU<'_>) -> Cause {
    assert_eq!(pdu.kind(), NgapPduKind::Initiating_ErrorIndication, "{pdu}");
    pdu.ie::<ie::Cause>().expect("a cause").expect("a cause that decodes")
}
