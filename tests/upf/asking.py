"""Requests for sessions as the parts of the run make them."""

from peer import *  # noqa: F403 (scapy's elements come with it)
from world import SMF, UPF


def request(cp, number, ue, buffering=False):
    """The usual session: uplink to the data network, downlink to the gNB's tunnel of this number or buffered."""
    qer = IE_QER_Id(id=1)
    uplink = IE_CreatePDR(IE_list=[
        IE_PDR_Id(id=1), IE_Precedence(precedence=255),
        IE_PDI(IE_list=[IE_SourceInterface(interface="Access"), IE_FTEID(CH=1, V4=1),
                        IE_NetworkInstance(instance=b"internet"), IE_UE_IP_Address(V4=1, ipv4=ue), IE_QFI(QFI=9)]),
        IE_OuterHeaderRemoval(header="GTP-U/UDP/IPv4"), IE_FAR_Id(id=1), IE_URR_Id(id=1), qer])
    downlink = IE_CreatePDR(IE_list=[
        IE_PDR_Id(id=2), IE_Precedence(precedence=255),
        IE_PDI(IE_list=[IE_SourceInterface(interface="Core"), IE_NetworkInstance(instance=b"internet"),
                        IE_UE_IP_Address(V4=1, SD=1, ipv4=ue)]),
        IE_FAR_Id(id=2), IE_URR_Id(id=1), qer])
    to_core = IE_CreateFAR(IE_list=[
        IE_FAR_Id(id=1), IE_ApplyAction(FORW=1),
        IE_ForwardingParameters(IE_list=[IE_DestinationInterface(interface="Core")])])
    if buffering:
        to_ran = IE_CreateFAR(IE_list=[IE_FAR_Id(id=2), IE_ApplyAction(BUFF=1, NOCP=1)])
    else:
        to_ran = IE_CreateFAR(IE_list=[
            IE_FAR_Id(id=2), IE_ApplyAction(FORW=1), IE_ForwardingParameters(IE_list=forward_to(number))])
    return PFCPSessionEstablishmentRequest(IE_list=[
        cp.node(), IE_FSEID(v4=1, seid=number, ipv4=SMF), uplink, downlink, to_core, to_ran,
        IE_CreateURR(IE_list=[IE_URR_Id(id=1), IE_MeasurementMethod(VOLUM=1), IE_ReportingTriggers()]),
        IE_CreateQER(IE_list=[IE_QER_Id(id=1), IE_GateStatus(), IE_MBR(ul=1_000_000, dl=1_000_000), IE_QFI(QFI=9)]),
        IE_PDNType(pdn_type="IPv4")])


def established(cp, body):
    """The UPF's SEID and the uplink TEIDs by PDR, of an accepted session."""
    answer = cp.ask(body, 0).payload
    cause = one(answer, IE_Cause).cause
    check(cause == ACCEPTED, f"refused with {cause}, offending {[ie.type for ie in find(answer, IE_OffendingIE)]}")
    f_seid = one(answer, IE_FSEID)
    check((f_seid.v4, f_seid.ipv4) == (1, UPF), f"F-SEID of {f_seid.ipv4}")
    ends = {}
    for created in find(answer, IE_CreatedPDR):
        end = one(created, IE_FTEID)
        check((end.V4, end.ipv4) == (1, UPF) and end.TEID != 0, "an F-TEID of another address")
        ends[one(created, IE_PDR_Id).id] = end.TEID
    return f_seid.seid, ends


def address(number):
    return f"10.45.{number >> 8}.{number & 255}"
