//! `vireo backup` and `vireo restore`: subscribers and configuration in a directory or a tar file.
//!
//! The sealing key is not in a backup unless requested, so that a stolen backup reveals no K or
//! OPc.

mod archive;
mod manifest;
mod restore;

use archive::{Parts, ScratchDirectory};
use manifest::{Key, Manifest};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vireo_config::{Config, Failure, Source};
use vireo_subscribers::SCHEMA;

/// Subscribers of a backup.
const SUBSCRIBERS: &str = "subscribers.jsonl";
/// Configuration of a backup.
const CONFIGURATION: &str = "vireo.toml";
/// Sealing key of a backup that was written with `--with-key`.
const KEY: &str = "subscribers.key";
const MANIFEST: &str = "manifest.json";

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// Write to PATH: a new directory, or a new file if it ends with .tar
    path: PathBuf,
    /// Back up this configuration and its database [default: vireo.toml, if present]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Include the key that opens K and OPc
    #[arg(long)]
    with_key: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Read from PATH, a directory or a tar file of vireo backup
    path: PathBuf,
    /// Restore into the database of this configuration [default: vireo.toml]
    ///
    /// A missing file is restored from the backup. An existing one stays as it is.
    #[arg(long, value_name = "FILE", conflicts_with = "database")]
    config: Option<PathBuf>,
    /// Restore only the subscribers, into this database
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// Use the sealing key in FILE [default: DATABASE.key]
    #[arg(long, value_name = "FILE", requires = "database")]
    key_file: Option<PathBuf>,
    /// Replace all subscribers of a database that has some
    #[arg(long)]
    replace: bool,
}

pub(crate) use restore::run as restore;

/// Runs `vireo backup`.
pub(crate) fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let path = &args.path;
    if path.symlink_metadata().is_ok() {
        return Err(Failure(format!("{}: there is a file already; name another path", path.display())));
    }
    let source = Source::read(args.config.as_deref())?;
    let config = Config::from_source(&source)?;
    let mut store = config.subscribers.open_existing()?;
    let parts = Parts(ScratchDirectory::beside(path)?);
    let mut out = io::BufWriter::new(private(&parts.path(SUBSCRIBERS))?);
    let subscribers = store.backup(&mut out)?;
    out.into_inner().map_err(|e| Failure(e.to_string()))?.sync_all()?;
    let mut names = vec![SUBSCRIBERS];
    if !source.text.is_empty() {
        private(&parts.path(CONFIGURATION))?.write_all(source.text.as_bytes())?;
        names.push(CONFIGURATION);
    }
    if args.with_key {
        store.write_key(&parts.path(KEY))?;
        names.push(KEY);
    }
    let manifest = Manifest {
        format: manifest::FORMAT,
        vireo: env!("CARGO_PKG_VERSION").to_owned(),
        created: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
        schema: SCHEMA,
        database: store.path().to_owned(),
        subscribers,
        key: Key { id: store.key_id().to_string(), included: args.with_key },
        files: names.iter().map(|name| parts.describe(name)).collect::<Result<_, _>>()?,
    };
    let mut text = serde_json::to_string_pretty(&manifest)?;
    text.push('\n');
    private(&parts.path(MANIFEST))?.write_all(text.as_bytes())?;
    names.insert(0, MANIFEST);
    match path.extension().is_some_and(|end| end == "tar") {
        true => parts.pack(&names, path)?,
        false => parts.rename(path)?,
    }
    println!("backed up {subscribers} subscribers of {} to {}", store.path(), path.display());
    match args.with_key {
        true => eprintln!("the backup has the sealing key: who reads it reads K and OPc of all subscribers"),
        false => eprintln!(
            "not in the backup: the sealing key {} ({}), without which K and OPc cannot be read; back it up apart, or \
             give --with-key",
            store.key_id(),
            config.subscribers.key_origin()
        ),
    }
    eprintln!("not in the backup: files that the configuration names (home network keys, certificates), API tokens");
    Ok(())
}

/// Creates a file that only its owner can read.
fn private(path: &Path) -> Result<File, Failure> {
    let created = File::options().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|e| Failure(format!("{} cannot be written: {e}", path.display())))
}
