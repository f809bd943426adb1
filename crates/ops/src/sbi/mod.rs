//! Configuration of the SBI and conversion of its messages, for AMF and SMF in SBA mode.
//!
//! The messages themselves and HTTP/2 are in [`vireo_sbi`].

pub mod translate;

use rand::RngCore;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use vireo_fabric::identity::{
    CertificateRole, CertificateRoles, TlsConfig, TlsError, any_name, check_listener, describe,
};
pub use vireo_sbi::Encoding;
use vireo_sbi::{EndpointError, Settings, Tls};

/// Addresses of AMF and SMF in SBA mode, and the parameters of their requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SbiConfig {
    /// AMFs, at least one. They share their state: an SMF tries the next one if one does not answer
    /// or lacks the UE.
    pub amf: Vec<SocketAddr>,
    /// Address of the AMF in this process, if there are several AMFs.
    pub listen: Option<SocketAddr>,
    /// Address of the SMF.
    pub smf: SocketAddr,
    /// Maximum wait for a response, for each attempt.
    pub timeout: Duration,
    /// Maximum of timed-out attempts. Attempts that are refused at once do not count, within the
    /// total time.
    pub attempts: u32,
    /// Encoding of requests and responses, the same at AMF and SMF.
    pub encoding: Encoding,
    /// TLS of the connections; `None` = no TLS.
    pub tls: Option<TlsConfig>,
    /// If true, the process may listen on non-loopback addresses without TLS.
    pub insecure: bool,
}

/// Reasons why the SBI of a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum SbiError {
    /// The endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The TLS configuration is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Default address of the AMF.
const DEFAULT_AMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 18)), 7777);

impl Default for SbiConfig {
    /// Returns a configuration with loopback addresses.
    fn default() -> Self {
        SbiConfig {
            amf: vec![DEFAULT_AMF],
            listen: None,
            smf: SocketAddr::from(([127, 0, 0, 19], 7777)),
            timeout: Duration::from_secs(2),
            attempts: 3,
            encoding: Encoding::default(),
            tls: None,
            insecure: false,
        }
    }
}

impl SbiConfig {
    /// Returns the address of the AMF in this process.
    pub fn own_amf(&self) -> SocketAddr {
        self.listen.or_else(|| self.amf.first().copied()).unwrap_or(DEFAULT_AMF)
    }

    /// Checks that AMF and SMF may listen on the configured addresses.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError::Open`] if other machines can reach an address and neither TLS nor
    /// `insecure` is set.
    pub fn check_listeners(&self) -> Result<(), TlsError> {
        [self.own_amf(), self.smf].into_iter().try_for_each(|address| self.check_listener(address))
    }

    fn check_listener(&self, listen: SocketAddr) -> Result<(), TlsError> {
        check_listener("sbi", listen, (self.tls.as_ref(), self.insecure))
    }

    /// Returns the endpoint settings of an AMF, whose peers are SMFs, or of an SMF, whose peers are
    /// AMFs.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not permitted, or the TLS files are unusable.
    pub fn endpoint(&self, own: CertificateRole, listen: SocketAddr) -> Result<Settings, TlsError> {
        let peer = if own == CertificateRole::Amf { CertificateRole::Smf } else { CertificateRole::Amf };
        self.check_listener(listen)?;
        let (nonce, agent) = (rand::rng().next_u64(), own.name().to_uppercase());
        let tls = self.tls.as_ref().map(|tls| secured(tls, &[own], peer)).transpose()?;
        let &SbiConfig { timeout, attempts, encoding, .. } = self;
        Ok(Settings { listen, agent, timeout, attempts, nonce, encoding, tls })
    }

    /// Returns the root of the URIs of an AMF or SMF at this address.
    pub fn root(&self, address: SocketAddr) -> String {
        format!("{}://{address}", if self.tls.is_some() { "https" } else { "http" })
    }
}

/// Returns the TLS configuration for connections with peers of one role.
fn secured(tls: &TlsConfig, own: &[CertificateRole], peer: CertificateRole) -> Result<Tls, TlsError> {
    let identity = tls.load("sbi.tls", CertificateRoles::new(own))?;
    let peer = CertificateRoles::new(&[peer]);
    let (client, server) = (identity.client(peer)?, identity.server(peer)?);
    Ok(Tls::new(client, server, any_name(), |error| describe("sbi.tls", error)))
}

