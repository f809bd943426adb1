//! The service-based chain: AMF and SMF as functions of their own, which ask each other over HTTP/2 ([`vireo_sbi`]). The steps
//! are the core's: the AMF's are those of a host that has no sessions itself ([`amf`]), the SMF's are `core::session`'s
//! ([`smf`]).

pub(crate) mod amf;
pub mod smf;
mod translate;

use crate::fabric::{TlsConfig, TlsError, told};
use rand::RngCore;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
pub use vireo_sbi::Encoding;
use vireo_sbi::{EndpointError, Settings, Tls};

/// Where the functions of the chain are, and how they ask each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SbiConfig {
    /// The AMFs, at least one. They have the same state: an SMF asks the next where one does not answer, or has no such UE.
    pub amf: Vec<SocketAddr>,
    /// Which of them is here, of several.
    pub listen: Option<SocketAddr>,
    /// The SMF.
    pub smf: SocketAddr,
    /// How long an answer is waited for, each time.
    pub timeout: Duration,
    /// How often a function waits that long in all. One that refuses is asked more often in that time.
    pub attempts: u32,
    /// How functions say what they ask and answer: all alike.
    pub encoding: Encoding,
    /// What connections are secured by, if they are: all functions' certificates are for one name.
    pub tls: Option<TlsConfig>,
}

/// Why a function's end of the interface does not start.
#[derive(Debug, thiserror::Error)]
pub enum SbiError {
    /// The address.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// What secures it.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A loopback address of its own.
const DEFAULT_AMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 18)), 7777);

impl Default for SbiConfig {
    /// Loopback addresses of their own.
    fn default() -> Self {
        SbiConfig {
            amf: vec![DEFAULT_AMF],
            listen: None,
            smf: SocketAddr::from(([127, 0, 0, 19], 7777)),
            timeout: Duration::from_secs(2),
            attempts: 3,
            encoding: Encoding::default(),
            tls: None,
        }
    }
}

impl SbiConfig {
    /// Where the AMF is that is here.
    pub fn own_amf(&self) -> SocketAddr {
        self.listen.or_else(|| self.amf.first().copied()).unwrap_or(DEFAULT_AMF)
    }

    /// How the endpoint of a function behaves.
    fn endpoint(&self, agent: &str, listen: SocketAddr) -> Result<Settings, TlsError> {
        let nonce = rand::rng().next_u64();
        let tls = self.tls.as_ref().map(|tls| tls.configurations("sbi.tls")).transpose()?;
        let tls = tls.map(|(client, server, name)| Tls::new(client, server, name, |error| told("sbi.tls", error)));
        let &SbiConfig { timeout, attempts, encoding, .. } = self;
        Ok(Settings { listen, agent: agent.to_owned(), timeout, attempts, nonce, encoding, tls })
    }

    /// The root of a function's URIs.
    fn root(&self, address: SocketAddr) -> String {
        format!("{}://{address}", if self.tls.is_some() { "https" } else { "http" })
    }
}

