"""Packets of a capture without tshark: enough of pcap, IP, SCTP and UDP to count and take out what was sent.

Reads classic pcap files of the link types Ethernet, raw IP and Linux cooked; writes such files for tests. Independent of
tshark on purpose: a message that tshark overlooks is still counted here.
"""

import struct

ETHERNET, RAW, COOKED, COOKED2 = 1, 101, 113, 276
SCTP, UDP = 132, 17
NGAP_PPID = 60
SCTP_OVER_UDP, PFCP_PORT, GTPU_PORT = 9899, 8805, 2152


def frames(path):
    """(number, link type, octets) of each packet, numbered from 1 as tshark does."""
    with open(path, "rb") as file:
        octets = file.read()
    magic = octets[:4]
    orders = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
    if magic not in orders:
        raise ValueError(f"{path} is no pcap file")
    order = orders[magic]
    link = struct.unpack(order + "I", octets[20:24])[0] & 0xFFFF
    at, number = 24, 0
    while at < len(octets):
        kept, sent = struct.unpack(order + "II", octets[at + 8:at + 16])
        number += 1
        if kept != sent:
            raise ValueError(f"{path}: packet {number} is cut: capture with a larger snap length")
        yield number, link, octets[at + 16:at + 16 + kept]
        at += 16 + kept


def ip_payload(link, octets):
    """(protocol, payload) of an IP packet, or None."""
    if link == ETHERNET:
        kind, octets = octets[12:14], octets[14:]
    elif link == COOKED:
        kind, octets = octets[14:16], octets[16:]
    elif link == COOKED2:
        kind, octets = octets[0:2], octets[20:]
    elif link == RAW:
        kind = b"\x08\x00" if octets[0] >> 4 == 4 else b"\x86\xdd"
    else:
        raise ValueError(f"link type {link} is not known here")
    if kind == b"\x08\x00":
        if struct.unpack("!H", octets[6:8])[0] & 0x3FFF:
            return None  # a fragment: those that cross N3 are tshark's to put together
        length = struct.unpack("!H", octets[2:4])[0]
        return octets[9], octets[(octets[0] & 15) * 4:length]
    if kind == b"\x86\xdd":
        return octets[6], octets[40:40 + struct.unpack("!H", octets[4:6])[0]]
    return None


def datagrams(path):
    """(number, "sctp" or UDP ports, payload) of each packet."""
    for number, link, octets in frames(path):
        found = ip_payload(link, octets)
        if found is None:
            continue
        protocol, payload = found
        if protocol == SCTP:
            yield number, "sctp", payload
        elif protocol == UDP and len(payload) >= 8:
            ports = set(struct.unpack("!HH", payload[:4]))
            if SCTP_OVER_UDP in ports:
                yield number, "sctp", payload[8:]
            else:
                yield number, ports, payload[8:]


def ngap_messages(path):
    """(number, stream, octets) of each NGAP PDU, put together from its DATA chunks; a retransmission is given once."""
    parts, seen = {}, set()
    for number, kind, packet in datagrams(path):
        if kind != "sctp":
            continue
        ports, at = packet[:8], 12
        while at + 4 <= len(packet):
            chunk, flags, length = struct.unpack("!BBH", packet[at:at + 4])
            if length < 4:
                raise ValueError(f"{path}: packet {number} has a chunk of {length} octets")
            if chunk == 0:
                tsn, stream, _, ppid = struct.unpack("!IHHI", packet[at + 4:at + 16])
                if (ports, tsn) not in seen:
                    seen.add((ports, tsn))
                    held = parts.pop((ports, stream), b"") if not flags & 2 else b""
                    whole = held + packet[at + 16:at + length]
                    if not flags & 1:
                        parts[ports, stream] = whole
                    elif ppid == NGAP_PPID:
                        yield number, stream, whole
            at += (length + 3) // 4 * 4


def udp_messages(path, port):
    """(number, octets) of each UDP payload from or to `port`."""
    for number, kind, payload in datagrams(path):
        if kind != "sctp" and port in kind:
            yield number, payload


def crc32c(octets):
    """The checksum of SCTP (RFC 9260 Appendix A)."""
    crc = 0xFFFFFFFF
    for octet in octets:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sctp_packet(tsn, stream, octets):
    """An IPv4 packet with one whole user message to the NGAP port."""
    data = struct.pack("!BBHIHHI", 0, 3, 16 + len(octets), tsn, stream, tsn & 0xFFFF, NGAP_PPID) + octets
    data += bytes(-len(data) % 4)
    head = struct.pack("!HHI", 38412, 38412, 0x56495245)
    checksum = struct.pack("<I", crc32c(head + bytes(4) + data))
    return ipv4(SCTP, head + checksum + data)


def udp_packet(port, octets):
    return ipv4(UDP, struct.pack("!HHHH", port, port, 8 + len(octets), 0) + octets)


def ipv4(protocol, payload):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, bytes([127, 0, 0, 5]),
                       bytes([127, 0, 0, 9]))
    total = sum(struct.unpack("!10H", head))
    total = ~(total + (total >> 16)) & 0xFFFF
    return head[:10] + struct.pack("!H", total) + head[12:] + payload


def write(path, packets):
    """A pcap file of raw IP packets."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, RAW))
        for number, packet in enumerate(packets):
            file.write(struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet)
