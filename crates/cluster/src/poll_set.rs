//! Waiting for the sockets of all parts of a thread.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;
use std::time::Duration;

/// Sockets that a thread waits for.
pub(crate) type PollSet<'a> = SmallVec<[PollFd<'a>; 16]>;

/// Part of a thread that has sockets.
pub(crate) trait Sockets {
    /// Adds its sockets.
    fn register<'a>(&'a self, set: &mut PollSet<'a>);

    /// Takes for each registered socket, in their order, whether it is ready.
    fn on_polled(&mut self, ready: &mut dyn Iterator<Item = bool>);
}

/// Returns the events to wait for on a connection.
pub(crate) fn interest(wants_room: bool, reads: bool) -> PollFlags {
    let read = if reads { PollFlags::IN } else { PollFlags::empty() };
    if wants_room { read | PollFlags::OUT } else { read }
}

/// Waits until a socket of the parts is ready, at most for this time.
pub(crate) fn wait(parts: &mut [&mut dyn Sockets], at_most: Duration) -> rustix::io::Result<()> {
    let mut set = PollSet::new();
    parts.iter().for_each(|part| part.register(&mut set));
    let at_most = Timespec { tv_sec: at_most.as_secs() as _, tv_nsec: at_most.subsec_nanos() as _ };
    let polled = match poll(&mut set, Some(&at_most)) {
        Err(rustix::io::Errno::INTR) => Ok(0),
        other => other,
    };
    let ready: SmallVec<[bool; 16]> = set.iter().map(|fd| !fd.revents().is_empty()).collect();
    drop(set);
    let mut ready = ready.into_iter();
    parts.iter_mut().for_each(|part| part.on_polled(&mut ready));
    polled.map(|_| ())
}
