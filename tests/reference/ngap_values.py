"""Known values of NGAP messages (TS 38.413), for pycrate to encode.

The Rust side (crates/wire/tests/golden) writes the same values down once more, by hand and with another codec; the two
must agree octet by octet. An IE is named as its ASN.1 identifier without `id-`; its number, criticality and type come
from pycrate's own reading of the ASN.1.
"""

import zlib

from pycrate_asn1dir import NGAP

DESCRIPTIONS = NGAP.NGAP_PDU_Descriptions
CONTENTS = NGAP.NGAP_PDU_Contents
CONSTANTS = NGAP.NGAP_Constants
IES = NGAP.NGAP_IEs
PDU = DESCRIPTIONS.NGAP_PDU

PLMN = bytes.fromhex("99f907")
TAC = bytes([0, 0, 1])
AMF_ID = 0x0ABC123007
RAN_ID = 0x00C0FFEE
GNB = ("globalGNB-ID", {"pLMNIdentity": PLMN, "gNB-ID": ("gNB-ID", (0x000102, 24))})
TAI = {"pLMNIdentity": PLMN, "tAC": TAC}
CELL = {"pLMNIdentity": PLMN, "nRCellIdentity": (0x000102003, 36)}
RECOMMENDED_CELLS = {"recommendedCellList": [
    {"nGRAN-CGI": ("nR-CGI", CELL), "timeStayedInCell": 7}, {"nGRAN-CGI": ("nR-CGI", CELL)}]}
LOCATION = ("userLocationInformationNR", {"nR-CGI": CELL, "tAI": TAI, "timeStamp": bytes.fromhex("e5a1b2c3")})
EUTRA_CELL = {"pLMNIdentity": PLMN, "eUTRACellIdentity": (0x1234501, 28)}
EUTRA_LOCATION = ("userLocationInformationEUTRA", {"eUTRA-CGI": EUTRA_CELL, "tAI": TAI})
GUAMI = {"pLMNIdentity": PLMN, "aMFRegionID": (2, 8), "aMFSetID": (1, 10), "aMFPointer": (3, 6)}
S_TMSI = {"aMFSetID": (1, 10), "aMFPointer": (3, 6), "fiveG-TMSI": bytes.fromhex("deadbeef")}
SLICE = {"sST": b"\x01"}
SLICE_SD = {"sST": b"\x03", "sD": bytes.fromhex("0000ab")}
SLICES = [{"s-NSSAI": SLICE}, {"s-NSSAI": SLICE_SD}]
NAS = bytes.fromhex("7e005c000d0199f907f0ff00000000000010")
SECURITY = {
    "nRencryptionAlgorithms": (0xE000, 16),
    "nRintegrityProtectionAlgorithms": (0x6000, 16),
    "eUTRAencryptionAlgorithms": (0xE000, 16),
    "eUTRAintegrityProtectionAlgorithms": (0x6000, 16),
}
KEY = int("c18166e13cfde1dea842c708f6e0b3372b6896664df4e865c0c78bd270852005", 16)
NH = int("383c6b76bf2a99aa2ca4c5136d4122a2b942301f0b9e07439786939cd30c4a4b", 16)
AMBR = {"uEAggregateMaximumBitRateDL": 2_000_000_000, "uEAggregateMaximumBitRateUL": 1_000_000_000}


def tunnel(last, teid):
    """A GTP tunnel at 127.0.0.<last>."""
    address = (0x7F000000 | last, 32)
    return ("gTPTunnel", {"transportLayerAddress": address, "gTP-TEID": teid.to_bytes(4, "big")})


def reflected(value, bits):
    return int(f"{value:0{bits}b}"[::-1], 2)


def hashed_index(tmsi):
    """13 most significant bits of the frame check sequence (TS 38.304 7.4); the CRC of zlib has its bits reversed."""
    octets = bytes(reflected(octet, 8) for octet in tmsi)
    return (reflected(zlib.crc32(octets), 32) >> 19, 13)


def object_set(message):
    """IE number -> (criticality, type name) of a message or transfer, from pycrate's ASN.1."""
    name = message.replace("-", "_") + ("_IEs" if not message.endswith("IEs") else "")
    holder = CONTENTS if hasattr(CONTENTS, name) else IES
    if not hasattr(holder, name):
        name = name.replace("_IEs", "IEs")
        holder = CONTENTS if hasattr(CONTENTS, name) else IES
    return {row["id"]: (row["criticality"], type_name(row["Value"])) for row in getattr(holder, name)._val.root}


def type_name(value):
    """The name under which pycrate takes a value of this type in an open type; built-in types have none of their own."""
    return value._typeref.called[1] if value._typeref else value.TYPE


def ies(message, fields):
    """The protocolIEs of a message from (name, value) pairs."""
    known = object_set(message)
    out = []
    for name, value in fields:
        number = getattr(CONSTANTS, "id_" + name.replace("-", "_"))._val
        criticality, kind = known[number]
        out.append({"id": number, "criticality": criticality, "value": (kind, value)})
    return {"protocolIEs": out}


