//! TLS to PostgreSQL: a real server with certificates of an authority of the test.

use super::*;
use crate::testing::{PASSWORD, TlsFiles, URL_PASSWORD};
use vireo_pki::{Authority, SignedCertificate};

/// A server with TLS, and the files of a client.
struct TlsServer {
    server: PostgresServer,
    directory: tempfile::TempDir,
}

impl TlsServer {
    /// Starts a server whose certificate has these names. Clients need a certificate of its
    /// authority.
    fn start(names: &[&str]) -> Self {
        let [authority, other] = [(); 2].map(|()| Authority::new().expect("an authority"));
        let sign = |authority: &Authority, names: &[&str]| authority.sign("database", names, 1).expect("signed");
        let (server, client, foreign) = (sign(&authority, names), sign(&authority, &["host-1"]), sign(&other, &["x"]));
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
        write("ca.pem", &authority.certificate());
        write("other-ca.pem", &other.certificate());
        for (name, SignedCertificate { certificate, key, .. }) in [("client", &client), ("foreign", &foreign)] {
            write(&format!("{name}.pem"), certificate);
            write(&format!("{name}.key"), key);
        }
        let files =
            TlsFiles { certificate: &server.certificate, key: &server.key, authorities: &authority.certificate() };
        TlsServer { server: PostgresServer::start_tls(files), directory }
    }

    /// Returns the URL of a new database, with the mode and files of this directory.
    fn url(&self, mode: &str, authorities: &str, client: &str) -> String {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        let mut url = format!("{}?sslmode={mode}&sslrootcert={}", self.server.database(), file(authorities));
        if !client.is_empty() {
            let (certificate, key) = (file(&format!("{client}.pem")), file(&format!("{client}.key")));
            url.push_str(&format!("&sslcert={certificate}&sslkey={key}"));
        }
        url
    }

    fn open(&self, url: &str) -> Result<Store, StoreError> {
        Store::open(url, key_source(url, Some(&self.directory.path().join("subscribers.key"))))
    }
}

/// Checks that an error is one sentence without password.
fn assert_is_sentence(error: &str) {
    assert!(!error.contains('\n') && !error.contains(PASSWORD) && !error.contains(URL_PASSWORD), "{error}");
}

#[test]
fn postgres_is_asked_over_mutual_tls() {
    let tls = TlsServer::start(&["localhost", "127.0.0.1"]);
    let url = tls.url("verify-full", "ca.pem", "client");
    let mut store = tls.open(&url).expect("opened");
    store.add(&subscriber(0)).expect("added");
    assert_eq!(store.get(subscriber(0).supi).expect("read"), Some(subscriber(0)));
    // The server's own account of the connection.
    let sql = "SELECT ssl, version, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE usename = 'vireo'";
    assert_eq!(tls.server.psql("postgres", sql), "t|TLSv1.3|/CN=database");
    // A certificate of another authority, and none.
    for client in ["foreign", ""] {
        let error = tls.open(&tls.url("verify-full", "ca.pem", client)).expect_err("refused").to_string();
        assert_is_sentence(&error);
        assert!(error.contains("certificate") || error.contains("alert"), "{client}: {error}");
    }
}

#[test]
fn server_of_another_authority_is_refused() {
    let tls = TlsServer::start(&["localhost", "127.0.0.1"]);
    for mode in ["verify-ca", "verify-full"] {
        let error = tls.open(&tls.url(mode, "other-ca.pem", "client")).expect_err("refused");
        assert!(matches!(error, StoreError::Insecure { .. }), "{mode}: {error:?}");
        let error = error.to_string();
        assert_is_sentence(&error);
        assert!(error.contains("is not secure: invalid peer certificate: UnknownIssuer; check sslmode"), "{error}");
    }
    // The server has seen no user: the password went nowhere.
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'vireo'";
    assert_eq!(tls.server.psql("postgres", sql), "0");
    let error = tls.open(&tls.url("verify-full", "none.pem", "client")).expect_err("no file").to_string();
    assert_is_sentence(&error);
}

#[test]
fn server_of_another_name_is_refused() {
    let tls = TlsServer::start(&["db.example"]);
    let error = tls.open(&tls.url("verify-full", "ca.pem", "client")).expect_err("refused");
    assert!(matches!(error, StoreError::Insecure { .. }), "{error:?}");
    let error = error.to_string();
    assert_is_sentence(&error);
    assert!(error.contains("not valid for name") && error.contains("names its host"), "{error}");
    // Without TLS the server refuses the user; with it, "require" checks no name.
    let plain = tls.open(&tls.url("disable", "ca.pem", "")).expect_err("refused").to_string();
    assert!(plain.contains("refuses this user"), "{plain}");
    tls.open(&tls.url("require", "ca.pem", "client")).expect("opened");
}

#[test]
fn server_without_tls_is_refused() {
    let (database, url) = (TestDatabase::postgres(), PostgresServer::shared().database());
    for mode in ["require", "verify-full"] {
        let error = Store::open(&format!("{url}?sslmode={mode}"), database.source()).expect_err("refused");
        assert!(matches!(error, StoreError::Insecure { .. }), "{mode}: {error:?}");
        let error = error.to_string();
        assert_is_sentence(&error);
        assert!(error.contains("is not secure: server does not support TLS; check sslmode"), "{error}");
    }
}
