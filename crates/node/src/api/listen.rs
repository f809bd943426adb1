//! Unix socket of the API: a file with permissions of its own, which ends with its server.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Permissions of the socket: its user and group connect.
const MODE: u32 = 0o660;
/// Permissions of a directory that is made for it.
const DIRECTORY_MODE: u32 = 0o755;
/// Connections that the kernel keeps before they are accepted.
const BACKLOG: i32 = 64;

/// Where the API has its unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiSocket {
    /// Nowhere.
    #[default]
    Off,
    /// In this directory, which is made if it is missing, under the name of the TCP port ([`ApiSocket::name`]). Without a
    /// TCP port there is none. A socket that cannot be made there is logged, and the API goes on without it.
    Within(PathBuf),
    /// At this path. A socket that cannot be made there is an error.
    At(PathBuf),
}

impl ApiSocket {
    /// The name of the socket of an API with this TCP port, in a directory that several processes share.
    pub fn name(port: u16) -> String {
        format!("api-{port}.sock")
    }

    /// The path, for an API that has this TCP port.
    pub(super) fn path(&self, port: Option<u16>) -> Option<PathBuf> {
        match self {
            ApiSocket::Off => None,
            ApiSocket::Within(directory) => port.map(|port| directory.join(ApiSocket::name(port))),
            ApiSocket::At(path) => Some(path.clone()),
        }
    }
}

/// A socket that listens. Dropped, its file is removed unless another process has put one of its own there.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Socket {
    /// Listens at a path. A file that a killed process has left is replaced; one of a living process only if this process
    /// takes its place.
    pub(super) fn open(path: &Path, takes_over: bool) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            DirBuilder::new().mode(DIRECTORY_MODE).create(directory)?;
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(_) if !takes_over && UnixStream::connect(path).is_ok() => return Err(io::ErrorKind::AddrInUse.into()),
            Ok(_) => fs::remove_file(path)?,
        }
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        // Linux gives the file these permissions when it is made: there is no moment with others.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(MODE))?;
        socket.bind(&socket2::SockAddr::unix(path)?)?;
        socket.listen(BACKLOG)?;
        let listener = UnixListener::from(std::os::fd::OwnedFd::from(socket));
        listener.set_nonblocking(true)?;
        let file = identity(path)?;
        Ok(Socket { listener, path: path.to_owned(), file })
    }

    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_closed_to_others_and_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/api-1.sock");
        let socket = Socket::open(&path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777 & !MODE, 0);
        assert_eq!(Socket::open(&path, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // A successor replaces the file, which its predecessor leaves alone.
        let next = Socket::open(&path, true).unwrap();
        drop(socket);
        assert!(UnixStream::connect(&path).is_ok());
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn socket_of_a_dead_process_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Socket::open(&path, false).unwrap());
        // A file that is no socket is left alone.
        fs::write(&path, "mine").unwrap();
        assert!(Socket::open(&path, true).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
