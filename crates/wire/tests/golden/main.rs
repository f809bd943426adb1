//! Golden bytes: messages encoded by pycrate, against the codecs of Vireo.
//!
//! The messages are in tests/reference. Each case states its values by hand, independently of the
//! Python values for pycrate. A message encoded here must equal pycrate's octets, and pycrate's
//! octets decoded here must have the values. With `VIREO_GOLDEN_OUT=FILE` the encoded messages are
//! also written to FILE. Pycrate then decodes and encodes them again (tests/reference/golden.py).

mod case;
mod nas_eap;
mod nas_eps;
mod nas_mobility;
mod nas_security;
mod nas_session;
mod ngap_connection;
mod ngap_identity;
mod ngap_node;
mod ngap_ran_changes;
mod ngap_session;
mod security;
mod values;

use case::{Case, golden};
use std::collections::BTreeSet;
use std::fmt::Write;

fn cases() -> Vec<Case> {
    let parts = [
        ngap_node::cases(),
        ngap_identity::cases(),
        ngap_connection::cases(),
        ngap_session::cases(),
        ngap_ran_changes::cases(),
        nas_mobility::cases(),
        nas_security::cases(),
        nas_eap::cases(),
        nas_session::cases(),
    ];
    parts.into_iter().flatten().collect()
}

#[test]
fn goldens_and_cases_correspond() {
    let cases: BTreeSet<_> = cases().iter().map(|case| case.name.to_owned()).collect();
    let goldens: BTreeSet<_> = golden().into_keys().collect();
    assert_eq!(cases, goldens);
    assert!(goldens.len() >= 75, "{} goldens", goldens.len());
}

#[test]
fn built_messages_equal_pycrate_octets() {
    let goldens = golden();
    let mut out = String::new();
    let mut wrong = Vec::new();
    for case in cases() {
        let built = (case.build)();
        writeln!(out, "{} {}", case.name, hex::encode(&built)).expect("a String takes it");
        if goldens[case.name] != built {
            wrong.push(format!(
                "{}\n  ours    {}\n  pycrate {}",
                case.name,
                hex::encode(&built),
                hex::encode(&goldens[case.name])
            ));
        }
    }
    if let Some(file) = std::env::var_os("VIREO_GOLDEN_OUT") {
        std::fs::write(file, out).expect("the file of VIREO_GOLDEN_OUT can be written");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pycrate_octets_decode_to_values() {
    let goldens = golden();
    for case in cases() {
        (case.check)(&goldens[case.name]);
    }
}
