#!/usr/bin/env python3
"""sessions.py VIREO LOG DRIVER: what a control plane and a gNB that are not ours see of `vireo upf`.

Each part says what it has shown; the first thing that is not as TS 29.244 wants ends the run.
"""

import sys
import time

import refusals
import rules
from peer import *  # noqa: F403 (scapy's elements come with it)
from asking import address, established, request
from world import GNB, GTPU_PORT, HOST, PFCP_PORT, SMF, UPF, World


def associate(cp):
    before = int(time.time()) + NTP - 60
    answer = cp.ask(PFCPAssociationSetupRequest(IE_list=[
        cp.node(), IE_RecoveryTimeStamp(timestamp=cp.started), IE_CPFunctionFeatures()])).payload
    check(one(answer, IE_Cause).cause == ACCEPTED, "association refused")
    check(one(answer, IE_NodeId).ipv4 == UPF, "another Node ID")
    check(one(answer, IE_UPFunctionFeatures).FTUP == 1, "no F-TEID allocation")
    recovery = one(answer, IE_RecoveryTimeStamp).timestamp
    check(before < recovery < before + 120, "a recovery time stamp of another time")
    return recovery


def association(world, cp, gnb):
    check(cp.cause(request(cp, 1, address(2)), 0) == NO_ASSOCIATION, "a stranger's session was not refused as such")
    recovery = associate(cp)
    beat = cp.ask(PFCPHeartbeatRequest(IE_list=[IE_RecoveryTimeStamp(timestamp=cp.started)])).payload
    check(one(beat, IE_RecoveryTimeStamp).timestamp == recovery, "two recovery time stamps")
    return "association and heartbeat"


def traffic(world, cp, gnb):
    sessions = {}
    for number in range(2, 32):
        octets = cp.send(request(cp, number, address(number)), 0)
        answer, first = cp.answer_to(cp.sequence)
        cp.socket.sendto(octets, (UPF, PFCP_PORT))
        _, again = cp.answer_to(cp.sequence)
        check(first == again, "a repeated request was not answered alike")
        sessions[number] = (one(answer.payload, IE_FSEID).seid, one(answer.payload, IE_FTEID).TEID)
    check(len({teid for _, teid in sessions.values()}) == len(sessions), "TEIDs are shared")
    check(world.status()["sessions"] == len(sessions), "repetitions made sessions")
    up, down = world.counted()
    for turn in range(1, 6):
        for number, (_, teid) in sessions.items():
            gnb.ping(teid, number, address(number), number=turn)
    sent = 5 * len(sessions)
    check([n - m for n, m in zip(world.counted(), (up, down))] == [sent, sent], "the kernel counts others")
    for number, (seid, _) in sessions.items():
        answer = cp.ask(PFCPSessionDeletionRequest(), seid)
        check(answer.seid == number, "the answer is for another session")
        volume = one(answer.payload, IE_VolumeMeasurement)
        check((volume.uplink, volume.downlink, volume.total) == (380, 380, 760), f"counted {volume.uplink}")
        check(cp.cause(PFCPSessionDeletionRequest(), seid) == NOT_FOUND, "deleted twice")
    return f"{len(sessions)} sessions, each asked for twice; {sent} pings there and back, as the kernel and the URRs count"


def others(world, cp, gnb):
    """Another source says that it is this control plane, with the same and with another time stamp."""
    seid, ends = established(cp, request(cp, 0x60, address(60)))
    other = ControlPlane(world.socket("ran", (GNB, PFCP_PORT)))
    for started in (cp.started + 1000, cp.started):
        other.started = started
        other.ask(PFCPHeartbeatRequest(IE_list=[IE_RecoveryTimeStamp(timestamp=started)]))
        setup = PFCPAssociationSetupRequest(IE_list=[
            cp.node(), IE_RecoveryTimeStamp(timestamp=started), IE_CPFunctionFeatures()])
        other.send(setup)
        before = cp.heartbeats
        if started == cp.started:
            # the UPF asks the first whether it is there, which it shows by its answer
            cp.socket.settimeout(0.5)
            try:
                cp.receive()
            except TimeoutError:
                pass
            cp.socket.settimeout(5)
            check(cp.heartbeats > before, "the first address was not asked")
        answer = other.answer_to(other.sequence)[0].payload
        check(one(answer, IE_Cause).cause == REJECTED, f"taken for the control plane, started at {started}")
        check(other.cause(PFCPSessionDeletionRequest(), seid) == NO_ASSOCIATION, "a foreign session was deleted")
        check(other.cause(PFCPAssociationReleaseRequest(IE_list=[cp.node()])) == NO_ASSOCIATION, "released by another")
    other.socket.close()
    gnb.ping(ends[1], 0x60, address(60))
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "another source with this Node ID and either time stamp is refused, and the session stays"


