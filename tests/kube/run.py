"""The Helm chart and the scaling by controllers against a real API server of Kubernetes.

    run.py VIREO KUBE_APISERVER HELM

etcd and kube-apiserver run on loopback in a network namespace of their own.

1. Objects of each set of values (deploy/helm/vireo/ci), and those of examples/kubernetes, are
   created, first as a server-side dry run with strict validation, then for real. Another image is
   applied over those of the chart, as an upgrade does.
2. Each pod template is offered as a pod: admission with the standards `privileged` and `restricted`.
3. helm installs, upgrades and removes a release by itself.
4. Controllers, balancers and hosts of a release run as processes with what their manifests name. The
   controller scales the StatefulSet with a token of its account and the role of the chart.
"""

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import yaml
from control_plane import ADMIN, ADDRESS, PORT, ControlPlane, Refused, wait
from pods import Pods

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/vireo"
VALUES = CHART / "ci"
# Kinds that are no part of Kubernetes: their definitions are installed by other projects.
CUSTOM = {"ServiceMonitor"}
WORKLOADS = {"Deployment", "DaemonSet", "StatefulSet"}
# Components that need no capability, and so conform to the standard `restricted`.
RESTRICTED = {"controller", "host"}
SCALED, ACCOUNT = "vireo-host", "vireo-controller"
# Addresses of pods and of etcd (ci/scaling.yaml).
CONTROLLER, NODE, ETCD = "10.244.1.7", "192.0.2.1", "192.0.2.21"
HOSTS = [f"10.244.2.{n}" for n in range(1, 9)]
# scaling.least and scaling.idle of ci/scaling.yaml.
NEEDED = 3


def enter_own_network():
    """Runs this program again in a network namespace of its own."""
    if not os.environ.get("VIREO_KUBE_SPACE"):
        os.environ["VIREO_KUBE_SPACE"] = "1"
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", *user, "--net", "--", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (CONTROLLER, NODE, ETCD, *HOSTS):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)


def load_charts(helm):
    """Returns the functions of scripts/check-charts."""
    os.environ["HELM"] = str(helm)
    loader = importlib.machinery.SourceFileLoader("check_charts", str(ROOT / "scripts/check-charts"))
    charts = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_charts", loader))
    loader.exec_module(charts)
    charts.SERVICE = CONTROLLER
    return charts


class Helm:
    """helm as an administrator of the API server."""

    def __init__(self, binary, plane, directory):
        self.binary = binary
        cluster = {"server": f"https://{ADDRESS}:{PORT}", "certificate-authority": str(plane.write("ca.crt", plane.authority))}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        path = plane.write("kubeconfig", json.dumps(config))
        self.environment = {**os.environ, "KUBECONFIG": str(path), "HELM_CACHE_HOME": f"{directory}/helm", "HELM_CONFIG_HOME": f"{directory}/helm"}

    def __call__(self, *words):
        done = subprocess.run([self.binary, *words], capture_output=True, text=True, check=False, env=self.environment)
        assert done.returncode == 0, f"helm {words}: {done.stderr}"
        return done.stdout

    def rendered(self, values, namespace, release, *more):
        words = ["template", "vireo", CHART, "--namespace", namespace, "--kube-version", release, "--values", values, *more]
        return [document for document in yaml.safe_load_all(self(*words)) if document]


