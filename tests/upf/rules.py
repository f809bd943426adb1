"""Rules beyond the usual: filters, relays, addresses that the UPF chooses, quotas, reports by themselves."""

import time

from asking import address, established, request
from peer import *  # noqa: F403 (scapy's elements come with it)
from scapy.layers.inet import UDP
from world import GNB, GTPU_PORT, HOST, PFCP_PORT, SMF, UPF


def shared_end():
    return IE_FTEID(CH=1, CHID=1, V4=1, choose_id=5)


def end_of(session_request, pdr):
    """The PDI's elements of a PDR of a request."""
    wanted = next(p for p in find(session_request, IE_CreatePDR) if one(p, IE_PDR_Id).id == pdr)
    return one(wanted, IE_PDI).IE_list


def flows(world, cp, gnb):
    """Pings in QoS flow 5, everything else in flow 9, in one tunnel; how Open5GS has its dedicated flows."""
    body = request(cp, 0x60, address(60))
    pdi = end_of(body, 1)
    pdi[1] = shared_end()
    pings = IE_SDF_Filter(FD=1, BID=1, flow_description=f"permit out 1 from {HOST}/32 to assigned", sdf_filter_id=1)
    up = IE_CreatePDR(IE_list=[
        IE_PDR_Id(id=3), IE_Precedence(precedence=10),
        IE_PDI(IE_list=[IE_SourceInterface(interface="Access"), shared_end(), IE_NetworkInstance(instance=b"internet"),
                        IE_UE_IP_Address(V4=1, ipv4=address(60)), pings, IE_QFI(QFI=5),
                        IE_3GPP_InterfaceType(interface_type="N3 3GPP Access")]),
        IE_OuterHeaderRemoval(header="GTP-U/UDP/IPv4"), IE_FAR_Id(id=1), IE_QER_Id(id=5), IE_URR_Id(id=5)])
    down = IE_CreatePDR(IE_list=[
        IE_PDR_Id(id=4), IE_Precedence(precedence=10),
        IE_PDI(IE_list=[IE_SourceInterface(interface="Core"), IE_UE_IP_Address(V4=1, SD=1, ipv4=address(60)),
                        IE_SDF_Filter(BID=1, sdf_filter_id=1), IE_3GPP_InterfaceType(interface_type=17)]),
        IE_FAR_Id(id=2), IE_QER_Id(id=5), IE_URR_Id(id=5)])
    body.IE_list += [
        up, down, IE_CreateQER(IE_list=[IE_QER_Id(id=5), IE_GateStatus(), IE_QFI(QFI=5)]),
        IE_CreateURR(IE_list=[IE_URR_Id(id=5), IE_MeasurementMethod(VOLUM=1), IE_ReportingTriggers()])]
    seid, ends = established(cp, body)
    check(ends[1] == ends[3], "one CHOOSE ID and two tunnel ends")
    sent = world.counted()
    for number in range(1, 11):
        gnb.ping(ends[1], 0x60, address(60), qfi=5, number=number)
    gnb.up(ends[1], IP(src=address(60), dst=HOST) / UDP(sport=4000, dport=9) / b"nobody listens", qfi=9)
    refused = gnb.down(0x60, qfi=5)
    check(refused[ICMP].type == 3, "the kernel's answer to UDP, which is ICMP and so of flow 5")
    check([n - m for n, m in zip(world.counted(), sent)] == [11, 11], "the kernel counts others")
    answer = cp.ask(PFCPSessionDeletionRequest(), seid).payload
    volumes = {one(report, IE_URR_Id).id: one(report, IE_VolumeMeasurement) for report in find(answer, IE_UsageReport_SDR)}
    check((volumes[5].uplink, volumes[1].uplink) == (760, 42), f"counted {volumes[5].uplink}, {volumes[1].uplink}")
    return "two QoS flows told apart by an SDF filter, each with its own QER and URR"


