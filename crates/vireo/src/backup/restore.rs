//! `vireo restore`.

use super::archive::OpenedBackup;
use super::{CONFIGURATION, KEY, RestoreArgs, SUBSCRIBERS};
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use vireo_config::{Config, Failure, Source, SubscribersConfig};

/// Name of the configuration if the command names none.
const DEFAULT_CONFIGURATION: &str = "vireo.toml";

/// Runs `vireo restore`.
pub(crate) fn run(args: &RestoreArgs) -> Result<(), Failure> {
    let backup = OpenedBackup::open(&args.path)?;
    let (subscribers, missing) = match &args.database {
        Some(database) => (SubscribersConfig::for_database(database.clone(), args.key_file.clone()), None),
        None => configuration(&backup, args.config.as_deref())?,
    };
    let source = subscribers.key_source();
    let placed = place_key(&backup, &source)?;
    let path = backup.path(SUBSCRIBERS).unwrap_or_default();
    let mut lines = BufReader::new(File::open(path)?);
    let restored = vireo_subscribers::restore(&subscribers.database, &source, &mut lines, args.replace);
    let count = match restored {
        Ok(count) => count,
        Err(error) => {
            if let Some(key) = placed {
                let _ = fs::remove_file(key);
            }
            return Err(error.into());
        }
    };
    if let Some(Missing { path, text }) = missing {
        super::private(&path)?.write_all(text.as_bytes())?;
        println!("restored {}", path.display());
    }
    if let Some(key) = placed {
        println!("restored {}", key.display());
    }
    println!("restored {count} subscribers to {}", vireo_subscribers::shown_location(&subscribers.database));
    Ok(())
}

/// A configuration that is only in the backup.
struct Missing {
    path: PathBuf,
    text: String,
}

/// Returns the subscriber database of the existing configuration, else that of the backup.
fn configuration(backup: &OpenedBackup, path: Option<&Path>) -> Result<(SubscribersConfig, Option<Missing>), Failure> {
    let file = path.unwrap_or(Path::new(DEFAULT_CONFIGURATION));
    let ours = backup.path(CONFIGURATION).map(fs::read_to_string).transpose()?;
    if file.exists() {
        let found = Source::read(Some(file))?;
        if ours.is_some_and(|text| text != found.text) {
            eprintln!("{} stays as it is; the backup has another one ({CONFIGURATION})", file.display());
        }
        return Ok((Config::from_source(&found)?.subscribers, None));
    }
    let Some(text) = ours else {
        let reason = "there is no configuration, neither here nor in the backup";
        return Err(Failure(format!("{reason}: name one (--config), or a database (--database)")));
    };
    let source = Source { name: format!("{CONFIGURATION} of the backup"), text };
    let config = Config::from_source(&source)?;
    Ok((config.subscribers, Some(Missing { path: file.to_owned(), text: source.text })))
}

/// Puts the key of the backup where the database's key belongs, if the backup has one and there is
/// none. Returns its path.
fn place_key(backup: &OpenedBackup, source: &vireo_config::KeySource) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = backup.path(KEY) else { return Ok(None) };
    if source.find()?.is_some() {
        return Ok(None);
    }
    let text = fs::read_to_string(path)?;
    super::private(&source.file)?.write_all(text.as_bytes())?;
    Ok(Some(source.file.clone()))
}
