//! The parent's end of a shard's socket.

use super::message::{self, ConfigText, FromShard, Reply, Request, ToShard};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use vireo_sctp::Waker;

/// Maximum time for which a message to a shard may wait: a stopped shard reads none.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
/// Replies that wait. Each request waits for its reply, or drops it later.
const REPLIES: usize = 16;

/// Event of a shard, for its supervisor.
#[derive(Debug)]
pub(super) struct ShardEvent {
    pub(super) shard: usize,
    /// Process of the shard.
    pub(super) pid: u32,
    pub(super) kind: ShardEventKind,
}

#[derive(Debug)]
pub(super) enum ShardEventKind {
    Ready { host: u16 },
    Failed(String),
}

/// Connection to one process of a shard.
#[derive(Debug)]
pub(super) struct ShardLink {
    stream: Mutex<UnixStream>,
    /// Number of the last request. Locked until its reply: the next request waits.
    last: Mutex<u32>,
    replies: Receiver<(u32, Reply)>,
}

impl ShardLink {
    /// Creates the link of a new process. A thread passes its events on until the process ends.
    pub(super) fn start(
        stream: UnixStream,
        (shard, pid): (usize, u32),
        events: Sender<ShardEvent>,
        waker: Waker,
    ) -> io::Result<Self> {
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        let mut incoming = stream.try_clone()?;
        let (sender, replies) = bounded(REPLIES);
        let run = move || {
            while let Ok(message) = message::read(&mut incoming) {
                let kind = match message {
                    FromShard::Ready { host } => ShardEventKind::Ready { host },
                    FromShard::Failed(why) => ShardEventKind::Failed(why),
                    FromShard::Reply { number, reply } => {
                        // Nobody waits for so many any more.
                        let _ = sender.try_send((number, reply));
                        continue;
                    }
                };
                if events.send(ShardEvent { shard, pid, kind }).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        std::thread::Builder::new().name(format!("shard-{shard}")).spawn(run)?;
        Ok(ShardLink { stream: Mutex::new(stream), last: Mutex::default(), replies })
    }

    /// Sends a message that needs no reply.
    pub(super) fn send(&self, message: &impl serde::Serialize) -> io::Result<()> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        message::write(&mut stream, message)
    }

    /// Has the shard apply a configuration that was read again.
    pub(super) fn reload(&self, config: ConfigText) {
        // A shard that does not read ends, and the next one gets the configuration then.
        let _ = self.send(&ToShard::Reload(config));
    }

    /// Sends a request. Returns its reply, or `None` if the shard does not answer until `deadline`.
    pub(super) fn request(&self, request: Request, deadline: Instant) -> Option<Reply> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.wrapping_add(1);
        let expected = *last;
        self.send(&ToShard::Request { number: expected, request }).ok()?;
        loop {
            let (number, reply) = self.replies.recv_deadline(deadline).ok()?;
            // A late reply to an earlier request is dropped.
            if number == expected {
                return Some(reply);
            }
        }
    }
}
