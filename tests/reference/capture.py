#!/usr/bin/env python3
"""Captures before tshark and pycrate.

capture.py golden             every golden message in a capture of our making is named by tshark without a complaint
capture.py answers FILE       the same of what a core answered to bad input (crates/vireo/tests/bad_input)
capture.py demo VIREO [DIR]   runs `VIREO demo` with NEA0 and checks its captures, which are kept in DIR
capture.py FILE...            checks captures that are there

A capture passes when every NGAP, NAS, PFCP and GTP-U message that is counted without tshark is also named by tshark,
none is malformed or has an expert note of the severity error, pycrate decodes each and encodes it to the same octets, and
NGAP messages are on the streams that TS 38.412 clause 7 wants. With `demo`, the kinds of message that a run must show
are listed below.
"""

import pathlib
import subprocess
import sys
import tempfile
from collections import Counter

from pycrate_mobile.TS24501_IE import S1ModeN1ModeNASTransContainer
from pycrate_mobile.TS29244_PFCP import parse_PFCP
from pycrate_mobile.TS29281_GTPU import parse_GTPU

import dissect
import nas_values
import ngap_values
import packets

GOLDEN = pathlib.Path(__file__).with_name("golden.txt")

# What `vireo demo` must show: devices register, get a session, pass data, go idle, come back and leave.
EXPECTED = {
    "ngap": {
        "NGSetupRequest", "NGSetupResponse", "InitialUEMessage", "DownlinkNASTransport", "UplinkNASTransport",
        "InitialContextSetupRequest", "InitialContextSetupResponse", "PDUSessionResourceSetupRequest",
        "PDUSessionResourceSetupResponse", "UEContextReleaseRequest", "UEContextReleaseCommand",
        "UEContextReleaseComplete",
    },
    "nas": {
        "Registration request", "Authentication request", "Authentication response", "Security mode command",
        "Security mode complete", "Registration accept", "Registration complete", "UL NAS transport",
        "DL NAS transport", "PDU session establishment request", "PDU session establishment accept",
        "Service request", "Service accept", "Deregistration request (UE originating)",
        "Deregistration accept (UE originating)",
    },
    "pfcp": {
        "PFCP Association Setup Request", "PFCP Association Setup Response",
        "PFCP Session Establishment Request", "PFCP Session Establishment Response",
        "PFCP Session Modification Request", "PFCP Session Modification Response",
        "PFCP Session Report Request", "PFCP Session Report Response",
        "PFCP Session Deletion Request", "PFCP Session Deletion Response",
    },
    "gtp": {"T-PDU"},
}

# What the answers to bad input must show beside what a demo shows.
REFUSALS = {
    "ngap": {"NGSetupFailure", "ErrorIndication", "NGResetAcknowledge", "UEContextReleaseCommand"},
    "nas": {"5GMM status", "Authentication reject", "Registration reject", "Service reject"},
}

# IEs that make a message UE-associated: AMF-UE-NGAP-ID, RAN-UE-NGAP-ID, UE-NGAP-IDs. Error Indication (9) is both.
UE_IDS = {10, 85, 114}
EITHER_STREAM = {9}
# IE with a NAS container (TS 24.501 9.11.2.9) in place of a NAS message.
NASC = 37

# Complaints of tshark 4.0 that are known to be wrong: (text, why).
ALLOWED = []


def check(path):
    """Findings about one capture, and its messages."""
    seen = dissect.read(path)
    wrong = [f"{path}: frame {frame}: {text}" for frame, text in seen.complaints
             if not any(text.startswith(allowed) for allowed, _ in ALLOWED)]
    ngap = list(packets.ngap_messages(path))
    counted = {
        "ngap": len(ngap),
        "pfcp": sum(1 for _ in packets.udp_messages(path, packets.PFCP_PORT)),
        "gtp": sum(1 for _ in packets.udp_messages(path, packets.GTPU_PORT)),
    }
    for kind, count in counted.items():
        named = sum(seen.messages[kind].values())
        if named != count:
            wrong.append(f"{path}: {count} {kind} messages were sent and tshark names {named}")
    for frame, stream, octets in ngap:
        wrong += [f"{path}: frame {frame}: {text}" for text in again(stream, octets)]
    for port, parse in ((packets.PFCP_PORT, parse_PFCP), (packets.GTPU_PORT, parse_GTPU)):
        for frame, octets in packets.udp_messages(path, port):
            message, error = parse(octets)
            if error or message is None or message.to_bytes() != octets:
                wrong.append(f"{path}: frame {frame}: pycrate does not read and write it: {octets.hex()}")
    return wrong, seen.messages


def again(stream, octets):
    """What pycrate finds wrong with an NGAP message and the NAS messages in it."""
    try:
        value = ngap_values.decode(octets)
        if ngap_values.encode(value) != octets:
            yield f"pycrate encodes this NGAP message differently: {octets.hex()}"
        about_ue = any(ie["id"] in UE_IDS for ie in value[1]["value"][1]["protocolIEs"])
        if about_ue != (stream != 0) and value[1]["procedureCode"] not in EITHER_STREAM:
            yield f"it is about {'a UE' if about_ue else 'no UE'} and on stream {stream}: {octets.hex()}"
        for nas in nas_pdus(value):
            plain = nas[7:] if nas[0] == 0x7E and 1 <= nas[1] & 15 <= 4 else nas
            if nas_values.decode(plain).to_bytes() != plain:
                yield f"pycrate encodes this NAS message differently: {plain.hex()}"
        for ie in value[1]["value"][1]["protocolIEs"]:
            if ie["id"] == NASC:
                container = S1ModeN1ModeNASTransContainer()
                container.from_bytes(ie["value"][1])
                if container.to_bytes() != ie["value"][1]:
                    yield f"pycrate encodes this NAS container differently: {ie['value'][1].hex()}"
    except Exception as error:  # pycrate raises many kinds; each is a finding
        yield f"pycrate does not read it: {error}: {octets.hex()}"


