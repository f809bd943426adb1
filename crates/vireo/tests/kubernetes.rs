//! Kubernetes example: manifests, configuration and the controller's script.
//!
//! The script runs when a host is missing and requests one job, which the controller's role must
//! permit.

use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes").join(name)
}

fn objects(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(example(name)).expect("the example is there");
    let objects = serde_yaml_ng::Deserializer::from_str(&text);
    objects.map(|object| Value::deserialize(object).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}

fn find_object<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// Returns the pod of a workload.
fn pod_spec(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

/// Returns the secret with a pod's certificate.
fn secret(pod_spec: &Value) -> &str {
    let (mounts, volumes) =
        (&pod_spec["containers"][0]["volumeMounts"], pod_spec["volumes"].as_array().expect("volumes"));
    assert_eq!(mounts[1]["mountPath"], "/etc/vireo-tls");
    let secrets: Vec<&Value> = volumes.iter().filter(|volume| !volume["secret"].is_null()).collect();
    let [secret] = secrets[..] else { panic!("{volumes:?}") };
    assert_eq!(mounts[1]["name"], secret["name"]);
    secret["secret"]["secretName"].as_str().expect("a name")
}

/// Returns the role that a pod runs with the example's configuration, and the names of its
/// variables.
fn role(pod_spec: &Value) -> (&str, Vec<&str>) {
    let container = &pod_spec["containers"][0];
    let command: Vec<&str> =
        container["command"].as_array().expect("a command").iter().filter_map(Value::as_str).collect();
    let ["vireo", role, "--config", "/etc/vireo/vireo.toml"] = command[..] else { panic!("{command:?}") };
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/vireo");
    assert_eq!(pod_spec["volumes"][0]["configMap"]["name"], "vireo");
    assert_eq!(secret(pod_spec), format!("vireo-{role}"), "each has the certificate of its role, and no other");
    let variables =
        container["env"].as_array().expect("variables").iter().filter_map(|variable| variable["name"].as_str());
    (role, variables.filter(|name| name.starts_with("VIREO_")).collect())
}

#[test]
fn manifests_configure_one_valid_cluster() {
    let (objects, job) = (objects("vireo.yaml"), objects("host.yaml"));
    for object in objects.iter().chain(&job) {
        assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{object}");
    }
    let controller = find_object(&objects, "Deployment", "vireo-controller");
    assert_eq!(role(pod_spec(controller)), ("controller", vec!["VIREO_CLUSTER__CONTROLLER"]));
    assert_eq!(
        (&controller["spec"]["replicas"], &controller["spec"]["strategy"]["type"]),
        (&1.into(), &"Recreate".into())
    );
    // The controller runs the script from there.
    assert_eq!(pod_spec(controller)["volumes"][0]["configMap"]["defaultMode"], 0o755);
    let balancer = pod_spec(find_object(&objects, "DaemonSet", "vireo-balancer"));
    assert_eq!(
        role(balancer),
        ("balancer", vec!["VIREO_N2__ADDRESSES", "VIREO_N4__LISTEN", "VIREO_CLUSTER__BALANCER"])
    );
    assert_eq!(balancer["hostNetwork"], true);
    let [job] = &job[..] else { panic!("one job") };
    assert_eq!(role(pod_spec(job)), ("host", vec!["VIREO_CLUSTER__LISTEN"]));
    // Kubernetes must not restart a host that has left or failed without the controller.
    assert_eq!(
        (&job["kind"], &pod_spec(job)["restartPolicy"], &job["spec"]["backoffLimit"]),
        (&"Job".into(), &"Never".into(), &0.into())
    );
    assert!(job["metadata"]["name"].is_null() && job["metadata"]["generateName"] == "vireo-host-");
    assert!(pod_spec(job)["terminationGracePeriodSeconds"].as_u64() > Some(10), "it leaves in good order");

    // By the commands of vireo.yaml; a secret names the files tls.crt and tls.key.
    let directory = tempfile::tempdir().expect("a directory");
    let pki = |words: &[&str]| {
        let mut command = Command::new(VIREO);
        let done = command.arg("pki").args(words).current_dir(directory.path()).output().expect("vireo pki runs");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    pki(&["init"]);
    pki(&["issue", "--role", "host", "--name", "host"]);
    let files = [("CERTIFICATE", "host.pem"), ("KEY", "host.key"), ("AUTHORITIES", "ca.pem")]
        .map(|(key, name)| (format!("VIREO_CLUSTER__TLS__{key}"), directory.path().join("pki").join(name)));
    let check = |variables: &[(&str, &str)]| {
        let checked = Command::new(VIREO)
            .args(["config", "check", "--config"])
            .arg(example("vireo.toml"))
            .envs(files.iter().map(|(name, file)| (name, file)))
            .envs(variables.iter().copied())
            .output()
            .expect("vireo config runs");
        assert!(checked.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&checked.stderr));
    };
    check(&[("VIREO_CLUSTER__CONTROLLER", "10.244.1.7:7771")]);
    check(&[("VIREO_CLUSTER__LISTEN", "10.244.1.8:7772")]);
    check(&[
        ("VIREO_N2__ADDRESSES", "[\"192.0.2.1\"]"),
        ("VIREO_N4__LISTEN", "192.0.2.1:8805"),
        ("VIREO_CLUSTER__BALANCER", "192.0.2.1:7770"),
    ]);
    let config: toml::Table = fs::read_to_string(example("vireo.toml")).expect("it is there").parse().expect("TOML");
    let service = &find_object(&objects, "Service", "vireo-controller")["spec"];
    let found = format!("{}:{}", service["clusterIP"].as_str().unwrap_or_default(), service["ports"][0]["port"]);
    assert_eq!(config["cluster"]["controller"].as_str(), Some(found.as_str()), "members find the service");
    let tls =
        ["certificate", "key", "authorities"].map(|key| config["cluster"]["tls"][key].as_str().unwrap_or_default());
    assert_eq!(tls, ["/etc/vireo-tls/tls.crt", "/etc/vireo-tls/tls.key", "/etc/vireo/ca.pem"]);
    assert_eq!(config["scaling"]["start"][0].as_str(), Some("/etc/vireo/start-host"));
}

/// Runs the script as the controller does, with a fake kubectl that records its calls and reports
/// some pods.
fn start(hosts: &str, pods: usize, kubectl_fails: bool) -> (Output, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, calls) = (directory.path(), directory.path().join("calls"));
    let pods: String = (0..pods).map(|n| format!("echo pod/vireo-host-{n}; ")).collect();
    let fails = if kubectl_fails { "exit 1" } else { ":" };
    let fake =
        format!("#!/bin/sh\necho \"$@\" >> {}\n{fails}\nif [ \"$1\" = get ]; then :; {pods} fi\n", calls.display());
    fs::write(path.join("kubectl"), fake).expect("a program");
    fs::set_permissions(path.join("kubectl"), fs::Permissions::from_mode(0o755)).expect("it may be run");
    let search = format!("{}:{}", path.display(), std::env::var("PATH").expect("a path"));
    let done = Command::new(example("start-host")).env("PATH", search).env("VIREO_HOSTS", hosts).output();
    let calls = fs::read_to_string(calls).unwrap_or_default();
    (done.expect("the script runs"), calls.lines().map(str::to_owned).collect())
}

#[test]
fn missing_host_is_requested_once() {
    let (done, calls) = start("3", 2, false);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let job = format!("create --filename {}", example("host.yaml").display());
    assert!(
        calls.len() == 2 && calls[0].starts_with("get pods --selector app=vireo-host ") && calls[1] == job,
        "{calls:?}"
    );
    assert!(calls[0].contains("status.phase!=Succeeded,status.phase!=Failed"), "those that have ended do not count");
    let (done, calls) = start("1", 0, false);
    assert!(done.status.success() && calls.len() == 2, "{calls:?}");
    // The hosts are already starting.
    let (done, calls) = start("3", 3, false);
    assert!(done.status.success() && calls.len() == 1, "{calls:?}");
    // The controller receives the failure and logs it.
    let (done, calls) = start("3", 0, true);
    assert!(!done.status.success() && calls.len() == 1, "{calls:?}");

    // The role permits the script's requests and nothing more. The counted pods are those of the
    // jobs.
    let rules = find_object(&objects("vireo.yaml"), "Role", "vireo-controller")["rules"].clone();
    let may: Vec<(&Value, &Value)> =
        rules.as_array().expect("rules").iter().map(|r| (&r["resources"], &r["verbs"])).collect();
    assert_eq!(
        may,
        [
            (&serde_json::json!(["pods"]), &serde_json::json!(["list"])),
            (&serde_json::json!(["jobs"]), &serde_json::json!(["create"]))
        ]
    );
    assert_eq!(objects("host.yaml")[0]["spec"]["template"]["metadata"]["labels"]["app"], "vireo-host");
}
