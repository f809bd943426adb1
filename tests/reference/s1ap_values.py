"""Known values of S1AP messages (TS 36.413), for pycrate to encode.

As in ngap_values.py; the Rust side is crates/emulator/src/golden_tests.rs. A list of single containers names the IE of
its items: `("TAIItem", [value, ...])`.
"""

from pycrate_asn1dir import S1AP

DESCRIPTIONS = S1AP.S1AP_PDU_Descriptions
CONTENTS = S1AP.S1AP_PDU_Contents
CONSTANTS = S1AP.S1AP_Constants
IES = S1AP.S1AP_IEs
PDU = DESCRIPTIONS.S1AP_PDU

PLMN = bytes.fromhex("99f907")
OTHER_PLMN = bytes.fromhex("00f110")
MME_ID = 0xA0B0C0D0
ENB_ID = 0
SECOND_ID = 0x000100
TAI = {"pLMNidentity": PLMN, "tAC": bytes([0, 7])}
CELL = {"pLMNidentity": PLMN, "cell-ID": (0x00ABC01, 28)}
AREAS = [{"tAC": bytes([0, 7]), "broadcastPLMNs": [PLMN]}]
NAS = bytes.fromhex("0741720bf699f9078001c3deadbeef02e060000402" + "01d011")
S_TMSI = {"mMEC": b"\xc3", "m-TMSI": bytes.fromhex("deadbeef")}
KEY = int("c18166e13cfde1dea842c708f6e0b3372b6896664df4e865c0c78bd270852005", 16)
INACTIVE = ("radioNetwork", "user-inactivity")
QOS = {
    "qCI": 9,
    "allocationRetentionPriority": {
        "priorityLevel": 9,
        "pre-emptionCapability": "shall-not-trigger-pre-emption",
        "pre-emptionVulnerability": "not-pre-emptable",
    },
}
CAPABILITY = {"encryptionAlgorithms": (0xE000, 16), "integrityProtectionAlgorithms": (0xE000, 16)}
AMBR = {"uEaggregateMaximumBitRateDL": 2_000_000_000, "uEaggregateMaximumBitRateUL": 1_000_000_000}
IDS = (("MME-UE-S1AP-ID", MME_ID), ("eNB-UE-S1AP-ID", ENB_ID))


def address(last):
    return (0x7F000000 | last, 32)


def teid(number):
    return number.to_bytes(4, "big")


def type_name(value):
    """The name under which pycrate takes a value of this type in an open type."""
    return value._typeref.called[1] if value._typeref else value.TYPE


def rows(name):
    holder = CONTENTS if hasattr(CONTENTS, name) else IES
    return {row["id"]: (row["criticality"], type_name(row["Value"])) for row in getattr(holder, name)._val.root}


def object_set(message):
    """IE number -> (criticality, type name) of a message, from pycrate's ASN.1."""
    name = message.replace("-", "_")
    known = [held for held in (name + "IEs", name + "_IEs") if hasattr(CONTENTS, held) or hasattr(IES, held)]
    return rows(known[0])


def ie(known, name, value):
    number = getattr(CONSTANTS, "id_" + name.replace("-", "_"))._val
    criticality, kind = known[number]
    return {"id": number, "criticality": criticality, "value": (kind, value)}


def items(name, values, held=None):
    """A list of single containers with the IE `name`."""
    return [ie(rows(held or name.replace("-", "_") + "IEs"), name, value) for value in values]


def procedure(kind, message):
    """Procedure code and criticality of the procedure whose `kind` message this is."""
    known = DESCRIPTIONS.S1AP_ELEMENTARY_PROCEDURES._val
    for row in [*known.root, *known.ext]:
        if kind in row and row[kind]._typeref.called[1] == message:
            return row["procedureCode"], row.get("criticality", "ignore")
    raise KeyError(f"{message} is no {kind}")


def pdu(kind, message, fields):
    code, criticality = procedure(kind, message)
    known = object_set(message)
    value = (message, {"protocolIEs": [ie(known, name, inner) for name, inner in fields]})
    return (kind[0].lower() + kind[1:], {"procedureCode": code, "criticality": criticality, "value": value})


