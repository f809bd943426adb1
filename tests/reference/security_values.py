"""NAS security and AKA values of a lab subscriber, computed without Vireo's libraries.

AES, HMAC and the curves are OpenSSL's (the `cryptography` package); MILENAGE (TS 35.206), the key derivations (TS 33.501
Annex A, TS 33.401 Annex A), 128-NEA2, 128-NIA2 (TS 33.501 Annex D) and ECIES (TS 33.501 Annex C) are written out here from
the clauses.
SNOW 3G and ZUC are not here: they are held against the published test sets (crates/wire/tests/security_vectors.rs).
"""

import hashlib
import hmac as standard_hmac

from cryptography.hazmat.primitives import cmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import nas_values

K = bytes.fromhex("465b5ce8b199b49faa5f0a2ee238a6bc")
OPC = bytes.fromhex("e8ed289deba952e4283b54e88e6183ca")
RAND = bytes.fromhex("23553cbe9637a89d218ae64dae47bf35")
SQN = (0x000000C0FFEE).to_bytes(6, "big")
AMF = bytes.fromhex("8000")
NETWORK = b"5G:mnc070.mcc999.3gppnetwork.org"
SUPI = b"999700000000001"
ABBA = b"\0\0"
HOME_A = bytes.fromhex("c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d")
HOME_B = bytes.fromhex("f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda")
EPHEMERAL = bytes(range(1, 33))
MSIN = bytes.fromhex("0000000010")  # 0000000001 as TBCD


