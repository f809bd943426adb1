//! Files of a backup, in a directory or in a tar file.

use super::manifest::{FileEntry, Manifest};
use super::{CONFIGURATION, KEY, MANIFEST, SUBSCRIBERS};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use vireo_config::Failure;

/// Names of all files that a backup may contain.
const NAMES: [&str; 4] = [MANIFEST, SUBSCRIBERS, CONFIGURATION, KEY];

/// A directory that only its owner can read, removed when dropped.
#[derive(Debug)]
pub(super) struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    /// Creates a directory beside a path, on the same file system.
    pub(super) fn beside(path: &Path) -> Result<Self, Failure> {
        let failed = |e: io::Error| Failure(format!("{} cannot be written: {e}", path.display()));
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        let mut own = OsString::from(".");
        own.push(name);
        own.push(format!(".{}", std::process::id()));
        let directory = path.with_file_name(own);
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        Ok(ScratchDirectory(directory))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Files of a backup that is being written.
#[derive(Debug)]
pub(super) struct Parts(pub(super) ScratchDirectory);

impl Parts {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    /// Returns the entry of a file in the manifest.
    pub(super) fn describe(&self, name: &str) -> Result<FileEntry, Failure> {
        Ok(described(name, &self.path(name))?)
    }

    /// Makes a directory of the files.
    pub(super) fn rename(self, path: &Path) -> Result<(), Failure> {
        let moved = fs::rename(&self.0.0, path).and_then(|()| File::open(path)?.sync_all());
        moved.map_err(|e| Failure(format!("{} cannot be written: {e}", path.display())))
    }

    /// Makes a tar file of the files.
    pub(super) fn pack(&self, names: &[&str], path: &Path) -> Result<(), Failure> {
        let draft = self.path("tar");
        let packed = || -> io::Result<()> {
            let mut tar = tar::Builder::new(super::private(&draft).map_err(|e| io::Error::other(e.0))?);
            tar.mode(tar::HeaderMode::Deterministic);
            for name in names {
                tar.append_path_with_name(self.path(name), name)?;
            }
            tar.into_inner()?.sync_all()?;
            fs::rename(&draft, path)
        };
        packed().map_err(|e| Failure(format!("{} cannot be written: {e}", path.display())))
    }
}

/// Files of a backup that is read.
#[derive(Debug)]
pub(super) struct OpenedBackup {
    directory: PathBuf,
    pub(super) manifest: Manifest,
    _unpacked: Option<ScratchDirectory>,
}

impl OpenedBackup {
    /// Opens a backup and checks that its files are those of its manifest.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |e: io::Error| Failure(format!("{} cannot be read: {e}", path.display()));
        let (directory, unpacked) = match fs::metadata(path).map_err(failed)?.is_dir() {
            true => (path.to_owned(), None),
            false => {
                let scratch = ScratchDirectory::beside(path)?;
                unpack(path, &scratch.0).map_err(failed)?;
                (scratch.0.clone(), Some(scratch))
            }
        };
        let text = fs::read_to_string(directory.join(MANIFEST))
            .map_err(|e| Failure(format!("{} is no backup: {MANIFEST} cannot be read: {e}", path.display())))?;
        let opened = OpenedBackup { manifest: Manifest::parse(&text)?, directory, _unpacked: unpacked };
        opened.check()?;
        Ok(opened)
    }

    /// Returns the path of a file that the manifest lists.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.manifest.files.iter().any(|file| file.name == name).then(|| self.directory.join(name))
    }

    fn check(&self) -> Result<(), Failure> {
        for file in &self.manifest.files {
            let name = &file.name;
            if !NAMES.contains(&name.as_str()) {
                return Err(Failure(format!("the backup has a file {name:?}, which no backup has; use another one")));
            }
            let found = described(name, &self.directory.join(name))
                .map_err(|e| Failure(format!("{name} of the backup cannot be read: {e}; use another backup")))?;
            if found != *file {
                return Err(Failure(format!(
                    "{name} of the backup has not the size and the SHA-256 of the manifest; use another backup"
                )));
            }
        }
        match self.path(SUBSCRIBERS) {
            Some(_) => Ok(()),
            None => Err(Failure(format!("the backup has no {SUBSCRIBERS}; use another backup"))),
        }
    }
}

/// Unpacks the files that a backup may contain. Links and paths are refused.
fn unpack(path: &Path, directory: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(File::open(path)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_str().map(str::to_owned).unwrap_or_default();
        if !NAMES.contains(&name.as_str()) || !entry.header().entry_type().is_file() {
            return Err(io::Error::other(format!("{name:?} is no file of a backup")));
        }
        let mut file = super::private(&directory.join(&name)).map_err(|e| io::Error::other(e.0))?;
        io::copy(&mut entry, &mut file)?;
    }
    Ok(())
}

/// Returns size and checksum of a file.
fn described(name: &str, path: &Path) -> io::Result<FileEntry> {
    let mut file = File::open(path)?;
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hash.update(&buffer[..length]);
        size += length as u64;
    }
    Ok(FileEntry { name: name.to_owned(), size, sha256: hex::encode(hash.finalize()) })
}