def initiating(message, *fields):
    return pdu("InitiatingMessage", message, fields)


def successful(message, *fields):
    return pdu("SuccessfulOutcome", message, fields)


def unsuccessful(message, *fields):
    return pdu("UnsuccessfulOutcome", message, fields)


def connections():
    return [{"mME-UE-S1AP-ID": MME_ID, "eNB-UE-S1AP-ID": ENB_ID}, {"eNB-UE-S1AP-ID": SECOND_ID}]


def node_messages():
    """Messages that belong to no UE."""
    item = "UE-associatedLogicalS1-ConnectionItem"
    set_name = "UE_associatedLogicalS1_ConnectionItemRes"
    part = ("partOfS1-Interface", items(item, connections(), set_name))
    acknowledged = items(item, connections(), set_name + "Ack")
    whole = ("s1-Interface", "reset-all")
    ours = ("radioNetwork", "release-due-to-eutran-generated-reason")
    operator = ("misc", "om-intervention")
    served = [{"servedPLMNs": [PLMN], "servedGroupIDs": [bytes([0x80, 1])], "servedMMECs": [b"\xc3"]}]
    enb = {"pLMNidentity": PLMN, "eNB-ID": ("macroENB-ID", (0xABC, 20))}
    area = items("TAIItem", [{"tAI": TAI}])
    return {
        "S1SetupRequest": initiating("S1SetupRequest", ("Global-ENB-ID", enb), ("eNBname", "enb-2748"),
                                     ("SupportedTAs", AREAS), ("DefaultPagingDRX", "v128")),
        "S1SetupResponse": successful("S1SetupResponse", ("MMEname", "vireo"), ("ServedGUMMEIs", served),
                                      ("RelativeMMECapacity", 255)),
        "S1SetupFailure": unsuccessful("S1SetupFailure", ("Cause", ("misc", "unknown-PLMN")), ("TimeToWait", "v10s")),
        "ENBConfigurationUpdate": initiating("ENBConfigurationUpdate", ("eNBname", "enb-2748"),
                                             ("SupportedTAs", AREAS)),
        "ENBConfigurationUpdateAcknowledge": successful("ENBConfigurationUpdateAcknowledge"),
        "ENBConfigurationUpdateFailure": unsuccessful("ENBConfigurationUpdateFailure",
                                                      ("Cause", ("misc", "unknown-PLMN"))),
        "MMEConfigurationUpdate": initiating("MMEConfigurationUpdate", ("RelativeMMECapacity", 10)),
        "MMEConfigurationUpdateAcknowledge": successful("MMEConfigurationUpdateAcknowledge"),
        "Reset-enb-all": initiating("Reset", ("Cause", ours), ("ResetType", whole)),
        "Reset-enb-part": initiating("Reset", ("Cause", ours), ("ResetType", part)),
        "Reset-mme-all": initiating("Reset", ("Cause", operator), ("ResetType", whole)),
        "Reset-mme-part": initiating("Reset", ("Cause", operator), ("ResetType", part)),
        "ResetAcknowledge": successful("ResetAcknowledge"),
        "ResetAcknowledge-part": successful(
            "ResetAcknowledge", ("UE-associatedLogicalS1-ConnectionListResAck", acknowledged)),
        "Paging": initiating("Paging", ("UEIdentityIndexValue", (0x2EF, 10)), ("UEPagingID", ("s-TMSI", S_TMSI)),
                             ("CNDomain", "ps"), ("TAIList", area)),
        "OverloadStart": initiating("OverloadStart", (
            "OverloadResponse", ("overloadAction", "reject-rrc-cr-signalling"))),
        "OverloadStop": initiating("OverloadStop"),
        "ErrorIndication": initiating("ErrorIndication", ("Cause", ("protocol", "transfer-syntax-error"))),
        "ErrorIndication-ue": initiating("ErrorIndication", *IDS, ("Cause", ("radioNetwork", "unknown-mme-ue-s1ap-id"))),
    }


