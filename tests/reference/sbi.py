#!/usr/bin/env python3
"""The service-based interface before tshark, Python's MIME reader and pycrate.

sbi.py VIREO [DIR]     runs `VIREO demo --chain sba` with captures, which are kept in DIR, and checks them: a whole life of UEs and
                       their sessions, and handovers by N2

tshark reads HTTP/2 (HPACK, frames, streams); Python's email package reads the multipart bodies and json the rest; pycrate
reads the N1 messages and the N2 transfers by the type that the JSON names. A run passes when every request and answer is read
by them, each reference in the JSON leads to a part, each part is referred to, and the operations of a whole life of a session
are there, or the steps of handovers.
"""

import email.policy
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from email.parser import BytesParser

from pycrate_asn1dir import NGAP

import nas_values

PORT = 7777
TRANSFERS = {
    "PDU_RES_SETUP_REQ": "PDUSessionResourceSetupRequestTransfer",
    "PDU_RES_SETUP_RSP": "PDUSessionResourceSetupResponseTransfer",
    "PDU_RES_REL_CMD": "PDUSessionResourceReleaseCommandTransfer",
    "PDU_RES_REL_RSP": "PDUSessionResourceReleaseResponseTransfer",
    "HANDOVER_REQUIRED": "HandoverRequiredTransfer",
    "HANDOVER_REQ_ACK": "HandoverRequestAcknowledgeTransfer",
    "HANDOVER_CMD": "HandoverCommandTransfer",
}
# What is asked, by the path, and the statuses that answer it.
OPERATIONS = {
    "create": (r"/nsmf-pdusession/v1/sm-contexts", {"201"}),
    "modify": (r"/nsmf-pdusession/v1/sm-contexts/[0-9a-f]{16}/modify", {"200", "204"}),
    "release": (r"/nsmf-pdusession/v1/sm-contexts/[0-9a-f]{16}/release", {"204"}),
    "transfer": (r"/namf-comm/v1/ue-contexts/imsi-[0-9]{15}/n1-n2-messages", {"200", "202"}),
    "status": (r"/namf-callback/v1/sm-contexts/imsi-[0-9]{15}/[0-9]+", {"204"}),
}
# Those that a run must have, for each UE.
NEEDED = {"create", "modify", "release", "transfer"}
# Of a handover by N2 (TS 29.502 5.2.2.3.4), by hoState: what the AMF says with that, and what the SMF answers with the same.
HANDOVER = {
    "PREPARING": ({"hoState", "targetId", "n2SmInfo", "n2SmInfoType"}, "HANDOVER_REQUIRED", "PDU_RES_SETUP_REQ"),
    "PREPARED": ({"hoState", "n2SmInfo", "n2SmInfoType"}, "HANDOVER_REQ_ACK", "HANDOVER_CMD"),
    "COMPLETED": ({"hoState", "ueLocation"}, None, None),
}
# What the scenarios do of them: there and back.
SCENARIOS = {"full": 0, "n2-handover": 2}
# Members that a message of that kind must have (TS 29.502 6.1.6.2.2, 6.1.6.2.8; TS 29.518 6.1.6.2.19).
MANDATORY = {
    "create": {"supi", "pduSessionId", "dnn", "sNssai", "servingNfId", "guami", "servingNetwork", "anType",
               "smContextStatusUri"},
    "status": {"statusInfo"},
    "transfer answer": {"cause"},
}


def exchanges(path):
    """Requests and answers by connection and stream, as tshark reads them: headers and body."""
    command = ["tshark", "-r", str(path), "-d", f"tcp.port=={PORT},http2", "-Y", "http2", "-T", "pdml", "-n"]
    sides = defaultdict(lambda: ({}, bytearray()))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for _, packet in ElementTree.iterparse(process.stdout):
            if packet.tag != "packet":
                continue
            tcp = packet.find("proto[@name='tcp']")
            connection = tcp.find("field[@name='tcp.stream']").get("show")
            answer = tcp.find("field[@name='tcp.srcport']").get("show") == str(PORT)
            for protocol in packet.findall("proto[@name='http2']"):
                for frame in protocol.iter("field"):
                    if frame.get("name") == "http2.stream":
                        take(sides, (connection, answer), frame)
            packet.clear()
    return sides


def take(sides, key, frame):
    number = frame.find(".//field[@name='http2.streamid']")
    if number is None or number.get("show") == "0":
        return
    headers, body = sides[(*key, number.get("show"))]
    for field in frame.iter("field"):
        if field.get("name") == "http2.header":
            name = field.find("field[@name='http2.header.name']")
            value = field.find("field[@name='http2.header.value']")
            if name is not None and value is not None:
                headers[name.get("show")] = value.get("show")
        elif field.get("name") == "http2.data.data" and field.get("value"):
            body += bytes.fromhex(field.get("value"))


