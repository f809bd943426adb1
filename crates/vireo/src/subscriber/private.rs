//! Files that hold keys: only their owner reads them, and they appear whole or not at all.

use crate::cli::Failure;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is being written beside the one that it replaces. Dropped before [`Private::finish`], it leaves nothing.
#[derive(Debug)]
pub(super) struct Private {
    file: File,
    written: PathBuf,
    path: PathBuf,
    done: bool,
}

impl Private {
    /// Begins a file of mode 0600, whatever the mode of a file that is there.
    ///
    /// # Errors
    ///
    /// When the path is something else than a regular file, or its directory is not writable.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure(format!("{} cannot be written: {error}", path.display()));
        match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(Failure(format!(
                    "{} is no regular file; name one, or - for standard output",
                    path.display()
                )));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        let mut own = std::ffi::OsString::from(".");
        own.push(name);
        own.push(format!(".{}", std::process::id()));
        let written = path.with_file_name(own);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&written).map_err(failed)?;
        Ok(Private { file, written, path: path.to_owned(), done: false })
    }

    /// Puts it in its place.
    ///
    /// # Errors
    ///
    /// When the system refuses that.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let moved = self.file.sync_all().and_then(|()| fs::rename(&self.written, &self.path));
        self.done = moved.is_ok();
        moved.map_err(|error| Failure(format!("{} cannot be written: {error}", self.path.display())))
    }
}

impl Write for &Private {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        (&self.file).write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.written);
        }
    }
}
