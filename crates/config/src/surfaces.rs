//! Interfaces of the control plane: API, cluster fabric and SBI.

use crate::default_paths;
use crate::problems::Problems;
use crate::values::{DurationText, Listen};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use vireo_cluster::{ClusterConfig, EtcdTls, Rebalance, ServerAddress};
use vireo_ops::config::{ApiConfig, ApiSocket, ApiTls, ApiToken, DatabaseTls};
use vireo_ops::sbi::{Encoding, SbiConfig};

/// Value for a default that depends on the process.
const AUTO: &str = "auto";
/// Value that disables an interface.
const OFF: &str = "off";
/// Upper bound of a unix socket's path, in bytes (`sun_path` without its terminating byte).
pub(super) const SOCKET_PATH: usize = 107;
/// Upper bound of host names of the API.
const HOST_NAMES: usize = 16;

/// HTTP API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Api {
    pub(super) listen: Listen,
    /// Path, [`AUTO`] or [`OFF`].
    socket: String,
    /// Path, or [`AUTO`] for the default path of the user.
    token_file: String,
    /// Path, or [`AUTO`] for the file beside the token file.
    tokens: String,
    /// PEM files; empty = no TLS.
    tls_certificate: String,
    tls_key: String,
    host_names: Vec<String>,
}

impl Default for Api {
    fn default() -> Self {
        let ApiConfig { listen, host_names, .. } = ApiConfig::loopback(PathBuf::new());
        Api {
            listen: Listen(listen),
            socket: AUTO.into(),
            token_file: AUTO.into(),
            tokens: AUTO.into(),
            tls_certificate: String::new(),
            tls_key: String::new(),
            host_names,
        }
    }
}

/// One address or several addresses, of sockets unless named otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Addresses<T = SocketAddr> {
    One(T),
    Several(Vec<T>),
}

impl<T: Clone> Addresses<T> {
    /// Creates the shortest form.
    fn new(addresses: Vec<T>) -> Self {
        match &addresses[..] {
            [one] => Addresses::One(one.clone()),
            _ => Addresses::Several(addresses),
        }
    }

    /// Returns all addresses.
    pub(super) fn all(&self) -> Vec<T> {
        match self {
            Addresses::One(address) => vec![address.clone()],
            Addresses::Several(addresses) => addresses.clone(),
        }
    }
}

/// Processes of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) controller: Addresses<ServerAddress>,
    pub(super) etcd: Vec<ServerAddress>,
    pub(super) etcd_tls: ClientTls,
    pub(super) balancer: SocketAddr,
    pub(super) handover: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) machine: String,
    pub(super) tls: Tls,
    pub(super) insecure: bool,
    pub(super) hosts: u16,
    pub(super) address_parts: u16,
    pub(super) heartbeat: DurationText,
    pub(super) misses: u32,
    pub(super) report: DurationText,
    pub(super) moves_at_once: u16,
    pub(super) rebalance: Rebalance,
}

impl Default for Cluster {
    fn default() -> Self {
        let c = ClusterConfig::default();
        Cluster {
            controller: Addresses::Several(c.controllers),
            etcd: c.etcd,
            etcd_tls: ClientTls::default(),
            balancer: c.balancer,
            handover: c.hot_restart_socket.unwrap_or_default(),
            listen: c.listen,
            machine: c.machine.map(String::from).unwrap_or_default(),
            tls: Tls::default(),
            insecure: c.insecure,
            hosts: c.hosts,
            address_parts: c.pool_partitions,
            heartbeat: DurationText(c.heartbeat.into()),
            misses: c.misses,
            report: DurationText(c.load_report_interval.into()),
            moves_at_once: c.max_migrating_buckets,
            rebalance: c.rebalance,
        }
    }
}

/// Mutual TLS identity of cluster members or of SBA processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Tls {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authorities: String,
    pub(super) name: String,
}

