"""EAP-AKA' of the lab subscriber, computed without Vireo's libraries.

MILENAGE is that of security_values.py; the key derivation (RFC 9048 3.3, TS 33.501 A.3, F.3) and the packets (RFC 3748 4,
RFC 4187 8, 10) are written out here. `check_cases` holds the derivation against RFC 9048 appendix D.
"""

import hashlib
import hmac

import security_values as lab

IDENTIFIER = 0x23
REQUEST, RESPONSE, SUCCESS, FAILURE = 1, 2, 3, 4
CHALLENGE, REJECT, SYNCHRONIZATION, ERROR = 1, 2, 4, 14
AUTS = bytes.fromhex("5ef40417ef4cb9ac9e76640b820d")


def transformed(ck, ik, network, hidden):
    """CK' and IK'."""
    both = lab.kdf(ck + ik, 0x20, network, hidden)
    return both[:16], both[16:]


def master(ck_prime, ik_prime, identity):
    """K_encr, K_aut, K_re, MSK and EMSK: PRF' of RFC 9048 3.4.1."""
    out = last = b""
    for number in range(1, 8):
        last = hmac.new(ik_prime + ck_prime, last + b"EAP-AKA'" + identity + bytes([number]), hashlib.sha256).digest()
        out += last
    return out[:208]


def check_cases():
    """CK', K_aut and EMSK of cases 1 and 3 of RFC 9048 appendix D, by their first octets."""
    for ck, ik, hidden, ck_prime, k_aut, emsk in (
        ("5349fbe098649f948f5d2e973a81c00f", "9744871ad32bf9bbd1dd5ce54e3e2e5a", "bb52e91c747a", "0093962d", "0842ea72",
         "f861703c"),
        ("c0" * 16, "b0" * 16, "a0" * 6, "cd4c8e5c", "c40700e7", "724de00b"),
    ):
        keys = transformed(bytes.fromhex(ck), bytes.fromhex(ik), b"WLAN", bytes.fromhex(hidden))
        mk = master(*keys, b"0555444333222111")
        if (keys[0][:4].hex(), mk[16:20].hex(), mk[144:148].hex()) != (ck_prime, k_aut, emsk):
            raise SystemExit("the derivation is not that of RFC 9048 appendix D")


def keys():
    """CK' and IK' together, K_aut, KAUSF, KSEAF and KAMF of the lab subscriber's challenge."""
    check_cases()
    f = lab.milenage(lab.SQN, lab.AMF)
    ck_prime, ik_prime = transformed(f["ck"], f["ik"], lab.NETWORK, lab.xor(lab.SQN, f["ak"]))
    mk = master(ck_prime, ik_prime, lab.SUPI)
    kausf = mk[144:176]
    kseaf = lab.kdf(kausf, 0x6C, lab.NETWORK)
    return {"eap_transformed": ck_prime + ik_prime, "eap_k_aut": mk[16:48], "eap_kausf": kausf, "eap_kseaf": kseaf,
            "eap_kamf": lab.kdf(kseaf, 0x6D, lab.SUPI, lab.ABBA)}


def attribute(kind, first, value=b""):
    """An attribute with two octets before its value, padded to a multiple of four."""
    octets = first.to_bytes(2, "big") + value
    octets += bytes(-(2 + len(octets)) % 4)
    return bytes([kind, (2 + len(octets)) // 4]) + octets


def packet(code, subtype, attributes, k_aut=None):
    """A packet of EAP-AKA', with AT_MAC if there is a key."""
    def whole(attributes):
        return bytes([code, IDENTIFIER]) + (8 + len(attributes)).to_bytes(2, "big") + bytes([50, subtype, 0, 0]) + attributes
    if k_aut is None:
        return whole(attributes)
    zeroed = whole(attributes + attribute(11, 0, bytes(16)))
    return zeroed[:-16] + hmac.new(k_aut, zeroed, hashlib.sha256).digest()[:16]


def packets():
    """name -> packet."""
    k_aut, f = keys()["eap_k_aut"], lab.milenage(lab.SQN, lab.AMF)
    autn = lab.xor(lab.SQN, f["ak"]) + lab.AMF + f["mac_a"]
    name = attribute(23, len(lab.NETWORK), lab.NETWORK)
    kdf = attribute(24, 1)
    return {
        "challenge": packet(REQUEST, CHALLENGE, attribute(1, 0, lab.RAND) + attribute(2, 0, autn) + name + kdf, k_aut),
        "response": packet(RESPONSE, CHALLENGE, attribute(3, 64, f["res"]), k_aut),
        "synchronization": packet(RESPONSE, SYNCHRONIZATION, bytes([4, 4]) + AUTS + kdf),
        "reject": packet(RESPONSE, REJECT, b""),
        "error": packet(RESPONSE, ERROR, attribute(22, 0)),
        "success": bytes([SUCCESS, IDENTIFIER, 0, 4]),
        "failure": bytes([FAILURE, IDENTIFIER, 0, 4]),
    }
