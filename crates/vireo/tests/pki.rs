//! `vireo pki` from an operator's view, with OpenSSL as an independent check.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

struct Pki(tempfile::TempDir);

impl Pki {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn vireo(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vireo"));
        command.args(words).current_dir(self.path()).env_clear().output().expect("vireo runs")
    }

    fn run_ok(&self, words: &[&str]) -> String {
        let output = self.vireo(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn run_failing(&self, code: i32, words: &[&str]) -> String {
        let output = self.vireo(words);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        error
    }

    fn mode(&self, file: &str) -> u32 {
        std::fs::metadata(self.path().join(file)).expect(file).permissions().mode() & 0o777
    }

    /// Returns the output of OpenSSL; `None` if it is not installed.
    fn openssl(&self, words: &str) -> Option<String> {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(self.path()).output().ok()?;
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).ok()
    }
}

#[test]
fn certificates_are_issued_by_role() {
    let pki = Pki(tempfile::tempdir().unwrap());
    let error = pki.run_failing(1, &["pki", "issue", "--role", "host", "--name", "host-1"]);
    assert!(error.contains("make an authority with `vireo pki init`"), "{error}");
    pki.run_ok(&["pki", "init"]);
    assert_eq!((pki.mode("pki"), pki.mode("pki/ca.key"), pki.mode("pki/ca.pem")), (0o700, 0o600, 0o644));
    assert!(pki.run_failing(1, &["pki", "init"]).contains("an authority is there already"));

    let line =
        pki.run_ok(&["pki", "issue", "--role", "host", "--role", "amf", "--name", "host-1", "--cluster", "north"]);
    assert_eq!(pki.mode("pki/host-1.key"), 0o600);
    // The configuration accepts the printed lines, and members check the roles by them.
    std::fs::write(pki.path().join("vireo.toml"), format!("[cluster]\n{line}\n[sbi]\n{line}")).unwrap();
    assert_eq!(pki.run_ok(&["config", "check"]), "the configuration is right\n");
    let error = pki.run_failing(1, &["pki", "issue", "--role", "smf", "--name", "host-1"]);
    assert!(error.contains("pki/host-1.key is there already: give --replace"), "{error}");
    pki.run_ok(&["pki", "issue", "--role", "smf", "--name", "host-1", "--replace"]);
    let line = pki.run_ok(&["pki", "issue", "--name", "etcd", "--address", "192.0.2.21", "--address", "etcd.example"]);
    assert_eq!(line, "certificate pki/etcd.pem, key pki/etcd.key, authorities pki/ca.pem\n", "it is no member");
    for wrong in [
        &["pki", "issue", "--name", "x"][..],
        &["pki", "issue", "--role", "root", "--name", "x"],
        &["pki", "issue", "--role", "host", "--name", "../x"],
        &["pki", "issue", "--role", "host", "--name", "x", "--days", "0"],
    ] {
        pki.run_failing(2, wrong);
    }
    assert!(pki.run_failing(1, &["pki", "issue", "--role", "host", "--name", "ca", "--replace"]).contains("--name ca"));
    // A key that other users may read, and one of another authority.
    let key = pki.path().join("pki/ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(pki.run_failing(1, &["pki", "issue", "--role", "host", "--name", "y"]).contains("chmod 600"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    pki.run_ok(&["pki", "init", "--directory", "other"]);
    std::fs::copy(pki.path().join("other/ca.pem"), pki.path().join("pki/ca.pem")).unwrap();
    assert!(
        pki.run_failing(1, &["pki", "issue", "--role", "host", "--name", "y"])
            .contains("pki/ca.key does not belong to")
    );
    assert!(!pki.path().join("pki/y.key").exists(), "nothing is left of it");
}

#[test]
fn openssl_verifies_certificates() {
    let pki = Pki(tempfile::tempdir().unwrap());
    if pki.openssl("version").is_none() {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    pki.run_ok(&["pki", "init"]);
    pki.run_ok(&[
        "pki",
        "issue",
        "--role",
        "balancer",
        "--role",
        "controller",
        "--name",
        "b",
        "--address",
        "192.0.2.1",
    ]);
    for purpose in ["sslserver", "sslclient"] {
        let verified = pki.openssl(&format!("verify -x509_strict -purpose {purpose} -CAfile pki/ca.pem pki/b.pem"));
        assert_eq!(verified.as_deref(), Some("pki/b.pem: OK\n"));
    }
    let names = pki.openssl("x509 -in pki/b.pem -noout -ext subjectAltName").unwrap();
    for name in ["URI:vireo://vireo/balancer", "URI:vireo://vireo/controller", "IP Address:192.0.2.1"] {
        assert!(names.contains(name), "{names}");
    }
    // Certificates are valid for a year, the authority for ten.
    pki.openssl(&format!("x509 -in pki/b.pem -noout -checkend {}", 364 * 86_400)).unwrap();
    pki.openssl(&format!("x509 -in pki/ca.pem -noout -checkend {}", 3649 * 86_400)).unwrap();
    let authority = pki.openssl("x509 -in pki/ca.pem -noout -text").unwrap();
    assert!(authority.contains("CA:TRUE, pathlen:0") && authority.contains("Certificate Sign"), "{authority}");
}

#[test]
fn open_listeners_need_tls() {
    let pki = Pki(tempfile::tempdir().unwrap());
    let write = |text: &str| std::fs::write(pki.path().join("vireo.toml"), text).unwrap();
    for (section, open) in [
        ("cluster", "balancer = '192.0.2.1:7770'"),
        ("cluster", "listen = '[fd00::1]:7772'"),
        ("cluster", "controller = '192.0.2.1:7771'"),
        ("sbi", "amf = '192.0.2.1:7777'"),
        ("sbi", "smf = '192.0.2.1:7777'"),
    ] {
        write(&format!("[{section}]\n{open}"));
        let error = pki.run_failing(1, &["config", "check"]);
        let expected = [format!("{section}.tls: other machines may reach"), format!("{section}.insecure = true")];
        assert!(expected.iter().all(|expected| error.contains(expected)) && error.lines().count() == 1, "{error}");
        write(&format!("[{section}]\n{open}\ninsecure = true"));
        assert!(pki.run_ok(&["config", "check"]).ends_with("the configuration is right\n"));
    }
    // Processes do not start with it either.
    let own = "[n4]\nlisten = '127.0.0.77:8805'\n[upf]\nenabled = false\n[[external-upf]]\nn4 = '127.0.0.78:8805'\n\
               [api]\nlisten = 'off'\nsocket = 'off'\n";
    write(&format!("{own}[sbi]\nsmf = '192.0.2.1:7777'"));
    assert!(pki.run_failing(1, &["smf"]).contains("sbi.tls: other machines may reach 192.0.2.1:7777"));
    write(&format!("{own}[cluster]\nlisten = '0.0.0.0:0'"));
    assert!(pki.run_failing(1, &["host"]).contains("cluster.tls: other machines may reach 0.0.0.0:0"));
    write(&format!("{own}[cluster]\ncontroller = '192.0.2.1:7771'"));
    assert!(pki.run_failing(1, &["controller"]).contains("cluster.tls: other machines may reach 192.0.2.1:7771"));
}