impl Default for Tls {
    fn default() -> Self {
        let none = String::new;
        Tls { certificate: none(), key: none(), authorities: none(), name: "vireo".into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Sbi {
    pub(super) amf: Addresses,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) listen: Option<SocketAddr>,
    pub(super) smf: SocketAddr,
    pub(super) timeout: DurationText,
    pub(super) attempts: u32,
    pub(super) encoding: Encoding,
    pub(super) tls: Tls,
    pub(super) insecure: bool,
}

impl Default for Sbi {
    fn default() -> Self {
        let SbiConfig { amf, listen, smf, timeout, attempts, encoding, tls: _, insecure } = SbiConfig::default();
        let (amf, timeout) = (Addresses::new(amf), DurationText(timeout.into()));
        Sbi { amf, listen, smf, timeout, attempts, encoding, tls: Tls::default(), insecure }
    }
}

/// TLS of this process's connections to a database: trusted authorities, and the client
/// certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ClientTls {
    authorities: String,
    certificate: String,
    key: String,
}

impl ClientTls {
    pub(super) fn is_none(&self) -> bool {
        *self == ClientTls::default()
    }
}

/// Returns the TLS configuration of a context database, from the table with this name.
pub(super) fn database_tls(table: &str, tls: &ClientTls, problems: &mut Problems) -> DatabaseTls {
    let ClientTls { authorities, certificate, key } = tls;
    problems.check(
        certificate.is_empty() == key.is_empty(),
        table,
        "certificate and key are needed, or neither of them",
    );
    let [authorities, certificate, key] =
        [authorities, certificate, key].map(|file| (!file.is_empty()).then(|| PathBuf::from(file)));
    DatabaseTls { authorities, certificate, key }
}

/// Returns the TLS configuration towards etcd.
pub(super) fn etcd_tls(tls: &ClientTls, problems: &mut Problems) -> Option<EtcdTls> {
    let ClientTls { authorities, certificate, key } = tls;
    problems.check(
        tls.is_none() || !authorities.is_empty() && certificate.is_empty() == key.is_empty(),
        "cluster.etcd-tls",
        "authorities are needed, and certificate and key or neither of them",
    );
    let own = (!certificate.is_empty()).then(|| (certificate.into(), key.into()));
    (!authorities.is_empty()).then(|| EtcdTls { authorities: authorities.into(), own })
}

/// Returns the configuration of the API.
pub(super) fn api(api: &Api, problems: &mut Problems) -> ApiConfig {
    let socket = match api.socket.as_str() {
        OFF => ApiSocket::Off,
        AUTO => default_paths::runtime().map_or(ApiSocket::Off, ApiSocket::Within),
        path => {
            problems.check(
                Path::new(path).is_absolute() && path.len() <= SOCKET_PATH,
                "api.socket",
                format_args!("\"{AUTO}\", \"{OFF}\" or an absolute path of at most {SOCKET_PATH} octets is allowed"),
            );
            ApiSocket::At(path.into())
        }
    };
    let token = match api.token_file.as_str() {
        AUTO => ApiToken { path: default_paths::token(), required: false },
        path => {
            problems.check(!path.is_empty(), "api.token-file", format_args!("\"{AUTO}\" or a file is allowed"));
            ApiToken { path: path.into(), required: true }
        }
    };
    let plain = |name: &String| {
        let known = |octet: u8| octet.is_ascii_alphanumeric() || b".-_".contains(&octet);
        (1..=253).contains(&name.len()) && name.bytes().all(known)
    };
    problems.check(
        api.host_names.len() <= HOST_NAMES && api.host_names.iter().all(plain),
        "api.host-names",
        format_args!("up to {HOST_NAMES} host names without ports are allowed, as in [\"core.example\"]"),
    );
    let tokens = match api.tokens.as_str() {
        AUTO => token.path.with_extension("tokens"),
        path => {
            problems.check(!path.is_empty(), "api.tokens", format_args!("\"{AUTO}\" or a file is allowed"));
            path.into()
        }
    };
    problems.check(
        api.tls_certificate.is_empty() == api.tls_key.is_empty(),
        "api.tls-certificate",
        "api.tls-key belongs to it: set both or neither",
    );
    let tls = (!api.tls_certificate.is_empty())
        .then(|| ApiTls { certificate: api.tls_certificate.clone().into(), key: api.tls_key.clone().into() });
    ApiConfig { listen: api.listen.0, socket, token, tokens, tls, host_names: api.host_names.clone() }
}
