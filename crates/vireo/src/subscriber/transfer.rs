//! `vireo subscriber import` and `export`.

use super::private::Private;
use clap::{Args as ClapArgs, ValueEnum};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use vireo_config::Failure;
use vireo_subscribers::format::{FormatError, Keys, read_csv, read_json, write_csv, write_json};
use vireo_subscribers::{Filter, OnExisting, Page, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Csv,
    Json,
}

#[derive(Debug, ClapArgs)]
pub(super) struct ImportArgs {
    /// Read from FILE, or - for standard input
    file: PathBuf,
    /// Set the format [default: by the file name]
    #[arg(long)]
    format: Option<Format>,
    /// Replace existing subscribers instead of failing
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct ExportArgs {
    /// Write to FILE, or - for stdout [default without --with-keys: -]
    file: Option<PathBuf>,
    /// Set the format [default: by the file name]
    #[arg(long)]
    format: Option<Format>,
    /// Export only IMSIs that begin with DIGITS
    #[arg(long, default_value = "", value_name = "DIGITS")]
    prefix: String,
    /// Write K and OPc in clear to FILE (mode 0600), for an import elsewhere
    #[arg(long)]
    with_keys: bool,
}

/// Imports all records of the file, or none if one is invalid or exists already.
pub(super) fn import(store: &mut Store, args: &ImportArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let format = format_of(&args.file, args.format)?;
    let input: Box<dyn Read> = if is_standard(&args.file) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).map_err(|e| Failure(format!("{name} cannot be read: {e}")))?)
    };
    let records = match format {
        Format::Csv => read_csv(input),
        Format::Json => read_json(input),
    };
    let records = records.map_err(|e| Failure(format!("{name}: {e}")))?;
    let existing = if args.replace { OnExisting::Replace } else { OnExisting::Refuse };
    let total = records.len() as u64;
    let imported = super::progress(total, |report| Ok(store.import(&records, existing, report)?))?;
    println!("imported {imported}");
    Ok(())
}

/// Exports the subscribers, without keys unless requested.
pub(super) fn export(store: &mut Store, args: &ExportArgs) -> Result<(), Failure> {
    if args.with_keys && args.file.is_none() {
        let reason = "--with-keys: keys go to a file, which only you can read; name one, or - for standard output";
        return Err(Failure(reason.into()));
    }
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let name = file.display();
    let format = format_of(file, args.format)?;
    let keys = if args.with_keys { Keys::With } else { Keys::Without };
    let private = if is_standard(file) { None } else { Some(Private::create(file)?) };
    let output: Box<dyn Write + '_> = match &private {
        Some(private) => Box::new(private),
        None => Box::new(io::stdout().lock()),
    };
    let filter = Filter { prefix: args.prefix.clone() };
    let total = store.count(&filter)?;
    let written = super::progress(total, |report| {
        let mut page = Vec::new().into_iter();
        let (mut after, mut trouble, mut done) = (None, None, 0);
        let mut next = || {
            if let Some(subscriber) = page.next() {
                done += 1;
                return Some(subscriber);
            }
            report(done);
            match store.list(&filter, Page { after, limit: 1000 }) {
                Ok(records) => {
                    after = records.last().map(|r| r.supi);
                    page = records.into_iter();
                    page.next().inspect(|_| done += 1)
                }
                Err(error) => {
                    trouble = Some(error);
                    None
                }
            }
        };
        let output = io::BufWriter::new(output);
        let written = match format {
            Format::Csv => write_csv(output, keys, &mut next),
            Format::Json => write_json(output, keys, &mut next),
        };
        match trouble {
            Some(error) => Err(error.into()),
            None => match written {
                // The reader closed the pipe, as `head` does.
                Err(FormatError::Io(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(None),
                written => written.map(Some).map_err(|e| Failure(format!("{name}: {e}"))),
            },
        }
    })?;
    private.map_or(Ok(()), Private::finish)?;
    let Some(written) = written else { return Ok(()) };
    eprintln!("exported {written}{}", if args.with_keys { "" } else { " without keys (--with-keys writes them)" });
    Ok(())
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the requested format, else that of the file name.
fn format_of(path: &Path, given: Option<Format>) -> Result<Format, Failure> {
    let by_name = match path.extension().and_then(|e| e.to_str()) {
        Some("csv") => Some(Format::Csv),
        Some("json") => Some(Format::Json),
        _ => None,
    };
    let unknown = || {
        Failure(format!("{}: the format does not follow from the file name; give --format csv or json", path.display()))
    };
    given.or(by_name).ok_or_else(unknown)
}