/// Whether a text is a URI of a function. One that is not secured as this function's are is refused when it is asked.
fn is_uri(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::authority::{Authority, Files, NAME};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, RootCertStore};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, sync_channel};
    use vireo_sbi::smf::{SM_CONTEXTS, SmContextReleaseData};
    use vireo_sbi::{Call, ClientError, Endpoint, Message, Outgoing, Reply};

    fn config(files: &Files, name: &str) -> TlsConfig {
        TlsConfig {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            authorities: files.authorities.clone(),
            name: name.into(),
        }
    }

    fn settings(files: Option<&Files>, name: &str) -> Settings {
        let tls = files.map(|files| config(files, name));
        let timeout = Duration::from_secs(3);
        let config = SbiConfig { tls, timeout, attempts: 1, ..SbiConfig::default() };
        config.endpoint("AMF", SocketAddr::from(([127, 0, 0, 1], 0))).expect("files that are good")
    }

    type Asked = Receiver<Result<u16, ClientError>>;

    /// Asks, each time beside what is asked already: who gets no answer tries as long as it has patience.
    fn ask(from: &Endpoint, uri: String) -> Asked {
        let (sender, answer) = sync_channel(1);
        let done = Box::new(move |result: Result<Reply, _>| drop(sender.send(result.map(|reply| reply.status))));
        let (message, lane) = (Message::of(SmContextReleaseData::default()), rand::rng().next_u64());
        from.client().ask(Outgoing { uri, others: Vec::new(), message, key: None, lane, withdrawn: None, done });
        answer
    }

    fn answer(asked: &Asked) -> Result<u16, ClientError> {
        asked.recv_timeout(Duration::from_secs(60)).expect("an answer")
    }

    fn start(settings: Settings) -> Endpoint {
        Endpoint::start(settings, |call: Call| call.reply.send(Reply::done())).unwrap()
    }

    /// Why a function has got no answer of another one.
    fn why(asked: &Asked) -> String {
        match answer(asked) {
            Err(error @ ClientError::Silent(_)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn https(endpoint: &Endpoint) -> String {
        format!("https://{}{SM_CONTEXTS}/x/release", endpoint.address())
    }

    #[test]
    fn functions_of_one_authority_ask_each_other_and_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        let [amf, smf] = ["amf", "smf"].map(|member| ours.member(directory.path(), member, NAME).unwrap());
        let stranger = theirs.member(directory.path(), "stranger", NAME).unwrap();
        let stranger = Files { authorities: amf.authorities.clone(), ..stranger };
        let other = ours.member(directory.path(), "other", "other.vireo.test").unwrap();
        let expired = ours.expired(directory.path(), "expired", NAME).unwrap();
        let (server, client) = (start(settings(Some(&smf), NAME)), start(settings(Some(&amf), NAME)));
        assert_eq!(answer(&ask(&client, https(&server))), Ok(204));
        let grpc =
            [&smf, &amf].map(|files| start(Settings { encoding: Encoding::Grpc, ..settings(Some(files), NAME) }));
        assert_eq!(answer(&ask(&grpc[1], https(&grpc[0]))), Ok(204));
        let plain = format!("http://{}/x", server.address());
        assert!(matches!(answer(&ask(&client, plain)), Err(ClientError::Address(_))), "nothing goes in the clear");

        // Who is nobody's, or no function of this chain any more, neither asks nor is asked, and both sides say why.
        let cases = [
            (stranger, "its certificate is of none of sbi.tls.authorities"),
            (other, "its certificate is for another name than sbi.tls.name"),
            (expired, "its certificate has expired"),
        ];
        let cases = cases.map(|(files, says)| {
            let strange = start(settings(Some(&files), NAME));
            let (asking, asked) = (ask(&strange, https(&server)), ask(&client, https(&strange)));
            (strange, asking, asked, says)
        });
        // Who has no certificate at all.
        let tls = config(&amf, NAME);
        let (_, shown, name) = tls.configurations("sbi.tls").unwrap();
        let bare = Tls::new(anonymous(&tls), shown, name, |error| told("sbi.tls", error));
        let bare = start(Settings { tls: Some(bare), ..settings(Some(&amf), NAME) });
        let refused = why(&ask(&bare, https(&server)));
        assert!(refused.contains("it does not take this member's certificate (CertificateRequired)"), "{refused}");
        for (_strange, asking, asked, says) in cases {
            let (asking, asked) = (why(&asking), why(&asked));
            assert!(asking.contains("it does not take this member's certificate"), "{asking}");
            assert!(asked.contains(says), "{asked}");
        }
    }

    #[test]
    fn who_speaks_in_the_clear_and_who_does_not_part_with_words() {
        let directory = tempfile::tempdir().unwrap();
        let files = Authority::new().unwrap().member(directory.path(), "smf", NAME).unwrap();
        let (secured, plain) = (start(settings(Some(&files), NAME)), start(settings(None, NAME)));
        let without = ask(&plain, format!("http://{}/x", secured.address()));
        let (with, without) = (why(&ask(&secured, https(&plain))), why(&without));
        assert!(without.contains("set sbi.tls here as there"), "{without}");
        assert!(with.contains("it speaks without TLS: set sbi.tls there as here"), "{with}");
    }

    /// A client that shows no certificate.
    fn anonymous(tls: &TlsConfig) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let authorities = CertificateDer::pem_file_iter(&tls.authorities).unwrap();
        authorities.for_each(|authority| roots.add(authority.unwrap()).unwrap());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        builder.unwrap().with_root_certificates(roots).with_no_client_auth()
    }
}
