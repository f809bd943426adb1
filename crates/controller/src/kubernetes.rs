//! Requests to the API server of Kubernetes: the scale of one StatefulSet.
//!
//! Each request has a connection of its own and reads token and authorities again: the kubelet
//! replaces both files while the pod runs. There are few requests, so this costs nothing.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use vireo_cluster::StatefulSetConfig;
use vireo_ops::http_post::{HttpPostError, HttpUrl, client_config};

/// Maximum time of a request, its connection included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of an answer.
const ANSWER_BYTES: usize = 65_536;
/// Maximum length of a text of the server in an error.
const TEXT_CHARACTERS: usize = 200;
/// Variables with which the kubelet names the API server.
const SERVER: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// Reasons why the API server has not answered a request as required.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// Neither the configuration nor the kubelet names the API server.
    #[error("API server: no address ({host} is not set, as outside of a pod); set scaling.kubernetes.server", host = SERVER[0])]
    NoServer,
    /// A file is missing or unusable.
    #[error("scaling.kubernetes.{key}: {}: {reason}; {remedy}", path.display())]
    File {
        /// Last part of the configuration key.
        key: &'static str,
        path: PathBuf,
        reason: String,
        remedy: &'static str,
    },
    /// The server is unreachable, or does not answer in time.
    #[error(
        "API server {server}: no answer ({reason}); check scaling.kubernetes.server and the network policy of controllers"
    )]
    Silent { server: String, reason: String },
    /// The TLS handshake fails.
    #[error(
        "API server {server}: connection not secure ({reason}); check that scaling.kubernetes.authorities has its authority"
    )]
    Insecure { server: String, reason: String },
    /// Status 401.
    #[error("API server: token refused (401 {reason}); check scaling.kubernetes.token-file")]
    Unauthorised { reason: String },
    /// Status 403.
    #[error(
        "API server: permission denied (403 {reason}); bind the account of controllers to a role with get and patch of \
         statefulsets/scale"
    )]
    Forbidden { reason: String },
    /// Status 404.
    #[error(
        "StatefulSet {object}: not found (404 {reason}); check scaling.kubernetes.stateful-set and scaling.kubernetes.namespace"
    )]
    NotFound { object: String, reason: String },
    /// Status 409.
    #[error("StatefulSet {object}: changed by another client meanwhile (409 {reason}); it is read again")]
    Conflict { object: String, reason: String },
    /// Any other status.
    #[error("API server: request refused ({status} {reason}); see the log of the API server if it persists")]
    Refused { status: u16, reason: String },
    /// The answer does not follow the API.
    #[error("API server {server}: unexpected answer ({reason}); check that scaling.kubernetes.server is an API server")]
    Answer { server: String, reason: String },
    /// The operating system refuses a runtime.
    #[error("API server: no runtime for its client ({0}); check the limits of this process")]
    Runtime(io::Error),
}

/// Scale of a StatefulSet (`autoscaling/v1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    /// Number of pods that the StatefulSet is to have.
    pub(super) replicas: usize,
    /// Number of pods that it has.
    pub(super) pods: usize,
    /// Version of the object; a change names the version that it replaces.
    version: String,
}

/// Fields of the JSON document. Numbers of 0 may be absent.
#[derive(Debug, Deserialize)]
struct ScaleDocument {
    metadata: Metadata,
    #[serde(default)]
    spec: Replicas,
    #[serde(default)]
    status: Replicas,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
struct Replicas {
    #[serde(default)]
    replicas: usize,
}

/// Error document (`Status`).
#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

/// Client for the scale of one StatefulSet.
#[derive(Debug)]
pub(super) struct ScaleClient {
    server: HttpUrl,
    path: String,
    /// `NAMESPACE/NAME` of the StatefulSet.
    object: String,
    token_file: PathBuf,
    authorities: PathBuf,
    timeout: Duration,
    /// Runs only during a request.
    runtime: Runtime,
}

impl ScaleClient {
    /// Creates a client that connects with each request.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration lacks a part that this process does not find in its
    /// pod.
    pub(super) fn new(config: &StatefulSetConfig) -> Result<Self, KubernetesError> {
        let server = match &config.server {
            Some(server) => server.clone(),
            None => pod_server(|name| std::env::var(name).ok()).ok_or(KubernetesError::NoServer)?,
        };
        let namespace = match &config.namespace {
            Some(namespace) => namespace.clone(),
            None => {
                // The kubelet mounts it beside the token.
                let path = config.token_file.with_file_name("namespace");
                read("namespace", &path, "write scaling.kubernetes.namespace outside of a pod")?
            }
        };
        let name = &config.name;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(KubernetesError::Runtime)?;
        Ok(ScaleClient {
            server,
            path: format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"),
            object: format!("{namespace}/{name}"),
            token_file: config.token_file.clone(),
            authorities: config.authorities.clone(),
            timeout: REQUEST_TIMEOUT,
            runtime,
        })
    }

    /// Returns `NAMESPACE/NAME` of the StatefulSet.
    pub(super) fn object(&self) -> &str {
        &self.object
    }

    /// Checks that the files exist and that this process may read them.
    pub(super) fn check_files(&self) -> Result<(), KubernetesError> {
        self.token()?;
        self.tls().map(drop)
    }

    /// Reads the scale.
    pub(super) fn scale(&self) -> Result<Scale, KubernetesError> {
        self.send_request(Method::GET, None)
    }

