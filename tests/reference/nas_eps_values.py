"""Known values of NAS-EPS messages (TS 24.301), for pycrate to encode.

As in nas_values.py; the Rust side is crates/emulator/src/golden_tests.rs. The challenge is test set 1 of TS 35.208.
"""

import logging

logging.disable(logging.WARNING)  # pycrate warns on import that it has no CryptoMobile, which is not used here

from pycrate_mobile import TS24301_EMM as EMM
from pycrate_mobile import TS24301_ESM as ESM
from pycrate_mobile.NAS import parse_NASLTE_MO, parse_NASLTE_MT

PLMN = bytes.fromhex("99f907")
# 001/01 and 262/80, as octets of TS 24.301 9.9.2.8.
OTHER_PLMNS = bytes.fromhex("00f11062f208")
NO_KEY = {"TSC": 0, "Value": 7}
KEY_2 = {"TSC": 0, "Value": 2}
IMSI = {"type": 1, "ident": "999700000000001"}
IMEISV = {"type": 3, "ident": "3570000000000101"}
GUTI = {"type": 6, "ident": ("99970", 0x8001, 0xC3, 0xDEADBEEF)}
RAND = bytes.fromhex("23553cbe9637a89d218ae64dae47bf35")
AUTN = {"SQNxAK": bytes.fromhex("55f328b43577"), "AMF": bytes.fromhex("b9b9"), "MAC": bytes.fromhex("4a9ffac354dfafb3")}
RES = bytes.fromhex("a54211d5e3ba50bf")
# EEA0 to EEA3, EIA1 to EIA3.
ALGORITHMS = bytes.fromhex("f070")
NATIVE = {"Value": 0}
NATIVE_0 = {"TSC": 0, "Value": 0}
OPTIONS = bytes.fromhex("80000d00001000")
IMS = b"\x03ims"
AUTS = bytes.fromhex("00112233445566778899aabbccdd")
# Two algorithms octets, and N1 mode and dual connectivity with NR in the seventh; algorithms of 5G.
BOTH_SYSTEMS = bytes.fromhex("f0700000000030")
ADDITIONAL = bytes.fromhex("f0007000")


def head(kind, ebi=0, pti=0):
    return {"ESMHeader": {"EPSBearerId": ebi, "PTI": pti}} if kind.__name__.startswith("ESM") else {}


def message(kind, ebi=0, pti=0, **fields):
    return kind(val={**head(kind, ebi, pti), **fields})


def connectivity():
    return message(ESM.ESMPDNConnectivityRequest, pti=1, PDNType=1, RequestType=1,
                   ESMInfoTransferFlag=1, ProtConfig=OPTIONS)


