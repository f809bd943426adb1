"""A control plane and a gNB on scapy's layers: what they send is encoded, and what they get is read, by scapy alone."""

import logging
import time

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer  # noqa: E402
from scapy.contrib.pfcp import *  # noqa: E402,F403 (the layer has a class for each element)
from scapy.layers.inet import ICMP, IP  # noqa: E402

from world import GNB, GTPU_PORT, HOST, PFCP_PORT, SMF, UPF  # noqa: E402

NTP = 2_208_988_800
ACCEPTED, REJECTED, NOT_FOUND, NO_ASSOCIATION, RULE_FAILURE, NO_RESOURCES = 1, 64, 65, 72, 73, 75
MISSING, CONDITIONAL_MISSING, INVALID_LENGTH, INCORRECT, OCCUPIED = 66, 67, 68, 69, 79
POLICY, UNSUPPORTED = 70, 76


class Failed(Exception):
    pass


def check(good, what):
    if not good:
        raise Failed(what)


def find(message, kind):
    """The elements of a class in a message, wherever they are."""
    found = []
    for element in getattr(message, "IE_list", []):
        if isinstance(element, kind):
            found.append(element)
        found += find(element, kind)
    return found


def one(message, kind):
    found = find(message, kind)
    check(len(found) == 1, f"{len(found)} of {kind.__name__} in {message.summary()}")
    return found[0]


class ControlPlane:
    def __init__(self, socket, started=None, address=SMF):
        self.socket, self.sequence, self.address = socket, 0, address
        self.started = started or int(time.time()) + NTP
        self.reports, self.heartbeats, self.answers = [], 0, True

    def send(self, body, seid=None):
        """Sends a message; gives its octets."""
        self.sequence += 1
        header = PFCP(S=0) if seid is None else PFCP(S=1, seid=seid)
        octets = bytes(header / body)
        at = 12 if seid is not None else 4
        octets = octets[:at] + self.sequence.to_bytes(3, "big") + octets[at + 3:]
        self.socket.sendto(octets, (UPF, PFCP_PORT))
        return octets

    def receive(self):
        """The next message that is no heartbeat of the UPF; those are answered, unless it is to be silent."""
        while True:
            octets, _ = self.socket.recvfrom(65536)
            message = PFCP(octets)
            check(not find(message.payload, IE_NotImplemented), f"scapy does not know an element of {message.summary()}")
            check(bytes(message) == octets, f"scapy encodes differently what it read: {octets.hex()}")
            if not isinstance(message.payload, PFCPHeartbeatRequest):
                return message, octets
            self.heartbeats += 1
            if self.answers:
                self.beat(message.seq)

    def beat(self, sequence):
        """Answers a heartbeat of the UPF."""
        answer = PFCPHeartbeatResponse(IE_list=[IE_RecoveryTimeStamp(timestamp=self.started)])
        self.socket.sendto(bytes(PFCP(S=0, seq=sequence) / answer), (UPF, PFCP_PORT))

    def answer_to(self, sequence):
        """The answer to a request; what the UPF asks meanwhile is kept."""
        while True:
            message, octets = self.receive()
            if isinstance(message.payload, PFCPSessionReportRequest):
                self.reports.append(message)
            else:
                check(message.seq == sequence, f"an answer to {message.seq} instead of {sequence}")
                return message, octets

    def ask(self, body, seid=None):
        self.send(body, seid)
        return self.answer_to(self.sequence)[0]

    def cause(self, body, seid=None):
        return one(self.ask(body, seid).payload, IE_Cause).cause

    def node(self):
        return IE_NodeId(id_type=0, ipv4=self.address)

    def report(self):
        """The next report, answered."""
        while not self.reports:
            message, _ = self.receive()
            self.reports.append(message)
        report = self.reports.pop(0)
        check(isinstance(report.payload, PFCPSessionReportRequest), f"no report: {report.summary()}")
        answer = bytes(PFCP(S=1, seid=1, seq=report.seq)
                       / PFCPSessionReportResponse(IE_list=[IE_Cause(cause=ACCEPTED)]))
        self.socket.sendto(answer, (UPF, PFCP_PORT))
        return report.payload


class Gnb:
    def __init__(self, socket):
        self.socket, self.echoes = socket, 0

    def up(self, teid, packet, qfi=9):
        tunnel = GTP_U_Header(teid=teid, E=1, next_ex=0x85) / GTPPDUSessionContainer(type=1, QFI=qfi)
        self.socket.sendto(bytes(tunnel / packet), (UPF, GTPU_PORT))

    def receive(self):
        """The next datagram that is no Echo Request; those are answered."""
        while True:
            octets, sender = self.socket.recvfrom(65536)
            check(sender == (UPF, GTPU_PORT), f"from {sender}")
            tunnel = GTP_U_Header(octets)
            if tunnel.gtp_type != 1:
                return tunnel
            self.echoes += 1
            self.socket.sendto(bytes(GTP_U_Header(gtp_type=2, S=1, seq=tunnel.seq) / bytes([14, 0])), sender)

    def down(self, teid, qfi=9):
        """The next packet, which must come in this tunnel and flow."""
        tunnel = self.receive()
        check((tunnel.gtp_type, tunnel.teid) == (255, teid), f"not for tunnel {teid:#x}: {tunnel.summary()}")
        if qfi is not None:
            check(tunnel[GTPPDUSessionContainer].QFI == qfi, f"flow {tunnel[GTPPDUSessionContainer].QFI}, not {qfi}")
        return tunnel[IP]

    def silent(self, what):
        """Nothing may come."""
        self.socket.settimeout(0.3)
        try:
            tunnel = self.receive()
        except TimeoutError:
            return
        finally:
            self.socket.settimeout(5)
        raise Failed(f"{what}: {tunnel.summary()}")

    def ping(self, uplink, downlink, ue, qfi=9, number=1, answer_qfi=None):
        """One echo request through the UPF and the kernel's answer back."""
        data = bytes(range(48))
        self.up(uplink, IP(src=ue, dst=HOST) / ICMP(id=7, seq=number) / data, qfi)
        reply = self.down(downlink, answer_qfi or qfi)
        check((reply.src, reply.dst) == (HOST, ue), f"from {reply.src} to {reply.dst}")
        check((reply[ICMP].type, reply[ICMP].seq) == (0, number), "not the answer to this request")
        check(bytes(reply[ICMP].payload) == data, "other data")


def forward_to(teid):
    """Forwarding parameters of a FAR towards the gNB."""
    return [IE_DestinationInterface(interface="Access"),
            IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=teid, ipv4=GNB)]
