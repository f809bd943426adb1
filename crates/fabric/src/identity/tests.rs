//! Tests of TLS files and certificate roles.

use super::*;
use std::net::Ipv4Addr;
use vireo_pki::{Authority, NAME};

fn uri(role: CertificateRole) -> String {
    role.uri(NAME)
}

#[test]
fn bad_files_are_named_by_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let host = uri(CertificateRole::Host);
    let good = one.member(directory.path(), "good", &[&host]).unwrap();
    let config = |certificate: &Path, key: &Path| TlsConfig {
        certificate: certificate.into(),
        key: key.into(),
        authorities: good.authorities.clone(),
        name: NAME.into(),
    };
    let member = config(&good.certificate, &good.key);
    assert!(member.check("cluster.tls").is_ok());
    let says = |config: &TlsConfig| config.check("cluster.tls").unwrap_err().to_string();
    let nothing = directory.path().join("nothing");
    assert!(says(&config(&nothing, &good.key)).starts_with("cluster.tls.certificate: "));
    assert!(says(&config(&good.certificate, &nothing)).starts_with("cluster.tls.key: "));
    // Each path names a file of the other kind.
    assert!(says(&config(&good.key, &good.key)).contains("has no certificate in PEM"));
    assert!(says(&config(&good.certificate, &good.certificate)).starts_with("cluster.tls.key: "));
    let theirs = other.member(directory.path(), "other", &[&host]).unwrap();
    assert!(says(&config(&good.certificate, &theirs.key)).contains("belong together"));
}

#[test]
fn own_certificate_of_another_role_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new().unwrap();
    let (smf, both) = (uri(CertificateRole::Smf), [uri(CertificateRole::Balancer), uri(CertificateRole::Controller)]);
    let load = |member: &str, names: &[&str], own: &[CertificateRole], name: &str| {
        let files = authority.member(directory.path(), member, names).unwrap();
        let (certificate, key, authorities) = (files.certificate, files.key, files.authorities);
        let config = TlsConfig { certificate, key, authorities, name: name.into() };
        config.load("cluster.tls", CertificateRoles::new(own)).map(|_| ()).map_err(|error| error.to_string())
    };
    use CertificateRole::{Balancer, Controller, Host, Smf};
    assert_eq!(load("smf", &[&smf], &[Smf], NAME), Ok(()));
    assert_eq!(load("both", &[&both[0], &both[1]], &[Balancer, Controller], NAME), Ok(()));
    let error = load("stolen", &[&smf], &[Host], NAME).unwrap_err();
    assert!(error.contains("is for smf in cluster") && error.contains("this process is host"), "{error}");
    let error = load("half", &[&both[0]], &[Balancer, Controller], NAME).unwrap_err();
    assert!(error.contains("this process is controller, balancer"), "{error}");
    // A certificate of another cluster, and one with host names only, which are not roles.
    assert!(load("far", &[&smf], &[Smf], "elsewhere").unwrap_err().contains("is for no role in cluster elsewhere"));
    assert!(load("named", &["smf", "127.0.0.1"], &[Smf], NAME).unwrap_err().contains("is for no role"));
    for odd in ["vireo://fabric.vireo.test/smfx", "vireo://fabric.vireo.test/smf/x", "https://fabric.vireo.test/smf"] {
        assert!(load("odd", &[odd], &[Smf], NAME).is_err(), "{odd}");
    }
}

#[test]
fn open_addresses_need_tls_or_a_word() {
    let none = PathBuf::new;
    let tls = TlsConfig { certificate: none(), key: none(), authorities: none(), name: NAME.into() };
    let at = |ip: [u8; 4]| SocketAddr::from((Ipv4Addr::from(ip), 7770));
    assert!(check_listener("cluster", at([127, 0, 0, 18]), (None, false)).is_ok());
    assert!(check_listener("cluster", "[::ffff:127.0.0.1]:7770".parse().unwrap(), (None, false)).is_ok());
    for open in [at([0; 4]), at([192, 0, 2, 1]), "[::]:7770".parse().unwrap(), "[fd00::1]:7770".parse().unwrap()] {
        let error = check_listener("cluster", open, (None, false)).unwrap_err().to_string();
        assert!(error.starts_with("cluster.tls: ") && error.contains("cluster.insecure = true"), "{error}");
        assert!(check_listener("cluster", open, (None, true)).is_ok());
        assert!(check_listener("cluster", open, (Some(&tls), false)).is_ok());
    }
}
