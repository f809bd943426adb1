#!/usr/bin/env python3
"""Golden bytes from pycrate and OpenSSL.

golden.py write            writes golden.txt, every message of ngap_values.py and nas_values.py as pycrate encodes it,
                           golden_eps.txt, those of s1ap_values.py and nas_eps_values.py, golden_mme.txt, those of
                           their function mme_messages, and security.txt, the values of security_values.py
golden.py check [FILE]     fails unless these are what comes out now, and pycrate decodes each message of FILE (what
                           Vireo's side built, from crates/wire/tests/golden) to the known values and encodes it again
                           to the same octets
"""

import pathlib
import sys

import nas_eps_values
import nas_values
import ngap_values
import s1ap_values
import security_values

GOLDEN = pathlib.Path(__file__).parent / "golden.txt"
GOLDEN_EPS = GOLDEN.with_name("golden_eps.txt")
GOLDEN_MME = GOLDEN.with_name("golden_mme.txt")
SECURITY = GOLDEN.with_name("security.txt")
HEADER = "# Messages as pycrate encodes them; written by tests/reference/golden.py write, checked by make test.\n"
SECURITY_HEADER = "# Security values as OpenSSL has them; written by tests/reference/golden.py write, checked by make test.\n"


def pycrate_messages():
    """name -> (octets, known values, decoder to comparable values, decoder and encoder)."""
    out = {}
    for name, value in ngap_values.messages().items():
        out[name] = (ngap_values.encode(value), value, ngap_values.decode, ngap_again)
    for name, message in nas_values.messages().items():
        octets = message.to_bytes()
        out[name] = (octets, nas_values.decode(octets).get_val_d(), nas_value, nas_again)
        known, seen = flat(message.get_val_d()), flat(nas_value(octets))
        # pycrate reads messages in containers, and EAP packets, into their parts.
        inner = ("Container", "EAPMsg")
        missing = [item for item in known.items() if item not in seen.items() and not any(i in item[0] for i in inner)]
        if missing:
            raise SystemExit(f"{name}: pycrate reads its own octets as other values: {missing}")
    return out


def eps_messages(kind="messages"):
    """name -> (octets,); pycrate reads each and encodes it again to the same octets."""
    out = {}
    for name, value in getattr(s1ap_values, kind)().items():
        octets = s1ap_values.encode(value)
        again = s1ap_values.encode(s1ap_values.decode(octets))
        out[name] = (octets, again)
    for name, message in getattr(nas_eps_values, kind)().items():
        octets = message.to_bytes()
        out[name] = (octets, nas_eps_values.decode(name, octets).to_bytes())
    wrong = [name for name, (octets, again) in out.items() if octets != again]
    if wrong:
        raise SystemExit(f"pycrate encodes what it reads in other octets: {wrong}")
    return out


def ngap_again(octets):
    return ngap_values.encode(ngap_values.decode(octets))


def nas_value(octets):
    return nas_values.decode(octets).get_val_d()


def nas_again(octets):
    return nas_values.decode(octets).to_bytes()


def flat(value, path=""):
    """Nested dictionaries and lists as one dictionary of paths."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {path: value}
    out = {}
    for key, inner in items:
        out.update(flat(inner, f"{path}/{key}"))
    return out


def lines(messages):
    return "".join(f"{name} {entry[0].hex()}\n" for name, entry in messages.items())


def security():
    return SECURITY_HEADER + "".join(f"{name} {octets.hex()}\n" for name, octets in security_values.values().items())


def check(messages, file):
    wrong = []
    if SECURITY.read_text() != security():
        wrong.append("security.txt is not what security_values.py gives: run tests/reference/golden.py write and look at it")
    if GOLDEN.read_text() != HEADER + lines(messages):
        wrong.append("golden.txt is not what pycrate encodes: run tests/reference/golden.py write and look at the diff")
    if GOLDEN_EPS.read_text() != HEADER + lines(eps_messages()):
        wrong.append("golden_eps.txt is not what pycrate encodes: run tests/reference/golden.py write and look at the diff")
    if GOLDEN_MME.read_text() != HEADER + lines(eps_messages("mme_messages")):
        wrong.append("golden_mme.txt is not what pycrate encodes: run tests/reference/golden.py write and look at the diff")
    built = dict(line.split() for line in pathlib.Path(file).read_text().splitlines()) if file else {}
    if file and built.keys() != messages.keys():
        wrong.append(f"not in both: {sorted(built.keys() ^ messages.keys())}")
    for name in built.keys() & messages.keys():
        octets = bytes.fromhex(built[name])
        _, known, decode, again = messages[name]
        try:
            if decode(octets) != known:
                wrong.append(f"{name}: pycrate reads other values in {octets.hex()}")
            if again(octets) != octets:
                wrong.append(f"{name}: pycrate encodes it as {again(octets).hex()}, not {octets.hex()}")
        except Exception as error:  # pycrate raises many kinds; each is a failed message
            wrong.append(f"{name}: {error} at {octets.hex()}")
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"pycrate: {len(messages)} messages encoded as in golden.txt, {len(built)} built here read and encoded again")


def main(arguments):
    if arguments[:1] == ["write"]:
        GOLDEN.write_text(HEADER + lines(pycrate_messages()))
        GOLDEN_EPS.write_text(HEADER + lines(eps_messages()))
        GOLDEN_MME.write_text(HEADER + lines(eps_messages("mme_messages")))
        SECURITY.write_text(security())
    elif arguments[:1] == ["check"] and len(arguments) <= 2:
        check(pycrate_messages(), arguments[1] if len(arguments) == 2 else None)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
