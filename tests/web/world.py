"""A core, a RAN and a data network in network namespaces, for the tests of the web page.

The calling process is in the namespace of the core, so that its browser reaches the core and nothing else.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from waiting import wait  # noqa: E402 (of the folder above)

K = "465B5CE8B199B49FAA5F0A2EE238A6BC"
OPC = "E8ED289DEBA952E4283B54E88E6183CA"
FIRST = 999700000000001
API = "http://127.0.0.1:9090"


def enter_own_network():
    """Runs this program again in a network namespace of its own."""
    if os.environ.get("VIREO_WEB_SPACE"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    os.environ["VIREO_WEB_SPACE"] = "1"
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    os.execvp("unshare", ["unshare", *user, "--net", "--", sys.executable, *sys.argv])


class World:
    """Processes and namespaces of a test; they end with it."""

    def __init__(self, vireo, directory):
        self.vireo = vireo
        self.directory = Path(directory)
        self.processes = []
        self.ran = self.space("n2", "192.168.127.1/24", "ran0", "192.168.127.2/24")
        self.dn = self.space("n6", "192.168.128.1/24", "dn0", "192.168.128.2/24")
        # An address for each emulator: two cannot have the same N3 port.
        self.addresses = iter([f"192.168.127.{n}" for n in range(2, 100)])
        self.inside(self.dn, "ip", "route", "add", "10.45.0.0/16", "via", "192.168.128.1")
        self.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self.database = self.directory / "subscribers.db"
        self.token_file = self.directory / "api.token"
        self.tokens = self.directory / "api.tokens"
        os.environ["VIREO_API_TOKEN_FILE"] = str(self.token_file)

    @staticmethod
    def run(*words, **more):
        return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout

    def inside(self, space, *words):
        return self.run("nsenter", "--net", "--target", str(space.pid), *words)

    def space(self, own, address, far, far_address):
        """Creates a namespace that a link joins to that of the core."""
        before = os.readlink("/proc/self/ns/net")
        holder = self.started(["unshare", "--net", "sleep", "3600"], "space")
        wait("a namespace", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != before, 10)
        self.run("ip", "link", "add", own, "type", "veth", "peer", "name", far, "netns", str(holder.pid))
        self.run("ip", "address", "add", address, "dev", own)
        self.run("ip", "link", "set", own, "up")
        for words in (["link", "set", "lo", "up"], ["address", "add", far_address, "dev", far], ["link", "set", far, "up"]):
            self.inside(holder, "ip", *words)
        return holder

    def started(self, command, log, **environment):
        with open(self.directory / log, "a", encoding="utf-8") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **environment}
            )
        self.processes.append(process)
        return process

    def routes(self):
        """Returns the paths of the API that the core describes."""
        with urllib.request.urlopen(f"{API}/v1/openapi.json", timeout=20) as answer:
            return set(json.load(answer)["paths"])

    def log(self, name):
        path = self.directory / name
        return path.read_text(encoding="utf-8", errors="replace")[-4000:] if path.exists() else ""

    def cli(self, *words):
        return self.run(str(self.vireo), *words)

    def subscriber(self, *words):
        return self.cli("subscriber", "--database", str(self.database), *words)

    def subscribers(self):
        """Returns the subscribers of the database as the command line exports them."""
        return {record["imsi"]: record for record in json.loads(self.subscriber("export", "--format", "json"))}

    def provision(self, count):
        self.subscriber("add", "--imsi", str(FIRST), "--k", K, "--opc", OPC, "--count", str(count))

    def configure(self, more=""):
        path = self.directory / "vireo.toml"
        path.write_text(
            f"""# Core of the tests of the web page.
[core]
plmns = ["99970"]
tacs = [1]

[n2]
addresses = ["192.168.127.1"]

[slice.default]
snssai = {{ sst = 1 }}
slo = {{ registration = "200ms", service-request = "100ms" }}

[dnn.internet]
ipv4-pool = "10.45.0.0/16"

[upf]
n3 = ["192.168.127.1"]

[subscribers]
database = "{self.database}"

[state]
ues = 1000
key-file = "{self.directory}/state.key"

[log]
level = "info"

[api]
listen = "127.0.0.1:9090"
socket = "off"
token-file = "{self.token_file}"
tokens = "{self.tokens}"
{more}""",
            encoding="utf-8",
        )
        return path

    def start_cluster(self):
        """Starts a controller, a balancer and two hosts; returns the hosts by their position."""
        path = self.directory / "cluster.toml"
        path.write_text(
            f"""[n2]
addresses = ["192.168.127.1"]

[n4]
listen = "127.0.0.1:8806"

[upf]
enabled = false

[[external-upf]]
n4 = "127.0.0.9:8805"

[cluster]
controller = "127.0.0.1:7100"
balancer = "127.0.0.1:7200"
hosts = 2
insecure = true
misses = 20

[replication]
mode = "hot"

[pools]
key = "wildcard"
workers = 1
idle = 0

[slice.default]
snssai = {{ sst = 1 }}
replicas = 1

[subscribers]
database = "{self.database}"

[api]
socket = "off"
token-file = "{self.token_file}"
tokens = "{self.tokens}"
""",
            encoding="utf-8",
        )

        def member(role, name, port, **more):
            command = [str(self.vireo), role, "--config", str(path)]
            return self.started(command, name, VIREO_API__LISTEN=f"127.0.0.1:{port}", **more)

        controller = member("controller", "controller", 9090)
        wait("the controller", lambda: self.answers(controller, "controller"))
        member("balancer", "balancer", 9091)
        hosts = [member("host", f"host-{n}", 9092 + n, VIREO_CLUSTER__MACHINE=f"rack-{n}") for n in range(2)]
        wait("two hosts", lambda: len(self.status()["hosts"]) == 2)
        return hosts

    def start_core(self, more=""):
        core = self.started([str(self.vireo), "run", "--config", str(self.configure(more))], "core")
        wait("the core", lambda: self.answers(core, "core"))
        return core

    def answers(self, process, log):
        if process.poll() is not None:
            raise AssertionError(f"{log} ended:\n{self.log(log)}")
        return subprocess.run([self.vireo, "status"], capture_output=True, check=False).returncode == 0

    def status(self):
        return json.loads(self.cli("status", "--json", "--reveal-supi", "--ues", "1000"))

    def emulate(self, log, first, ues, gnb_id, *words):
        """Starts an emulated RAN whose UEs have the subscribers from `first` on."""
        address = next(self.addresses)
        self.inside(self.ran, "ip", "address", "replace", f"{address}/24", "dev", "ran0")
        command = ["nsenter", "--net", "--target", str(self.ran.pid), str(self.vireo), "emulate", "--core"]
        command += ["192.168.127.1", "--imsi", str(first), "--k", K, "--opc", OPC, "--ues", str(ues)]
        command += ["--gnb-id", str(gnb_id), "--timeout", "60", "--quiet", "--n2", address, *words]
        return self.started(command, log)

    @staticmethod
    def end(process, number=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self):
        for process in reversed(self.processes):
            self.end(process)
        # The kernel removes links of a namespace that ended some time later.
        for link in ("n2", "n6"):
            subprocess.run(["ip", "link", "delete", link], check=False, stderr=subprocess.DEVNULL)