def uplink():
    """Messages of the UE."""
    container = connectivity().to_bytes()
    accepted = message(ESM.ESMActDefaultEPSBearerCtxtAccept, ebi=5).to_bytes()
    return {
        "AttachRequest-imsi": message(EMM.EMMAttachRequest, NAS_KSI=NO_KEY, EPSAttachType=1,
                                      EPSID=IMSI, UENetCap=ALGORITHMS, ESMContainer=container),
        "AttachRequest-guti": message(EMM.EMMAttachRequest, NAS_KSI=KEY_2, EPSAttachType=1,
                                      EPSID=GUTI, UENetCap=ALGORITHMS, ESMContainer=container, OldGUTIType=NATIVE),
        "IdentityResponse": message(EMM.EMMIdentityResponse, ID=IMSI),
        "AuthenticationResponse": message(EMM.EMMAuthenticationResponse, RES=RES),
        "AuthenticationFailure-mac": message(EMM.EMMAuthenticationFailure, EMMCause=20),
        "SecurityModeComplete": message(EMM.EMMSecurityModeComplete, IMEISV=IMEISV),
        "ESMInformationResponse": message(ESM.ESMInformationResponse, pti=1, APN=b"\x08internet"),
        "AttachComplete": message(EMM.EMMAttachComplete, ESMContainer=accepted),
        "TrackingAreaUpdateRequest-periodic": message(
            EMM.EMMTrackingAreaUpdateRequest, NAS_KSI=KEY_2, EPSUpdateType=3, OldGUTI=GUTI,
            EPSBearerCtxtStat=bytes([0x20, 0]), OldGUTIType=NATIVE),
        "TrackingAreaUpdateRequest-active": message(
            EMM.EMMTrackingAreaUpdateRequest, NAS_KSI=KEY_2, EPSUpdateType=8, OldGUTI=GUTI,
            UENetCap=ALGORITHMS, EPSBearerCtxtStat=bytes([0x20, 0]), OldGUTIType=NATIVE),
        "TrackingAreaUpdateComplete": message(EMM.EMMTrackingAreaUpdateComplete),
        "DetachRequest-ue": message(EMM.EMMDetachRequestMO, NAS_KSI=KEY_2, EPSDetachType=1,
                                    EPSID=GUTI),
        "DetachRequest-switch-off": message(EMM.EMMDetachRequestMO, NAS_KSI=KEY_2, EPSDetachType=9,
                                            EPSID=GUTI),
        "DetachAccept": message(EMM.EMMDetachAccept),
        "GUTIReallocationComplete": message(EMM.EMMGUTIReallocComplete),
        "DeactivateEPSBearerContextAccept": message(ESM.ESMDeactEPSBearerCtxtAccept, ebi=5),
        "TrackingAreaUpdateRequest-from-5g": message(
            EMM.EMMTrackingAreaUpdateRequest, NAS_KSI={"TSC": 1, "Value": 2}, EPSUpdateType=8, OldGUTI=GUTI,
            UENetCap=BOTH_SYSTEMS, EPSBearerCtxtStat=bytes([0x20, 0]), OldGUTIType=NATIVE, UEAddSecCap=ADDITIONAL,
            UEStatus=b"\x02"),
        "AuthenticationFailure-synch": message(EMM.EMMAuthenticationFailure, EMMCause=21, AUTS=AUTS),
        "SecurityModeReject": message(EMM.EMMSecurityModeReject, EMMCause=24),
        "PDNConnectivityRequest": message(ESM.ESMPDNConnectivityRequest, pti=2, PDNType=3, RequestType=1, APN=IMS,
                                          ProtConfig=OPTIONS),
        "PDNDisconnectRequest": message(ESM.ESMPDNDisconnectRequest, pti=3, LinkedEPSBearerId=6),
        "ActivateDefaultEPSBearerContextAccept": message(ESM.ESMActDefaultEPSBearerCtxtAccept, ebi=6),
        "ActivateDefaultEPSBearerContextReject": message(ESM.ESMActDefaultEPSBearerCtxtReject, ebi=6, ESMCause=26),
        "ESMStatus": message(ESM.ESMStatus, ebi=5, ESMCause=97),
    }


def downlink():
    """Messages of the MME."""
    activate = message(ESM.ESMActDefaultEPSBearerCtxtRequest, ebi=5, pti=1, EPSQoS=b"\x09",
                       APN=b"\x08internet", PDNAddr=bytes([1, 10, 46, 0, 2]))
    areas = bytes([0]) + PLMN + bytes([0, 7])
    return {
        "IdentityRequest": message(EMM.EMMIdentityRequest, IDType=1),
        "AuthenticationRequest": message(EMM.EMMAuthenticationRequest, NAS_KSI=KEY_2, RAND=RAND,
                                         AUTN=AUTN),
        "AuthenticationReject": message(EMM.EMMAuthenticationReject),
        "SecurityModeCommand": message(EMM.EMMSecurityModeCommand, NAS_KSI=KEY_2, UESecCap=ALGORITHMS,
                                       NASSecAlgo={"CiphAlgo": 0, "IntegAlgo": 2},
                                       IMEISVReq={"Value": 1}),
        "ESMInformationRequest": message(ESM.ESMInformationRequest, pti=1),
        "AttachAccept": message(EMM.EMMAttachAccept, EPSAttachResult=1, T3412=b"\x49", TAIList=areas,
                                ESMContainer=activate.to_bytes(), GUTI=GUTI),
        "AttachReject": message(EMM.EMMAttachReject, EMMCause=22, T3346=b"\x1e"),
        "TrackingAreaUpdateAccept": message(EMM.EMMTrackingAreaUpdateAccept, EPSUpdateResult=0,
                                            GUTI=GUTI, EPSBearerCtxtStat=bytes([0x20, 0])),
        "TrackingAreaUpdateReject": message(EMM.EMMTrackingAreaUpdateReject, EMMCause=9),
        "ServiceReject": message(EMM.EMMServiceReject, EMMCause=9),
        "DetachRequest-network": message(EMM.EMMDetachRequestMT, EPSDetachType=1),
        "DetachAccept-network": message(EMM.EMMDetachAccept),
        "GUTIReallocationCommand": message(EMM.EMMGUTIReallocCommand, GUTI=GUTI),
        "DeactivateEPSBearerContextRequest": message(ESM.ESMDeactEPSBearerCtxtRequest, ebi=5, ESMCause=36),
        "EMMInformation": message(EMM.EMMInformation, LocalTimeZone=b"\x40"),
        "EMMStatus": message(EMM.EMMStatus, EMMCause=97),
        "AttachReject-esm": message(EMM.EMMAttachReject, EMMCause=19, ESMContainer=message(
            ESM.ESMPDNConnectivityReject, pti=1, ESMCause=27).to_bytes()),
        "PDNConnectivityReject": message(ESM.ESMPDNConnectivityReject, pti=2, ESMCause=27),
        "PDNConnectivityReject-congestion": message(ESM.ESMPDNConnectivityReject, pti=2, ESMCause=26,
                                                    BackOffTimer=b"\x65"),
        "PDNDisconnectReject": message(ESM.ESMPDNDisconnectReject, pti=3, ESMCause=49),
        "ActivateDefaultEPSBearerContextRequest": message(
            ESM.ESMActDefaultEPSBearerCtxtRequest, ebi=6, pti=2, EPSQoS=b"\x05", APN=IMS,
            PDNAddr=bytes([3]) + bytes.fromhex("0200000100000045") + bytes([10, 46, 0, 3]),
            APN_AMBR=bytes.fromhex("fefeeeee0303"), ESMCause=52, ProtConfig=OPTIONS),
        "BearerResourceAllocationReject": message(ESM.ESMBearerResourceAllocReject, pti=4, ESMCause=32),
    }


