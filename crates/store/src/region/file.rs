//! Named regions in files, which survive their processes.

use super::layout::Layout;
use super::mem::Mem;
use super::{Region, RegionConfig, RegionError, mem};
use rustix::fs::{AtFlags, CWD, FallocateFlags, fallocate, fstatfs, fstatvfs, linkat};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// File systems in memory (statfs(2)): tmpfs and ramfs.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

impl Region {
    /// Opens the region in a file of a memory file system, or creates it with these sizes.
    ///
    /// An existing region keeps its sizes. The region outlives the process. This process has
    /// exclusive use while it holds the region.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created, or is not in memory. Also returns one if the
    /// file is not a region of this user, or another process uses it.
    pub fn open(path: &Path, config: RegionConfig) -> Result<Self, RegionError> {
        config.check()?;
        Layout::new(&config, config.bytes / mem::WORD)?;
        loop {
            match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path) {
                Ok(file) => return Self::open_existing(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            match Self::named(path, config) {
                // Another process has created the file meanwhile: open it.
                Err(RegionError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    fn open_existing(file: File) -> Result<Self, RegionError> {
        let status = file.metadata()?;
        // A file that other users can write to is not trusted.
        let ours = status.uid() == rustix::process::geteuid().as_raw() && status.mode() & 0o022 == 0;
        if !ours || !status.is_file() {
            return Err(RegionError::NotARegion);
        }
        in_memory(&file)?;
        lock(&file)?;
        if status.len() < 4096 {
            return Err(RegionError::NotARegion);
        }
        Self::attach(file.into())?.backed()
    }

    /// Creates a region and links its name when it is complete.
    ///
    /// A process that dies before leaves no file behind.
    fn named(path: &Path, config: RegionConfig) -> Result<Self, RegionError> {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(directory)?;
        in_memory(&file)?;
        if let Some(free) = free(&file)?.filter(|free| *free < config.bytes as u64) {
            return Err(RegionError::NoRoom { needed: config.bytes as u64, free });
        }
        lock(&file)?;
        file.set_len(config.bytes as u64)?;
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        reserve(&file, 0, lay.heap)?;
        let region = Region { sparse: true, ..Self::begin(Mem::map(file.into(), false)?, config)? };
        let own = format!("/proc/self/fd/{}", region.mem.fd().as_raw_fd());
        linkat(CWD, &own, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)?;
        Ok(region)
    }

    /// Reserves memory for all used parts of a region in an existing file. A copied file may have
    /// none.
    fn backed(self) -> Result<Self, RegionError> {
        reserve(self.mem.fd(), 0, self.lay.heap)?;
        let used = (0..self.lay.chunk_count).filter(|chunk| self.is_chunk_used(*chunk));
        // Adjacent chunks are reserved in one call.
        let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
        for chunk in used {
            match spans.last_mut().filter(|span| span.end == chunk) {
                Some(span) => span.end += 1,
                None => spans.push(chunk..chunk + 1),
            }
        }
        let size = self.lay.chunk.words;
        for span in spans {
            reserve(self.mem.fd(), self.lay.heap + span.start * size, span.len() * size)?;
        }
        Ok(Region { sparse: true, ..self })
    }

    /// Returns true if memory for a chunk is reserved. Without it, touching the chunk would raise
    /// SIGBUS.
    pub(super) fn reserve_chunk(&self, chunk: usize) -> bool {
        let size = self.lay.chunk.words;
        reserve(self.mem.fd(), self.lay.heap + chunk * size, size).is_ok()
    }

    /// Returns the free bytes of the file system; `None` if it has no bound.
    pub(crate) fn free_around(&self) -> io::Result<Option<u64>> {
        free(self.mem.fd())
    }
}

fn in_memory(file: &File) -> Result<(), RegionError> {
    let kind = fstatfs(file).map_err(io::Error::from)?.f_type;
    // The type of the field depends on the architecture.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    let kind = kind as i64;
    if MEMORY.contains(&kind) { Ok(()) } else { Err(RegionError::NotInMemory) }
}

/// Locks the file for this process. The kernel releases the lock when the process ends.
fn lock(file: &File) -> Result<(), RegionError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(RegionError::Locked),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Has the file system allocate memory for `words` words from word `word` on.
///
/// Touching a page for which the file system has no memory would end the process (SIGBUS).
fn reserve(file: impl AsFd, word: usize, words: usize) -> Result<(), RegionError> {
    let (from, octets) = ((word * mem::WORD) as u64, (words * mem::WORD) as u64);
    loop {
        return match fallocate(&file, FallocateFlags::empty(), from, octets) {
            Err(Errno::INTR) => continue,
            Err(Errno::NOSPC) => Err(RegionError::NoRoom { needed: octets, free: free(&file)?.unwrap_or(0) }),
            // A file system without a bound (ramfs) has nothing to reserve.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        };
    }
}

fn free(file: impl AsFd) -> io::Result<Option<u64>> {
    let status = fstatvfs(file)?;
    Ok((status.f_blocks > 0).then(|| status.f_bavail.saturating_mul(status.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionConfig;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn region_is_found_by_name_and_owner() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("region");
        let config = RegionConfig::new(100, 1, 64 << 20);
        let one = Region::open(&path, config).unwrap();
        one.shared_word(3).store(42, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(Region::open(&path, config), Err(RegionError::Locked)), "somebody has it");
        drop(one);
        let other = Region::open(&path, RegionConfig::new(200, 1, 128 << 20)).unwrap();
        assert_eq!(other.config(), &config, "it is as it was made");
        assert_eq!(other.shared_word(3).load(std::sync::atomic::Ordering::Relaxed), 42);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left behind");
        drop(other);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(Region::open(&path, config), Err(RegionError::NotARegion)), "others may have written to it");
        fs::write(place.path().join("else"), [7; 8192]).unwrap();
        assert!(matches!(Region::open(&place.path().join("else"), config), Err(RegionError::NotARegion)));
        fs::write(place.path().join("empty"), []).unwrap();
        assert!(matches!(Region::open(&place.path().join("empty"), config), Err(RegionError::NotARegion)));
        assert!(matches!(Region::open(&place.path().join("none/region"), config), Err(RegionError::Io(_))));
        assert!(matches!(Region::open(Path::new("/proc/region"), config), Err(RegionError::Io(_))));
    }

    #[test]
    fn region_needs_free_space() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let free = free(File::open(place.path()).unwrap()).unwrap();
        let Some(free) = free else { return };
        let bytes = usize::try_from(free).unwrap() + (1 << 30);
        let refused = Region::open(&place.path().join("region"), RegionConfig::new(100, 1, bytes)).err();
        assert!(matches!(refused, Some(RegionError::NoRoom { .. })), "{refused:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
