//! `[scaling.kubernetes]`: the StatefulSet whose pods are the hosts of a cluster.

use crate::problems::Problems;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vireo_cluster::StatefulSetConfig;
use vireo_ops::http_post::HttpUrl;

/// Directory in which the kubelet mounts token, authorities and namespace of a pod's account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Upper bound of a DNS label (RFC 1123), as names of namespaces are.
const LABEL: usize = 63;
/// Upper bound of names of objects (DNS subdomain).
const SUBDOMAIN: usize = 253;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Kubernetes {
    /// Name of the StatefulSet; empty = off.
    stateful_set: String,
    /// Empty = that of the pod.
    namespace: String,
    /// URL; empty = that of the pod.
    server: String,
    token_file: PathBuf,
    authorities: PathBuf,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Kubernetes {
            stateful_set: String::new(),
            namespace: String::new(),
            server: String::new(),
            token_file: format!("{ACCOUNT}/token").into(),
            authorities: format!("{ACCOUNT}/ca.crt").into(),
        }
    }
}

/// Returns the StatefulSet that is to be scaled, if there is one.
pub(super) fn stateful_set(written: &Kubernetes, problems: &mut Problems) -> Option<StatefulSetConfig> {
    let Kubernetes { stateful_set, namespace, server, token_file, authorities } = written;
    let key = |name: &str| format!("scaling.kubernetes.{name}");
    if stateful_set.is_empty() {
        let is_default = *written == Kubernetes::default();
        problems.check(is_default, &key("stateful-set"), "the other keys of this table need a name here");
        return None;
    }
    // The names are parts of a path.
    let allowed = "lower-case letters, digits, - and . are allowed, with a letter or digit at both ends";
    let is_name = is_object_name(stateful_set) && stateful_set.len() <= SUBDOMAIN;
    problems.check(is_name, &key("stateful-set"), allowed);
    let is_label =
        namespace.is_empty() || is_object_name(namespace) && !namespace.contains('.') && namespace.len() <= LABEL;
    problems.check(
        is_label,
        &key("namespace"),
        format_args!("at most {LABEL} lower-case letters, digits and - are allowed, or \"\" for that of the pod"),
    );
    let url = HttpUrl::parse(server).filter(|url| url.is_secure() && url.path() == "/");
    problems.check(
        server.is_empty() || url.is_some(),
        &key("server"),
        "https://HOST:PORT without path is allowed, or \"\" for that of the pod",
    );
    for (name, file) in [("token-file", token_file), ("authorities", authorities)] {
        problems.check(file.is_absolute(), &key(name), "an absolute path is allowed");
    }
    Some(StatefulSetConfig {
        name: stateful_set.clone(),
        namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
        server: url,
        token_file: token_file.clone(),
        authorities: authorities.clone(),
    })
}

/// Returns true if the text has the characters of a Kubernetes name (RFC 1123).
fn is_object_name(name: &str) -> bool {
    let is_alphanumeric = |octet: &u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    let octets = name.as_bytes();
    let has_good_ends = octets.first().is_some_and(is_alphanumeric) && octets.last().is_some_and(is_alphanumeric);
    has_good_ends && octets.iter().all(|octet| is_alphanumeric(octet) || b"-.".contains(octet)) && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        let file = crate::load::parse(text, Env::prefixed("NO_VARIABLE_BEGINS_SO_"))?;
        crate::check::config(&file)
    }

    #[test]
    fn stateful_set_has_files_of_the_pod() {
        assert_eq!(load("scaling.least = 1").unwrap().cluster.scaling.unwrap().stateful_set, None);
        let text = "scaling.least = 1\nscaling.kubernetes.stateful-set = 'vireo-host'";
        let scaled = load(text).unwrap().cluster.scaling.unwrap().stateful_set.unwrap();
        assert_eq!((&scaled.name[..], &scaled.namespace, &scaled.server), ("vireo-host", &None, &None));
        assert_eq!(scaled.token_file.to_str(), Some("/var/run/secrets/kubernetes.io/serviceaccount/token"));
        let text = format!("{text}\nscaling.kubernetes.server = 'https://[fd00::1]:6443'");
        let scaled = load(&text).unwrap().cluster.scaling.unwrap().stateful_set.unwrap();
        assert_eq!(scaled.server.map(|url| url.port()), Some(6443));
    }

    #[test]
    fn wrong_stateful_set_is_refused_by_key() {
        let scaled = "scaling.least = 1\nscaling.kubernetes.stateful-set = 'host'\n";
        for (text, expected) in [
            ("scaling.kubernetes.stateful-set = 'host'", "scaling.least: 1 or more is needed"),
            ("scaling.least = 1\nscaling.kubernetes.namespace = 'core'", "scaling.kubernetes.stateful-set: the other"),
            ("scaling.least = 1\nscaling.kubernetes.stateful-set = 'a/../b'", "scaling.kubernetes.stateful-set: low"),
            ("scaling.least = 1\nscaling.kubernetes.stateful-set = 'Host'", "scaling.kubernetes.stateful-set: low"),
            (&format!("{scaled}scaling.kubernetes.namespace = 'a.b'")[..], "scaling.kubernetes.namespace: at most 63"),
            (&format!("{scaled}scaling.kubernetes.server = 'http://h:1'")[..], "scaling.kubernetes.server: https://"),
            (
                &format!("{scaled}scaling.kubernetes.server = 'https://h:1/p'")[..],
                "scaling.kubernetes.server: https://",
            ),
            (
                &format!("{scaled}scaling.kubernetes.token-file = 'token'")[..],
                "scaling.kubernetes.token-file: an absolute",
            ),
            (
                &format!("{scaled}scaling.start = ['x']")[..],
                "scaling.start: a StatefulSet (scaling.kubernetes) starts hosts",
            ),
        ] {
            let problems = load(text).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}: {problems:?}");
        }
    }
}