def references(value):
    """Content-IDs that JSON refers to, each with the type of the NGAP transfer beside it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict) and set(inner) == {"contentId"}:
                yield inner["contentId"], value.get("n2SmInfoType") or value.get("ngapIeType")
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def read(headers, body):
    """The JSON of a message; raises on what is wrong with it."""
    kind = headers.get("content-type")
    if kind is None:
        if body:
            raise ValueError("a body without a media type")
        return {}
    if not kind.startswith("multipart/related"):
        if kind.split(";")[0] not in ("application/json", "application/problem+json"):
            raise ValueError(f"media type {kind}")
        value, parts = json.loads(bytes(body)), {}
    else:
        text = b"Content-Type: " + kind.encode() + b"\r\nMIME-Version: 1.0\r\n\r\n" + bytes(body)
        message = BytesParser(policy=email.policy.HTTP).parsebytes(text)
        if message.defects or not message.is_multipart():
            raise ValueError(f"defects: {message.defects}")
        root, *rest = message.iter_parts()
        if root.get_content_type() != "application/json" or root.get_content_type() != message.get_param("type"):
            raise ValueError(f"the root is {root.get_content_type()}, type {message.get_param('type')}")
        value = json.loads(root.get_payload(decode=True))
        parts = {part["Content-Id"]: part for part in rest}
    named = dict(references(value))
    if named.keys() != parts.keys():
        raise ValueError(f"references {sorted(named)} and parts {sorted(parts)}")
    for name, part in parts.items():
        octets = part.get_payload(decode=True)
        if part.get_content_type() == "application/vnd.3gpp.5gnas":
            nas_values.decode(octets)
        elif part.get_content_type() == "application/vnd.3gpp.ngap":
            transfer = getattr(NGAP.NGAP_IEs, TRANSFERS[named[name]])
            transfer.from_aper(octets)
            if transfer.to_aper() != octets:
                raise ValueError(f"pycrate encodes {named[name]} differently: {octets.hex()}")
        else:
            raise ValueError(f"a part is {part.get_content_type()}")
    return value


def handed_over(asked, told):
    """What is wrong with a step of a handover by N2."""
    members, says, answers = HANDOVER[asked["hoState"]]
    wrong = [] if asked.keys() == members else [f"members {sorted(asked)}"]
    if (asked.get("n2SmInfoType"), told.get("n2SmInfoType"), told.get("hoState")) != (says, answers, asked["hoState"]):
        wrong.append(f"{asked} is answered by {told}")
    target = asked.get("targetId", {})
    gnb = target.get("ranNodeId", {}).get("gNbId", {})
    if target and not (22 <= gnb["bitLength"] <= 32 and re.fullmatch("[0-9a-f]{6,8}", gnb["gNBValue"])):
        wrong.append(f"targetId {target}")
    return wrong


def check(path, ues, handovers):
    wrong, seen = [], Counter()
    sides = exchanges(path)
    for (connection, answer, stream), (headers, body) in sides.items():
        if answer:
            continue
        where = f"connection {connection}, stream {stream}: {headers.get(':path')}"
        names = [name for name, (path, _) in OPERATIONS.items() if re.fullmatch(path, headers.get(":path", ""))]
        replied = sides.get((connection, True, stream))
        if len(names) != 1 or replied is None:
            wrong.append(f"{where}: {'no answer' if names else 'no such operation'}")
            continue
        name = names[0]
        seen[name] += 1
        head = {":method": "POST", ":scheme": "http"}
        wrong += [f"{where}: {key} {headers.get(key)}" for key, value in head.items() if headers.get(key) != value]
        status = replied[0].get(":status")
        if status not in OPERATIONS[name][1]:
            wrong.append(f"{where}: status {status}")
        if (status in ("201", "202")) != ("location" in replied[0]):
            wrong.append(f"{where}: status {status}, location {replied[0].get('location')}")
        values = {}
        for what, (fields, octets) in ((name, (headers, body)), (f"{name} answer", replied)):
            try:
                values[what] = read(fields, octets)
                missing = MANDATORY.get(what, set()) - values[what].keys()
                wrong += [f"{where}: {what} without {sorted(missing)}"] * bool(missing)
            except Exception as error:  # each kind is a finding
                wrong.append(f"{where}: {what}: {error!r}: {bytes(octets)!r}")
        if "hoState" in values.get(name, {}):
            seen[values[name]["hoState"]] += 1
            wrong += [f"{where}: {fault}" for fault in handed_over(values[name], values.get(f"{name} answer", {}))]
    wrong += [f"{seen[name]} times {name} for {ues} UEs" for name in NEEDED if seen[name] < ues]
    wrong += [f"{seen[state]} times {state}" for state in HANDOVER if seen[state] != ues * handovers]
    return wrong, seen


def main(arguments):
    if len(arguments) not in (1, 2):
        raise SystemExit(__doc__)
    directory = pathlib.Path(arguments[1] if len(arguments) == 2 else "target/witness")
    directory.mkdir(parents=True, exist_ok=True)
    for scenario, handovers in SCENARIOS.items():
        path, log, ues = directory / f"sbi-{scenario}.pcap", directory / f"sbi-{scenario}.log", 5
        command = [arguments[0], "demo", "--chain", "sba", "--ues", str(ues), "--scenario", scenario, "--pcap", path]
        with open(log, "w") as file:
            if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode:
                raise SystemExit(log.read_text() + f"vireo demo --chain sba --scenario {scenario} fails")
        wrong, seen = check(path, ues, handovers)
        print(f"{scenario}: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
        if wrong:
            raise SystemExit("\n".join(wrong[:50]))


if __name__ == "__main__":
    main(sys.argv[1:])