def nas_pdus(value):
    """The NAS-PDUs in the value of an NGAP message."""
    if isinstance(value, dict) and value.get("id") != NASC:
        for key, inner in value.items():
            if key in ("nAS-PDU", "pDUSessionNAS-PDU"):
                yield inner
            else:
                yield from nas_pdus(inner)
    elif isinstance(value, tuple) and value and value[0] == "NAS-PDU":
        yield value[1]
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from nas_pdus(inner)


def stream_of(octets):
    """1 for a message about a UE, else 0."""
    fields = ngap_values.decode(octets)[1]["value"][1]["protocolIEs"]
    return int(any(ie["id"] in UE_IDS for ie in fields))


def golden():
    """Every golden message, NAS in a Downlink or Uplink NAS Transport; and one that must be found broken."""
    octets = dict(line.split() for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    # Reroute NAS Request contains another message, which tshark counts, too.
    ngap = [name for name in ngap_values.messages() if name != "RerouteNASRequest"]
    messages = [bytes.fromhex(octets[name]) for name in ngap]
    for name in nas_values.messages():
        nas = bytes.fromhex(octets[name])
        if nas[0] == 0x2E:  # 5GSM travels in NAS transport
            kind, container = nas_values.MM.FGMMULNASTransport, nas
            if name.endswith(("Accept", "Reject", "Command", "Status")):
                kind = nas_values.MM.FGMMDLNASTransport
            nas = nas_values.mm(kind, PayloadContainerType=1, PayloadContainer=container, PDUSessID=5).to_bytes()
        uplink = nas[2] in (0x41, 0x43, 0x45, 0x48, 0x4C, 0x55, 0x57, 0x59, 0x5C, 0x5E, 0x5F, 0x67)
        transport = "UplinkNASTransport" if uplink else "DownlinkNASTransport"
        fields = [*ngap_values.IDS, ("NAS-PDU", nas)]
        if uplink:
            fields.append(("UserLocationInformation", ngap_values.LOCATION))
        messages.append(ngap_values.encode(ngap_values.initiating(transport, *fields)))
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "golden.pcap"
        packets.write(path, [packets.sctp_packet(n, stream_of(octets), octets) for n, octets in enumerate(messages)])
        wrong, seen = check(path)
        names = {name.partition("-")[0] for name in ngap}
        wrong += [f"tshark never names {name}" for name in names - seen["ngap"].keys()]
        if len(seen["nas"]) < 30:
            wrong.append(f"tshark names only these NAS messages: {sorted(seen['nas'])}")
        # a check that finds nothing must not pass for one that looks at nothing
        packets.write(path, [packets.sctp_packet(1, 1, messages[0][:-9])])
        if not any("pycrate" in text for text in check(path)[0]) or not dissect.read(path).complaints:
            wrong.append("a truncated NG Setup Request is not found")
    report(wrong, seen)


def answers(file):
    """Messages that a core sent, with their streams, put into a capture."""
    lines = sorted(set(pathlib.Path(file).read_text().splitlines()))
    sent = [(int(stream), bytes.fromhex(octets)) for stream, octets in map(str.split, lines)]
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "answers.pcap"
        packets.write(path, [packets.sctp_packet(n, stream, octets) for n, (stream, octets) in enumerate(sent)])
        wrong, seen = check(path)
    for kind, names in REFUSALS.items():
        wrong += [f"no {name} among the answers" for name in sorted(names - seen[kind].keys())]
    report(wrong, seen)


def demo(vireo, directory):
    directory.mkdir(parents=True, exist_ok=True)
    files = run_demo(vireo, directory)
    total = {kind: Counter() for kind in EXPECTED}
    wrong = []
    for path in files:
        found, seen = check(path)
        wrong += found
        for kind, names in seen.items():
            total[kind].update(names)
    for kind, names in EXPECTED.items():
        wrong += [f"the demo showed no {name}" for name in sorted(names - total[kind].keys())]
    report(wrong, total)


def run_demo(vireo, directory):
    path = directory / "demo.pcap"
    log = directory / "demo.log"
    command = [vireo, "demo", "--ues", "12", "--ciphering", "nea0", "--pcap", path, "--core-log", directory / "core.log"]
    with open(log, "w") as file:
        if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode:
            raise SystemExit(log.read_text() + "vireo demo fails")
    return [path]


def report(wrong, seen):
    for kind, names in seen.items():
        print(f"{kind}: " + (", ".join(f"{name} {count}" for name, count in sorted(names.items(), key=str)) or "none"))
    if wrong:
        raise SystemExit("\n".join(wrong[:50] + [f"and {len(wrong) - 50} more"] * (len(wrong) > 50)))


def main(arguments):
    if arguments == ["golden"]:
        golden()
    elif len(arguments) == 2 and arguments[0] == "answers":
        answers(arguments[1])
    elif len(arguments) in (2, 3) and arguments[0] == "demo":
        demo(arguments[1], pathlib.Path(arguments[2] if len(arguments) == 3 else "target/witness"))
    elif arguments and not arguments[0].startswith("-"):
        wrong, total = [], {kind: Counter() for kind in EXPECTED}
        for path in arguments:
            found, seen = check(path)
            wrong += found
            for kind, names in seen.items():
                total[kind].update(names)
        report(wrong, total)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
