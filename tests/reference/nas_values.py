"""Known values of NAS-5GS messages (TS 24.501), for pycrate to encode.

As in ngap_values.py, the Rust side writes the same values down by hand; names of IEs are pycrate's.
"""

import logging

logging.disable(logging.WARNING)  # pycrate warns on import that it has no CryptoMobile, which is not used here

from pycrate_mobile import TS24501_FGMM as MM
from pycrate_mobile import TS24501_FGSM as SM
from pycrate_mobile.NAS import parse_NAS5G

PLMN = "99970"
GUTI = {"Type": 2, "PLMN": PLMN, "AMFRegionID": 2, "AMFSetID": 1, "AMFPtr": 3, "5GTMSI": 0xDEADBEEF}
S_TMSI = {"Type": 4, "AMFSetID": 1, "AMFPtr": 3, "5GTMSI": 0xDEADBEEF}
IMEISV = "4370816125816151"
RAND = bytes.fromhex("23553cbe9637a89d218ae64dae47bf35")
AUTN = {"SQNxAK": bytes.fromhex("55f328b43577"), "AMF": bytes.fromhex("8000"), "MAC": bytes.fromhex("4a9ffac354dfafb3")}
RES = bytes.fromhex("5cc9527f4d21c43bee83a15443acf1c4")
AUTS = bytes.fromhex("5ef40417ef4cb9ac9e76640b820d")
EPHEMERAL_A = bytes.fromhex("b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457d")
EPHEMERAL_B = bytes.fromhex("039aab8376597021e855679a9778ea0b67396e68c66df32c0f41e9acca2da9b9d1")
OCTET_EXAMPLE = b"\x0a\x0b\x0c"
CAPABILITY = {name: int(name in ("5G-EA0", "5G-EA1_128", "5G-EA2_128", "5G-EA3_128", "5G-IA1_128", "5G-IA2_128",
                                 "5G-IA3_128")) for name in
              [f"5G-{kind}{n}{'_128' if 1 <= n <= 3 else ''}" for kind in ("EA", "IA") for n in range(8)]}
SLICE = {"SNSSAI": {"SST": 1}}
SLICE_SD = {"SNSSAI": {"SST": 3, "SD": 0x0000AB}}
MM_HEADER = "5GMMHeader"
SM_HEADER = "5GSMHeader"


def suci(scheme, key, output):
    return {"Type": 1, "Fmt": 0, "Value": {
        "PLMN": PLMN, "RoutingInd": b"\xf0\xff", "ProtSchemeID": scheme, "HNPKID": key, "Output": output}}


NULL_SUCI = suci(0, 0, "0000000001")


def sm(kind, pti=1, psi=5, **fields):
    """A 5GSM message of PDU session `psi`."""
    message = kind(val={SM_HEADER: {"PDUSessID": psi, "PTI": pti}, **renamed(fields)})
    return message


def mm(kind, **fields):
    return kind(val=renamed(fields))


def renamed(fields):
    """IE names that start with a digit are written with an underscore in front."""
    return {name.removeprefix("_"): value for name, value in fields.items()}


def capability(cls):
    """UE security capability of two octets: 5GS algorithms only."""
    value = cls()
    value.set_val(CAPABILITY)
    value.disable_from("EEA0")
    return value


def registration_messages():
    sec = CAPABILITY
    reg = {"FOR": 1, "Value": 1}
    no_key = {"TSC": 0, "Value": 7}
    areas = [{"Type": 0, "PTAI": {"PLMN": PLMN, "TACs": [1, 7]}}]
    nssai = [SLICE, SLICE_SD]
    yield "RegistrationRequest-null", mm(
        MM.FGMMRegistrationRequest, NAS_KSI=no_key, _5GSRegType=reg, _5GSID=NULL_SUCI, UESecCap=sec)
    yield "RegistrationRequest-A", mm(
        MM.FGMMRegistrationRequest, NAS_KSI=no_key, _5GSRegType=reg, UESecCap=sec, _5GSID=suci(1, 27, {
            "ECCEphemPK": EPHEMERAL_A, "CipherText": bytes.fromhex("cb02352410"),
            "MAC": bytes.fromhex("cddd9e730ef3fa87")}))
    yield "RegistrationRequest-B", mm(
        MM.FGMMRegistrationRequest, NAS_KSI=no_key, _5GSRegType=reg, UESecCap=sec, _5GSID=suci(2, 28, {
            "ECCEphemPK": EPHEMERAL_B, "CipherText": bytes.fromhex("46a33fc271"),
            "MAC": bytes.fromhex("6ac7dae96aa30a4d")}))
    yield "RegistrationRequest-GUTI", mm(
        MM.FGMMRegistrationRequest, NAS_KSI={"TSC": 0, "Value": 3}, _5GSRegType={"FOR": 0, "Value": 2},
        _5GSID=GUTI, UESecCap=sec, NSSAI=nssai, TAI={"PLMN": PLMN, "TAC": 1},
        ULDataStat={"PSI_5": 1}, PDUSessStat={"PSI_5": 1, "PSI_9": 1})
    yield "RegistrationAccept", mm(
        MM.FGMMRegistrationAccept, _5GSRegResult={"Value": 1}, GUTI=GUTI, _5GSTAIList=areas, AllowedNSSAI=nssai,
        RejectedNSSAI=[{"Cause": 0, "SNSSAI": {"SST": 2}}], ConfiguredNSSAI=nssai, T3512={"Unit": 1, "Value": 9})
    yield "RegistrationAccept-equivalent-plmns", mm(
        MM.FGMMRegistrationAccept, _5GSRegResult={"Value": 1}, GUTI=GUTI, EquivPLMNList=["00101", "26280"],
        _5GSTAIList=areas, AllowedNSSAI=nssai)
    yield "RegistrationComplete", mm(MM.FGMMRegistrationComplete)
    yield "RegistrationReject", mm(MM.FGMMRegistrationReject, _5GMMCause=11, T3346={"Unit": 1, "Value": 10})
    yield "RegistrationReject-congestion", mm(
        MM.FGMMRegistrationReject, _5GMMCause=22, T3346={"Unit": 0, "Value": 15})
    yield "ConfigurationUpdateCommand", mm(
        MM.FGMMConfigurationUpdateCommand, ConfigUpdateInd={"ACK": 1}, GUTI=GUTI, _5GSTAIList=areas)
    yield "ConfigurationUpdateComplete", mm(MM.FGMMConfigurationUpdateComplete)