def ue_messages():
    """Messages of one UE."""
    location = (("EUTRAN-CGI", CELL), ("TAI", TAI))
    bearer = {"e-RAB-ID": 5, "transportLayerAddress": address(7), "gTP-TEID": teid(0x101)}
    own = {"e-RAB-ID": 5, "transportLayerAddress": address(9), "gTP-TEID": teid(0x00000075)}
    context = items("E-RABToBeSetupItemCtxtSUReq", [{**bearer, "e-RABlevelQoSParameters": QOS, "nAS-PDU": NAS}])
    setup = items("E-RABToBeSetupItemBearerSUReq", [{**bearer, "e-RABlevelQoSParameters": QOS, "nAS-PDU": NAS}])
    released = items("E-RABItem", [{"e-RAB-ID": 5, "cause": ("nas", "normal-release")}])
    pair = ("uE-S1AP-ID-pair", {"mME-UE-S1AP-ID": MME_ID, "eNB-UE-S1AP-ID": ENB_ID})
    first = (("eNB-UE-S1AP-ID", ENB_ID), ("NAS-PDU", NAS), ("TAI", TAI), ("EUTRAN-CGI", CELL))
    return {
        "InitialUEMessage": initiating("InitialUEMessage", *first, ("RRC-Establishment-Cause", "mo-Signalling")),
        "InitialUEMessage-s-tmsi": initiating("InitialUEMessage", *first, ("RRC-Establishment-Cause", "mt-Access"),
                                              ("S-TMSI", S_TMSI)),
        "UplinkNASTransport": initiating("UplinkNASTransport", *IDS, ("NAS-PDU", NAS), *location),
        "DownlinkNASTransport": initiating("DownlinkNASTransport", *IDS, ("NAS-PDU", NAS)),
        "InitialContextSetupRequest": initiating(
            "InitialContextSetupRequest", *IDS, ("uEaggregateMaximumBitrate", AMBR),
            ("E-RABToBeSetupListCtxtSUReq", context), ("UESecurityCapabilities", CAPABILITY),
            ("SecurityKey", (KEY, 256))),
        "InitialContextSetupResponse": successful(
            "InitialContextSetupResponse", *IDS, ("E-RABSetupListCtxtSURes", items("E-RABSetupItemCtxtSURes", [own]))),
        "UECapabilityInfoIndication": initiating("UECapabilityInfoIndication", *IDS, ("UERadioCapability", b"\xa5" * 32)),
        "E-RABSetupRequest": initiating("E-RABSetupRequest", *IDS, ("E-RABToBeSetupListBearerSUReq", setup)),
        "E-RABSetupResponse": successful(
            "E-RABSetupResponse", *IDS,
            ("E-RABSetupListBearerSURes", items("E-RABSetupItemBearerSURes", [own]))),
        "E-RABReleaseCommand": initiating("E-RABReleaseCommand", *IDS, ("E-RABToBeReleasedList", released),
                                          ("NAS-PDU", NAS)),
        "E-RABReleaseResponse": successful(
            "E-RABReleaseResponse", *IDS,
            ("E-RABReleaseListBearerRelComp", items("E-RABReleaseItemBearerRelComp", [{"e-RAB-ID": 5}]))),
        "UEContextReleaseRequest": initiating("UEContextReleaseRequest", *IDS, ("Cause", INACTIVE)),
        "UEContextReleaseCommand": initiating("UEContextReleaseCommand", ("UE-S1AP-IDs", pair), ("Cause", INACTIVE)),
        "UEContextReleaseCommand-mme-id": initiating(
            "UEContextReleaseCommand", ("UE-S1AP-IDs", ("mME-UE-S1AP-ID", MME_ID)), ("Cause", ("nas", "detach"))),
        "UEContextReleaseComplete": successful("UEContextReleaseComplete", *IDS),
    }