def procedure(kind, message):
    """Procedure code and criticality of the procedure whose `kind` message this is."""
    for row in DESCRIPTIONS.NGAP_ELEMENTARY_PROCEDURES._val.root:
        if kind in row and row[kind]._typeref.called[1] == message:
            return row["procedureCode"], row.get("criticality", "ignore")
    raise KeyError(f"{message} is no {kind}")


def pdu(kind, message, fields):
    code, criticality = procedure(kind, message)
    choice = kind[0].lower() + kind[1:]
    value = (message, ies(message, fields))
    return (choice, {"procedureCode": code, "criticality": criticality, "value": value})


def initiating(message, *fields):
    return pdu("InitiatingMessage", message, fields)


def successful(message, *fields):
    return pdu("SuccessfulOutcome", message, fields)


def unsuccessful(message, *fields):
    return pdu("UnsuccessfulOutcome", message, fields)


IDS = (("AMF-UE-NGAP-ID", AMF_ID), ("RAN-UE-NGAP-ID", RAN_ID))


def setup_transfer(erab=None):
    """With `erab`, the set-up at the target of a handover from EPS."""
    flow = {
        "qosFlowIdentifier": 1,
        "qosFlowLevelQosParameters": {
            "qosCharacteristics": ("nonDynamic5QI", {"fiveQI": 9}),
            "allocationAndRetentionPriority": {
                "priorityLevelARP": 8,
                "pre-emptionCapability": "shall-not-trigger-pre-emption",
                "pre-emptionVulnerability": "not-pre-emptable",
            },
        },
    }
    if erab is not None:
        flow["e-RAB-ID"] = erab
    ambr = {"pDUSessionAggregateMaximumBitRateDL": 500_000_000, "pDUSessionAggregateMaximumBitRateUL": 100_000_000}
    name = "PDUSessionResourceSetupRequestTransfer"
    return (name, ies(name, [
        ("PDUSessionAggregateMaximumBitRate", ambr),
        ("UL-NGU-UP-TNLInformation", tunnel(7, 0x00000101)),
        ("PDUSessionType", "ipv4"),
        ("QosFlowSetupRequestList", [flow]),
    ]))


def modify_transfer():
    """Other terms of the flow."""
    flow = {
        "qosFlowIdentifier": 1,
        "qosFlowLevelQosParameters": {
            "qosCharacteristics": ("nonDynamic5QI", {"fiveQI": 7}),
            "allocationAndRetentionPriority": {
                "priorityLevelARP": 3,
                "pre-emptionCapability": "shall-not-trigger-pre-emption",
                "pre-emptionVulnerability": "not-pre-emptable",
            },
        },
    }
    ambr = {"pDUSessionAggregateMaximumBitRateDL": 10_000_000, "pDUSessionAggregateMaximumBitRateUL": 5_000_000}
    name = "PDUSessionResourceModifyRequestTransfer"
    return (name, ies(name, [
        ("PDUSessionAggregateMaximumBitRate", ambr),
        ("QosFlowAddOrModifyRequestList", [flow]),
    ]))


def response_transfer():
    flows = {"uPTransportLayerInformation": tunnel(9, 0x0A0B0C0D), "associatedQosFlowList": [{"qosFlowIdentifier": 1}]}
    return ("PDUSessionResourceSetupResponseTransfer", {"dLQosFlowPerTNLInformation": flows})


def unsuccessful_transfer():
    cause = ("radioNetwork", "radio-resources-not-available")
    return ("PDUSessionResourceSetupUnsuccessfulTransfer", {"cause": cause})


def ng_enb(kind, number, bits):
    return ("globalNgENB-ID", {"pLMNIdentity": PLMN, "ngENB-ID": (kind, (number, bits))})


NG_ENBS = [
    ("ng-enb-macro", ng_enb("macroNgENB-ID", 0x12345, 20)),
    ("ng-enb-short", ng_enb("shortMacroNgENB-ID", 0x12345, 18)),
    ("ng-enb-long", ng_enb("longMacroNgENB-ID", 0x112345, 21)),
]


def node_identities():
    """Each choice and length of a Global RAN Node ID (9.3.1.5)."""
    for bits in range(22, 33):
        identity = (1 << (bits - 1) | 0x1234, bits)
        yield f"gnb-{bits}", ("globalGNB-ID", {"pLMNIdentity": PLMN, "gNB-ID": ("gNB-ID", identity)})
    yield from NG_ENBS
    yield "n3iwf", ("globalN3IWF-ID", {"pLMNIdentity": PLMN, "n3IWF-ID": ("n3IWF-ID", (0x1234, 16))})
    for name, number, kind, value in [
        ("tngf", 240, "GlobalTNGF-ID", {"pLMNIdentity": PLMN, "tNGF-ID": ("tNGF-ID", (0x12345678, 32))}),
        ("twif", 241, "GlobalTWIF-ID", {"pLMNIdentity": PLMN, "tWIF-ID": ("tWIF-ID", (0x12345678, 32))}),
        ("w-agf", 242, "GlobalW-AGF-ID", {"pLMNIdentity": PLMN, "w-AGF-ID": ("w-AGF-ID", (0x1234, 16))}),
    ]:
        yield name, ("choice-Extensions", {"id": number, "criticality": "reject", "value": (kind, value)})


