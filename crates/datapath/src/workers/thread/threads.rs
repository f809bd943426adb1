//! Threads of a user plane, and their stop signal.

use crate::sys::poll::Waker;
use crate::sys::run_on;
use std::io;
use std::thread::JoinHandle;
use tracing::error;

/// Threads that end at a common stop signal.
#[derive(Debug)]
pub(crate) struct WorkerThreads {
    stop: Waker,
    handles: Vec<JoinHandle<()>>,
}

impl WorkerThreads {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(WorkerThreads { stop: Waker::new()?, handles: vec![] })
    }

    /// Returns the stop signal. It stays readable, so that every thread sees it.
    pub(crate) fn stop_signal(&self) -> &Waker {
        &self.stop
    }

    /// Returns the number of started threads.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Starts a thread, on the processor `core` if set.
    pub(crate) fn spawn(
        &mut self,
        name: String,
        core: Option<usize>,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let run = move || {
            let pinned = core.map_or(Ok(()), run_on);
            if let Err(error) = pinned.and_then(|()| run()) {
                error!("a user plane worker ended: {error}");
            }
        };
        self.handles.push(std::thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// Returns true if a thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.handles.iter().any(JoinHandle::is_finished)
    }

    /// Sends the stop signal, without waiting.
    pub(crate) fn stop(&self) {
        self.stop.wake();
    }

    /// Waits for the end of all threads.
    pub(crate) fn join(&mut self) {
        for thread in self.handles.drain(..) {
            // A thread that panicked has already logged it.
            let _ = thread.join();
        }
    }
}