def between_upfs(world, cp, gnb):
    """A session that has no data network: it goes on to another UPF (N9), which the gNB's socket is too."""
    uplink = IE_CreatePDR(IE_list=[
        IE_PDR_Id(id=1), IE_Precedence(precedence=255),
        IE_PDI(IE_list=[IE_SourceInterface(interface="Access"), IE_FTEID(CH=1, V4=1)]),
        IE_OuterHeaderRemoval(header="GTP-U/UDP/IPv4"), IE_FAR_Id(id=1)])
    downlink = IE_CreatePDR(IE_list=[
        IE_PDR_Id(id=2), IE_Precedence(precedence=255),
        IE_PDI(IE_list=[IE_SourceInterface(interface="Core"), IE_FTEID(CH=1, V4=1)]),
        IE_OuterHeaderRemoval(header="GTP-U/UDP/IPv4"), IE_FAR_Id(id=2)])

    def far(number, interface, teid):
        return IE_CreateFAR(IE_list=[
            IE_FAR_Id(id=number), IE_ApplyAction(FORW=1),
            IE_ForwardingParameters(IE_list=[
                IE_DestinationInterface(interface=interface),
                IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=teid, ipv4=GNB)])])
    seid, ends = established(cp, PFCPSessionEstablishmentRequest(IE_list=[
        cp.node(), IE_FSEID(v4=1, seid=0x61, ipv4=SMF), uplink, downlink, far(1, "Core", 0x991), far(2, "Access", 0x992)]))
    packet = IP(src="10.45.9.9", dst=HOST) / ICMP(id=7, seq=1) / b"relayed"
    gnb.up(ends[1], packet)
    check(bytes(gnb.down(0x991)) == bytes(packet), "changed on its way to the other UPF")
    gnb.up(ends[2], packet)
    check(bytes(gnb.down(0x992, qfi=None)) == bytes(packet), "changed on its way from the other UPF")
    for end, following in ((ends[1], 0x991), (ends[2], 0x992)):
        gnb.socket.sendto(bytes(GTP_U_Header(gtp_type=254, teid=end)), (UPF, GTPU_PORT))
        marker = gnb.receive()
        check((marker.gtp_type, marker.teid) == (254, following), f"no End Marker relayed: {marker.summary()}")
    modify = PFCPSessionModificationRequest(IE_list=[IE_UpdateFAR(IE_list=[
        IE_FAR_Id(id=2), IE_UpdateForwardingParameters(IE_list=[*forward_to(0x993), IE_PFCPSMReqFlags(SNDEM=1)])])])
    check(cp.cause(modify, seid) == ACCEPTED, "modification refused")
    marker = gnb.receive()
    check((marker.gtp_type, marker.teid) == (254, 0x992), f"no end marker: {marker.summary()}")
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "packets and End Markers relayed between gNB and another UPF, the old tunnel ended by a marker"


def chosen(world, cp, gnb):
    """The UPF chooses the UE's address in the data network that the network instance names (CHV4 is scapy's spare 2)."""
    sessions = []
    for instance, prefix in ((b"internet", "10.45."), (b"ims", "10.46.")):
        body = request(cp, 0x62, "0.0.0.0")
        for pdr, destination in ((1, 0), (2, 1)):
            pdi = end_of(body, pdr)
            pdi[:] = [element for element in pdi if not isinstance(element, (IE_UE_IP_Address, IE_NetworkInstance))]
            pdi += [IE_NetworkInstance(instance=instance), IE_UE_IP_Address(spare=2, SD=destination)]
        answer = cp.ask(body, 0).payload
        check(one(answer, IE_Cause).cause == ACCEPTED, f"refused with {one(answer, IE_Cause).cause}")
        addresses = {element.ipv4 for element in find(answer, IE_UE_IP_Address)}
        check(len(addresses) == 1, f"several addresses: {addresses}")
        ue = addresses.pop()
        check(ue.startswith(prefix), f"{ue} is not of {instance.decode()}")
        gnb.ping(one(answer, IE_FTEID).TEID, 0x62, ue)
        sessions.append(one(answer, IE_FSEID).seid)
    for seid in sessions:
        check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "addresses chosen by the UPF in two network instances"