def node_messages():
    """Messages that belong to no UE."""
    plmn_slices = {"pLMNIdentity": PLMN, "tAISliceSupportList": SLICES}
    areas = [{"tAC": TAC, "broadcastPLMNList": [plmn_slices]}]
    served = [{"gUAMI": GUAMI}]
    support = [{"pLMNIdentity": PLMN, "sliceSupportList": SLICES}]
    address = ("endpointIPAddress", (0x7F000005, 32))
    diagnostics = {
        "procedureCode": 21,
        "triggeringMessage": "initiating-message",
        "procedureCriticality": "reject",
        "iEsCriticalityDiagnostics": [{"iECriticality": "reject", "iE-ID": 27, "typeOfError": "missing"}],
    }
    pairs = [{"aMF-UE-NGAP-ID": AMF_ID, "rAN-UE-NGAP-ID": RAN_ID}, {"rAN-UE-NGAP-ID": 5}]
    paging = ("fiveG-S-TMSI", S_TMSI)
    yield "NGSetupRequest", initiating(
        "NGSetupRequest", ("GlobalRANNodeID", GNB), ("RANNodeName", "vireo-gnb"), ("SupportedTAList", areas),
        ("DefaultPagingDRX", "v128"))
    for name, identity in node_identities():
        yield f"NGSetupRequest-{name}", initiating(
            "NGSetupRequest", ("GlobalRANNodeID", identity), ("SupportedTAList", areas), ("DefaultPagingDRX", "v128"))
    yield "NGSetupFailure-unspecified", unsuccessful(
        "NGSetupFailure", ("Cause", ("misc", "unspecified")), ("TimeToWait", "v60s"))
    son = {
        "targetRANNodeID-SON": {"globalRANNodeID": NG_ENBS[0][1], "selectedTAI": TAI},
        "sourceRANNodeID": {"globalRANNodeID": GNB, "selectedTAI": TAI},
        "sONInformation": ("sONInformationRequest", "xn-TNL-configuration-info")}
    yield "UplinkRANConfigurationTransfer", initiating(
        "UplinkRANConfigurationTransfer", ("SONConfigurationTransferUL", son))
    yield "DownlinkRANConfigurationTransfer", initiating(
        "DownlinkRANConfigurationTransfer", ("SONConfigurationTransferDL", son))
    yield "NGSetupResponse", successful(
        "NGSetupResponse", ("AMFName", "vireo"), ("ServedGUAMIList", served), ("RelativeAMFCapacity", 255),
        ("PLMNSupportList", support))
    yield "NGSetupFailure", unsuccessful(
        "NGSetupFailure", ("Cause", ("misc", "unknown-PLMN-or-SNPN")), ("TimeToWait", "v10s"))
    yield "NGSetupFailure-diagnostics", unsuccessful(
        "NGSetupFailure", ("Cause", ("protocol", "abstract-syntax-error-reject")),
        ("CriticalityDiagnostics", diagnostics))
    yield "RANConfigurationUpdate", initiating(
        "RANConfigurationUpdate", ("RANNodeName", "renamed"), ("SupportedTAList", areas),
        ("DefaultPagingDRX", "v64"), ("GlobalRANNodeID", GNB))
    yield "RANConfigurationUpdateAcknowledge", successful("RANConfigurationUpdateAcknowledge")
    yield "RANConfigurationUpdateFailure", unsuccessful(
        "RANConfigurationUpdateFailure", ("Cause", ("misc", "unknown-PLMN-or-SNPN")), ("TimeToWait", "v60s"))
    yield "RANConfigurationUpdateFailure-no-node", unsuccessful(
        "RANConfigurationUpdateFailure",
        ("Cause", ("protocol", "message-not-compatible-with-receiver-state")), ("TimeToWait", "v1s"))
    yield "AMFConfigurationUpdate", initiating(
        "AMFConfigurationUpdate", ("AMFName", "vireo"), ("ServedGUAMIList", served), ("RelativeAMFCapacity", 10),
        ("PLMNSupportList", support),
        ("AMF-TNLAssociationToAddList", [{
            "aMF-TNLAssociationAddress": address, "tNLAssociationUsage": "both", "tNLAddressWeightFactor": 64}]))
    yield "AMFConfigurationUpdateAcknowledge", successful(
        "AMFConfigurationUpdateAcknowledge",
        ("AMF-TNLAssociationSetupList", [{"aMF-TNLAssociationAddress": address}]))
    address_6 = ("endpointIPAddress", (0x20010DB8000000000000000000000005, 128))
    yield "AMFConfigurationUpdate-associations", initiating(
        "AMFConfigurationUpdate",
        ("AMF-TNLAssociationToAddList", [
            {"aMF-TNLAssociationAddress": a, "tNLAssociationUsage": "both", "tNLAddressWeightFactor": 128}
            for a in (address, address_6)]))
    yield "AMFConfigurationUpdate-gone", initiating(
        "AMFConfigurationUpdate",
        ("AMF-TNLAssociationToRemoveList", [{"aMF-TNLAssociationAddress": a} for a in (address, address_6)]))
    unreachable = ("transport", "transport-resource-unavailable")
    yield "AMFConfigurationUpdateAcknowledge-failed", successful(
        "AMFConfigurationUpdateAcknowledge",
        ("AMF-TNLAssociationSetupList", [{"aMF-TNLAssociationAddress": address}]),
        ("AMF-TNLAssociationFailedToSetupList", [{"tNLAssociationAddress": address_6, "cause": unreachable}]))
    yield "AMFConfigurationUpdateFailure", unsuccessful("AMFConfigurationUpdateFailure", ("Cause", unreachable))
    yield "NGReset-interface", initiating(
        "NGReset", ("Cause", ("misc", "om-intervention")), ("ResetType", ("nG-Interface", "reset-all")))
    yield "NGReset-part", initiating(
        "NGReset", ("Cause", ("radioNetwork", "unspecified")), ("ResetType", ("partOfNG-Interface", pairs)))
    yield "NGResetAcknowledge", successful("NGResetAcknowledge", ("UE-associatedLogicalNG-connectionList", pairs))
    yield "ErrorIndication", initiating(
        "ErrorIndication", *IDS, ("Cause", ("radioNetwork", "unknown-local-UE-NGAP-ID")))
    yield "ErrorIndication-syntax", initiating("ErrorIndication", ("Cause", ("protocol", "transfer-syntax-error")))
    yield "Paging", initiating(
        "Paging", ("UEPagingIdentity", paging), ("PagingDRX", "v128"), ("TAIListForPaging", [{"tAI": TAI}]))
    yield "Paging-extended-drx", initiating(
        "Paging", ("UEPagingIdentity", paging), ("PagingDRX", "v128"), ("TAIListForPaging", [{"tAI": TAI}]),
        ("PagingPriority", "priolevel3"),
        ("EUTRA-PagingeDRXInformation", {"eUTRA-paging-eDRX-Cycle": "hf8", "eUTRA-paging-Time-Window": "s4"}))
    yield "Paging-extended-drx-nr", initiating(
        "Paging", ("UEPagingIdentity", paging), ("PagingDRX", "v128"), ("TAIListForPaging", [{"tAI": TAI}]),
        ("NR-PagingeDRXInformation", {"nR-paging-eDRX-Cycle": "hf8", "nR-paging-Time-Window": "s4"}))
    yield "Paging-assistance", initiating(
        "Paging", ("UEPagingIdentity", paging), ("PagingDRX", "v128"), ("TAIListForPaging", [{"tAI": TAI}]),
        ("AssistanceDataForPaging", {
            "assistanceDataForRecommendedCells": {"recommendedCellsForPaging": RECOMMENDED_CELLS},
            "pagingAttemptInformation": {"pagingAttemptCount": 2, "intendedNumberOfPagingAttempts": 5}}))
    yield "OverloadStart", initiating("OverloadStart", ("AMFTrafficLoadReductionIndication", 50))
    for name, action, percent in [
        ("signalling", "reject-rrc-cr-signalling", 40),
        ("data", "reject-non-emergency-mo-dt", 1),
        ("emergency", "permit-emergency-sessions-and-mobile-terminated-services-only", 99),
        ("priority", "permit-high-priority-sessions-and-mobile-terminated-services-only", 50),
    ]:
        yield f"OverloadStart-{name}", initiating(
            "OverloadStart", ("AMFOverloadResponse", ("overloadAction", action)),
            ("AMFTrafficLoadReductionIndication", percent))
    yield "OverloadStop", initiating("OverloadStop")