/// Returns true if a text is a URI of an AMF or SMF. A request to it fails later if its scheme
/// does not fit this process's TLS configuration.
pub fn is_uri(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, sync_channel};
    use vireo_pki::{Authority, Files, NAME};
    use vireo_sbi::smf::{SM_CONTEXTS, SmContextReleaseData};
    use vireo_sbi::{ClientError, Endpoint, IncomingRequest, Message, Outgoing, Reply};

    fn config_files(files: &Files) -> TlsConfig {
        TlsConfig {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            authorities: files.authorities.clone(),
            name: NAME.into(),
        }
    }

    /// Returns settings with these files, without a check of the own certificate's role.
    fn settings(files: Option<&Files>, peer: CertificateRole) -> Settings {
        let timeout = Duration::from_secs(3);
        let config = SbiConfig { timeout, attempts: 1, ..SbiConfig::default() };
        let own = if peer == CertificateRole::Smf { CertificateRole::Amf } else { CertificateRole::Smf };
        let plain = config.endpoint(own, SocketAddr::from(([127, 0, 0, 1], 0))).expect("a loopback address");
        let tls = files.map(|files| secured(&config_files(files), &[], peer).expect("files that are good"));
        Settings { tls, ..plain }
    }

    type PendingResult = Receiver<Result<u16, ClientError>>;

    /// Sends a request, each in its own lane. A request without response is retried until its time
    /// is over.
    fn send_request(from: &Endpoint, uri: String) -> PendingResult {
        let (sender, answer) = sync_channel(1);
        let done = Box::new(move |result: Result<Reply, _>| drop(sender.send(result.map(|reply| reply.status))));
        let (message, lane) = (Message::new(SmContextReleaseData::default()), rand::rng().next_u64());
        from.client().send(Outgoing { uri, fallbacks: Vec::new(), message, key: None, lane, withdrawn: None, done });
        answer
    }

    fn answer(asked: &PendingResult) -> Result<u16, ClientError> {
        asked.recv_timeout(Duration::from_secs(60)).expect("an answer")
    }

    fn start(settings: Settings) -> Endpoint {
        Endpoint::start(settings, |call: IncomingRequest| call.reply.send(Reply::done())).unwrap()
    }

    /// Returns the reason why a request got no response.
    fn failure(asked: &PendingResult) -> String {
        match answer(asked) {
            Err(error @ ClientError::Silent(_)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn https(endpoint: &Endpoint) -> String {
        format!("https://{}{SM_CONTEXTS}/x/release", endpoint.address())
    }

    /// Creates files for a role. The host name is for clients that check nothing else.
    fn files(authority: &Authority, at: &Path, role: &str) -> Files {
        authority.member(at, role, &[&format!("vireo://{NAME}/{role}"), NAME]).unwrap()
    }

    #[test]
    fn functions_accept_peers_of_their_authority() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        let [amf, smf] = ["amf", "smf"].map(|role| files(&ours, directory.path(), role));
        let stranger = files(&theirs, elsewhere.path(), "smf");
        let stranger = Files { authorities: amf.authorities.clone(), ..stranger };
        let far = ours.member(directory.path(), "far", &["vireo://elsewhere/smf", "vireo://elsewhere/amf"]).unwrap();
        let own = [CertificateRole::Amf, CertificateRole::Smf].map(|role| role.uri(NAME));
        let expired = ours.expired(directory.path(), "expired", &[&own[0], &own[1]]).unwrap();
        let start_smf = |files: &Files| start(settings(Some(files), CertificateRole::Amf));
        let start_amf = |files: &Files| start(settings(Some(files), CertificateRole::Smf));
        let (server, client) = (start_smf(&smf), start_amf(&amf));
        assert_eq!(answer(&send_request(&client, https(&server))), Ok(204));
        assert_eq!(answer(&send_request(&server, https(&client))), Ok(204), "and the other way round");
        let grpc = [(&smf, CertificateRole::Amf), (&amf, CertificateRole::Smf)]
            .map(|(files, peer)| start(Settings { encoding: Encoding::Grpc, ..settings(Some(files), peer) }));
        assert_eq!(answer(&send_request(&grpc[1], https(&grpc[0]))), Ok(204));
        let plain = format!("http://{}/x", server.address());
        assert!(
            matches!(answer(&send_request(&client, plain)), Err(ClientError::Address(_))),
            "nothing goes in the clear"
        );

        // A peer of another authority, cluster or role can neither send nor receive requests, and
        // both sides report the reason.
        let [host, upf] = ["host", "upf"].map(|role| files(&ours, directory.path(), role));
        let cases = [
            (stranger, "its certificate is of none of sbi.tls.authorities".to_owned()),
            (far, format!("the certificate of the peer is for no role in cluster {NAME}")),
            (expired, "its certificate has expired".to_owned()),
            (host, format!("the certificate of the peer is for host in cluster {NAME}")),
            (upf, format!("the certificate of the peer is for upf in cluster {NAME}")),
            // An AMF where an SMF is expected.
            (amf.clone(), format!("the certificate of the peer is for amf in cluster {NAME}")),
        ];
        let cases = cases.map(|(files, says)| {
            let strange = start_smf(&files);
            let (asking, asked) = (send_request(&strange, https(&client)), send_request(&client, https(&strange)));
            (strange, asking, asked, says)
        });
        // A client without a certificate.
        let shown = config_files(&amf).load("sbi.tls", CertificateRoles::default()).unwrap();
        let shown = shown.server(CertificateRoles::new(&[CertificateRole::Smf])).unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let bare = Tls::new(anonymous(&config_files(&amf)), shown, name, |error| describe("sbi.tls", error));
        let bare = start(Settings { tls: Some(bare), ..settings(Some(&amf), CertificateRole::Smf) });
        let refused = failure(&send_request(&bare, https(&server)));
        assert!(refused.contains("it does not take this member's certificate (CertificateRequired)"), "{refused}");
        for (_strange, asking, asked, says) in cases {
            let (asking, asked) = (failure(&asking), failure(&asked));
            assert!(asking.contains("it does not take this member's certificate"), "{asking}");
            assert!(asked.contains(&says), "{asked}");
        }
    }

    #[test]
    fn function_without_tls_stays_on_loopback() {
        let at = |listen: &str| (SbiConfig::default(), listen.parse::<SocketAddr>().unwrap());
        let (config, open) = at("0.0.0.0:0");
        assert!(config.check_listeners().is_ok(), "the default is loopback");
        assert!(SbiConfig { listen: Some(open), ..config.clone() }.check_listeners().is_err());
        assert!(SbiConfig { smf: open, ..config.clone() }.check_listeners().is_err());
        let error = config.endpoint(CertificateRole::Amf, open).unwrap_err().to_string();
        assert!(error.starts_with("sbi.tls: ") && error.contains("sbi.insecure = true"), "{error}");
        assert!(SbiConfig { insecure: true, ..config }.endpoint(CertificateRole::Amf, open).is_ok());
    }

    #[test]
    fn peers_with_and_without_tls_name_the_mismatch() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&Authority::new().unwrap(), directory.path(), "smf");
        let peer = CertificateRole::Amf;
        let (secured, plain) = (start(settings(Some(&files), peer)), start(settings(None, peer)));
        let without = send_request(&plain, format!("http://{}/x", secured.address()));
        let (with, without) = (failure(&send_request(&secured, https(&plain))), failure(&without));
        assert!(without.contains("set sbi.tls here as there"), "{without}");
        assert!(with.contains("it speaks without TLS: set sbi.tls there as here"), "{with}");
    }

    /// Returns a client configuration without a certificate.
    fn anonymous(tls: &TlsConfig) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let authorities = CertificateDer::pem_file_iter(&tls.authorities).unwrap();
        authorities.for_each(|authority| roots.add(authority.unwrap()).unwrap());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        builder.unwrap().with_root_certificates(roots).with_no_client_auth()
    }
}