def quota(world, cp, gnb):
    body = request(cp, 0x63, address(63))
    urr = one(body, IE_CreateURR)
    urr.IE_list = [IE_URR_Id(id=1), IE_MeasurementMethod(VOLUM=1), IE_ReportingTriggers(volume_quota=1),
                   IE_VolumeQuota(TOVOL=1, total=76 * 8)]
    seid, ends = established(cp, body)
    for number in range(1, 5):
        gnb.ping(ends[1], 0x63, address(63), number=number)
    before = world.counted()
    gnb.up(ends[1], IP(src=address(63), dst=HOST) / ICMP(id=7, seq=5) / b"too much")
    gnb.silent("a packet beyond the quota came back")
    check(world.counted() == before, "a packet beyond the quota reached the data network")
    report = cp.report()
    check((one(report, IE_ReportType).USAR, one(report, IE_UsageReportTrigger).VOLQU) == (1, 1), "no report of the quota")
    check(one(report, IE_VolumeMeasurement).total == 76 * 8, "another volume")
    more = PFCPSessionModificationRequest(IE_list=[IE_UpdateURR(IE_list=[
        IE_URR_Id(id=1), IE_VolumeQuota(TOVOL=1, total=1000)])])
    check(cp.cause(more, seid) == ACCEPTED, "modification refused")
    gnb.ping(ends[1], 0x63, address(63), number=6)
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "a volume quota held to the packet, reported, and renewed"


def by_itself(world, cp, gnb):
    body = request(cp, 0x64, address(64))
    urr = one(body, IE_CreateURR)
    urr.IE_list = [IE_URR_Id(id=1), IE_MeasurementMethod(VOLUM=1, DURAT=1), IE_ReportingTriggers(periodic_reporting=1),
                   IE_MeasurementPeriod(period=1)]
    body.IE_list.append(IE_UserPlaneInactivityTimer(timer=1))
    seid, ends = established(cp, body)
    gnb.ping(ends[1], 0x64, address(64))
    seen, until = set(), time.monotonic() + 10
    while not {"USAR", "UPIR"} <= seen and time.monotonic() < until:
        kind = one(cp.report(), IE_ReportType)
        seen |= {name for name in ("USAR", "UPIR") if getattr(kind, name)}
    check({"USAR", "UPIR"} <= seen, f"only {seen} were reported")
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    cp.reports.clear()
    return "usage reported every second, and that there are no packets any more"


def framed(world, cp, gnb):
    body = request(cp, 0x65, address(65))
    end_of(body, 2).append(IE_FramedRoute(framed_route="10.44.9.0/24 0.0.0.0 1"))
    seid, ends = established(cp, body)
    gnb.ping(ends[1], 0x65, "10.44.9.77")
    gnb.ping(ends[1], 0x65, address(65))
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "a network behind the UE reached through its session"


def paths(world, cp, gnb):
    """A gNB that answers echo requests is there; one that does not (.8 has no GTP-U) is reported."""
    asked, ends = established(cp, request(cp, 0x67, address(67)))
    for _ in range(40):
        # it is asked within a second of its first session, and sees that as it reads
        gnb.ping(ends[1], 0x67, address(67))
        if gnb.echoes:
            break
        time.sleep(0.1)
    check(gnb.echoes > 0, "the gNB was never asked")
    check(cp.cause(PFCPSessionDeletionRequest(), asked) == ACCEPTED, "deletion refused")
    body = request(cp, 0x66, address(66))
    for creation in find(body, IE_OuterHeaderCreation):
        creation.ipv4 = "192.0.2.8"
    seid, _ = established(cp, body)
    cp.socket.settimeout(15)
    message, _ = cp.receive()
    while isinstance(message.payload, PFCPSessionReportRequest):
        message, _ = cp.receive()
    cp.socket.settimeout(5)
    check(isinstance(message.payload, PFCPNodeReportRequest), f"no node report: {message.summary()}")
    check(one(message.payload, IE_NodeReportType).UPFR == 1, "no path failure")
    check(one(message.payload, IE_RemoteGTP_U_Peer).ipv4 == "192.0.2.8", "another peer")
    answer = PFCPNodeReportResponse(IE_list=[cp.node(), IE_Cause(cause=ACCEPTED)])
    cp.socket.sendto(bytes(PFCP(S=0, seq=message.seq) / answer), (UPF, PFCP_PORT))
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "a GTP-U peer that does not answer told by a node report"


PARTS = [flows, framed, between_upfs, chosen, quota, by_itself, paths]