def initial_ue_message():
    return initiating(
        "InitialUEMessage", ("RAN-UE-NGAP-ID", RAN_ID), ("NAS-PDU", NAS), ("UserLocationInformation", LOCATION),
        ("RRCEstablishmentCause", "mo-Signalling"), ("FiveG-S-TMSI", S_TMSI), ("UEContextRequest", "requested"))


def connection_messages():
    """Messages of a UE's NG connection that carry no PDU session."""
    yield "InitialUEMessage", initial_ue_message()
    yield "DownlinkNASTransport", initiating("DownlinkNASTransport", *IDS, ("NAS-PDU", NAS))
    areas = {
        "servingPLMN": PLMN,
        "forbiddenAreaInformation": [{
            "pLMNIdentity": PLMN, "forbiddenTACs": [bytes.fromhex("000002"), bytes.fromhex("ffffff")]}],
        "serviceAreaInformation": [{"pLMNIdentity": PLMN, "notAllowedTACs": [bytes.fromhex("000007")]}]}
    yield "DownlinkNASTransport-information", initiating(
        "DownlinkNASTransport", *IDS, ("NAS-PDU", NAS), ("MobilityRestrictionList", areas), ("IndexToRFSP", 7))
    yield "UplinkNASTransport", initiating(
        "UplinkNASTransport", *IDS, ("NAS-PDU", NAS), ("UserLocationInformation", LOCATION))
    yield "NASNonDeliveryIndication", initiating(
        "NASNonDeliveryIndication", *IDS, ("NAS-PDU", NAS),
        ("Cause", ("radioNetwork", "radio-connection-with-ue-lost")))
    yield "InitialContextSetupRequest", initiating(
        "InitialContextSetupRequest", *IDS, ("UEAggregateMaximumBitRate", AMBR), ("GUAMI", GUAMI),
        ("PDUSessionResourceSetupListCxtReq", [{
            "pDUSessionID": 5, "nAS-PDU": NAS, "s-NSSAI": SLICE,
            "pDUSessionResourceSetupRequestTransfer": setup_transfer()}]),
        ("AllowedNSSAI", SLICES), ("UESecurityCapabilities", SECURITY), ("SecurityKey", (KEY, 256)),
        ("MaskedIMEISV", (0x123456780000FFFF, 64)), ("NAS-PDU", NAS))
    inactive = {
        "uEIdentityIndexValue": ("indexLength10", (0x2EF, 10)), "uESpecificDRX": "v64",
        "periodicRegistrationUpdateTimer": (0x06, 8), "mICOModeIndication": "true", "tAIListForInactive": [{"tAI": TAI}]}
    restrictions = {
        "servingPLMN": PLMN, "equivalentPLMNs": [bytes.fromhex("00f110")],
        "iE-Extensions": [{
            "id": 161, "criticality": "ignore",
            "extensionValue": ("CNTypeRestrictionsForServing", "epc-forbidden")}]}
    yield "InitialContextSetupRequest-information", initiating(
        "InitialContextSetupRequest", *IDS, ("CoreNetworkAssistanceInformationForInactive", inactive),
        ("GUAMI", GUAMI), ("AllowedNSSAI", SLICES), ("UESecurityCapabilities", SECURITY), ("SecurityKey", (KEY, 256)),
        ("MobilityRestrictionList", restrictions), ("IndexToRFSP", 256))
    reachable = {name: value for name, value in inactive.items() if name != "mICOModeIndication"}
    for name, extensions in [
        ("eutra", [(223, "EUTRA-PagingeDRXInformation", {
            "eUTRA-paging-eDRX-Cycle": "hf8", "eUTRA-paging-Time-Window": "s4"})]),
        ("nr", [
            (332, "NR-PagingeDRXInformation", {
                "nR-paging-eDRX-Cycle": "hf1024", "nR-paging-Time-Window": "s16"}),
            (365, "HashedUEIdentityIndexValue", hashed_index(S_TMSI["fiveG-TMSI"]))]),
    ]:
        with_drx = {**reachable, "iE-Extensions": [
            {"id": number, "criticality": "ignore", "extensionValue": (kind, value)}
            for number, kind, value in extensions]}
        yield f"InitialContextSetupRequest-extended-drx-{name}", initiating(
            "InitialContextSetupRequest", *IDS, ("CoreNetworkAssistanceInformationForInactive", with_drx),
            ("GUAMI", GUAMI), ("AllowedNSSAI", SLICES), ("UESecurityCapabilities", SECURITY),
            ("SecurityKey", (KEY, 256)))
    yield "UEContextModificationRequest-rfsp", initiating("UEContextModificationRequest", *IDS, ("IndexToRFSP", 7))
    yield "InitialContextSetupResponse", successful(
        "InitialContextSetupResponse", *IDS,
        ("PDUSessionResourceSetupListCxtRes", [{
            "pDUSessionID": 5, "pDUSessionResourceSetupResponseTransfer": response_transfer()}]))
    yield "InitialContextSetupFailure", unsuccessful(
        "InitialContextSetupFailure", *IDS,
        ("PDUSessionResourceFailedToSetupListCxtFail", [{
            "pDUSessionID": 5, "pDUSessionResourceSetupUnsuccessfulTransfer": unsuccessful_transfer()}]),
        ("Cause", ("radioNetwork", "failure-in-radio-interface-procedure")))
    yield "UEContextReleaseRequest", initiating(
        "UEContextReleaseRequest", *IDS, ("PDUSessionResourceListCxtRelReq", [{"pDUSessionID": 5}]),
        ("Cause", ("radioNetwork", "user-inactivity")))
    yield "UEContextReleaseCommand", initiating(
        "UEContextReleaseCommand",
        ("UE-NGAP-IDs", ("uE-NGAP-ID-pair", {"aMF-UE-NGAP-ID": AMF_ID, "rAN-UE-NGAP-ID": RAN_ID})),
        ("Cause", ("nas", "normal-release")))
    yield "UEContextReleaseComplete", successful(
        "UEContextReleaseComplete", *IDS, ("UserLocationInformation", LOCATION),
        ("PDUSessionResourceListCxtRelCpl", [{"pDUSessionID": 5}]))
    yield "UEContextReleaseComplete-recommended", successful(
        "UEContextReleaseComplete", *IDS, ("InfoOnRecommendedCellsAndRANNodesForPaging", {
            "recommendedCellsForPaging": RECOMMENDED_CELLS,
            "recommendRANNodesForPaging": {"recommendedRANNodeList": [
                {"aMFPagingTarget": ("globalRANNodeID", GNB)}, {"aMFPagingTarget": ("tAI", TAI)}]}}))
    yield "UERadioCapabilityInfoIndication", initiating(
        "UERadioCapabilityInfoIndication", *IDS, ("UERadioCapability", bytes(range(64))))
    yield "UERadioCapabilityInfoIndication-formats", initiating(
        "UERadioCapabilityInfoIndication", *IDS, ("UERadioCapability", b"\x5a" * 32),
        ("UERadioCapabilityForPaging", {
            "uERadioCapabilityForPagingOfNR": b"\x06" * 30, "uERadioCapabilityForPagingOfEUTRA": b"\x00" * 30}),
        ("UERadioCapability-EUTRA-Format", b"\xa5" * 32))