def intersystem_messages():
    """Messages of a handover between EPS and 5GS."""
    gnb = {"global-gNB-ID": {"pLMN-Identity": PLMN, "gNB-ID": ("gNB-ID", (0x000102, 24))}}
    target = ("targetgNgRanNode-ID", {
        "global-RAN-NODE-ID": ("gNB", gnb), "selected-TAI": {"pLMNidentity": PLMN, "fiveGSTAC": bytes([0, 0, 7])}})
    desirable = ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason"))
    # Containers of the emulator: UE 7, its connection at the source, and no refusal; its connection at the target.
    source, there = bytes.fromhex("000000070000000000"), bytes.fromhex("0000000032560ac7222a0000")
    bearer = {"e-RAB-ID": 5, "transportLayerAddress": address(7), "gTP-TEID": teid(0x101),
              "e-RABlevelQosParameters": QOS}
    # Packets are forwarded beside the tunnel at the target, and through the UPF.
    admitted = {"e-RAB-ID": 5, "transportLayerAddress": address(9), "gTP-TEID": teid(0x00000075),
                "dL-transportLayerAddress": address(9), "dL-gTP-TEID": teid(0x08000075)}
    forwarded = {"e-RAB-ID": 5, "dL-transportLayerAddress": address(7), "dL-gTP-TEID": teid(0x102)}
    capability = {"encryptionAlgorithms": (0xE000, 16), "integrityProtectionAlgorithms": (0xE000, 16)}
    ambr = {"uEaggregateMaximumBitRateDL": 2_000_000_000, "uEaggregateMaximumBitRateUL": 1_000_000_000}
    return {
        "HandoverRequired-to-5gs": initiating(
            "HandoverRequired", *IDS, ("HandoverType", "eps-to-5gs"), desirable, ("TargetID", target),
            ("Source-ToTarget-TransparentContainer", source)),
        "HandoverRequest-from-5gs": initiating(
            "HandoverRequest", ("MME-UE-S1AP-ID", MME_ID), ("HandoverType", "fivegs-to-eps"), desirable,
            ("uEaggregateMaximumBitrate", ambr),
            ("E-RABToBeSetupListHOReq", items("E-RABToBeSetupItemHOReq", [bearer])),
            ("Source-ToTarget-TransparentContainer", source), ("UESecurityCapabilities", capability),
            ("SecurityContext", {"nextHopChainingCount": 2, "nextHopParameter": (KEY, 256)})),
        "HandoverRequestAcknowledge-from-5gs": successful(
            "HandoverRequestAcknowledge", *IDS,
            ("E-RABAdmittedList", items("E-RABAdmittedItem", [admitted])),
            ("Target-ToSource-TransparentContainer", bytes(4))),
        "HandoverCommand-to-5gs": successful(
            "HandoverCommand", *IDS, ("HandoverType", "eps-to-5gs"),
            ("E-RABSubjecttoDataForwardingList", items("E-RABDataForwardingItem", [forwarded])),
            ("Target-ToSource-TransparentContainer", there)),
    }