def aes(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def rotated(block, bits):
    value = int.from_bytes(block, "big")
    return ((value << bits | value >> (128 - bits)) & ((1 << 128) - 1)).to_bytes(16, "big")


def milenage(sqn, amf):
    """f1, f1*, f2, f3, f4, f5 and f5* (TS 35.206 4.1) with the constants of clause 4.1."""
    temp = aes(K, xor(RAND, OPC))
    in1 = xor(sqn + amf + sqn + amf, OPC)
    out1 = xor(aes(K, xor(temp, rotated(in1, 64))), OPC)

    def out(rotation, constant):
        return xor(aes(K, xor(rotated(xor(temp, OPC), rotation), bytes(15) + bytes([constant]))), OPC)

    out2, out3, out4, out5 = out(0, 1), out(32, 2), out(64, 4), out(96, 8)
    return {"mac_a": out1[:8], "mac_s": out1[8:], "res": out2[8:], "ck": out3, "ik": out4, "ak": out2[:6],
            "ak_star": out5[:6]}


def kdf(key, code, *parameters):
    """TS 33.220 Annex B.2."""
    s = bytes([code]) + b"".join(p + len(p).to_bytes(2, "big") for p in parameters)
    return standard_hmac.new(key, s, hashlib.sha256).digest()


def aka():
    f = milenage(SQN, AMF)
    hidden = xor(SQN, f["ak"])
    ck_ik = f["ck"] + f["ik"]
    kausf = kdf(ck_ik, 0x6A, NETWORK, hidden)
    kseaf = kdf(kausf, 0x6C, NETWORK)
    kamf = kdf(kseaf, 0x6D, SUPI, ABBA)
    resync = milenage(SQN, b"\0\0")  # TS 33.102 6.3.3: AMF is all zero in MAC-S
    return {
        "autn": hidden + AMF + f["mac_a"],
        "xres_star": kdf(ck_ik, 0x6B, NETWORK, RAND, f["res"])[16:],
        "kseaf": kseaf,
        "kamf": kamf,
        "auts": xor(SQN, f["ak_star"]) + resync["mac_s"],
        "kgnb": kdf(kamf, 0x6E, bytes(4), b"\x01"),
    }


def nas_key(kamf, kind, algorithm):
    return kdf(kamf, 0x69, bytes([kind]), bytes([algorithm]))[16:]


def protected(kamf, plain, header, count, downlink):
    """A NAS message with 128-NIA2 and, where the security header type says so, 128-NEA2 (TS 24.501 9.1.1)."""
    enc, integrity = nas_key(kamf, 1, 2), nas_key(kamf, 2, 2)
    start = count.to_bytes(4, "big") + bytes([1 << 3 | downlink << 2]) + bytes(3)  # BEARER 1: 3GPP access
    if header in (2, 4):
        plain = Cipher(algorithms.AES(enc), modes.CTR(start + bytes(8))).encryptor().update(plain)
    code = cmac.CMAC(algorithms.AES(integrity))
    code.update(start + bytes([count & 0xFF]) + plain)
    return bytes([0x7E, header]) + code.finalize()[:4] + bytes([count & 0xFF]) + plain


def x963(secret, shared, length):
    """ANSI-X9.63-KDF with SHA-256."""
    out = b""
    for counter in range(1, length // 32 + 2):
        out += hashlib.sha256(secret + counter.to_bytes(4, "big") + shared).digest()
    return out[:length]


def scheme_output(profile):
    """ECIES with a fixed ephemeral key: its public key, the ciphered MSIN and the MAC tag."""
    if profile == 1:
        ours = x25519.X25519PrivateKey.from_private_bytes(EPHEMERAL)
        home = x25519.X25519PrivateKey.from_private_bytes(HOME_A)
        public = ours.public_key().public_bytes_raw()
        secret = ours.exchange(home.public_key())
    else:
        ours = ec.derive_private_key(int.from_bytes(EPHEMERAL, "big"), ec.SECP256R1())
        home = ec.derive_private_key(int.from_bytes(HOME_B, "big"), ec.SECP256R1())
        compressed = serialization.PublicFormat.CompressedPoint
        public = ours.public_key().public_bytes(serialization.Encoding.X962, compressed)
        secret = ours.exchange(ec.ECDH(), home.public_key())
    keys = x963(secret, public, 64)
    ciphered = Cipher(algorithms.AES(keys[:16]), modes.CTR(keys[16:32])).encryptor().update(MSIN)
    return public + ciphered + standard_hmac.new(keys[32:], ciphered, hashlib.sha256).digest()[:8]


def eps_keys():
    """Keys of EPS (TS 33.401 Annex A) of the same challenge: the PLMN 999 70 is the serving network."""
    f = milenage(SQN, AMF)
    kasme = kdf(f["ck"] + f["ik"], 0x10, bytes.fromhex("99f907"), xor(SQN, f["ak"]))
    kenb = kdf(kasme, 0x11, (300).to_bytes(4, "big"))
    first = kdf(kasme, 0x12, kenb)
    out = {"kasme": kasme, "kenb_300": kenb, "nh_1": first, "nh_2": kdf(kasme, 0x12, first)}
    for algorithm in (1, 2, 3):
        out[f"eps_knas_enc_{algorithm}"] = eps_nas_key(kasme, 1, algorithm)
        out[f"eps_knas_int_{algorithm}"] = eps_nas_key(kasme, 2, algorithm)
    return out


def mapped_keys(kamf, kasme, nh):
    """Keys of handovers between 5GS and EPS (TS 33.501 A.14.2, A.15.2, 8.3.2, 8.4.2). The COUNT of KgNB and KeNB is
    2^32 - 1. The NAS container (TS 24.501 9.11.2.9) has NEA2, NIA2, NCC 2 and the mapped ngKSI 2."""
    highest = b"\xff" * 4
    to_eps = kdf(kamf, 0x74, (300).to_bytes(4, "big"))
    first = kdf(to_eps, 0x12, kdf(to_eps, 0x11, highest))
    to_5gs = kdf(kasme, 0x76, nh)
    octets = bytes([0x22, 2 << 4 | 8 | 2, 0, 0])
    code = cmac.CMAC(algorithms.AES(nas_key(to_5gs, 2, 2)))
    code.update(highest + bytes([1 << 3 | 1 << 2]) + bytes(3) + octets)  # BEARER 1: 3GPP access; downlink
    return {
        "handover_kasme_300": to_eps,
        "handover_nh_2": kdf(to_eps, 0x12, first),
        "handover_kamf": to_5gs,
        "handover_kgnb": kdf(to_5gs, 0x6E, highest, b"\x01"),
        "handover_nas_container": code.finalize()[:4] + octets,
    }


def eps_nas_key(kasme, kind, algorithm):
    return kdf(kasme, 0x15, bytes([kind]), bytes([algorithm]))[16:]


def eps_mac(kasme, octets, count, downlink):
    code = cmac.CMAC(algorithms.AES(eps_nas_key(kasme, 2, 2)))
    code.update(count.to_bytes(4, "big") + bytes([downlink << 2]) + bytes(3) + octets)  # BEARER 0
    return code.finalize()[:4]


def eps_protected(kasme, plain, header, count, downlink):
    """An EMM message with 128-EIA2 and, where the security header type says so, 128-EEA2 (TS 24.301 9.1)."""
    if header in (2, 4):
        start = count.to_bytes(4, "big") + bytes([downlink << 2]) + bytes(11)
        enc = eps_nas_key(kasme, 1, 2)
        plain = Cipher(algorithms.AES(enc), modes.CTR(start)).encryptor().update(plain)
    counted = bytes([count & 0xFF]) + plain
    return bytes([header << 4 | 7]) + eps_mac(kasme, counted, count, downlink) + counted


def eps_service_request(kasme, key_set, count):
    """SERVICE REQUEST (TS 24.301 8.2.25), with the lowest 16 bits of the MAC."""
    head = bytes([0xC7, key_set << 5 | count & 0x1F])
    return head + eps_mac(kasme, head, count, False)[2:]


def eps_values():
    out = eps_keys()
    kasme = out["kasme"]
    for name, octets, header, count, downlink in (
        ("EPS-SecurityModeCommand-down-0", "075d020202f070c1", 3, 0, True),
        ("EPS-SecurityModeComplete-up-0", "075e23093375000000000001f1", 4, 0, False),
        ("EPS-AttachComplete-up-300", "074300035200c2", 2, 300, False),
        ("EPS-EMMInformation-down-1", "07614640", 2, 1, True),
        ("EPS-TrackingAreaUpdateRequest-up-301", "0748230bf699f9078001c3deadbeef57022000e0", 1, 301, False),
    ):
        out[name] = eps_protected(kasme, bytes.fromhex(octets), header, count, downlink)
    out["EPS-ServiceRequest-up-302"] = eps_service_request(kasme, 2, 302)
    return out


def annex_c():
    """Test sets of 128-EEA2 and 128-EIA2 (TS 33.401 C.1.1, C.2.2). The last octet of the first has 5 bits."""
    key, count = bytes.fromhex("d3c5d592327fb11c4035c6680af8c6d1"), bytes.fromhex("398a59b4")
    plain = bytes.fromhex("981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0")
    start = count + bytes([0x15 << 3 | 1 << 2]) + bytes(11)
    ciphered = bytearray(Cipher(algorithms.AES(key), modes.CTR(start)).encryptor().update(plain))
    ciphered[-1] &= 0xF8
    code = cmac.CMAC(algorithms.AES(key))
    code.update(count + bytes([0x1A << 3 | 1 << 2]) + bytes(3) + bytes.fromhex("484583d5afe082ae"))
    return {"annex_c_eea2": bytes(ciphered), "annex_c_eia2": code.finalize()[:4]}


def values():
    """name -> octets."""
    out = aka()
    plain = {name: message.to_bytes() for name, message in nas_values.messages().items()}
    kamf = out["kamf"]
    out |= {
        "knas_enc_2": nas_key(kamf, 1, 2),
        "knas_int_2": nas_key(kamf, 2, 2),
        "knas_enc_1": nas_key(kamf, 1, 1),
        "knas_int_3": nas_key(kamf, 2, 3),
        "SecurityModeCommand-down-0": protected(kamf, plain["SecurityModeCommand"], 3, 0, True),
        "SecurityModeComplete-up-0": protected(kamf, plain["SecurityModeComplete"], 4, 0, False),
        "RegistrationAccept-down-1": protected(kamf, plain["RegistrationAccept"], 2, 1, True),
        "RegistrationComplete-up-300": protected(kamf, plain["RegistrationComplete"], 2, 300, False),
        "ServiceRequest-up-301": protected(kamf, plain["ServiceRequest"], 1, 301, False),
        "suci_a": bytes.fromhex("0199f907f0ff011b") + scheme_output(1),
        "suci_b": bytes.fromhex("0199f907f0ff021c") + scheme_output(2),
    }
    import eap_values  # which has MILENAGE of here

    out |= eap_values.keys()
    out |= eps_values() | annex_c()
    return out | mapped_keys(kamf, out["kasme"], out["nh_2"])
