//! Notifications to the service manager, by systemd's protocol `sd_notify`.
//!
//! `NOTIFY_SOCKET` names a datagram socket, which receives `READY=1`, `RELOADING=1`, `STOPPING=1`
//! and `WATCHDOG=1`. Without the variable nothing is sent. A failed send is logged and has no
//! further effect: the service manager acts on a missing notification.

use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Connection to the service manager.
pub(crate) struct ServiceManager {
    /// `None` if no service manager waits for notifications.
    socket: Option<UnixDatagram>,
    watchdog: Option<Watchdog>,
}

/// Watchdog of the service manager, which ends the process if notifications are missing.
struct Watchdog {
    /// Time between notifications: half the limit of the service manager.
    interval: Duration,
    notified: Instant,
    /// Iterations of each watched thread at the last notification.
    progress: Vec<u64>,
}

impl Watchdog {
    /// Returns true if a notification is due and every watched thread has made progress since the
    /// last one.
    fn advance(&mut self, now: Instant, progress: Vec<u64>) -> bool {
        let has_hung = progress.iter().zip(&self.progress).any(|(now, before)| now == before);
        if now.saturating_duration_since(self.notified) < self.interval || has_hung {
            return false;
        }
        (self.notified, self.progress) = (now, progress);
        true
    }
}

impl ServiceManager {
    /// Connects to the service manager that the environment names.
    pub(crate) fn from_env() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = socket.and_then(|name| connect(&name).inspect_err(warn).ok());
        let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        // The variables are inherited: they may concern the parent.
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|limit| is_own && *limit > 0);
        let watchdog = limit.filter(|_| socket.is_some()).map(|limit| Watchdog {
            interval: Duration::from_micros(limit / 2),
            notified: Instant::now(),
            progress: Vec::new(),
        });
        ServiceManager { socket, watchdog }
    }

    /// Returns the time between two watchdog notifications, if the service manager has a watchdog.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.as_ref().map(|watchdog| watchdog.interval)
    }

    /// Reports that the process serves, after its start or a reload.
    pub(crate) fn report_ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the process reads its configuration again.
    pub(crate) fn report_reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Reports that the process ends.
    pub(crate) fn report_stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Notifies the watchdog if that is due and every watched thread has made progress.
    pub(crate) fn keep_alive(&mut self, progress: Vec<u64>) {
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.advance(Instant::now(), progress)) {
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            warn(&error);
        }
    }
}

/// Connects to a path, or to an abstract name, which begins with `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn warn(error: &io::Error) {
    tracing::warn!(%error, "notification to the service manager failed (NOTIFY_SOCKET)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_needs_progress_in_every_thread() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut watchdog = Watchdog { interval: second * 5, notified: start, progress: Vec::new() };
        assert!(!watchdog.advance(start + second * 4, vec![4, 4]), "not due");
        assert!(watchdog.advance(start + second * 5, vec![5, 5]));
        assert!(!watchdog.advance(start + second * 10, vec![9, 5]), "the second thread hangs");
        assert!(!watchdog.advance(start + second * 11, vec![5, 9]), "the first thread hangs");
        assert!(watchdog.advance(start + second * 12, vec![9, 9]));
    }

    #[test]
    fn watchdog_without_threads_follows_the_caller() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut watchdog = Watchdog { interval: second, notified: start, progress: Vec::new() };
        assert!(watchdog.advance(start + second, Vec::new()));
        assert!(!watchdog.advance(start + second, Vec::new()), "not due");
        assert!(watchdog.advance(start + second * 2, Vec::new()));
    }
}
