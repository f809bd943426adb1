//! Hot-restart listener: unix socket where a successor requests a hot restart.
//!
//! Only processes of the same user or root are accepted.

use super::channel::HotRestartChannel;
use super::{HotRestartError, PredecessorMessage, STEP, SuccessorMessage, WORDS};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vireo_cluster::ProgressCounter;
use vireo_cluster::ResidentController;
use vireo_sctp::Waker;

/// Maximum of simultaneous requests. Further connections are closed.
const ASKING: usize = 4;

/// The listener and the resources that move to the successor.
#[derive(Debug)]
pub(crate) struct HotRestartListener {
    listener: UnixListener,
    path: PathBuf,
    /// TCP listener of the API, which moves to the successor.
    api: Option<OwnedFd>,
    /// Embedded controller of this process, which moves to the successor.
    controller: Option<Arc<dyn ResidentController>>,
    /// Connections whose request has not been read yet.
    asking: Arc<AtomicUsize>,
    asked: (Sender<HotRestartChannel>, Receiver<HotRestartChannel>),
    /// True if another process owns the socket file; `Drop` then keeps the file.
    given: bool,
}

impl HotRestartListener {
    /// Opens the listener at a path that no other balancer uses.
    ///
    /// # Errors
    ///
    /// Returns an error if another balancer listens there, or the socket file cannot be created.
    pub(crate) fn open(
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
        let mut desk = HotRestartListener::on(listener, path, (api, controller)).map_err(error)?;
        desk.take_ownership();
        Ok(desk)
    }

    /// Creates a listener over the predecessor's socket. The predecessor owns the file until
    /// [`HotRestartListener::take_ownership`].
    pub(super) fn on(
        listener: UnixListener,
        path: &Path,
        (api, controller): (Option<OwnedFd>, Option<Arc<dyn ResidentController>>),
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (path, asking, asked) = (path.to_owned(), Arc::default(), bounded(1));
        Ok(HotRestartListener { listener, path, api, controller, asking, asked, given: true })
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
    pub(in crate::balancer) fn accept(&self, waker: &Waker) {
        while let Ok((socket, _)) = self.listener.accept() {
            if self.asking.fetch_add(1, Ordering::Relaxed) >= ASKING {
                self.asking.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (asking, asked, waker) = (Arc::clone(&self.asking), self.asked.0.clone(), waker.clone());
            let heard = std::thread::Builder::new().name("handover".into()).spawn(move || {
                if let Err(error) = words(socket, &asked) {
                    tracing::warn!(%error, "somebody has asked this balancer to hand over, and is not followed up");
                }
                asking.fetch_sub(1, Ordering::Relaxed);
                waker.wake();
            });
            if let Err(error) = heard {
                tracing::warn!(%error, "whoever asks this balancer to hand over is not heard");
                self.asking.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the channel of the next successor, if one waits.
    pub(super) fn next(&self) -> Option<HotRestartChannel> {
        self.asked.1.try_recv().ok()
    }

    /// Makes this process the owner of the socket file.
    pub(super) fn take_ownership(&mut self) {
        self.given = false;
    }

    /// Makes another process the owner of the socket file.
    pub(super) fn give(&mut self) {
        self.given = true;
    }
}

impl Drop for HotRestartListener {
    fn drop(&mut self) {
        if !self.given {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a request and passes its channel to the balancer.
fn words(socket: UnixStream, asked: &Sender<HotRestartChannel>) -> io::Result<()> {
    let mut line = HotRestartChannel::new(socket, STEP, ProgressCounter::default())?;
    if !line.peer()?.1 {
        return Err(io::Error::other("it is another user's process"));
    }
    let why = match line.receive()? {
        SuccessorMessage::TakeOver { words: WORDS } => match asked.try_send(line) {
            Ok(()) => return Ok(()),
            Err(refused) => {
                line = refused.into_inner();
                "another process takes over already".to_owned()
            }
        },
        SuccessorMessage::TakeOver { words } => {
            format!(
                "it hands over in the form {WORDS:?}, which is not the other's, {words:?}: the releases are too far apart"
            )
        }
        SuccessorMessage::Ready | SuccessorMessage::Serving => return Err(io::ErrorKind::InvalidData.into()),
    };
    line.send(&PredecessorMessage::Refused(why))
}
