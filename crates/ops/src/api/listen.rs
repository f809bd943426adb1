//! Unix socket of the API, with its own file permissions.
//!
//! The server removes the socket file when it stops.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Permissions of the socket file: user and group may connect.
const MODE: u32 = 0o660;
/// Permissions of a newly created socket directory.
const DIRECTORY_MODE: u32 = 0o755;
/// Backlog of connections that are not yet accepted.
const BACKLOG: i32 = 64;

/// Location of the API's unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiSocket {
    /// No unix socket.
    #[default]
    Off,
    /// In this directory, under a name with the TCP port ([`ApiSocket::name`]). A missing directory
    /// is created. Without a TCP port there is no socket. If the socket cannot be created, the API
    /// logs it and works without.
    Within(PathBuf),
    /// At this path. The API does not start if the socket cannot be created.
    At(PathBuf),
}

impl ApiSocket {
    /// Returns the socket's file name for an API with this TCP port. It is unique in a directory
    /// that several processes share.
    pub fn name(port: u16) -> String {
        format!("api-{port}.sock")
    }

    /// Returns the path of the socket for an API with this TCP port.
    pub(super) fn path(&self, port: Option<u16>) -> Option<PathBuf> {
        match self {
            ApiSocket::Off => None,
            ApiSocket::Within(directory) => port.map(|port| directory.join(ApiSocket::name(port))),
            ApiSocket::At(path) => Some(path.clone()),
        }
    }
}

/// A listening socket. Dropping it removes the file, unless another process has replaced the file.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket file.
    file: (u64, u64),
}

impl Socket {
    /// Listens at a path. Replaces the socket file of a dead process. Replaces that of a living
    /// process only if `takes_over`.
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
        // Linux applies the mode of the socket when `bind` creates the file, so the file never has
        // other permissions.
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
        // A successor replaces the file, and its predecessor does not remove it.
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
        // A file that is not a socket stays.
        fs::write(&path, "mine").unwrap();
        assert!(Socket::open(&path, true).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