def messages():
    return {**uplink(), **downlink()}


def ciot_requests():
    """Messages of a UE with CIoT EPS optimisations."""
    attach = {"NAS_KSI": NO_KEY, "EPSAttachType": 1, "EPSID": IMSI}
    dummy = message(ESM.ESMDummyMessage).to_bytes()
    # EEA0 to EEA2, EIA1 and EIA2; EMM-REGISTERED without PDN connection, or control plane CIoT EPS optimisation.
    bare, data = bytes.fromhex("e06000000020"), bytes.fromhex("e06000000004")
    last = message(ESM.ESMDataTransport, ebi=5, UserData=b"\x45\x00\x00\x04", ReleaseAssistInd=1)
    return {
        "UE-AttachRequest-without-pdn": message(EMM.EMMAttachRequest, **attach, UENetCap=bare, ESMContainer=dummy),
        "UE-AttachRequest-over-nas": message(EMM.EMMAttachRequest, **attach, UENetCap=data,
                                             ESMContainer=connectivity().to_bytes(), AddUpdateType=4),
        "UE-ControlPlaneServiceRequest": message(EMM.EMMCPServiceRequest, NAS_KSI=KEY_2, CPServiceType=0,
                                                 ESMContainer=last.to_bytes()),
        "UE-ESMDataTransport-last": last,
    }


