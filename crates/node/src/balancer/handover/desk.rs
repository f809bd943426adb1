//! Where a balancer is asked to hand over: a unix socket of its user's.

use super::line::Line;
use super::{HandoverError, STEP, ToNew, ToOld, WORDS};
use crate::cluster::Turns;
use crate::controller::Beside;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vireo_sctp::Waker;

/// Who may be asking at a time: more are turned away.
const ASKING: usize = 4;

/// It.
#[derive(Debug)]
pub(crate) struct Desk {
    listener: UnixListener,
    path: PathBuf,
    /// What the status interface listens by, which goes along.
    api: Option<OwnedFd>,
    /// The controller of this process, if there is one, which goes along, too.
    controller: Option<Arc<Beside>>,
    /// Those whose words are waited for.
    asking: Arc<AtomicUsize>,
    asked: (Sender<Line>, Receiver<Line>),
    /// The file is another process's now.
    given: bool,
}

impl Desk {
    /// Opens it at a path, where nobody else may be asked.
    ///
    /// # Errors
    ///
    /// When somebody is, or there can be no such file.
    pub(crate) fn open(
        path: &Path,
        api: Option<OwnedFd>,
        controller: Option<Arc<Beside>>,
    ) -> Result<Self, HandoverError> {
        if UnixStream::connect(path).is_ok() {
            return Err(HandoverError::InUse(path.to_owned()));
        }
        let error = |error| HandoverError::Path { path: path.to_owned(), error };
        // What a process has left that is gone, and nothing else.
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            fs::remove_file(path).map_err(error)?;
        }
        let listener = UnixListener::bind(path).map_err(error)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(error)?;
        let mut desk = Desk::on(listener, path, (api, controller)).map_err(error)?;
        desk.own();
        Ok(desk)
    }

    /// One that another process has opened, and that is its until [`Desk::own`].
    pub(super) fn on(
        listener: UnixListener,
        path: &Path,
        (api, controller): (Option<OwnedFd>, Option<Arc<Beside>>),
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (path, asking, asked) = (path.to_owned(), Arc::default(), bounded(1));
        Ok(Desk { listener, path, api, controller, asking, asked, given: true })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// What goes along: what it listens by, and the status interface if there is one.
    pub(super) fn sockets(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.listener.as_fd(), self.api.as_ref().map(AsFd::as_fd))
    }

    /// The controller of this process.
    pub(super) fn controller(&self) -> Option<&Beside> {
        self.controller.as_deref()
    }

    /// Somebody is there: what he wants is heard on a thread of its own, which wakes this one.
    pub(in crate::balancer) fn hear(&self, waker: &Waker) {
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

    /// Who wants to take over, if somebody does.
    pub(super) fn next(&self) -> Option<Line> {
        self.asked.1.try_recv().ok()
    }

    /// It is this process's.
    pub(super) fn own(&mut self) {
        self.given = false;
    }

    /// It is another process's.
    pub(super) fn give(&mut self) {
        self.given = true;
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if !self.given {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Hears what somebody wants, and passes it on.
fn words(socket: UnixStream, asked: &Sender<Line>) -> io::Result<()> {
    let mut line = Line::new(socket, STEP, Turns::default())?;
    if !line.peer()?.1 {
        return Err(io::Error::other("it is another user's process"));
    }
    let why = match line.take()? {
        ToOld::TakeOver { words: WORDS } => match asked.try_send(line) {
            Ok(()) => return Ok(()),
            Err(refused) => {
                line = refused.into_inner();
                "another process takes over already".to_owned()
            }
        },
        ToOld::TakeOver { words } => {
            format!(
                "it hands over in the form {WORDS:?}, which is not the other's, {words:?}: the releases are too far apart"
            )
        }
        ToOld::Ready | ToOld::Serves => return Err(io::ErrorKind::InvalidData.into()),
    };
    line.put(&ToNew::Refused(why))
}