def idle(world, cp, gnb):
    seid, ends = established(cp, request(cp, 40, address(40), buffering=True))
    gnb.up(ends[1], IP(src=address(40), dst=HOST) / ICMP(id=7, seq=1) / b"wake")
    report = cp.report()
    check(one(report, IE_ReportType).DLDR == 1, "no downlink data report")
    check(one(report, IE_PDR_Id).id == 2, "of another PDR")
    check(one(report, IE_DownlinkDataServiceInformation).qfi_val == 9, "of another QoS flow")
    modify = PFCPSessionModificationRequest(IE_list=[IE_UpdateFAR(IE_list=[
        IE_FAR_Id(id=2), IE_ApplyAction(FORW=1), IE_UpdateForwardingParameters(IE_list=forward_to(0x4040))])])
    check(cp.cause(modify, seid) == ACCEPTED, "modification refused")
    check(bytes(gnb.down(0x4040)[ICMP].payload) == b"wake", "what was buffered is lost")
    gnb.ping(ends[1], 0x4040, address(40), number=2)
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "downlink buffered, reported and delivered"


def dropped(world, cp, gnb):
    """Buffered packets that the control plane drops as it forwards (DROBU), and a wrong IPv4 header checksum."""
    seid, ends = established(cp, request(cp, 41, address(41), buffering=True))
    gnb.up(ends[1], IP(src=address(41), dst=HOST) / ICMP(id=7, seq=1) / b"to drop")
    cp.report()
    modify = PFCPSessionModificationRequest(IE_list=[
        IE_UpdateFAR(IE_list=[
            IE_FAR_Id(id=2), IE_ApplyAction(FORW=1), IE_UpdateForwardingParameters(IE_list=forward_to(0x4141))]),
        IE_PFCPSMReqFlags(DROBU=1)])
    check(cp.cause(modify, seid) == ACCEPTED, "modification refused")
    gnb.silent("a packet that was to be dropped")
    before = world.counted()
    gnb.up(ends[1], IP(src=address(41), dst=HOST, chksum=0x1234) / ICMP(id=7, seq=2) / b"wrong sum")
    gnb.silent("an answer to a packet with a wrong header checksum")
    check(world.counted() == before, "a packet with a wrong header checksum reached the data network")
    gnb.ping(ends[1], 0x4141, address(41), number=3)
    check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "buffered packets dropped before others are forwarded; wrong header checksums dropped"


def capacity(world, cp, gnb):
    sessions = [established(cp, request(cp, number, address(number)))[0] for number in range(2, 42)]
    answer = cp.ask(request(cp, 99, address(99)), 0).payload
    check(one(answer, IE_Cause).cause == NO_RESOURCES and not find(answer, IE_FSEID), "beyond capacity")
    check(cp.cause(PFCPSessionDeletionRequest(), sessions.pop()) == ACCEPTED, "deletion refused")
    seid, ends = established(cp, request(cp, 99, address(99)))
    gnb.ping(ends[1], 99, address(99))
    for seid in [*sessions, seid]:
        check(cp.cause(PFCPSessionDeletionRequest(), seid) == ACCEPTED, "deletion refused")
    return "the session beyond capacity is refused, and served once there is room"


def restart(world, cp, gnb):
    seid, ends = established(cp, request(cp, 50, address(50)))
    gnb.ping(ends[1], 50, address(50))
    before = one(cp.ask(PFCPHeartbeatRequest(IE_list=[IE_RecoveryTimeStamp(timestamp=cp.started)])).payload,
                 IE_RecoveryTimeStamp).timestamp
    time.sleep(1.1)
    world.kill()
    world.start()
    beat = cp.ask(PFCPHeartbeatRequest(IE_list=[IE_RecoveryTimeStamp(timestamp=cp.started)])).payload
    check(one(beat, IE_RecoveryTimeStamp).timestamp > before, "the restart cannot be seen")
    modify = PFCPSessionModificationRequest(IE_list=[])
    check(cp.cause(modify, seid) == NO_ASSOCIATION, "an association from before")
    associate(cp)
    check(cp.cause(modify, seid) == NOT_FOUND, "a session from before")
    new, ends = established(cp, request(cp, 50, address(50)))
    check(new != seid, "a SEID of the earlier run")
    gnb.ping(ends[1], 50, address(50))
    release = PFCPAssociationReleaseRequest(IE_list=[cp.node()])
    check(cp.cause(release) == ACCEPTED, "release refused")
    check(world.status()["sessions"] == 0, "sessions outlive their association")
    check(cp.cause(release) == NO_ASSOCIATION, "released twice")
    return "killed and started anew: the time stamp tells, the session is restored, the release ends it"


PARTS = [association, traffic, others, idle, dropped, *rules.PARTS, *refusals.PARTS, capacity, restart]


def main(vireo, log, driver):
    world = World(vireo, log, driver)
    cp = ControlPlane(world.socket("ran", (SMF, PFCP_PORT)))
    gnb = Gnb(world.socket("ran", (GNB, GTPU_PORT)))
    world.start()
    for part in PARTS:
        try:
            print(f"scapy over {driver}: {part(world, cp, gnb)}", flush=True)
        except (Failed, TimeoutError) as error:
            raise SystemExit(f"{part.__name__}: {error or 'no answer'}: see {log}") from error
    world.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
