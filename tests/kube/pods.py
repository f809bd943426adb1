"""Pods as processes: each has the arguments, variables and files of its manifest at the API server.

The test is the scheduler, the controller of StatefulSets and the kubelet.
"""

import base64
import copy
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from control_plane import ADDRESS, PORT, Refused, end, environment, wait

# Names of directories of the image that a pod mounts, and the variables that replace them here.
DIRECTORIES = {"STATE_DIRECTORY": "state", "RUNTIME_DIRECTORY": "run"}
API_PORT = 9090


class Pod:
    """A process, restarted when it ends, as the kubelet does."""

    def __init__(self, start):
        self.start, self.process, self.starts = start, None, 0

    def run(self):
        if self.process is None or self.process.poll() is not None:
            self.process, self.starts = self.start(), self.starts + 1


class Pods:
    """Pods of one release of the chart."""

    def __init__(self, plane, vireo, charts, namespace, directory):
        self.plane, self.vireo, self.charts, self.namespace = plane, vireo, charts, namespace
        self.directory, self.hosts, self.others = Path(directory), [], []

    def objects(self):
        """Returns configuration and secrets as `mounted_files` of check-charts needs them."""
        listed = lambda kind: self.plane.request(f"/api/v1/namespaces/{self.namespace}/{kind}")["items"]
        maps = {("ConfigMap", item["metadata"]["name"]): item for item in listed("configmaps")}
        decode = lambda data: {name: base64.b64decode(text).decode() for name, text in data.items()}
        secrets = {item["metadata"]["name"]: decode(item.get("data") or {}) for item in listed("secrets")}
        return maps, secrets

    def start(self, kind, workload, name, address, node, **more):
        """Starts the process of a pod with these addresses."""
        template = self.plane.request(f"/apis/apps/v1/namespaces/{self.namespace}/{kind}/{workload}")["spec"]["template"]
        pod = template["spec"]
        container = pod["containers"][0]
        self.charts.ADDRESSES.update({"status.podIP": address, "status.hostIP": node, "spec.nodeName": node})
        variables = self.charts.environment(container, workload.rpartition("-")[0].upper(), name)
        maps, secrets = self.objects()
        root = self.directory / name
        for path, text in self.charts.mounted_files(pod, container, maps, secrets, name).items():
            file = Path(f"{root}{path}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(re.sub(r'"/etc/', f'"{root}/etc/', text), encoding="utf-8")
            file.chmod(0o440)
        variables = {key: value.replace("/etc/", f"{root}/etc/") for key, value in variables.items()}
        for variable, directory in DIRECTORIES.items():
            (root / directory).mkdir(parents=True, exist_ok=True)
            variables[variable] = str(root / directory)
        # Pods have networks of their own; here all have one.
        variables |= {"VIREO_API__LISTEN": f"{address}:{API_PORT}", "VIREO_API__SOCKET": "off", **more}
        variables.pop("VIREO_API", None)
        role, option, path = container["args"]
        with open(self.directory / f"{name}.log", "ab") as log:
            command = [str(self.vireo), role, option, f"{root}{path}"]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(**variables))

    def start_controller(self, workload, address, token):
        """Starts a controller with the files of its account that a kubelet mounts."""
        account = self.directory / "account"
        account.mkdir(exist_ok=True)
        (account / "ca.crt").write_text(self.plane.authority, encoding="utf-8")
        (account / "namespace").write_text(self.namespace, encoding="utf-8")
        self.write_token(token)
        keys = {"TOKEN_FILE": "token", "AUTHORITIES": "ca.crt"}
        more = {f"VIREO_SCALING__KUBERNETES__{key}": str(account / file) for key, file in keys.items()}
        more |= {"KUBERNETES_SERVICE_HOST": ADDRESS, "KUBERNETES_SERVICE_PORT": str(PORT)}
        pod = Pod(lambda: self.start("deployments", workload, "controller", address, address, **more))
        self.others.append(pod)
        pod.run()

    def write_token(self, token):
        (self.directory / "account/token").write_text(token, encoding="utf-8")

    def start_balancer(self, workload, address):
        pod = Pod(lambda: self.start("daemonsets", workload, "balancer", address, address))
        self.others.append(pod)
        pod.run()

    def reconcile(self, workload, addresses, **more):
        """Has as many host pods as the StatefulSet; returns that number."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{workload}"
        scaled = self.plane.request(path)
        replicas = scaled["spec"]["replicas"]
        while len(self.hosts) > replicas:
            end(self.hosts.pop().process)
        while len(self.hosts) < replicas:
            name, address = f"{workload}-{len(self.hosts)}", addresses[len(self.hosts)]
            start = lambda name=name, address=address: self.start("statefulsets", workload, name, address, address, **more)
            self.hosts.append(Pod(start))
        for pod in self.hosts:
            pod.run()
        if scaled.get("status", {}).get("replicas") != replicas:
            status = copy.deepcopy(scaled)
            status["status"] = {"replicas": replicas}
            try:
                self.plane.request(f"{path}/status", "PUT", status)
            except Refused as error:
                # The controller has changed the scale meanwhile.
                if error.status != 409:
                    raise
        return replicas

    @staticmethod
    def is_ready(address):
        try:
            with urllib.request.urlopen(f"http://{address}:{API_PORT}/healthz", timeout=5) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def wait_ready(self, address):
        wait(f"readiness of {address}", lambda: self.is_ready(address))

    def log(self, name):
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def close(self):
        for pod in [*self.hosts, *self.others]:
            if pod.process:
                end(pod.process)
