//! Output folder of the results.

use super::{Summary, Table};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, Read, Write};
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

/// Upper bound of a compressed table in bytes. Results are kept in Git.
const TABLE_BYTES: usize = 200_000;

/// Returns the CSV of a compressed table.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or is no compressed text.
pub fn read_table(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the compressed CSV of a table.
fn compress(table: &Table) -> Result<Vec<u8>, WriteError> {
    let fail = |source| WriteError::Io { path: "a compressed table".into(), source };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&table.csv()?).map_err(fail)?;
    encoder.finish().map_err(fail)
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

    /// Writes `NAME.csv.gz`. A table that is too large keeps one row in several, evenly spaced.
    /// Returns in how many rows one was kept.
    pub fn table(&self, name: &str, table: &Table) -> Result<usize, WriteError> {
        let (mut step, mut octets) = (1, compress(table)?);
        while octets.len() > TABLE_BYTES {
            step *= 2;
            octets = compress(&table.every(step))?;
        }
        self.file(&format!("{name}.csv.gz"), &octets)?;
        Ok(step)
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
        assert_eq!(folder.table("points", &table).unwrap(), 1);
        folder.plot("latency", "<svg/>").unwrap();
        let moved = directory.path().join("moved");
        assert_eq!(read_table(&moved.join("points.csv.gz")).unwrap(), "a\n1\n");
        assert_eq!(fs::read_to_string(moved.join("latency.svg")).unwrap(), "<svg/>");
        assert!(Folder::make(Path::new("/proc/1/nothing")).is_err());
    }

    #[test]
    fn large_table_keeps_evenly_spaced_rows() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::make(directory.path()).unwrap();
        let mut table = Table::new(&["n", "noise"]);
        for n in 0..100_000_u64 {
            table.row([n, n.wrapping_mul(6_364_136_223_846_793_005).rotate_left(31)]);
        }
        let step = folder.table("points", &table).unwrap();
        let path = directory.path().join("points.csv.gz");
        assert!(step > 1 && fs::metadata(&path).unwrap().len() <= TABLE_BYTES as u64, "{step}");
        let text = read_table(&path).unwrap();
        assert_eq!(text.lines().count(), 1 + 100_000_usize.div_ceil(step));
        assert!(text.lines().nth(2).unwrap().starts_with(&format!("{step},")));
    }
}