def mobility_messages():
    """Messages of handover. The source and the target are eNBs with one MME."""
    peer = {"pLMNidentity": PLMN, "eNB-ID": ("macroENB-ID", (0xABD, 20))}
    target = ("targeteNB-ID", {"global-ENB-ID": peer, "selected-TAI": TAI})
    mme, kind = ("MME-UE-S1AP-ID", MME_ID), ("HandoverType", "intralte")
    location = (("EUTRAN-CGI", CELL), ("TAI", TAI))
    radio = ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason"))
    full = ("Cause", ("radioNetwork", "no-radio-resources-available-in-target-cell"))
    to_target = ("Source-ToTarget-TransparentContainer", bytes.fromhex("000000070000000000"))
    to_target_refused = ("Source-ToTarget-TransparentContainer", bytes.fromhex("000000070000000001"))
    to_source = ("Target-ToSource-TransparentContainer", bytes(4))
    ambr = ("uEaggregateMaximumBitrate", AMBR)
    capability = ("UESecurityCapabilities", CAPABILITY)
    keys = ("SecurityContext", {"nextHopChainingCount": 2, "nextHopParameter": (KEY, 256)})
    sgw = {"e-RAB-ID": 5, "transportLayerAddress": address(7), "gTP-TEID": teid(0x101)}
    own = {"e-RAB-ID": 5, "transportLayerAddress": address(9), "gTP-TEID": teid(0x00000075)}
    forwarding = {"dL-transportLayerAddress": address(9), "dL-gTP-TEID": teid(0x08000075)}
    requested = {**sgw, "e-RABlevelQosParameters": QOS}
    fixed = [{"id": 143, "criticality": "ignore",
              "extensionValue": ("Data-Forwarding-Not-Possible", "data-Forwarding-not-Possible")}]
    lost = [{"e-RAB-ID": 6, "cause": ("radioNetwork", "ho-failure-in-target-EPC-eNB-or-target-system")}]
    unswitched = [{"e-RAB-ID": 6, "cause": ("transport", "transport-resource-unavailable")}]
    counts = {"e-RAB-ID": 5, "uL-COUNTvalue": {"pDCP-SN": 3, "hFN": 0}, "dL-COUNTvalue": {"pDCP-SN": 5, "hFN": 0}}
    status = ("eNB-StatusTransfer-TransparentContainer", {"bearers-SubjectToStatusTransferList": items(
        "Bearers-SubjectToStatusTransfer-Item", [counts])})
    switch = ("E-RABToBeSwitchedDLList", items("E-RABToBeSwitchedDLItem", [own]))
    moved = ("E-RABToBeSwitchedULList", items("E-RABToBeSwitchedULItem", [sgw]))

    def request(item, container):
        bearers = ("E-RABToBeSetupListHOReq", items("E-RABToBeSetupItemHOReq", [item]))
        return initiating("HandoverRequest", mme, kind, radio, ambr, bearers, container, capability, keys)

    return {
        "HandoverRequired": initiating("HandoverRequired", *IDS, kind, radio, ("TargetID", target), (
            "Direct-Forwarding-Path-Availability", "directPathAvailable"), to_target),
        "HandoverRequest": request(requested, to_target),
        "HandoverRequest-not-forwarded": request({**requested, "iE-Extensions": fixed}, to_target_refused),
        "HandoverRequestAcknowledge": successful(
            "HandoverRequestAcknowledge", *IDS,
            ("E-RABAdmittedList", items("E-RABAdmittedItem", [{**own, **forwarding}])), to_source),
        "HandoverFailure": unsuccessful("HandoverFailure", mme, full),
        "HandoverCommand": successful("HandoverCommand", *IDS, kind, (
            "E-RABSubjecttoDataForwardingList", items("E-RABDataForwardingItem", [{"e-RAB-ID": 5, **forwarding}])),
            ("E-RABtoReleaseListHOCmd", items("E-RABItem", lost)), to_source),
        "HandoverPreparationFailure": unsuccessful("HandoverPreparationFailure", *IDS, full),
        "ENBStatusTransfer": initiating("ENBStatusTransfer", *IDS, status),
        "MMEStatusTransfer": initiating("MMEStatusTransfer", *IDS, status),
        "HandoverNotify": initiating("HandoverNotify", *IDS, *location),
        "HandoverCancel": initiating("HandoverCancel", *IDS, ("Cause", ("radioNetwork", "handover-cancelled"))),
        "HandoverCancelAcknowledge": successful("HandoverCancelAcknowledge", *IDS),
        "PathSwitchRequest": initiating("PathSwitchRequest", IDS[1], switch, ("SourceMME-UE-S1AP-ID", MME_ID),
                                        *location, capability),
        "PathSwitchRequestAcknowledge": successful("PathSwitchRequestAcknowledge", *IDS, ambr, keys),
        "PathSwitchRequestAcknowledge-moved": successful(
            "PathSwitchRequestAcknowledge", *IDS, ambr, moved,
            ("E-RABToBeReleasedList", items("E-RABItem", unswitched)), keys, capability),
        "PathSwitchRequestFailure": unsuccessful("PathSwitchRequestFailure", *IDS, (
            "Cause", ("radioNetwork", "unknown-mme-ue-s1ap-id"))),
    }


