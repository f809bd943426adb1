//! Files that hold keys.
//!
//! Only the owner can read them. A file appears completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vireo_config::Failure;

/// File in progress, beside the file that it replaces. If dropped before [`Private::finish`], it
/// leaves no file.
#[derive(Debug)]
pub(super) struct Private {
    file: File,
    written: PathBuf,
    path: PathBuf,
    done: bool,
}

impl Private {
    /// Creates a file of mode 0600, independent of the mode of an existing file.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is not a regular file, or if its directory is not writable.
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

    /// Moves the file to its final path.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the move.
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
