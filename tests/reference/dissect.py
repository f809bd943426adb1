"""What tshark sees in a capture: the name of every NGAP, NAS, PFCP and GTP-U message, and what it complains about."""

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter

# NAS ciphered with NEA0 is plain text, which tshark reads only when it is told so. SCTP over UDP (RFC 6951) is read
# on its port.
OPTIONS = ["-o", "nas-5gs.null_decipher:TRUE", "-d", "udp.port==9899,sctp", "-n"]
ERROR = 0x00800000  # PI_ERROR of tshark's expert severities


class Dissection:
    """Messages by kind ("ngap", "nas", "pfcp", "gtp"), and complaints as (frame, text)."""

    def __init__(self):
        self.messages = {kind: Counter() for kind in ("ngap", "nas", "pfcp", "gtp")}
        self.complaints = []


def showname(field):
    """The name in `Message type: Registration request (0x41)`."""
    text = field.get("showname", "")
    return re.sub(r"\s*\((0x)?[0-9a-f]+\)$", "", text.partition(": ")[2])


def read(path):
    """Runs tshark over a capture."""
    seen = Dissection()
    command = ["tshark", "-r", str(path), "-T", "pdml", *OPTIONS, "-Y", "sctp or pfcp or gtp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _, element in ElementTree.iterparse(process.stdout):
            if element.tag == "packet":
                packet(seen, element)
                element.clear()
        errors = process.stderr.read().decode()
    if process.returncode:
        raise SystemExit(f"tshark fails on {path}: {errors}")
    return seen


def packet(seen, element):
    frame = int(element.find("proto[@name='geninfo']/field[@name='num']").get("show"))
    protocols = element.find("proto[@name='frame']/field[@name='frame.protocols']").get("show").split(":")
    carrier = next((name for name in protocols if name in ("sctp", "udp", "icmp", "icmpv6")), None)
    if carrier in ("icmp", "icmpv6"):
        return  # an ICMP error quotes a packet, it is none
    for field in element.iter():
        name = field.get("name", "")
        if name == "_ws.malformed":
            seen.complaints.append((frame, "malformed: " + field.get("showname", "")))
        elif name == "_ws.expert.severity" and int(field.get("show")) >= ERROR:
            seen.complaints.append((frame, "expert error"))
        elif name == "_ws.expert":
            note = field.find("field[@name='_ws.expert.message']")
            if note is not None and "undecoded" in note.get("show", "").lower():
                seen.complaints.append((frame, note.get("show")))
        else:
            message(seen, frame, field, name)


NGAP_MESSAGE = re.compile(r"ngap\.([A-Z]\w*)_element$")
DIRECTIONS = {"ngap.initiatingMessage_element", "ngap.successfulOutcome_element", "ngap.unsuccessfulOutcome_element"}
NAS_TYPES = {"nas_5gs.mm.message_type", "nas_5gs.sm.message_type"}
OTHERS = {"pfcp.msg_type": "pfcp", "gtp.message": "gtp"}


def message(seen, frame, field, name):
    if name in DIRECTIONS:
        value = field.find("field[@name='ngap.value_element']")
        inner = [] if value is None else [NGAP_MESSAGE.match(f.get("name", "")) for f in value.findall("field")]
        found = next((m.group(1) for m in inner if m), None)
        if found is None:
            seen.complaints.append((frame, "an NGAP message that tshark does not name"))
        seen.messages["ngap"][found] += 1
    elif name in NAS_TYPES or name in OTHERS:
        kind = OTHERS.get(name, "nas")
        text = showname(field)
        if not text or "unknown" in text.lower() or "reserved" in text.lower():
            seen.complaints.append((frame, f"{field.get('showname')}: a message that tshark does not name"))
        seen.messages[kind][text] += 1
    elif field.tag == "proto" and name == "nas-5gs" and not any(f.get("name") in NAS_TYPES for f in field.iter("field")):
        seen.complaints.append((frame, "a NAS message that tshark cannot read: was it captured with NEA0?"))
