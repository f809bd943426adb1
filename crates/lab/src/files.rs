//! Files of the lab, most of them in its own `/tmp`.

use std::fs::File;
use std::path::Path;
use vireo_client::{Answer, Api};
use vireo_config::Failure;
use vireo_ops::api::Status;

/// Configuration file in the lab's own `/tmp`.
pub const CONFIG: &str = "/tmp/vireo.toml";
pub(crate) const UPF_CONFIG: &str = "/tmp/vireo-upf.toml";
pub const DATABASE: &str = "/tmp/vireo.db";
/// Shared-memory directory of SBA processes. A restarted process finds its predecessor's state
/// there.
pub const RECORDS: &str = "/tmp/records";
/// Key that seals the records.
pub const STATE_KEY: &str = "/tmp/vireo-state.key";
/// API token of all lab processes, in the lab's own `/tmp`.
pub(crate) const API_TOKEN: &str = "/tmp/vireo-api.token";

/// Returns the API of a lab process.
pub fn api(url: &str) -> Result<Api, Failure> {
    Api::at(url, Path::new(API_TOKEN))
}

/// Requests of a status before a busy core counts as a failed one.
const STATUS_TRIES: usize = 5;

/// Returns a status. A core under load may not answer its API in time.
pub(crate) fn fetch_status(api: &Api, path: &str) -> Result<Status, Failure> {
    for _ in 1..STATUS_TRIES {
        match api.request("GET", path)? {
            Answer { status: 200, body, .. } => return Ok(serde_json::from_str(&body)?),
            Answer { status: 503, .. } => {}
            _ => break,
        }
    }
    Ok(serde_json::from_str(&api.fetch(path)?)?)
}

/// Creates a file for writing and reading.
pub fn create(path: &Path) -> Result<File, Failure> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(|e| Failure(format!("{}: {e}", path.display())))
}
