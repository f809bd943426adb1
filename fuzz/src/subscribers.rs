//! Fuzz target of subscriber files.

use vireo_subscribers::Subscriber;
use vireo_subscribers::format::{FormatError, Keys, read_csv, read_json, write_csv, write_json};

/// Imports a file as CSV and as JSON. Writing and reading again yields the same subscribers.
pub fn import(data: &[u8]) {
    if let Ok(all) = read_csv(data) {
        let written = written(&all, |out, next| write_csv(out, Keys::With, next).map(drop));
        assert_eq!(read_csv(&written[..]).ok(), Some(all), "subscribers change in CSV");
    }
    if let Ok(all) = read_json(data) {
        let written = written(&all, |out, next| write_json(out, Keys::With, next).map(drop));
        assert_eq!(read_json(&written[..]).ok(), Some(all), "subscribers change in JSON");
    }
}

/// Returns a writer's output for the subscribers.
fn written(
    all: &[Subscriber],
    write: impl Fn(&mut Vec<u8>, &mut dyn FnMut() -> Option<Subscriber>) -> Result<(), FormatError>,
) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), all.iter().cloned());
    write(&mut out, &mut || rest.next()).expect("what is read can be written");
    out
}