def source_to_target():
    """Source NG-RAN Node to Target NG-RAN Node Transparent Container, with the smallest RRC container there is."""
    kind = IES.SourceNGRANNode_ToTargetNGRANNode_TransparentContainer
    cell = ("nR-CGI", CELL)
    last = {"globalCellID": cell, "cellType": {"cellSize": "small"}, "timeUEStayedInCell": 5}
    kind.set_val({
        "rRCContainer": bytes(2), "targetCell-ID": cell,
        "uEHistoryInformation": [{"lastVisitedCellInformation": ("nGRANCell", last)}]})
    return kind.to_aper()


def session_messages():
    """Messages about PDU sessions and mobility."""
    release = ("PDUSessionResourceReleaseCommandTransfer", {"cause": ("nas", "normal-release")})
    released = ("PDUSessionResourceReleaseResponseTransfer", {})
    required = ("HandoverRequiredTransfer", {"directForwardingPathAvailability": "direct-path-available"})
    switch = ("PathSwitchRequestTransfer", {
        "dL-NGU-UP-TNLInformation": tunnel(10, 0x11223344), "qosFlowAcceptedList": [{"qosFlowIdentifier": 1}]})
    switched = ("PathSwitchRequestAcknowledgeTransfer", {"uL-NGU-UP-TNLInformation": tunnel(7, 0x00000101)})
    target = ("targetRANNodeID", {"globalRANNodeID": GNB, "selectedTAI": TAI})
    yield "PDUSessionResourceSetupRequest", initiating(
        "PDUSessionResourceSetupRequest", *IDS,
        ("PDUSessionResourceSetupListSUReq", [{
            "pDUSessionID": 5, "pDUSessionNAS-PDU": NAS, "s-NSSAI": SLICE_SD,
            "pDUSessionResourceSetupRequestTransfer": setup_transfer()}]),
        ("UEAggregateMaximumBitRate", AMBR))
    yield "PDUSessionResourceSetupResponse", successful(
        "PDUSessionResourceSetupResponse", *IDS,
        ("PDUSessionResourceSetupListSURes", [{
            "pDUSessionID": 5, "pDUSessionResourceSetupResponseTransfer": response_transfer()}]))
    yield "PDUSessionResourceSetupResponse-failed", successful(
        "PDUSessionResourceSetupResponse", *IDS,
        ("PDUSessionResourceFailedToSetupListSURes", [{
            "pDUSessionID": 5, "pDUSessionResourceSetupUnsuccessfulTransfer": unsuccessful_transfer()}]))
    modified = ("PDUSessionResourceModifyResponseTransfer", {
        "qosFlowAddOrModifyResponseList": [{"qosFlowIdentifier": 1}]})
    yield "PDUSessionResourceModifyRequest", initiating(
        "PDUSessionResourceModifyRequest", *IDS,
        ("PDUSessionResourceModifyListModReq", [{
            "pDUSessionID": 5, "nAS-PDU": NAS, "pDUSessionResourceModifyRequestTransfer": modify_transfer()}]))
    yield "PDUSessionResourceModifyResponse", successful(
        "PDUSessionResourceModifyResponse", *IDS,
        ("PDUSessionResourceModifyListModRes", [{
            "pDUSessionID": 5, "pDUSessionResourceModifyResponseTransfer": modified}]))
    unmodified = ("PDUSessionResourceModifyUnsuccessfulTransfer", {
        "cause": ("radioNetwork", "radio-resources-not-available")})
    yield "PDUSessionResourceModifyResponse-failed", successful(
        "PDUSessionResourceModifyResponse", *IDS,
        ("PDUSessionResourceFailedToModifyListModRes", [{
            "pDUSessionID": 5, "pDUSessionResourceModifyUnsuccessfulTransfer": unmodified}]))
    yield "PDUSessionResourceReleaseCommand", initiating(
        "PDUSessionResourceReleaseCommand", *IDS, ("NAS-PDU", NAS),
        ("PDUSessionResourceToReleaseListRelCmd", [{
            "pDUSessionID": 5, "pDUSessionResourceReleaseCommandTransfer": release}]))
    yield "PDUSessionResourceReleaseResponse", successful(
        "PDUSessionResourceReleaseResponse", *IDS,
        ("PDUSessionResourceReleasedListRelRes", [{
            "pDUSessionID": 5, "pDUSessionResourceReleaseResponseTransfer": released}]))
    yield "HandoverRequired", initiating(
        "HandoverRequired", *IDS, ("HandoverType", "intra5gs"),
        ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason")), ("TargetID", target),
        ("PDUSessionResourceListHORqd", [{"pDUSessionID": 5, "handoverRequiredTransfer": required}]),
        ("SourceToTarget-TransparentContainer", source_to_target()))
    yield "HandoverPreparationFailure", unsuccessful(
        "HandoverPreparationFailure", *IDS,
        ("Cause", ("radioNetwork", "ho-failure-in-target-5GC-ngran-node-or-target-system")))
    yield "HandoverCancel", initiating(
        "HandoverCancel", *IDS, ("Cause", ("radioNetwork", "handover-cancelled")))
    yield "HandoverCancelAcknowledge", successful("HandoverCancelAcknowledge", *IDS)
    yield "HandoverNotify", initiating("HandoverNotify", *IDS, ("UserLocationInformation", LOCATION))
    yield "PathSwitchRequest", initiating(
        "PathSwitchRequest", ("RAN-UE-NGAP-ID", RAN_ID), ("SourceAMF-UE-NGAP-ID", AMF_ID),
        ("UserLocationInformation", LOCATION), ("UESecurityCapabilities", SECURITY),
        ("PDUSessionResourceToBeSwitchedDLList", [{"pDUSessionID": 5, "pathSwitchRequestTransfer": switch}]))
    yield "PathSwitchRequestAcknowledge", successful(
        "PathSwitchRequestAcknowledge", *IDS,
        ("SecurityContext", {"nextHopChainingCount": 2, "nextHopNH": (NH, 256)}),
        ("PDUSessionResourceSwitchedList", [{
            "pDUSessionID": 5, "pathSwitchRequestAcknowledgeTransfer": switched}]),
        ("AllowedNSSAI", SLICES))


