//! Stored contexts and fabric messages of releases that this release reads.
//!
//! `fixtures/RELEASE` has what RELEASE has written. A release adds its fixtures with
//! `cargo test -p vireo-core --test steps fixtures_of_this_release -- --ignored`, and the fixtures
//! of the release before stay until no release reads them.

mod messages;

use crate::{lab, sba};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use vireo_core::amf::context;
use vireo_core::subscription::{SliceSubscription, Subscription};
use vireo_types::Dialect;

/// Releases whose fixtures are read.
const RELEASES: [&str; 1] = ["0.2.0"];

fn path(release: &str, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(release).join(name)
}

/// Returns the lines of a fixture, each a name and a content.
fn lines(release: &str, name: &str) -> Vec<(String, String)> {
    let path = path(release, name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let split = |line: &str| line.split_once(' ').map(|(name, content)| (name.to_owned(), content.to_owned()));
    text.lines().map(|line| split(line).expect("a name and a content")).collect()
}

fn write(name: &str, lines: impl Iterator<Item = (String, String)>) {
    let path = path(env!("CARGO_PKG_VERSION"), name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    let text: String = lines.map(|(name, content)| format!("{name} {content}\n")).collect();
    fs::write(path, text).expect("a fixture");
}

/// Checks that a decoded value has everything of a stored one. Fields that are new in this release
/// may have any value.
fn assert_contains(found: &Value, stored: &Value, at: &str) {
    match (found, stored) {
        (Value::Object(found), Value::Object(stored)) => {
            for (name, stored) in stored {
                assert_contains(found.get(name).unwrap_or(&Value::Null), stored, &format!("{at}.{name}"));
            }
        }
        (Value::Array(found), Value::Array(stored)) if found.len() == stored.len() => {
            for (n, (found, stored)) in found.iter().zip(stored).enumerate() {
                assert_contains(found, stored, &format!("{at}[{n}]"));
            }
        }
        _ => assert_eq!(found, stored, "{at}"),
    }
}

#[test]
fn context_of_earlier_release_is_read() {
    for release in RELEASES {
        let stored = lines(release, "contexts.txt");
        assert_eq!(stored.len(), 8, "encoded and as JSON, in each state");
        for pair in stored.chunks(2) {
            let [(state, octets), (_, json)] = pair else { panic!("an encoding without its value") };
            let ue = context::decode(&hex::decode(octets).expect("digits")).expect(state);
            let found = serde_json::to_value(&ue).expect("a value");
            assert_contains(&found, &serde_json::from_str(json).expect("JSON"), state);
            let again = context::encode(&ue, Vec::new()).expect("an encoding");
            assert_eq!(context::decode(&again), Ok(ue), "{state}");
        }
    }
}

#[test]
#[ignore = "writes the fixtures of this release"]
fn fixtures_of_this_release_are_written() {
    let remote = ("remote-session", sba::with_session().0);
    let contexts = lab::in_each_state().into_iter().chain([remote]).flat_map(|(state, lab)| {
        let json = serde_json::to_string(&lab.context().expect("a context")).expect("JSON");
        [(state.to_owned(), hex::encode(lab.octets())), (format!("{state}-json"), json)]
    });
    write("contexts.txt", contexts);
    write("messages.txt", messages::all().into_iter().map(|message| (message.name, hex::encode(message.octets))));
}

#[test]
fn dialect_restriction_is_kept_in_every_form() {
    for (only, named) in [(None, false), (Some(Dialect::Nr), true), (Some(Dialect::Eps), true)] {
        let subscription = Subscription { slices: vec![SliceSubscription::default()], only, ..Default::default() };
        let octets = postcard::to_allocvec(&subscription).expect("it encodes");
        assert_eq!(postcard::from_bytes(&octets), Ok(subscription.clone()));
        let text = serde_json::to_string(&subscription).expect("it encodes");
        assert_eq!((text.contains("\"only\""), serde_json::from_str(&text).ok()), (named, Some(subscription)));
    }
}