def objects(plane, helm, release):
    """Parts 1 and 2."""
    for values in sorted(VALUES.glob("*.yaml")):
        namespace = f"core-{values.stem}"
        plane.namespace(namespace, "privileged")
        plane.namespace(f"{namespace}-restricted", "restricted")
        documents = helm.rendered(values, namespace, release)
        known = [document for document in documents if plane.kind(document["apiVersion"], document["kind"])]
        skipped = {document["kind"] for document in documents if document not in known}
        assert skipped <= CUSTOM, f"{values.name}: the API server does not know {skipped - CUSTOM}"
        for is_dry in (True, False):
            for document in known:
                plane.create(document, namespace, is_dry)
        # Service accounts before pods.
        restricted = [document for document in known if document["kind"] == "ServiceAccount"]
        for document in restricted:
            document["metadata"].pop("namespace", None)
            plane.create(document, f"{namespace}-restricted")
        pods = [offer_pod(plane, document, namespace) for document in known if document["kind"] in WORKLOADS]
        upgraded = helm.rendered(values, namespace, release, "--set", "image.tag=0.0.1")
        changed = 0
        for document in upgraded:
            if document["kind"] in CUSTOM:
                continue
            before = plane.request(plane.path(document, namespace))
            after = plane.apply(document, namespace)
            changed += before["metadata"].get("generation", 0) != after["metadata"].get("generation", 0)
        assert changed > 0, f"{values.name}: the upgrade changes no workload"
        more = f"; not {', '.join(sorted(skipped))}" if skipped else ""
        print(f"  {values.name}: {len(known)} objects, {len(pods)} pods admitted, {changed} workloads upgraded{more}", flush=True)


def examples(plane):
    """The plain manifests of examples/kubernetes."""
    plane.namespace("examples", "privileged")
    for name in ("vireo.yaml", "host.yaml"):
        documents = list(yaml.safe_load_all((ROOT / "examples/kubernetes" / name).read_text(encoding="utf-8")))
        for is_dry in (True, False):
            for document in documents:
                plane.create(document, "examples", is_dry)


def offer_pod(plane, workload, namespace):
    """Offers the pod of a workload to the admission, as a dry run."""
    template = workload["spec"]["template"]
    metadata = {"name": "offered", "labels": template["metadata"]["labels"], "annotations": template["metadata"].get("annotations", {})}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    plane.create(pod, namespace, True)
    component = metadata["labels"]["app.kubernetes.io/component"]
    try:
        plane.create(pod, f"{namespace}-restricted", True)
        conforms = True
    except Refused as error:
        conforms = False
        assert error.status == 403 and "violates PodSecurity" in error.message, str(error)
    assert conforms == (component in RESTRICTED), f"{component}: conforms to `restricted`: {conforms}"
    return component


def install(plane, helm, charts, vireo, directory):
    """Part 3: a release in the namespace `core`, with the secrets of the guide."""
    plane.namespace("core", "privileged")
    for name, files in charts.make_secrets(vireo, directory).items():
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": files}
        plane.create(secret, "core")
    helm("install", "vireo", CHART, "--namespace", "core", "--values", VALUES / "scaling.yaml")
    assert replicas(plane) == 1, "the first installation starts one host"


def replicas(plane):
    return plane.request(f"/apis/apps/v1/namespaces/core/statefulsets/{SCALED}/scale")["spec"].get("replicas", 0)


def set_replicas(plane, count):
    path = f"/apis/apps/v1/namespaces/core/statefulsets/{SCALED}/scale"
    plane.request(path, "PATCH", {"spec": {"replicas": count}}, kind="application/merge-patch+json")


def permissions(plane):
    """The account of controllers reads and changes one scale, and may do nothing else."""
    token = plane.account_token("core", ACCOUNT)
    base = "/apis/apps/v1/namespaces/core"
    own = f"{base}/statefulsets/{SCALED}/scale"
    merge = "application/merge-patch+json"
    scale = plane.request(own, token=token)
    version = scale["metadata"]["resourceVersion"]
    patch = lambda version: {"metadata": {"resourceVersion": version}, "spec": {"replicas": 2}}
    assert plane.request(own, "PATCH", patch(version), token=token, kind=merge)["spec"]["replicas"] == 2
    refused = [
        (409, own, "PATCH", patch(version), token),
        (401, own, "GET", None, token[:-8] + "AAAAAAAA"),
        (403, f"{base}/statefulsets/{SCALED}", "GET", None, token),
        (403, f"{base}/statefulsets/other/scale", "GET", None, token),
        (403, "/apis/apps/v1/namespaces/core-scaling/statefulsets/vireo-host/scale", "GET", None, token),
        (403, f"{base}/deployments/{ACCOUNT}/scale", "GET", None, token),
        (403, f"{base}/statefulsets/{SCALED}", "DELETE", None, token),
        (403, "/api/v1/namespaces/core/secrets/vireo-host", "GET", None, token),
        (403, "/api/v1/namespaces/core/pods", "GET", None, token),
        # An account without role.
        (403, own, "GET", None, plane.account_token("core", "vireo")),
    ]
    for status, path, method, body, secret in refused:
        try:
            plane.request(path, method, body, token=secret, kind=merge)
            raise AssertionError(f"{method} {path} is permitted")
        except Refused as error:
            assert error.status == status, f"{method} {path}: {error}"
    set_replicas(plane, 1)