def ran_change_messages():
    """Changes that a RAN node starts, and their answers."""
    flows = {"uPTransportLayerInformation": tunnel(10, 0x11223344), "associatedQosFlowList": [{"qosFlowIdentifier": 1}]}
    indication = ("PDUSessionResourceModifyIndicationTransfer", {"dLQosFlowPerTNLInformation": flows})
    confirm = ("PDUSessionResourceModifyConfirmTransfer", {
        "qosFlowModifyConfirmList": [{"qosFlowIdentifier": 1}], "uLNGU-UP-TNLInformation": tunnel(7, 0x00000101)})
    refusal = ("PDUSessionResourceModifyIndicationUnsuccessfulTransfer", {
        "cause": ("transport", "transport-resource-unavailable")})
    notify = ("PDUSessionResourceNotifyTransfer", {
        "qosFlowNotifyList": [
            {"qosFlowIdentifier": 1, "notificationCause": "not-fulfilled"},
            {"qosFlowIdentifier": 2, "notificationCause": "fulfilled"}]})
    gone = ("PDUSessionResourceNotifyReleasedTransfer", {"cause": ("radioNetwork", "radio-resources-not-available")})
    yield "PDUSessionResourceModifyIndication", initiating(
        "PDUSessionResourceModifyIndication", *IDS,
        ("PDUSessionResourceModifyListModInd", [{
            "pDUSessionID": 5, "pDUSessionResourceModifyIndicationTransfer": indication}]))
    yield "PDUSessionResourceModifyConfirm", successful(
        "PDUSessionResourceModifyConfirm", *IDS,
        ("PDUSessionResourceModifyListModCfm", [{
            "pDUSessionID": 5, "pDUSessionResourceModifyConfirmTransfer": confirm}]),
        ("PDUSessionResourceFailedToModifyListModCfm", [{
            "pDUSessionID": 6, "pDUSessionResourceModifyIndicationUnsuccessfulTransfer": refusal}]))
    yield "PDUSessionResourceNotify", initiating(
        "PDUSessionResourceNotify", *IDS,
        ("PDUSessionResourceNotifyList", [{"pDUSessionID": 5, "pDUSessionResourceNotifyTransfer": notify}]),
        ("PDUSessionResourceReleasedListNot", [{
            "pDUSessionID": 6, "pDUSessionResourceNotifyReleasedTransfer": gone}]))
    yield "RRCInactiveTransitionReport", initiating(
        "RRCInactiveTransitionReport", *IDS, ("RRCState", "inactive"), ("UserLocationInformation", LOCATION))
    yield "LocationReportingControl", initiating(
        "LocationReportingControl", *IDS,
        ("LocationReportingRequestType", {"eventType": "change-of-serve-cell", "reportArea": "cell"}))
    yield "LocationReport", initiating(
        "LocationReport", *IDS, ("UserLocationInformation", EUTRA_LOCATION),
        ("LocationReportingRequestType", {"eventType": "change-of-serve-cell", "reportArea": "cell"}))
    yield "LocationReportingFailureIndication", initiating(
        "LocationReportingFailureIndication", *IDS, ("Cause", ("radioNetwork", "unspecified")))
    yield "UEContextModificationRequest-key", initiating(
        "UEContextModificationRequest", *IDS, ("SecurityKey", (KEY, 256)), ("UESecurityCapabilities", SECURITY))
    yield "UEContextModificationFailure", unsuccessful(
        "UEContextModificationFailure", *IDS, ("Cause", ("radioNetwork", "unspecified")))
    yield "RerouteNASRequest", initiating(
        "RerouteNASRequest", ("RAN-UE-NGAP-ID", RAN_ID), ("AMF-UE-NGAP-ID", AMF_ID),
        ("NGAP-Message", encode(initial_ue_message())), ("AMFSetID", (1, 10)))
    yield "AMFStatusIndication", initiating(
        "AMFStatusIndication", ("UnavailableGUAMIList", [{"gUAMI": GUAMI}]))


