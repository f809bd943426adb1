//! PostgreSQL server with TLS for clients that have a certificate of its authority.

use std::fs;
use std::path::Path;
use vireo_pki::{Authority, SignedCertificate};
use vireo_subscribers::testing::{PostgresServer, TlsFiles};

pub(crate) struct Database {
    server: PostgresServer,
    /// Location of the subscribers, with the files of a client.
    pub(crate) url: String,
    pub(crate) authority: Authority,
}

impl Database {
    /// Starts the server, and writes the files of its clients.
    pub(crate) fn start(directory: &Path) -> Self {
        let authority = Authority::new().expect("an authority");
        let server = PostgresServer::start_tls(files(&sign(&authority), &authority.certificate()));
        let client = sign(&authority);
        let written = [("ca", authority.certificate()), ("crt", client.certificate), ("key", client.key)];
        let [ca, certificate, key] = written.map(|(name, text)| {
            let file = directory.join(format!("database.{name}"));
            fs::write(&file, text).expect("written");
            file.display().to_string()
        });
        let url = server.database();
        let url = format!("{url}?sslmode=verify-full&sslrootcert={ca}&sslcert={certificate}&sslkey={key}");
        Database { server, url, authority }
    }

    /// Runs SQL as the superuser in the database of the subscribers.
    pub(crate) fn query(&self, sql: &str) -> String {
        let (location, _) = self.url.split_once('?').expect("a mode");
        self.server.psql(location, sql)
    }

    /// Restarts the server with another certificate. It accepts the same clients.
    pub(crate) fn replace_certificate(&mut self, server: &SignedCertificate) {
        self.server.replace_certificate(files(server, &self.authority.certificate()));
    }
}

/// Returns a certificate for the database or a client of it.
pub(crate) fn sign(authority: &Authority) -> SignedCertificate {
    authority.sign("database", &["127.0.0.1"], 1).expect("signed")
}

fn files<'a>(server: &'a SignedCertificate, authorities: &'a str) -> TlsFiles<'a> {
    TlsFiles { certificate: &server.certificate, key: &server.key, authorities }
}
