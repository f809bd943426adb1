"""The control plane of Kubernetes as far as the tests need it: etcd and kube-apiserver on loopback.

There is no scheduler, no controller manager and no kubelet: objects are stored, defaulted, checked
and admitted, and nothing runs them.
"""

import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from waiting import wait  # noqa: E402 (of the folder above)

ADDRESS, PORT = "127.0.0.1", 6443
# Administrator of the tests; the audit log has the requests of all others.
ADMIN = secrets.token_hex(16)
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [admin, system:apiserver]
  - level: Metadata
"""


class Refused(Exception):
    """An answer other than success: status and message."""

    def __init__(self, status, message):
        super().__init__(f"{status} {message}")
        self.status, self.message = status, message


class ControlPlane:
    """Both servers, with data in a directory of their own."""

    def __init__(self, kube_apiserver, directory, etcd_addresses):
        self.binary, self.directory = kube_apiserver, Path(directory)
        self.processes, self.kinds, self.warnings = [], {}, []
        urls = ",".join(f"http://{address}:2379" for address in etcd_addresses)
        data = self.directory / "etcd"
        self.start("etcd", "etcd", "--data-dir", data, "--listen-client-urls", urls, "--advertise-client-urls", urls,
                   "--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn")
        self.write("tokens.csv", f"{ADMIN},admin,admin,system:masters\n")
        self.write("audit.yaml", AUDIT_POLICY)
        subprocess.run(["openssl", "genrsa", "-out", self.directory / "accounts.key", "2048"], check=True, capture_output=True)
        self.server = None
        self.start_server()

    def write(self, name, text):
        (self.directory / name).write_text(text, encoding="utf-8")
        return self.directory / name

    def start(self, name, *command):
        with open(self.directory / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_server(self):
        here = self.directory
        self.server = self.start(
            "kube-apiserver", self.binary, "--etcd-servers=http://127.0.0.1:2379", f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}", f"--secure-port={PORT}", f"--cert-dir={here}/pki",
            "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={here}/accounts.key",
            f"--service-account-signing-key-file={here}/accounts.key", f"--token-auth-file={here}/tokens.csv",
            f"--audit-policy-file={here}/audit.yaml", f"--audit-log-path={here}/audit.log",
        )
        wait("kube-apiserver", self.is_ready, 120)

    def is_ready(self):
        if self.server.poll() is not None:
            raise AssertionError(f"kube-apiserver ended:\n{self.log('kube-apiserver')}")
        try:
            return (self.directory / "pki/apiserver.crt").exists() and self.text("/readyz") == "ok"
        except (OSError, Refused):
            return False

    def stop_server(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.processes.remove(self.server)

    def log(self, name):
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-4000:]

    @property
    def authority(self):
        """The authority of the server's certificate, which follows it in its file."""
        chain = (self.directory / "pki/apiserver.crt").read_text(encoding="utf-8")
        last = chain.rindex("-----BEGIN CERTIFICATE-----")
        assert last > 0, "the server has no authority"
        return chain[last:]

    def text(self, path, method="GET", body=None, token=ADMIN, kind="application/json"):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Accept": "application/json, */*"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://{ADDRESS}:{PORT}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=self.authority), timeout=30) as answer:
                self.warnings += answer.headers.get_all("Warning") or []
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["message"]
            except (ValueError, KeyError):
                pass
            raise Refused(error.code, text) from None

    def request(self, path, method="GET", body=None, **more):
        return json.loads(self.text(path, method, body, **more))

    def kind(self, api_version, kind):
        """Returns the path of a kind and whether it is in namespaces, or None for an unknown one."""
        base = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        if base not in self.kinds:
            try:
                self.kinds[base] = self.request(base)["resources"]
            except Refused as error:
                if error.status != 404:
                    raise
                self.kinds[base] = []
        found = [item for item in self.kinds[base] if item["kind"] == kind and "/" not in item["name"]]
        return (base, found[0]["name"], found[0]["namespaced"]) if found else None

    def path(self, document, namespace, has_name=True):
        base, name, is_namespaced = self.kind(document["apiVersion"], document["kind"])
        within = f"/namespaces/{namespace}" if is_namespaced else ""
        return f"{base}{within}/{name}" + (f"/{document['metadata']['name']}" if has_name else "")

    def create(self, document, namespace, dry_run=False):
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self.request(self.path(document, namespace, False) + query, "POST", document)

    def apply(self, document, namespace):
        """Server-side apply, as `helm upgrade` and `kubectl apply --server-side` do."""
        query = "?fieldManager=test&force=true&fieldValidation=Strict"
        return self.request(self.path(document, namespace) + query, "PATCH", document, kind="application/apply-patch+yaml")

    def namespace(self, name, level):
        labels = {"pod-security.kubernetes.io/enforce": level}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, None)

    def account_token(self, namespace, account, secret=None):
        """Returns a token of an account (TokenRequest), which is valid as long as the secret exists."""
        spec = {"expirationSeconds": 3600}
        if secret:
            document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}}
            uid = self.create(document, namespace)["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": uid}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return self.request(path, "POST", body)["status"]["token"]

    def audit(self, account):
        """Returns the requests of an account: verb, path and status."""
        lines = (self.directory / "audit.log").read_text(encoding="utf-8").splitlines()
        events = [event for event in map(json.loads, lines) if event["user"].get("username") == account]
        return [(event["verb"], event["requestURI"], event.get("responseStatus", {}).get("code")) for event in events]

    def close(self):
        for process in reversed(self.processes):
            end(process)


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment(**more):
    return {"PATH": os.environ["PATH"], **more}