class Scaling:
    """Part 4: the release as processes."""

    def __init__(self, plane, pods, directory):
        self.plane, self.pods = plane, pods
        self.database = f"{directory}/subscribers.db"

    def reconcile(self):
        # No PostgreSQL here: the hosts have a file.
        return self.pods.reconcile(SCALED, HOSTS, VIREO_SUBSCRIBERS__DATABASE=self.database)

    def wait_replicas(self, count, within=60):
        """Plays the kubelet meanwhile. Returns the numbers that were seen."""
        seen = []

        def is_reached():
            now = self.reconcile()
            if not seen or seen[-1] != now:
                seen.append(now)
            return now == count

        wait(f"{count} replicas", is_reached, within)
        return seen

    def wait_hosts(self, count):
        for address in HOSTS[:count]:
            self.pods.wait_ready(address)

    def wait_line(self, text, count=1):
        wait(f"`{text}` in the log", lambda: self.pods.log("controller").count(text) >= count, 40)
        assert self.pods.log("controller").count(text) == count, f"`{text}` is logged again and again"

    def start(self):
        """Without hosts the number is that of hosts that serve and wait."""
        token = self.plane.account_token("core", ACCOUNT, "first")
        self.pods.start_controller(ACCOUNT, CONTROLLER, token)
        self.pods.wait_ready(CONTROLLER)
        self.pods.start_balancer("vireo-balancer", NODE)
        wait(f"{NEEDED} replicas", lambda: replicas(self.plane) == NEEDED, 30)
        self.wait_replicas(NEEDED)
        self.wait_hosts(NEEDED)
        fields = self.plane.request(f"/apis/apps/v1/namespaces/core/statefulsets/{SCALED}")["metadata"]["managedFields"]
        owners = [item["manager"] for item in fields if "f:replicas" in item["fieldsV1"].get("f:spec", {})]
        assert owners == ["vireo-controller"], f"the number belongs to {owners}"

    def operator(self):
        """A number that an operator has set: hosts too many end one by one; too few are raised."""
        set_replicas(self.plane, NEEDED + 2)
        seen = [self.reconcile()]
        # The next one ends when the first has left, or after a minute if as many have joined meanwhile.
        seen += self.wait_replicas(NEEDED, 120)
        assert list(dict.fromkeys(seen)) == [NEEDED + 2, NEEDED + 1, NEEDED], f"seen: {seen}"
        # The StatefulSet would end pods at once: the test is not so fast.
        set_replicas(self.plane, 1)
        wait(f"{NEEDED} replicas", lambda: replicas(self.plane) == NEEDED, 30)

    def upgrade(self, helm):
        """A chart without number of hosts leaves that of the controller."""
        values = ["--namespace", "core", "--reuse-values", "--set", "image.tag=0.0.2"]
        helm("upgrade", "vireo", CHART, *values)
        assert replicas(self.plane) == NEEDED, f"helm has set {replicas(self.plane)}"

    def token(self):
        """A token that is not valid any more is one sentence; the next one is read without a restart."""
        self.plane.request("/api/v1/namespaces/core/secrets/first", "DELETE")
        self.wait_line("API server: token refused (401")
        set_replicas(self.plane, 2)
        self.pods.write_token(self.plane.account_token("core", ACCOUNT))
        self.wait_line("API server answers again")
        assert replicas(self.plane) == NEEDED

    def role(self):
        """So is an account without role."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/core/rolebindings/{ACCOUNT}"
        binding = self.plane.request(path)
        self.plane.request(path, "DELETE")
        self.wait_line("API server: permission denied (403")
        assert "bind the account of controllers to a role with get and patch" in self.pods.log("controller")
        del binding["metadata"]["resourceVersion"]
        self.plane.create(binding, "core")
        self.wait_line("API server answers again", 2)

    def restart(self):
        """An API server that does not answer changes nothing, and has no effect on hosts."""
        self.plane.stop_server()
        self.wait_line("API server 127.0.0.1:6443: no answer")
        assert all(self.pods.is_ready(address) for address in (CONTROLLER, *HOSTS[:NEEDED]))
        self.plane.start_server()
        set_replicas(self.plane, 2)
        self.wait_line("API server answers again", 3)
        assert replicas(self.plane) == NEEDED

    def audited(self, before):
        """All requests of the account after those before, as the API server has recorded them."""
        requests = self.plane.audit("system:serviceaccount:core:vireo-controller")[before:]
        path = f"/apis/apps/v1/namespaces/core/statefulsets/{SCALED}/scale"
        assert {(verb, uri) for verb, uri, _ in requests} == {("get", path), ("patch", path)}, requests
        return len(requests)


def scaling(plane, helm, charts, vireo, directory):
    pods = Pods(plane, vireo, charts, "core", directory)
    try:
        started = Scaling(plane, pods, directory)
        timed("scale: raised to least and idle hosts", started.start)
        timed("scale: numbers set by an operator", started.operator)
        timed("scale: helm upgrade leaves the number", started.upgrade, helm)
        timed("scale: token replaced", started.token)
        timed("scale: role removed and bound again", started.role)
        timed("scale: API server killed and restarted", started.restart)
        assert [pod.starts for pod in pods.others] == [1, 1], "a controller or balancer has ended"
    except Exception:
        for log in sorted(Path(directory).glob("*.log")):
            print(f"-- {log.name}\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        pods.close()
    return started


def timed(what, act, *more):
    begin = time.monotonic()
    result = act(*more)
    print(f"{what}: ok, {time.monotonic() - begin:.1f} s", flush=True)
    return result


def require_programs():
    missing = [name for name in ("etcd", "ip", "openssl", "unshare") if not shutil.which(name)]
    missing += [word for word in sys.argv[1:4] if not os.access(word, os.X_OK)]
    if missing or len(sys.argv) != 4:
        sys.exit(f"{__doc__.splitlines()[2].strip()}\nmissing: {', '.join(missing) or 'arguments'}; `make test-kube` installs and builds them")


def main():
    require_programs()
    enter_own_network()
    vireo, kube_apiserver, binary = (Path(word).resolve() for word in sys.argv[1:4])
    charts = load_charts(binary)
    with tempfile.TemporaryDirectory(prefix="vireo-kube-") as name:
        directory = Path(name)
        for part in ("plane", "secrets", "pods"):
            (directory / part).mkdir()
        plane = None
        try:
            plane = ControlPlane(kube_apiserver, directory / "plane", ["127.0.0.1", ETCD])
            version = plane.request("/version")["gitVersion"]
            etcd = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
            print(f"kube-apiserver {version}, {etcd}", flush=True)
            helm = Helm(binary, plane, directory)
            timed("objects and pods", objects, plane, helm, version)
            timed("plain manifests", examples, plane)
            timed("helm install", install, plane, helm, charts, vireo, directory / "secrets")
            timed("permissions of the account", permissions, plane)
            before = len(plane.audit("system:serviceaccount:core:vireo-controller"))
            started = scaling(plane, helm, charts, vireo, directory / "pods")
            timed("helm uninstall", helm, "uninstall", "vireo", "--namespace", "core")
            assert not charts.problems, charts.problems
            assert not plane.warnings, f"the API server warns: {set(plane.warnings)}"
            print(f"requests of controllers: {started.audited(before)}, all get or patch of the scale", flush=True)
        except Exception:
            traceback.print_exc()
            if plane:
                print(f"-- kube-apiserver\n{plane.log('kube-apiserver')}", file=sys.stderr)
            sys.exit(1)
        finally:
            if plane:
                plane.close()


if __name__ == "__main__":
    main()
