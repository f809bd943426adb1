#!/usr/bin/env python3
"""The service-based interface in gRPC before tshark, which reads protocol buffers by crates/sbi/proto/vireo-sbi.proto.

grpc.py FILE [DIR]     FILE is what crates/sbi/tests/grpc.rs has written: a message's name, its octets, the same in JSON, and
                       its binary parts. The octets are put into a capture, which is kept in DIR

A run passes when tshark knows every field by the file, and reads the same values from the octets as Python does from the JSON.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

PROTO = pathlib.Path(__file__).parents[2] / "crates/sbi/proto"
PACKAGE = "vireo.sbi.v1."
# What gRPC has in a message, and HTTP in a path or a header.
BESIDE = {"sm_context_ref", "ue_context_id", "path", "location", "number"}
# Parts that nothing in the JSON refers to.
TRAVELS = {"sm-context": "sm_context", "amf-context": "amf_context"}
FIRST_PORT = 7000


def capture(path, messages):
    """Writes messages as UDP's payloads, each kind to a port of its own."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for port, octets in messages:
            udp = struct.pack(">HHHH", 5000, port, 8 + len(octets), 0) + octets
            ends = bytes([127, 0, 0, 1]), bytes([127, 0, 0, 2])
            packet = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, *ends) + udp
            file.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)


def dissected(path, ports):
    """What tshark reads in each packet: the message's name, and its fields' names and values."""
    command = ["tshark", "-r", str(path), "-T", "pdml", "-n", "-o", f'uat:protobuf_search_paths:"{PROTO}","TRUE"']
    for name, port in ports.items():
        command += ["-o", f'uat:protobuf_udp_message_types:"{port}","{PACKAGE}{name}"']
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    for packet in ElementTree.fromstring(done.stdout).iter("packet"):
        protocol = packet.find("proto[@name='protobuf']")
        if protocol is None:
            # Nothing is said by no octets.
            yield None, []
            continue
        name = protocol.find(".//field[@name='protobuf.message.name']").get("show")
        fields = [field for field in protocol.iter("field") if field.get("show", "").startswith("Field(")]
        yield name.removeprefix(PACKAGE), [named for field in fields for named in [value(field)] if named]


def value(field):
    """Name and value of a field; None of one that is a message, whose fields come by themselves."""
    name = field.find("field[@name='protobuf.field.name']")
    kind = re.search(r"\((\w+)\)$", field.get("show"))
    if name is None or kind is None:
        raise SystemExit(f"the .proto has no such field: {field.get('show')}")
    kind = kind.group(1)
    content = field.find("field[@name='protobuf.field.value']")
    if kind == "message":
        return None
    if kind == "bytes":
        return name.get("show"), content.get("value", "")
    leaf = content.find("field")
    if kind == "enum":
        return name.get("show"), re.search(r"\((\w+)\)$", leaf.get("showname")).group(1)
    if kind == "bool":
        return name.get("show"), str(leaf.get("show").lower() in ("1", "true"))
    return name.get("show"), leaf.get("show")


def snake(name):
    return re.sub("([A-Z])", r"_\1", name.replace("URI", "Uri")).lower()


def leaves(value, parts):
    """Names and values of what JSON has, with the parts in the places of what refers to them."""
    for name, inner in value.items():
        if isinstance(inner, dict) and set(inner) == {"contentId"}:
            yield snake(name), parts.pop(inner["contentId"])
        elif isinstance(inner, dict):
            yield from leaves(inner, parts)
        else:
            yield snake(name), str(inner)


def main(arguments):
    if len(arguments) not in (1, 2):
        raise SystemExit(__doc__)
    directory = pathlib.Path(arguments[1] if len(arguments) == 2 else "target/witness")
    directory.mkdir(parents=True, exist_ok=True)
    messages = [line.rstrip("\n").split("\t") for line in open(arguments[0])]
    ports = {name: FIRST_PORT + n for n, name in enumerate(sorted({message[0] for message in messages}))}
    path = directory / "grpc.pcap"
    capture(path, [(ports[name], bytes.fromhex(octets)) for name, octets, *_ in messages])
    seen, wrong = list(dissected(path, ports)), []
    if len(seen) != len(messages):
        raise SystemExit(f"tshark reads {len(seen)} of {len(messages)} messages")
    for (name, octets, text, *parts), (read, fields) in zip(messages, seen):
        parts = dict(part.split("=") for part in parts)
        expected = sorted(leaves(json.loads(text or "{}"), parts))
        expected = sorted(expected + [(TRAVELS[part], octets) for part, octets in parts.items()])
        known = {name for name, _ in expected}
        fields = sorted(field for field in fields if field[0] not in BESIDE - known)
        if (read or name, fields) != (name, expected):
            wrong.append(f"{name} {octets}: tshark reads {read} {fields}, and the JSON has {expected}")
    print(f"{len(messages)} messages of {len(ports)} kinds")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