def enb_messages():
    """Messages that eNBs send about E-RABs, and about themselves, with their answers."""
    own = {"e-RAB-ID": 5, "transportLayerAddress": address(9), "dL-GTP-TEID": teid(0x00000075)}
    gone = [{"e-RAB-ID": 5, "cause": ("radioNetwork", "radio-resources-not-available")}]
    failed = [{"e-RAB-ID": 6, "cause": ("transport", "transport-resource-unavailable")}]
    usage = {"startTimestamp": bytes(4), "endTimestamp": bytes([0, 0, 0, 9]), "usageCountUL": 1000,
             "usageCountDL": 2_000_000}
    report = {"e-RAB-ID": 5, "secondaryRATType": "nR",
              "e-RABUsageReportList": items("E-RABUsageReportItem", [usage])}
    peer = {"global-ENB-ID": {"pLMNidentity": PLMN, "eNB-ID": ("macroENB-ID", (0xABD, 20))}, "selected-TAI": TAI}
    ours = {"global-ENB-ID": {"pLMNidentity": PLMN, "eNB-ID": ("macroENB-ID", (0xABC, 20))}, "selected-TAI": TAI}
    son = {"targeteNB-ID": peer, "sourceeNB-ID": ours,
           "sONInformation": ("sONInformationRequest", "x2TNL-Configuration-Info")}
    return {
        "E-RABReleaseIndication": initiating("E-RABReleaseIndication", *IDS, (
            "E-RABReleasedList", items("E-RABItem", gone))),
        "E-RABModificationIndication": initiating("E-RABModificationIndication", *IDS, (
            "E-RABToBeModifiedListBearerModInd", items("E-RABToBeModifiedItemBearerModInd", [own]))),
        "E-RABModificationConfirm": successful("E-RABModificationConfirm", *IDS, (
            "E-RABModifyListBearerModConf", items("E-RABModifyItemBearerModConf", [{"e-RAB-ID": 5}])),
            ("E-RABFailedToModifyListBearerModConf", items("E-RABItem", failed))),
        "SecondaryRATDataUsageReport": initiating("SecondaryRATDataUsageReport", *IDS, (
            "SecondaryRATDataUsageReportList", items("SecondaryRATDataUsageReportItem", [report]))),
        "NASNonDeliveryIndication": initiating("NASNonDeliveryIndication", *IDS, ("NAS-PDU", NAS), (
            "Cause", ("radioNetwork", "x2-handover-triggered"))),
        "ENBConfigurationUpdateFailure-wait": unsuccessful(
            "ENBConfigurationUpdateFailure", ("Cause", ("misc", "unknown-PLMN")), ("TimeToWait", "v60s")),
        "ENBConfigurationTransfer": initiating("ENBConfigurationTransfer", ("SONConfigurationTransferECT", son)),
        "MMEConfigurationTransfer": initiating("MMEConfigurationTransfer", ("SONConfigurationTransferMCT", son)),
    }


def messages():
    return {**node_messages(), **ue_messages(), **mobility_messages(), **intersystem_messages(),
            **enb_messages()}


def extension(number, kind, value):
    return {"id": number, "criticality": "ignore", "extensionValue": (kind, value)}


