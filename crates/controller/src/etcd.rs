//! Requests to etcd (3.4 and later) over gRPC: leases, and transactions conditional on the revision
//! of a key.
//!
//! There are few requests, and only the leader store thread waits for them. Each address has its
//! own client, and the addresses are tried in turn. A single client with several addresses would
//! wait for one that is silent.

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, Identity, PutOptions, TlsOptions, Txn,
    TxnOp, TxnOpResponse,
};
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use vireo_cluster::{EtcdTls, ServerAddress};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of a request, including the connection attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why etcd has not answered a request.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// None of the addresses answers.
    #[error("etcd {address}: no answer ({reason}); check cluster.etcd and cluster.etcd-tls")]
    Silent {
        /// Last address that was tried.
        address: ServerAddress,
        /// Error of the client.
        reason: String,
    },
    /// The request was refused.
    #[error("etcd {address}: request refused ({reason})")]
    Refused {
        address: ServerAddress,
        /// Reason in the answer.
        reason: String,
    },
    /// The answer does not follow etcd's API.
    #[error("etcd: unexpected answer ({0})")]
    Answer(String),
    /// A TLS file is missing or invalid.
    #[error("cluster.etcd-tls.{key}: {}: {error}; a file in PEM that this process may read is needed", path.display())]
    File {
        /// Configuration key of the file.
        key: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// The operating system refuses a runtime.
    #[error("etcd: no runtime for its client ({0})")]
    Runtime(io::Error),
}

/// Checks that the TLS files of the connections to etcd exist and are in PEM.
///
/// # Errors
///
/// Returns [`EtcdError::File`] for the first file that is not.
pub fn check_tls(tls: &EtcdTls) -> Result<(), EtcdError> {
    tls_options(tls).map(|_| ())
}

fn tls_options(tls: &EtcdTls) -> Result<TlsOptions, EtcdError> {
    let options = TlsOptions::new();
    let options = options.ca_certificate(Certificate::from_pem(file("authorities", &tls.authorities, CERTIFICATE)?));
    let Some((certificate, key)) = &tls.own else { return Ok(options) };
    let (certificate, key) = (file("certificate", certificate, CERTIFICATE)?, file("key", key, KEY)?);
    Ok(options.identity(Identity::from_pem(certificate, key)))
}

/// PEM labels of a certificate and of any kind of private key (RFC 7468).
const CERTIFICATE: &str = "BEGIN CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

fn file(key: &'static str, path: &Path, has: &str) -> Result<Vec<u8>, EtcdError> {
    let failed = |error| EtcdError::File { key, path: path.to_owned(), error };
    let octets = std::fs::read(path).map_err(failed)?;
    let is_pem = octets.windows(has.len()).any(|part| part == has.as_bytes());
    if is_pem { Ok(octets) } else { Err(failed(io::ErrorKind::InvalidData.into())) }
}

/// Lease granted by etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// Lifetime of the lease without renewal.
    pub(super) lasts: Duration,
}

/// Creation revision of the key, and the value of the other key if it exists.
pub(super) type ClaimResult = (i64, Option<Vec<u8>>);

/// Client of an etcd cluster with all its addresses.
pub(super) struct Etcd {
    addresses: Vec<ServerAddress>,
    tls: Option<EtcdTls>,
    /// Client of the address that answered last.
    client: Option<Client>,
    /// Index of that address.
    at: usize,
    /// Runs only during a request.
    runtime: Runtime,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Future of a request.
type RequestFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + 'a>>;

impl Etcd {
    /// Creates a client that connects with the first request.
    ///
    /// # Errors
    ///
    /// Returns [`EtcdError::Runtime`], or [`EtcdError::File`] for an unusable file.
    pub(super) fn new(addresses: Vec<ServerAddress>, tls: Option<EtcdTls>) -> Result<Self, EtcdError> {
        tls.as_ref().map_or(Ok(()), check_tls)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(EtcdError::Runtime)?;
        Ok(Etcd { addresses, tls, client: None, at: 0, runtime })
    }

    /// Requests a lease of so many seconds, or of the minimum that etcd grants.
    pub(super) fn grant(&mut self, seconds: u64) -> Result<Lease, EtcdError> {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = self.send_request(|client| Box::pin(client.lease_grant(seconds, None)))?;
        match u64::try_from(granted.ttl()) {
            Ok(ttl @ 1..) => Ok(Lease { id: granted.id(), lasts: Duration::from_secs(ttl) }),
            _ => Err(EtcdError::Answer("a lease without a time to live".into())),
        }
    }

    /// Renews a lease. Returns false if it had expired.
    pub(super) fn keep_alive(&mut self, lease: Lease) -> Result<bool, EtcdError> {
        self.send_request(|client| {
            Box::pin(async move {
                match client.lease_keep_alive(lease.id).await {
                    Ok(_) => Ok(true),
                    // An expired lease is an answer, not an error.
                    Err(Error::LeaseKeepAliveError(_)) => Ok(false),
                    Err(error) => Err(error),
                }
            })
        })
    }