def mme_messages():
    """Messages of the MME that the core itself builds."""
    activate = message(ESM.ESMActDefaultEPSBearerCtxtRequest, ebi=5, pti=1, EPSQoS=b"\x09",
                       APN=b"\x08internet", PDNAddr=bytes([1, 10, 46, 0, 2]))
    areas = bytes([1]) + PLMN + bytes([0, 1, 0, 2])
    saving = {"T3402": b"\x3e", "T3412Ext": b"\x0c", "T3324": b"\x05", "ExtDRXParam": b"\x35"}
    support = {"EPSNetFeat": b"\x00\x08"}
    restricted = {"EPSNetFeat": b"\x00\x28"}
    dummy = message(ESM.ESMDummyMessage).to_bytes()
    over_nas = message(ESM.ESMActDefaultEPSBearerCtxtRequest, ebi=5, pti=1, EPSQoS=b"\x09", APN=b"\x08internet",
                       PDNAddr=bytes([1, 10, 46, 0, 2]), CPOnlyInd=1)
    accepted = {"EPSAttachResult": 1, "T3412": b"\x49", "TAIList": areas, "GUTI": GUTI}
    return {
        "SecurityModeCommand-en-dc": message(
            EMM.EMMSecurityModeCommand, NAS_KSI=NATIVE_0, UESecCap=bytes.fromhex("e060"),
            NASSecAlgo={"CiphAlgo": 2, "IntegAlgo": 2}, IMEISVReq={"Value": 1},
            UEAddSecCap=bytes.fromhex("f0807001")),
        "AttachAccept-restricted": message(
            EMM.EMMAttachAccept, EPSAttachResult=1, T3412=b"\x49", TAIList=areas, ESMContainer=activate.to_bytes(),
            GUTI=GUTI, **restricted),
        "TrackingAreaUpdateAccept-restricted": message(
            EMM.EMMTrackingAreaUpdateAccept, EPSUpdateResult=0, T3412=b"\x49", GUTI=GUTI, TAIList=areas,
            **restricted),
        # 100 Gbit/s and 1 Gbit/s.
        "ActivateDefaultEPSBearerContextRequest-fast": message(
            ESM.ESMActDefaultEPSBearerCtxtRequest, ebi=5, pti=1, EPSQoS=b"\x09", APN=b"\x08internet",
            PDNAddr=bytes([1, 10, 46, 0, 2]), APN_AMBR=bytes.fromhex("fefefaeefe03"),
            ExtAPN_AMBR=bytes.fromhex("0361a80300fa")),
        # DNS server 8.8.8.8, MTU of 1,400 octets.
        "ActivateDefaultEPSBearerContextRequest-extended-options": message(
            ESM.ESMActDefaultEPSBearerCtxtRequest, ebi=5, pti=1, EPSQoS=b"\x09", APN=b"\x08internet",
            PDNAddr=bytes([1, 10, 46, 0, 2]), ExtProtConfig=bytes.fromhex("80000d04080808080010020578")),
        # QCI 7, 30 Mbit/s and 10 Mbit/s.
        "ModifyEPSBearerContextRequest": message(
            ESM.ESMModifyEPSBearerCtxtRequest, ebi=5, pti=0, EPSQoS=b"\x07", APN_AMBR=bytes.fromhex("fefe580e")),
        **ciot_requests(),
        "AttachAccept-without-pdn": message(EMM.EMMAttachAccept, **accepted, ESMContainer=dummy,
                                            EPSNetFeat=b"\x40\x08"),
        "AttachAccept-over-nas": message(EMM.EMMAttachAccept, **accepted, ESMContainer=over_nas.to_bytes(),
                                         EPSNetFeat=b"\x80\x08"),
        "ServiceAccept": message(EMM.EMMServiceAccept),
        "ServiceAccept-status": message(EMM.EMMServiceAccept, EPSBearerCtxtStat=b"\x20\x00"),
        "AttachAccept-power-saving": message(
            EMM.EMMAttachAccept, EPSAttachResult=1, T3412=b"\x49", TAIList=areas, ESMContainer=activate.to_bytes(),
            GUTI=GUTI, **support, **saving),
        "TrackingAreaUpdateAccept-power-saving": message(
            EMM.EMMTrackingAreaUpdateAccept, EPSUpdateResult=0, T3412=b"\x49", GUTI=GUTI, TAIList=areas, **support,
            **saving),
        # 5 hours 10 minutes, and 2 seconds.
        "AttachAccept-service-gap": message(
            EMM.EMMAttachAccept, **accepted, ESMContainer=activate.to_bytes(), **support, T3447=b"\x1f"),
        "TrackingAreaUpdateAccept-service-gap": message(
            EMM.EMMTrackingAreaUpdateAccept, EPSUpdateResult=0, T3412=b"\x49", GUTI=GUTI, TAIList=areas, **support,
            T3447=b"\x1f"),
        "AttachAccept-equivalent-plmns": message(
            EMM.EMMAttachAccept, **accepted, ESMContainer=activate.to_bytes(), **support, EquivPLMNList=OTHER_PLMNS),
        "TrackingAreaUpdateAccept-equivalent-plmns": message(
            EMM.EMMTrackingAreaUpdateAccept, EPSUpdateResult=0, T3412=b"\x49", GUTI=GUTI, TAIList=areas, **support,
            EquivPLMNList=OTHER_PLMNS),
        # 29 November 2026, 15:04:05 UTC; local time is 2 hours later.
        "EmmInformation": message(
            EMM.EMMInformation, NetFullName={"Name": "Vireo Net"}, NetShortName={"Name": "Vireo"},
            UnivTimeAndTimeZone=bytes.fromhex("62119251405080")),
        "ServiceReject-data-back-off": message(EMM.EMMServiceReject, EMMCause=22, T3448=b"\x01"),
        "AttachReject-dummy": message(EMM.EMMAttachReject, EMMCause=19,
                                      ESMContainer=message(ESM.ESMDummyMessage).to_bytes()),
        "ServiceReject-unserved": message(EMM.EMMServiceReject, EMMCause=97),
    }


def decode(name, octets):
    """pycrate's message of the octets; raises on what it does not parse whole."""
    parse = parse_NASLTE_MO if name in uplink() or name.startswith("UE-") else parse_NASLTE_MT
    parsed, error = parse(octets)
    if error:
        raise ValueError(f"pycrate: error {error} at {octets.hex()}")
    return parsed