def en_dc_messages():
    """Messages about a UE that supports EN-DC, and one that may not use it or has other restrictions."""
    nr = ("NRUESecurityCapabilities", {"nRencryptionAlgorithms": (0xE100, 16),
                                       "nRintegrityProtectionAlgorithms": (0xE002, 16)})
    restricted = ("HandoverRestrictionList", {"servingPLMN": PLMN, "iE-Extensions": [
        extension(261, "NRrestrictioninEPSasSecondaryRAT", "nRrestrictedinEPSasSecondaryRAT")]})
    # Each kind of restriction, in the serving PLMN and an equivalent one.
    plmns = [PLMN, OTHER_PLMN]
    areas = ("HandoverRestrictionList", {
        "servingPLMN": PLMN, "equivalentPLMNs": [OTHER_PLMN],
        "forbiddenTAs": [{"pLMN-Identity": plmn, "forbiddenTACs": [b"\x00\x02", b"\xff\xff"]} for plmn in plmns],
        "iE-Extensions": [
            extension(261, "NRrestrictioninEPSasSecondaryRAT", "nRrestrictedinEPSasSecondaryRAT"),
            extension(282, "CNTypeRestrictions",
                      [{"pLMN-Identity": plmn, "cNType": "fiveGCForbidden"} for plmn in plmns])]})
    # 100 Gbit/s and 20 Gbit/s; the usual form has its highest value.
    fast = {"uEaggregateMaximumBitRateDL": 10_000_000_000, "uEaggregateMaximumBitRateUL": 10_000_000_000,
            "iE-Extensions": [extension(259, "ExtendedBitRate", 100_000_000_000),
                              extension(260, "ExtendedBitRate", 20_000_000_000)]}
    # One direction only.
    faster = {"uEaggregateMaximumBitRateDL": 10_000_000_000, "uEaggregateMaximumBitRateUL": 1_000_000_000,
              "iE-Extensions": [extension(259, "ExtendedBitRate", 10_000_000_001)]}
    bearer = {"e-RAB-ID": 5, "transportLayerAddress": address(7), "gTP-TEID": teid(0x101)}
    context = items("E-RABToBeSetupItemCtxtSUReq", [{**bearer, "e-RABlevelQoSParameters": QOS, "nAS-PDU": NAS}])
    handed = items("E-RABToBeSetupItemHOReq", [{**bearer, "e-RABlevelQosParameters": QOS}])
    switched = items("E-RABToBeSwitchedDLItem", [
        {"e-RAB-ID": 5, "transportLayerAddress": address(9), "gTP-TEID": teid(0x75)}])
    hop = ("SecurityContext", {"nextHopChainingCount": 2, "nextHopParameter": (KEY, 256)})
    capability = ("UESecurityCapabilities", CAPABILITY)
    return {
        "InitialContextSetupRequest-en-dc": initiating(
            "InitialContextSetupRequest", *IDS, ("uEaggregateMaximumBitrate", fast),
            ("E-RABToBeSetupListCtxtSUReq", context), capability, ("SecurityKey", (KEY, 256)), restricted, nr),
        "DownlinkNASTransport-en-dc": initiating("DownlinkNASTransport", *IDS, ("NAS-PDU", NAS), restricted, nr),
        "InitialContextSetupRequest-restricted": initiating(
            "InitialContextSetupRequest", *IDS, ("uEaggregateMaximumBitrate", AMBR),
            ("E-RABToBeSetupListCtxtSUReq", context), capability, ("SecurityKey", (KEY, 256)), areas),
        "DownlinkNASTransport-restricted": initiating(
            "DownlinkNASTransport", *IDS, ("NAS-PDU", NAS), areas, ("SubscriberProfileIDforRFP", 256)),
        "HandoverRequest-restricted": initiating(
            "HandoverRequest", ("MME-UE-S1AP-ID", MME_ID), ("HandoverType", "intralte"),
            ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason")),
            ("uEaggregateMaximumBitrate", AMBR), ("E-RABToBeSetupListHOReq", handed),
            ("Source-ToTarget-TransparentContainer", bytes.fromhex("000000070000000000")), capability, areas, hop),
        "UEContextModificationRequest-en-dc": initiating(
            "UEContextModificationRequest", *IDS, ("uEaggregateMaximumBitrate", faster)),
        "HandoverRequest-en-dc": initiating(
            "HandoverRequest", ("MME-UE-S1AP-ID", MME_ID), ("HandoverType", "intralte"),
            ("Cause", ("radioNetwork", "handover-desirable-for-radio-reason")),
            ("uEaggregateMaximumBitrate", AMBR), ("E-RABToBeSetupListHOReq", handed),
            ("Source-ToTarget-TransparentContainer", bytes.fromhex("000000070000000000")), capability, restricted, hop,
            nr),
        "PathSwitchRequest-en-dc": initiating(
            "PathSwitchRequest", ("eNB-UE-S1AP-ID", ENB_ID), ("E-RABToBeSwitchedDLList", switched),
            ("SourceMME-UE-S1AP-ID", MME_ID), ("EUTRAN-CGI", CELL), ("TAI", TAI), capability, nr),
        "PathSwitchRequestAcknowledge-en-dc": successful(
            "PathSwitchRequestAcknowledge", *IDS, ("uEaggregateMaximumBitrate", AMBR), hop, nr, restricted,
            capability),
    }


