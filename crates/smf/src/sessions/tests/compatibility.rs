//! Tests of SM contexts that an earlier release has stored.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};

/// Releases whose SM contexts are read.
const RELEASES: [&str; 1] = ["0.2.0"];

fn fixture(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(release).join("sm_contexts.txt")
}

/// Returns an SM context at rest, and one with a pending request, response and transfer.
fn samples() -> [(&'static str, Session); 2] {
    let mut world = World::stored();
    let path = world.active();
    let at_rest = world.session();
    world.state(&path, UpCnxState::Deactivated);
    world.downlink_packet(&path);
    world.upf_answers = false;
    world.ran_up(&path);
    [("at-rest", at_rest), ("pending", world.session())]
}

#[test]
fn sm_context_of_earlier_release_is_read() {
    for release in RELEASES {
        let text = fs::read_to_string(fixture(release)).unwrap();
        let lines: Vec<[&str; 3]> = text
            .lines()
            .map(|line| line.splitn(3, ' ').collect::<Vec<_>>().try_into().expect("state, format and content"))
            .collect();
        assert_eq!(lines.len(), 4, "{release}");
        for pair in lines.chunks(2) {
            let [[state, "binary", octets], [_, "json", json]] = pair else { panic!("{pair:?}") };
            let binary = Session::from_part(Format::Binary, &hex::decode(octets).unwrap()).expect(state);
            let json = Session::from_part(Format::Json, json.as_bytes()).expect(state);
            assert_eq!(binary, json, "{release} {state}");
            assert_eq!((format!("imsi-{}", binary.supi.reveal()), binary.sm.psi), (SUPI.into(), 5));
        }
    }
}

#[test]
#[ignore = "writes the fixture of this release"]
fn fixtures_of_this_release_are_written() {
    let text: String = samples()
        .iter()
        .map(|(state, session)| {
            let [binary, json] = [Format::Binary, Format::Json].map(|format| format.encode(session).unwrap());
            format!("{state} binary {}\n{state} json {}\n", hex::encode(binary), String::from_utf8(json).unwrap())
        })
        .collect();
    let path = fixture(env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
