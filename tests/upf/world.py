"""Three network namespaces in a row with `vireo upf` in the middle; they go when the process ends in good order.

    ran  192.0.2.5 (SMF), .9 (gNB) --- 192.0.2.1  upf  198.51.100.1 --- 198.51.100.7  dn

The kernel of `dn` answers pings and counts, by nftables, every packet from and to the pools.
"""

import atexit
import ctypes
import json
import os
import re
import socket
import subprocess
import tempfile
import time

SMF, GNB, UPF, HOST = "192.0.2.5", "192.0.2.9", "192.0.2.1", "198.51.100.7"
PFCP_PORT, GTPU_PORT = 8805, 2152
CLONE_NEWNET = 0x40000000

CONFIG = f"""
[upf]
n4 = "{UPF}:{PFCP_PORT}"
n3 = ["{UPF}"]
max-sessions = 40
framed-routes = ["10.44.0.0/16"]
path-check = "60s"
[dnn.internet]
ipv4-pool = "10.45.0.0/16"
[dnn.ims]
ipv4-pool = "10.46.0.0/16"
[api]
listen = "127.0.0.1:9090"
socket = "off"
[log]
level = "info"
"""

# Packets in the kernel where a record says it all.
XDP = """
[datapath]
driver = "xdp"
interfaces = ["n3", "n6"]
"""
DRIVERS = {
    "sockets": CONFIG,
    "xdp": CONFIG + XDP + 'mode = "native"\n',
    "xdp-generic": CONFIG + XDP + 'mode = "generic"\n',
}
# What native XDP on a veth pair needs of the other end: receive offload, and frames that are whole.
PEERS = "ip netns exec {tag}-ran ethtool -K n2 gro on tx off; ip netns exec {tag}-dn ethtool -K eth gro on tx off"

COUNTERS = """
table inet count {
    counter up { }
    counter down { }
    chain in { type filter hook input priority 0; ip saddr 10.40.0.0/13 counter name up; }
    chain out { type filter hook output priority 0; ip daddr 10.40.0.0/13 counter name down; }
}
"""


def sh(line, **more):
    done = subprocess.run(["sh", "-ec", line], capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{line}: {done.stderr}")
    return done.stdout


class World:
    def __init__(self, vireo, log, driver):
        self.vireo, self.log, self.process = os.path.abspath(vireo), open(log, "ab"), None
        self.tag = f"vwit{os.getpid()}"
        atexit.register(self.remove)
        tag = self.tag
        sh(f"""
            for s in ran upf dn; do ip netns add {tag}-$s; ip -n {tag}-$s link set lo up; done
            ip -n {tag}-ran link add n2 type veth peer name n3 netns {tag}-upf
            ip -n {tag}-dn link add eth type veth peer name n6 netns {tag}-upf
            ip -n {tag}-ran address add {SMF}/24 dev n2; ip -n {tag}-ran address add {GNB}/24 dev n2
            ip -n {tag}-upf address add {UPF}/24 dev n3; ip -n {tag}-upf address add 198.51.100.1/24 dev n6
            ip -n {tag}-dn address add {HOST}/24 dev eth
            ip -n {tag}-ran link set n2 up; ip -n {tag}-upf link set n3 up
            ip -n {tag}-upf link set n6 up; ip -n {tag}-dn link set eth up
            ip -n {tag}-dn route add 10.40.0.0/13 via 198.51.100.1
            ip netns exec {tag}-dn nft -f -
        """, input=COUNTERS)
        if driver == "xdp":
            sh(PEERS.format(tag=tag))
        with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as file:
            file.write(DRIVERS[driver])
        self.config = file.name

    def remove(self):
        self.stop()
        for side in ("ran", "upf", "dn"):
            subprocess.run(["ip", "netns", "delete", f"{self.tag}-{side}"], check=False, capture_output=True)
        if hasattr(self, "config"):
            os.unlink(self.config)

    def start(self):
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", f"{self.tag}-upf", self.vireo, "upf", "--config", self.config],
            stdout=self.log, stderr=self.log)
        for _ in range(200):
            if self.process.poll() is not None:
                raise SystemExit(f"vireo upf ended: see {self.log.name}")
            if subprocess.run(["ip", "netns", "exec", f"{self.tag}-upf", self.vireo, "status"],
                              capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise SystemExit("vireo upf does not come up")

    def stop(self):
        """Ends the UPF by SIGTERM; it must go in good order."""
        if self.process is None:
            return
        self.process.terminate()
        code, self.process = self.process.wait(20), None
        if code != 0:
            raise SystemExit(f"vireo upf ended with {code}: see {self.log.name}")

    def kill(self):
        """Ends it without warning."""
        self.process.kill()
        self.process.wait(20)
        self.process = None

    def status(self):
        return json.loads(sh(f"ip netns exec {self.tag}-upf {self.vireo} status --json"))["upfs"][0]

    def counted(self):
        """Packets from and to the UEs as the kernel of the data network counts them."""
        text = sh(f"ip netns exec {self.tag}-dn nft list counters")
        return [int(re.search(rf"counter {name} {{\s*packets (\d+)", text).group(1)) for name in ("up", "down")]

    def socket(self, side, address):
        """A UDP socket inside a namespace, whose reads end after 5 s."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as home, open(f"/run/netns/{self.tag}-{side}") as there:
            if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                made.bind(address)
            finally:
                libc.setns(home.fileno(), CLONE_NEWNET)
        made.settimeout(5)
        return made