def mme_messages():
    """Messages between the MME and an eNB that the core itself builds or reads."""
    area = items("TAIItem", [{"tAI": TAI}])
    ambr = {"uEaggregateMaximumBitRateDL": 30_000_000, "uEaggregateMaximumBitRateUL": 2_000_000}
    released = items("E-RABItem", [{"e-RAB-ID": 5, "cause": ("nas", "normal-release")}])
    return {
        **en_dc_messages(),
        "Paging-extended-drx": initiating(
            "Paging", ("UEIdentityIndexValue", (0x2EF, 10)), ("UEPagingID", ("s-TMSI", S_TMSI)), ("pagingDRX", "v64"),
            ("CNDomain", "ps"), ("TAIList", area), ("UERadioCapabilityForPaging", b"\x07" * 30),
            ("Paging-eDRXInformation", {"paging-eDRX-Cycle": "hf8", "pagingTimeWindow": "s4"})),
        "Paging-priority": initiating(
            "Paging", ("UEIdentityIndexValue", (0x2EF, 10)), ("UEPagingID", ("s-TMSI", S_TMSI)), ("CNDomain", "ps"),
            ("TAIList", area), ("PagingPriority", "priolevel8")),
        "UEContextModificationRequest-key": initiating(
            "UEContextModificationRequest", *IDS, ("SecurityKey", (KEY, 256)), ("UESecurityCapabilities", CAPABILITY)),
        "LocationReportingControl": initiating(
            "LocationReportingControl", *IDS,
            ("RequestType", {"eventType": "change-of-serve-cell", "reportArea": "ecgi"})),
        "LocationReport": initiating(
            "LocationReport", *IDS, ("EUTRAN-CGI", CELL), ("TAI", TAI),
            ("RequestType", {"eventType": "change-of-serve-cell", "reportArea": "ecgi"})),
        "LocationReportingFailureIndication": initiating(
            "LocationReportingFailureIndication", *IDS, ("Cause", ("radioNetwork", "unspecified"))),
        "UECapabilityInfoIndication-paging": initiating(
            "UECapabilityInfoIndication", *IDS, ("UERadioCapability", b"\xa5" * 32),
            ("UERadioCapabilityForPaging", b"\x07" * 30)),
        "UECapabilityInfoIndication-formats": initiating(
            "UECapabilityInfoIndication", *IDS, ("UERadioCapability", b"\xa5" * 32),
            ("UERadioCapabilityForPaging", b"\x00" * 30),
            ("UERadioCapability-NR-Format", b"\x5a" * 32),
            ("UERadioCapabilityForPaging-NR-Format", b"\x06" * 30)),
        "DownlinkNASTransport-capability": initiating(
            "DownlinkNASTransport", *IDS, ("NAS-PDU", NAS), ("UERadioCapability", b"\xa5" * 32)),
        "UEContextModificationRequest": initiating(
            "UEContextModificationRequest", *IDS, ("uEaggregateMaximumBitrate", ambr)),
        "UEContextModificationRequest-rfsp": initiating(
            "UEContextModificationRequest", *IDS, ("SubscriberProfileIDforRFP", 7)),
        "E-RABModifyRequest": initiating(
            "E-RABModifyRequest", *IDS, ("uEaggregateMaximumBitrate", ambr), (
                "E-RABToBeModifiedListBearerModReq", items("E-RABToBeModifiedItemBearerModReq", [
                    {"e-RAB-ID": 5, "e-RABLevelQoSParameters": QOS, "nAS-PDU": NAS}]))),
        "E-RABModifyResponse": successful(
            "E-RABModifyResponse", *IDS, (
                "E-RABModifyListBearerModRes", items("E-RABModifyItemBearerModRes", [{"e-RAB-ID": 5}]))),
        "E-RABModifyResponse-failed": successful(
            "E-RABModifyResponse", *IDS, ("E-RABFailedToModifyList", items("E-RABItem", [
                {"e-RAB-ID": 5, "cause": ("radioNetwork", "radio-resources-not-available")}]))),
        "E-RABReleaseCommand-ambr": initiating(
            "E-RABReleaseCommand", *IDS, ("uEaggregateMaximumBitrate", ambr), ("E-RABToBeReleasedList", released),
            ("NAS-PDU", NAS)),
    }


def encode(value):
    PDU.set_val(value)
    return PDU.to_aper()


def decode(octets):
    PDU.from_aper(octets)
    return PDU.get_val()
