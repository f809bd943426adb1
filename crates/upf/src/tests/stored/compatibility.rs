//! Tests of records in each format, and of those that an earlier release has stored.

use super::*;
use crate::machine::StoredNode;
use crate::machine::session::{FoundSession, Session};
use std::fs;
use std::path::{Path, PathBuf};
use vireo_store::records::StoredRecord;

/// Releases whose records are read.
const RELEASES: [&str; 1] = ["0.2.0"];

fn fixture(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(release).join("records.txt")
}

/// Returns a request for a session with all features of rules.
fn request_with_all_rules() -> SessionEstablishmentRequest {
    let mut large = request();
    let urr = CreateUrr {
        urr_id: UrrId(3),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: ReportingTriggers::VOLTH | ReportingTriggers::VOLQU,
        volume_threshold: Some(VolumeThreshold { total: Some(u64::MAX), ..VolumeThreshold::default() }),
        volume_quota: Some(VolumeQuota { total: Some(1 << 40), ..VolumeQuota::default() }),
        ..CreateUrr::default()
    };
    large.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(urr.urr_id));
    large.create_urrs.push(urr);
    large.create_pdrs[1].pdi.sdf_filters = vec![SdfFilter::new("permit out 17 from any to assigned")];
    large.create_pdrs[1].pdi.framed_routes = vec![FramedRoute::from("10.45.77.0/24 0.0.0.0 1")];
    large.create_qers[0].mbr = Some(Mbr { uplink_kbps: 7, downlink_kbps: 1 << 39 });
    large.apn_dnn = ApnDnn::from_name("internet");
    large.user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(60));
    large
}

/// A session with all features of rules is unchanged after writing and reading.
#[test]
fn session_is_the_same_in_every_format() {
    let large = request_with_all_rules();
    for codec in codecs() {
        let mut world = World::with_codec(codec);
        let (seid, teid) = world.establish(&large);
        world.modify(seid, &forward(RAN_TEID));
        let octets = |world: &World| world.bench.upf.sessions.get(&seid).and_then(|session| session.octets(None));
        let before = octets(&world).expect("a session");
        world.restart();
        assert_eq!(octets(&world), Some(before), "{codec:?}");
        world.passes(teid);
    }
}

/// Returns a stored record.
fn load(world: &mut World, collection: &'static str, id: u64) -> StoredRecord {
    world.records.load(&[Name { collection, id }]).expect("it answers").remove(0).expect("a record")
}

/// Returns the contents of a fixture's lines of that kind.
fn contents<'a>(text: &'a str, kind: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(kind)?.strip_prefix(' '))
}

#[test]
fn records_of_earlier_release_are_read() {
    for release in RELEASES {
        let text = fs::read_to_string(fixture(release)).expect("a fixture");
        let octets = |kind| hex::decode(contents(&text, kind).next().expect(kind)).expect("digits");
        let (session, answered) = Session::decode(&octets("session"), STARTED).expect("a session");
        assert!(answered.is_some());
        let part = |line: &str| line.split_once(' ').map(|(name, json)| (name.to_owned(), json.as_bytes().to_vec()));
        let parts = contents(&text, "session-json").map(|line| part(line).expect("a part")).collect();
        let codec = Codec { format: Format::Json, update_mode: UpdateMode::Update };
        let stored = StoredRecord { version: 1, parts, ..StoredRecord::default() };
        let FoundSession { session: from_json, .. } =
            Session::decode_stored(codec, stored, STARTED).expect("a session");
        assert_eq!(session.octets(None), from_json.octets(None), "{release}");
        let node = StoredNode::decode(&octets("node")).expect("a node");
        let json = contents(&text, "node-json").next().expect("a node");
        assert_eq!(Format::Json.encode(&node).expect("JSON"), json.as_bytes(), "{release}");
    }
}

#[test]
#[ignore = "writes the fixture of this release"]
fn fixtures_of_this_release_are_written() {
    let codec = Codec { format: Format::Json, update_mode: UpdateMode::Update };
    let mut world = World::with_codec(codec);
    let (seid, _) = world.establish(&request_with_all_rules());
    world.modify(seid, &forward(RAN_TEID));
    let found = load(&mut world, "upf", seid);
    let FoundSession { session, answered, .. } =
        Session::decode_stored(codec, found.clone(), STARTED).expect("a session");
    let mut text = format!("session {}\n", hex::encode(session.octets(answered.as_ref()).expect("octets")));
    for (name, json) in &found.parts {
        text += &format!("session-json {name} {}\n", String::from_utf8_lossy(json));
    }
    let node = load(&mut world, "upf-node", 0).octets;
    let json = Format::Json.encode(&StoredNode::decode(&node).expect("a node")).expect("JSON");
    text += &format!("node {}\nnode-json {}\n", hex::encode(&node), String::from_utf8_lossy(&json));
    let path = fixture(env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a fixture");
}