def intersystem_messages():
    """Messages of a handover between 5GS and EPS."""
    enb = {"pLMNIdentity": PLMN, "ngENB-ID": ("macroNgENB-ID", (0xABC, 20))}
    target = ("targeteNB-ID", {
        "globalENB-ID": enb, "selected-EPS-TAI": {"pLMNIdentity": PLMN, "ePS-TAC": bytes([0, 7])}})
    required = ("HandoverRequiredTransfer", {})
    # Packets are forwarded through the UPF.
    command = ("HandoverCommandTransfer", {
        "dLForwardingUP-TNLInformation": tunnel(7, 0x00000102), "qosFlowToBeForwardedList": [{"qosFlowIdentifier": 1}]})
    # Transparent containers of eNBs (TS 36.413 9.2.1.7, 9.2.1.8), with the smallest RRC containers.
    source, there = bytes.fromhex("0001800099f90700abc0100099f90700abc010800005"), bytes.fromhex("000180")
    yield "HandoverRequired-to-eps", initiating(
        "HandoverRequired", *IDS, ("HandoverType", "fivegs-to-eps"),
        ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason")), ("TargetID", target),
        ("PDUSessionResourceListHORqd", [{"pDUSessionID": 5, "handoverRequiredTransfer": required}]),
        ("SourceToTarget-TransparentContainer", source))
    yield "HandoverRequest-from-eps", initiating(
        "HandoverRequest", ("AMF-UE-NGAP-ID", AMF_ID), ("HandoverType", "eps-to-5gs"),
        ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason")),
        ("UEAggregateMaximumBitRate", AMBR), ("UESecurityCapabilities", SECURITY),
        ("SecurityContext", {"nextHopChainingCount": 0, "nextHopNH": (NH, 256)}),
        ("NewSecurityContextInd", "true"), ("NASC", bytes.fromhex("32560ac7222a0000")),
        ("PDUSessionResourceSetupListHOReq", [{
            "pDUSessionID": 5, "s-NSSAI": SLICE_SD, "handoverRequestTransfer": setup_transfer(erab=6)}]),
        ("AllowedNSSAI", SLICES), ("SourceToTarget-TransparentContainer", source_to_target()), ("GUAMI", GUAMI))
    yield "HandoverCommand-to-eps", successful(
        "HandoverCommand", *IDS, ("HandoverType", "fivegs-to-eps"), ("NASSecurityParametersFromNGRAN", b"\x2c"),
        ("PDUSessionResourceHandoverList", [{"pDUSessionID": 5, "handoverCommandTransfer": command}]),
        ("TargetToSource-TransparentContainer", there))


def messages():
    """Every message: name -> value of an NGAP-PDU."""
    return {**dict(node_messages()), **dict(connection_messages()), **dict(session_messages()),
            **dict(ran_change_messages()), **dict(intersystem_messages())}


def encode(value):
    PDU.set_val(value)
    return PDU.to_aper()


def decode(octets):
    PDU.from_aper(octets)
    return PDU.get_val()