def security_messages():
    algorithms = {"CiphAlgo": 2, "IntegAlgo": 1}
    yield "AuthenticationRequest", mm(
        MM.FGMMAuthenticationRequest, NAS_KSI={"TSC": 0, "Value": 3}, ABBA=b"\0\0", RAND=RAND, AUTN=AUTN)
    yield "AuthenticationResponse", mm(MM.FGMMAuthenticationResponse, RES=RES)
    yield "AuthenticationFailure-synch", mm(MM.FGMMAuthenticationFailure, _5GMMCause=21, AUTS=AUTS)
    yield "AuthenticationFailure-MAC", mm(MM.FGMMAuthenticationFailure, _5GMMCause=20)
    yield "AuthenticationReject", mm(MM.FGMMAuthenticationReject)
    yield "IdentityRequest", mm(MM.FGMMIdentityRequest, _5GSIDType={"Value": 1})
    yield "IdentityResponse-SUCI", mm(MM.FGMMIdentityResponse, _5GSID=NULL_SUCI)
    yield "IdentityResponse-none", mm(MM.FGMMIdentityResponse, _5GSID={"Type": 0})
    yield "SecurityModeCommand", mm(
        MM.FGMMSecurityModeCommand, NASSecAlgo=algorithms, NAS_KSI={"TSC": 0, "Value": 3},
        UESecCap=CAPABILITY, IMEISVReq={"Value": 1}, Add5GSecInfo={"RINMR": 1})
    yield "SecurityModeComplete", mm(
        MM.FGMMSecurityModeComplete, IMEISV={"Type": 5, "Digits": IMEISV}, NASContainer=inner_request())
    yield "SecurityModeReject", mm(MM.FGMMSecurityModeReject, _5GMMCause=23)
    yield "Status", mm(MM.FGMMStatus, _5GMMCause=97)


def eap_messages():
    import eap_values  # which has MILENAGE of security_values, which has the messages here

    packets = eap_values.packets()
    yield "AuthenticationRequest-EAP", mm(
        MM.FGMMAuthenticationRequest, NAS_KSI={"TSC": 0, "Value": 3}, ABBA=b"\0\0", EAPMsg=packets["challenge"])
    for name in ("response", "synchronization", "reject", "error"):
        yield f"AuthenticationResponse-EAP-{name}", mm(MM.FGMMAuthenticationResponse, EAPMsg=packets[name])
    yield "AuthenticationReject-EAP", mm(MM.FGMMAuthenticationReject, EAPMsg=packets["failure"])
    yield "SecurityModeCommand-EAP", mm(
        MM.FGMMSecurityModeCommand, NASSecAlgo={"CiphAlgo": 2, "IntegAlgo": 1}, NAS_KSI={"TSC": 0, "Value": 3},
        UESecCap=CAPABILITY, EAPMsg=packets["success"], ABBA=b"\0\0")


def inner_request():
    return dict(registration_messages())["RegistrationRequest-null"].to_bytes()