    /// Changes the number of pods, unless the object has changed since `scale` was read.
    pub(super) fn set_replicas(&self, scale: &Scale, replicas: usize) -> Result<Scale, KubernetesError> {
        let patch = serde_json::json!({
            "metadata": { "resourceVersion": scale.version },
            "spec": { "replicas": replicas },
        });
        self.send_request(Method::PATCH, Some(patch.to_string()))
    }

    fn send_request(&self, method: Method, patch: Option<String>) -> Result<Scale, KubernetesError> {
        let request = self.request(method, patch)?;
        let silent = |reason| KubernetesError::Silent { server: self.server.authority().to_owned(), reason };
        // A timeout needs the clock of the runtime.
        let answer = self.runtime.block_on(async { tokio::time::timeout(self.timeout, self.exchange(request)).await });
        let (status, body) = answer.unwrap_or_else(|_| Err(silent(format!("nothing within {:?}", self.timeout))))?;
        self.read_answer(status, &body)
    }

    fn request(&self, method: Method, patch: Option<String>) -> Result<Request<Full<Bytes>>, KubernetesError> {
        let request = Request::builder()
            .method(method)
            .uri(&self.path)
            .header(HOST, self.server.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "vireo-controller")
            .header(AUTHORIZATION, self.token()?);
        let request = match &patch {
            Some(_) => request.header(CONTENT_TYPE, "application/merge-patch+json"),
            None => request,
        };
        let body = Full::new(Bytes::from(patch.unwrap_or_default()));
        request.body(body).map_err(|error| self.unexpected(error))
    }

    /// Reads the token, as the value of a header.
    fn token(&self) -> Result<HeaderValue, KubernetesError> {
        const REMEDY: &str = "a file with a token of the API server is needed, which this process may read";
        let token = read("token-file", &self.token_file, REMEDY)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| KubernetesError::File {
            key: "token-file",
            path: self.token_file.clone(),
            reason: "no token".into(),
            remedy: REMEDY,
        })?;
        bearer.set_sensitive(true);
        Ok(bearer)
    }

    fn tls(&self) -> Result<TlsConnector, KubernetesError> {
        let config = client_config(Some(&self.authorities)).map_err(|error| KubernetesError::File {
            key: "authorities",
            path: self.authorities.clone(),
            reason: match error {
                HttpPostError::Authorities { cause, .. } => cause,
                error => error.to_string(),
            },
            remedy: "a PEM file with the authority of the API server is needed",
        })?;
        Ok(TlsConnector::from(config))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), KubernetesError> {
        let server = || self.server.authority().to_owned();
        let silent = |error: &dyn Display| KubernetesError::Silent { server: server(), reason: error.to_string() };
        let insecure = |error: &dyn Display| KubernetesError::Insecure { server: server(), reason: error.to_string() };
        let name = ServerName::try_from(self.server.host().to_owned()).map_err(|error| insecure(&error))?;
        let stream = TcpStream::connect((self.server.host(), self.server.port())).await;
        let stream = stream.map_err(|error| silent(&error))?;
        let stream = self.tls()?.connect(name, stream).await.map_err(|error| insecure(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| silent(&error))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| silent(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
            Ok::<_, KubernetesError>((status, body.map_err(|error| self.unexpected(error))?.to_bytes()))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => return answer,
            // The connection has ended; the answer may have arrived before.
            _ = connection => {}
        }
        exchange.await
    }

    fn read_answer(&self, status: StatusCode, body: &[u8]) -> Result<Scale, KubernetesError> {
        if status == StatusCode::OK {
            let document: ScaleDocument = serde_json::from_slice(body).map_err(|error| self.unexpected(error))?;
            let (replicas, pods) = (document.spec.replicas, document.status.replicas);
            return Ok(Scale { replicas, pods, version: document.metadata.resource_version });
        }
        let message = serde_json::from_slice::<Status>(body).unwrap_or_default().message;
        let reason: String = message.escape_debug().take(TEXT_CHARACTERS).collect();
        let object = self.object.clone();
        Err(match status {
            StatusCode::UNAUTHORIZED => KubernetesError::Unauthorised { reason },
            StatusCode::FORBIDDEN => KubernetesError::Forbidden { reason },
            StatusCode::NOT_FOUND => KubernetesError::NotFound { object, reason },
            StatusCode::CONFLICT => KubernetesError::Conflict { object, reason },
            _ => KubernetesError::Refused { status: status.as_u16(), reason },
        })
    }

    fn unexpected(&self, error: impl Display) -> KubernetesError {
        KubernetesError::Answer { server: self.server.authority().to_owned(), reason: error.to_string() }
    }
}

/// Returns the API server that the kubelet names in the variables of a pod.
fn pod_server(variable: impl Fn(&str) -> Option<String>) -> Option<HttpUrl> {
    let [host, port] = SERVER.map(|name| variable(name).filter(|value| !value.is_empty()));
    let (host, port) = (host?, port.unwrap_or_else(|| "443".into()));
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    HttpUrl::parse(&format!("https://{host}:{port}"))
}

/// Reads a file of the pod, without white space at its ends.
fn read(key: &'static str, path: &Path, remedy: &'static str) -> Result<String, KubernetesError> {
    let failed = |reason: String| KubernetesError::File { key, path: path.to_owned(), reason, remedy };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let text = text.trim();
    if text.is_empty() { Err(failed("the file is empty".into())) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
pub(super) mod api_server;
#[cfg(test)]
mod tests;