    /// Revokes a lease, which deletes its keys.
    pub(super) fn revoke(&mut self, lease: Lease) -> Result<(), EtcdError> {
        self.send_request(|client| Box::pin(client.lease_revoke(lease.id))).map(|_| ())
    }

    /// Returns true if the key exists.
    pub(super) fn contains_key(&mut self, key: &str) -> Result<bool, EtcdError> {
        let options = || Some(GetOptions::new().with_count_only());
        self.send_request(|client| Box::pin(client.get(key.to_owned(), options()))).map(|found| found.count() > 0)
    }

    /// Creates a key with a lease unless it exists. Returns its creation revision and the value of
    /// another key.
    pub(super) fn campaign(
        &mut self,
        key: &str,
        name: &str,
        lease: Lease,
        other: &str,
    ) -> Result<Option<ClaimResult>, EtcdError> {
        let put = || TxnOp::put(key, name, Some(PutOptions::new().with_lease(lease.id)));
        let transaction = || {
            let is_free = Compare::create_revision(key, CompareOp::Equal, 0);
            Txn::new().when([is_free]).and_then([put(), TxnOp::get(other, None)])
        };
        let done = self.send_request(|client| Box::pin(client.txn(transaction())))?;
        if !done.succeeded() {
            return Ok(None);
        }
        let revision = done.header().ok_or_else(|| EtcdError::Answer("no revision".into()))?.revision();
        let value = done.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(found) => Some(found.kvs().first().map(|pair| pair.value().to_vec())),
            _ => None,
        });
        Ok(Some((revision, value.flatten())))
    }

    /// Stores a value if another key has this creation revision. Returns false if not.
    pub(super) fn put_if(&mut self, (claimed, since): (&str, i64), key: &str, value: &[u8]) -> Result<bool, EtcdError> {
        let transaction = || {
            let holds = Compare::create_revision(claimed, CompareOp::Equal, since);
            Txn::new().when([holds]).and_then([TxnOp::put(key, value, None)])
        };
        self.send_request(|client| Box::pin(client.txn(transaction()))).map(|done| done.succeeded())
    }

    /// Sends a request to the address that answered last, else to the others in turn.
    fn send_request<T>(
        &mut self,
        request: impl for<'a> Fn(&'a mut Client) -> RequestFuture<'a, T>,
    ) -> Result<T, EtcdError> {
        let mut last = EtcdError::Answer("no address".into());
        for n in 0..self.addresses.len() {
            let at = (self.at + n) % self.addresses.len();
            if at != self.at {
                self.client = None;
            }
            let address = self.addresses[at].clone();
            let authority = address.to_string();
            let tls = self.tls.as_ref().filter(|_| self.client.is_none()).map(tls_options).transpose()?;
            let secured = self.tls.is_some();
            let client = &mut self.client;
            let attempt = async {
                if client.is_none() {
                    *client = Some(connect(&authority, secured, tls).await?);
                }
                match client {
                    Some(client) => request(client).await,
                    None => Err(Error::EndpointError("no client".into())),
                }
            };
            // A timeout needs the clock of the runtime.
            let answer = self.runtime.block_on(async { timeout(REQUEST_TIMEOUT, attempt).await });
            match answer {
                Ok(Ok(answer)) => {
                    self.at = at;
                    return Ok(answer);
                }
                Ok(Err(error)) if refuses(&error) => {
                    self.at = at;
                    return Err(EtcdError::Refused { address, reason: reason(&error) });
                }
                // The next request reconnects: the machine of this connection may be gone.
                Ok(Err(error)) => last = EtcdError::Silent { address, reason: reason(&error) },
                Err(_) => {
                    last = EtcdError::Silent { address, reason: format!("nothing within {REQUEST_TIMEOUT:?}") };
                }
            }
            self.client = None;
        }
        Err(last)
    }
}

/// Connects. The client resolves a host name.
async fn connect(address: &str, secured: bool, tls: Option<TlsOptions>) -> Result<Client, Error> {
    let scheme = if secured { "https" } else { "http" };
    // A member that is isolated from the others must not answer with stale data.
    let options = ConnectOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_require_leader(true);
    let options = match tls {
        Some(tls) => options.with_tls(tls),
        None => options,
    };
    Client::connect([format!("{scheme}://{address}")], Some(options)).await
}

/// Returns true if the request itself is refused: another address would refuse it, too.
fn refuses(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    // gRPC codes: INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
    // RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED.
    [3, 5, 6, 7, 8, 9, 11, 12, 16].contains(&i32::from(status.code()))
}

/// Returns the text of an error and of its causes, in one line.
fn reason(error: &Error) -> String {
    let (own, mut source) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        Error::TransportError(error) => (error.to_string(), error.source()),
        other => (other.to_string(), None),
    };
    let mut text = own;
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests;
