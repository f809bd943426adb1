//! Manifest of a backup.

use serde::{Deserialize, Serialize};
use vireo_config::Failure;
use vireo_subscribers::SCHEMA;

/// Version of the backup's layout that this release writes and reads.
pub(super) const FORMAT: u32 = 1;

/// What a backup contains, from what, and how to check that it is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Version of the layout.
    pub(super) format: u32,
    /// Release that wrote the backup.
    pub(super) vireo: String,
    /// Time at which it was written (RFC 3339).
    pub(super) created: String,
    /// Version of the schema of the subscriber database.
    pub(super) schema: i64,
    /// Location of the database, without password.
    pub(super) database: String,
    pub(super) subscribers: u64,
    pub(super) key: Key,
    pub(super) files: Vec<FileEntry>,
}

/// Sealing key of K and OPc.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    /// Identifier, which reveals nothing of the key.
    pub(super) id: String,
    /// True if the backup contains the key.
    pub(super) included: bool,
}

/// A file of the backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) size: u64,
    /// SHA-256 in hexadecimal digits.
    pub(super) sha256: String,
}

impl Manifest {
    /// Parses a manifest. Refuses one of a later release.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Versions {
            format: u32,
            schema: i64,
            vireo: String,
        }
        let damaged = |e: serde_json::Error| Failure(format!("manifest.json of the backup is damaged: {e}"));
        // First the versions: a later release may have other fields.
        let Versions { format, schema, vireo } = serde_json::from_str(text).map_err(damaged)?;
        if format > FORMAT || schema > SCHEMA {
            return Err(Failure(format!(
                "the backup was written by Vireo {vireo} (format {format}, schema {schema}), which is newer: restore \
                 it by that release"
            )));
        }
        serde_json::from_str(text).map_err(damaged)
    }
}
