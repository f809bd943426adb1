//! Output folder of the results.

use super::{Summary, Table};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Reason for which results cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file system operation failed.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: String,
        source: io::Error,
    },
    /// The summary cannot be encoded as JSON.
    #[error("summary.json: {0}")]
    Json(#[from] serde_json::Error),
    /// A table cannot be encoded as CSV.
    #[error("a table: {0}")]
    Csv(#[from] csv::Error),
}

/// Open folder. It stays the same when another file system is mounted over its path, as labs do
/// with `/tmp`.
#[derive(Debug)]
pub struct Folder {
    open: File,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder; creates it if necessary.
    pub fn make(path: &Path) -> Result<Self, WriteError> {
        let fail = |source| WriteError::Io { path: path.display().to_string(), source };
        fs::create_dir_all(path).map_err(fail)?;
        Ok(Folder { open: File::open(path).map_err(fail)?, path: path.to_owned() })
    }

    /// Returns the path for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `summary.json`.
    pub fn summary(&self, summary: &Summary) -> Result<(), WriteError> {
        let mut text = serde_json::to_string_pretty(summary)?;
        text.push('\n');
        self.file("summary.json", text.as_bytes())
    }

    /// Writes `NAME.csv`.
    pub fn table(&self, name: &str, table: &Table) -> Result<(), WriteError> {
        self.file(&format!("{name}.csv"), &table.csv()?)
    }

    /// Writes `NAME.svg`.
    pub fn plot(&self, name: &str, svg: &str) -> Result<(), WriteError> {
        self.file(&format!("{name}.svg"), svg.as_bytes())
    }

    fn file(&self, name: &str, octets: &[u8]) -> Result<(), WriteError> {
        let through = format!("/proc/self/fd/{}/{name}", self.open.as_raw_fd());
        let fail = |source| WriteError::Io { path: self.path.join(name).display().to_string(), source };
        fs::write(through, octets).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_land_in_opened_folder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results/example");
        let folder = Folder::make(&path).unwrap();
        // Later changes of the path have no effect.
        fs::rename(&path, directory.path().join("moved")).unwrap();
        let mut table = Table::new(&["a"]);
        table.row([1]);
        folder.table("points", &table).unwrap();
        folder.plot("latency", "<svg/>").unwrap();
        let moved = directory.path().join("moved");
        assert_eq!(fs::read_to_string(moved.join("points.csv")).unwrap(), "a\n1\n");
        assert_eq!(fs::read_to_string(moved.join("latency.svg")).unwrap(), "<svg/>");
        assert!(Folder::make(Path::new("/proc/1/nothing")).is_err());
    }
}