def connection_messages():
    five = {"PSI_5": 1}
    yield "ServiceRequest", mm(
        MM.FGMMServiceRequest, ServiceType=1, NAS_KSI={"TSC": 0, "Value": 3}, _5GSID=S_TMSI, ULDataStat=five,
        PDUSessStat=five)
    yield "ServiceAccept", mm(
        MM.FGMMServiceAccept, PDUSessStat=five, PDUSessReactResult={"PSI_9": 1},
        PDUSessReactResultErr=[{"PSI": 9, "Cause": 43}])
    yield "ServiceReject", mm(MM.FGMMServiceReject, _5GMMCause=9)
    yield "ServiceReject-congestion", mm(MM.FGMMServiceReject, _5GMMCause=22, T3346={"Unit": 0, "Value": 21})
    yield "DeregistrationRequest-UE", mm(
        MM.FGMMMODeregistrationRequest, NAS_KSI={"TSC": 0, "Value": 3},
        DeregistrationType={"SwitchOff": 1, "ReregistrationRequired": 0, "AccessType": 1}, _5GSID=GUTI)
    yield "DeregistrationAccept-UE", mm(MM.FGMMMODeregistrationAccept)
    yield "DeregistrationRequest-network", mm(
        MM.FGMMMTDeregistrationRequest,
        DeregistrationType={"SwitchOff": 0, "ReregistrationRequired": 1, "AccessType": 1}, _5GMMCause=22)
    yield "DeregistrationAccept-network", mm(MM.FGMMMTDeregistrationAccept)
    yield "ULNASTransport", mm(
        MM.FGMMULNASTransport, PayloadContainerType=1, PayloadContainer=establishment().to_bytes(), PDUSessID=5,
        RequestType={"Value": 1}, SNSSAI={"SST": 3, "SD": 0x0000AB}, DNN="internet")
    yield "DLNASTransport", mm(
        MM.FGMMDLNASTransport, PayloadContainerType=1, PayloadContainer=rejection().to_bytes(), PDUSessID=5,
        _5GMMCause=90)


def establishment():
    options = {"Config": [{"ID": 0x000D}, {"ID": 0x0010}]}
    return sm(
        SM.FGSMPDUSessionEstabRequest, IntegrityProtMaxDataRate={"UPUL": 255, "UPDL": 255},
        PDUSessType={"Value": 3}, SSCMode={"Value": 1}, ExtProtConfig=options)


def rejection():
    return sm(SM.FGSMPDUSessionEstabReject, _5GSMCause=27, BackOffTimer={"Unit": 4, "Value": 10})


def session_messages():
    rule = {"ID": 1, "OpCode": 1, "DQR": 1, "PktFilterList": [
        {"Dir": 3, "Id": 1, "PktFilter": [{"Type": 1}]}], "Precedence": 255, "Flow": {"Segregation": 0, "QFI": 1}}
    flow = {"QFI": 1, "OpCode": 1, "Params": [{"Type": 1, "Content": 9}]}
    ambr = {"DLUnit": 6, "DL": 500, "ULUnit": 6, "UL": 100}
    address = {"Type": 3, "Addr": {"IPv6IfId": bytes.fromhex("0000000000000005"), "IPv4": bytes([10, 45, 0, 5])}}
    options = {"Config": [
        {"ID": 0x000D, "Cont": bytes([8, 8, 8, 8])}, {"ID": 0x0010, "Cont": (1400).to_bytes(2, "big")}]}
    yield "PDUSessionEstablishmentRequest", establishment()
    yield "PDUSessionEstablishmentAccept", sm(
        SM.FGSMPDUSessionEstabAccept, SSCMode={"Value": 1}, PDUSessType={"Value": 3}, QoSRules=[rule],
        SessAMBR=ambr, _5GSMCause=50, PDUAddress=address, SNSSAI={"SST": 3, "SD": 0x0000AB}, QoSFlowDesc=[flow],
        ExtProtConfig=options, DNN="internet")
    yield "PDUSessionEstablishmentReject", rejection()
    changed = {"QFI": 1, "OpCode": 3, "Params": [{"Type": 1, "Content": 7}]}
    yield "PDUSessionModificationCommand", sm(
        SM.FGSMPDUSessionModifCommand, pti=0, SessAMBR={"DLUnit": 6, "DL": 10, "ULUnit": 6, "UL": 5},
        QoSFlowDesc=[changed])
    yield "PDUSessionModificationComplete", sm(SM.FGSMPDUSessionModifComplete, pti=0)
    yield "PDUSessionReleaseRequest", sm(SM.FGSMPDUSessionReleaseRequest, pti=2, _5GSMCause=36)
    yield "PDUSessionReleaseReject", sm(SM.FGSMPDUSessionReleaseReject, pti=2, _5GSMCause=43)
    yield "PDUSessionReleaseCommand", sm(SM.FGSMPDUSessionReleaseCommand, pti=2, _5GSMCause=36)
    yield "PDUSessionReleaseComplete", sm(SM.FGSMPDUSessionReleaseComplete, pti=2)
    yield "5GSMStatus", sm(SM.FGSMStatus, pti=0, _5GSMCause=98)


def messages():
    """Every message: name -> pycrate message with its values set."""
    out = {}
    parts = (registration_messages, security_messages, eap_messages, connection_messages, session_messages)
    for part in parts:
        out.update(part())
    return out


def decode(octets):
    """pycrate's message of the octets; raises on what it does not parse whole."""
    message, error = parse_NAS5G(octets)
    if error:
        raise ValueError(f"pycrate: error {error} at {octets.hex()}")
    return message
