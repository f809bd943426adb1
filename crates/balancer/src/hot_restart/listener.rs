//! Hot-restart listener: unix socket where a successor requests a hot restart.
//!
//! Only processes of the same user or root are accepted.

use super::channel::HotRestartChannel;
use super::error::HotRestartError;
use super::protocol::{FORMAT, PredecessorMessage, STEP_TIMEOUT, SuccessorMessage};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vireo_cluster::{ProgressCounter, ResidentController};
use vireo_sctp::Waker;

/// Maximum of simultaneous requests. Further connections are closed.
const MAX_REQUESTS: usize = 4;

/// The listener and the resources that move to the successor.
#[derive(Debug)]
pub struct HotRestartListener {
    listener: UnixListener,
    path: PathBuf,
    /// TCP listener of the API, which moves to the successor.
    api: Option<OwnedFd>,
    /// Embedded controller of this process, which moves to the successor.
    controller: Option<Arc<dyn ResidentController>>,
    /// Connections whose request has not been read yet.
    unread_requests: Arc<AtomicUsize>,
    requests: (Sender<HotRestartChannel>, Receiver<HotRestartChannel>),
    /// True if another process owns the socket file; `Drop` then keeps the file.
    keeps_file: bool,
}

impl HotRestartListener {
    /// Opens the listener at a path that no other balancer uses.
    ///
    /// # Errors
    ///
    /// Returns an error if another balancer listens there, or the socket file cannot be created.
    pub fn open(
        path: &Path,
        api: Option<OwnedFd>,
        controller: Option<Arc<dyn ResidentController>>,
    ) -> Result<Self, HotRestartError> {
        if UnixStream::connect(path).is_ok() {
            return Err(HotRestartError::InUse(path.to_owned()));
        }
        let error = |error| HotRestartError::Path { path: path.to_owned(), error };
        // Remove the socket file of a dead process, but no other kind of file.
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            fs::remove_file(path).map_err(error)?;
        }
        let listener = UnixListener::bind(path).map_err(error)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(error)?;
        let mut listener = HotRestartListener::on(listener, path, (api, controller)).map_err(error)?;
        listener.take_ownership();
        Ok(listener)
    }

    /// Creates a listener over the predecessor's socket. The predecessor owns the file until
    /// [`HotRestartListener::take_ownership`].
    pub(super) fn on(
        listener: UnixListener,
        path: &Path,
        (api, controller): (Option<OwnedFd>, Option<Arc<dyn ResidentController>>),
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (path, unread_requests, requests) = (path.to_owned(), Arc::default(), bounded(1));
        Ok(HotRestartListener { listener, path, api, controller, unread_requests, requests, keeps_file: true })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Returns the sockets to transfer: the listener, and the API's listener if there is one.
    pub(super) fn sockets(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.listener.as_fd(), self.api.as_ref().map(AsFd::as_fd))
    }

    /// Returns the embedded controller of this process.
    pub(super) fn controller(&self) -> Option<&dyn ResidentController> {
        self.controller.as_deref()
    }

    /// Accepts connections. A thread reads each request and wakes the balancer.
    pub(crate) fn accept(&self, waker: &Waker) {
        while let Ok((socket, _)) = self.listener.accept() {
            if self.unread_requests.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
                self.unread_requests.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (unread_requests, requests, waker) =
                (Arc::clone(&self.unread_requests), self.requests.0.clone(), waker.clone());
            let spawned = std::thread::Builder::new().name("hot-restart".into()).spawn(move || {
                if let Err(error) = read_request(socket, &requests) {
                    tracing::warn!(%error, "hot restart requested by an invalid peer; ignored");
                }
                unread_requests.fetch_sub(1, Ordering::Relaxed);
                waker.wake();
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "hot restart socket cannot be read");
                self.unread_requests.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the channel of the next successor, if one waits.
    pub(super) fn next(&self) -> Option<HotRestartChannel> {
        self.requests.1.try_recv().ok()
    }

    /// Makes this process the owner of the socket file.
    pub(super) fn take_ownership(&mut self) {
        self.keeps_file = false;
    }

    /// Makes another process the owner of the socket file.
    pub(super) fn release_ownership(&mut self) {
        self.keeps_file = true;
    }
}

impl Drop for HotRestartListener {
    fn drop(&mut self) {
        if !self.keeps_file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a request and passes its channel to the balancer.
fn read_request(socket: UnixStream, requests: &Sender<HotRestartChannel>) -> io::Result<()> {
    let mut channel = HotRestartChannel::new(socket, STEP_TIMEOUT, ProgressCounter::default())?;
    if !channel.peer()?.1 {
        return Err(io::Error::other("it is another user's process"));
    }
    let reason = match channel.receive()? {
        SuccessorMessage::TakeOver { format: FORMAT } => match requests.try_send(channel) {
            Ok(()) => return Ok(()),
            Err(refused) => {
                channel = refused.into_inner();
                "another process takes over already".to_owned()
            }
        },
        SuccessorMessage::TakeOver { format } => {
            format!(
                "it hands over in the form {FORMAT:?}, which is not the other's, {format:?}: the releases are too far apart"
            )
        }
        SuccessorMessage::Ready | SuccessorMessage::Serving => return Err(io::ErrorKind::InvalidData.into()),
    };
    channel.send(&PredecessorMessage::Refused(reason))
}
