//! API server for tests: the scale of one StatefulSet over TLS, by the rules of Kubernetes. Tests
//! of the whole program use it, too.
#![allow(dead_code, reason = "not each test needs all of it")]

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_pki::Authority;

const PATH: &str = "/apis/apps/v1/namespaces/core/statefulsets/vireo-host/scale";

/// Answer instead of that of the rules.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// None: the connection stays open.
    Nothing,
    /// Status and body.
    Fixed(u16, String),
}

/// State of the StatefulSet and of the server.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) replicas: usize,
    /// Pods beyond `replicas` that have not ended.
    pub(crate) ending: usize,
    /// Token that is accepted.
    pub(crate) token: String,
    pub(crate) answer: Option<Answer>,
    /// Changes by another client, each between a GET and the next PATCH.
    pub(crate) rivals: usize,
    /// Method and body of each request with a valid token.
    pub(crate) requests: Vec<(String, String)>,
    version: u64,
}

/// A running server, with the files that a pod has.
#[derive(Debug)]
pub(crate) struct ApiServer {
    address: SocketAddr,
    cluster: Arc<Mutex<Cluster>>,
    directory: tempfile::TempDir,
}

impl ApiServer {
    /// Starts a server whose StatefulSet has so many pods.
    pub(crate) fn start(replicas: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let issued = authority.sign("kube-apiserver", &["localhost", "127.0.0.1"], 1).unwrap();
        std::fs::write(directory.path().join("ca.crt"), authority.certificate()).unwrap();
        std::fs::write(directory.path().join("namespace"), "core").unwrap();
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates.unwrap(), key)
            .unwrap();
        let (tls, listener) = (Arc::new(tls), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let cluster = Arc::new(Mutex::new(Cluster {
            replicas,
            ending: 0,
            token: "first".into(),
            answer: None,
            rivals: 0,
            requests: Vec::new(),
            version: 1,
        }));
        let server = ApiServer { address, cluster: Arc::clone(&cluster), directory };
        server.write_token("first\n");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tls, cluster) = (Arc::clone(&tls), Arc::clone(&cluster));
                std::thread::spawn(move || serve(stream, tls, &cluster));
            }
        });
        server
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the token of the pod, as the kubelet does.
    pub(crate) fn write_token(&self, token: &str) {
        std::fs::write(self.directory.path().join("token"), token).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

fn serve(stream: TcpStream, tls: Arc<ServerConfig>, cluster: &Mutex<Cluster>) {
    let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
    let mut request = Vec::new();
    let (head, body) = loop {
        let mut octets = [0; 4096];
        match stream.read(&mut octets) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&octets[..count]),
        }
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header(head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            break (head.to_owned(), body.to_owned());
        }
    };
    let (status, answer) = {
        let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match cluster.answer.clone() {
            Some(Answer::Nothing) => {
                drop(cluster);
                // Until the client ends the connection.
                let _ = stream.read(&mut [0; 1]);
                return;
            }
            Some(Answer::Fixed(status, body)) => (status, body),
            None => cluster.answer(&head, &body),
        }
    };
    // In two chunks, as servers do with longer answers.
    let (first, rest) = answer.split_at(answer.len() / 2);
    let mut response = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n");
    response.push_str("Transfer-Encoding: chunked\r\n\r\n");
    for chunk in [first, rest].into_iter().filter(|chunk| !chunk.is_empty()) {
        response.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    }
    response.push_str("0\r\n\r\n");
    let _ = stream.write_all(response.as_bytes());
    let _ = stream.flush();
    let _ = stream.read(&mut [0; 1]);
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

impl Cluster {
    /// Answers a request.
    fn answer(&mut self, head: &str, body: &str) -> (u16, String) {
        let refused = |code: u16, message: &str| {
            let status = json!({ "kind": "Status", "status": "Failure", "message": message, "code": code });
            (code, status.to_string())
        };
        if header(head, "authorization") != Some(&format!("Bearer {}", self.token)) {
            return refused(401, "Unauthorized");
        }
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        self.requests.push((method.to_owned(), body.to_owned()));
        if path != PATH {
            return refused(404, "statefulsets.apps \"x\" not found");
        }
        match (method, header(head, "content-type")) {
            ("GET", None) => {
                let scale = self.scale();
                if self.rivals > 0 {
                    self.rivals -= 1;
                    self.version += 1;
                }
                (200, scale)
            }
            ("PATCH", Some("application/merge-patch+json")) => {
                let Ok(patch) = serde_json::from_str::<Value>(body) else { return refused(400, "no JSON") };
                let (own, version) = (self.version.to_string(), &patch["metadata"]["resourceVersion"]);
                if version.as_str().is_some_and(|version| version != own) {
                    return refused(409, "the object has been modified");
                }
                let Some(replicas) = patch["spec"]["replicas"].as_u64() else { return refused(422, "no replicas") };
                (self.replicas, self.version) = (usize::try_from(replicas).unwrap(), self.version + 1);
                (200, self.scale())
            }
            _ => refused(415, "the media type is not supported"),
        }
    }

    /// Numbers of 0 are absent, as in documents of Go programs.
    fn scale(&self) -> String {
        let replicas = |count: usize| if count == 0 { json!({}) } else { json!({ "replicas": count }) };
        json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": "vireo-host",
                "namespace": "core",
                "uid": "6ea3c1a5-1c1f-4a51-9f5e-3b1a4c1e8a01",
                "resourceVersion": self.version.to_string(),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": replicas(self.replicas),
            "status": replicas(self.replicas + self.ending),
        })
        .to_string()
    }
}
