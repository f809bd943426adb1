//! Thread of the subscriber database.
//!
//! A `Store` blocks, and must not be dropped on the thread of the API. Requests wait in a bounded
//! queue.

use crate::management::OpenDatabase;
use crate::problem::Problem;
use axum::http::StatusCode;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;
use vireo_subscribers::{Store, StoreError};

/// Requests that may wait.
const QUEUE: usize = 32;

type Job = Box<dyn FnOnce(&mut Option<Store>) + Send>;

/// Access to the thread.
pub(crate) struct Database(SyncSender<Job>);

impl Database {
    /// Starts the thread. It opens the database with the first request, and again after a failure.
    ///
    /// # Errors
    ///
    /// Returns an error if the system gives no thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(QUEUE);
        std::thread::Builder::new().name("api-subscribers".into()).spawn(move || {
            let mut store = None;
            for job in queue {
                job(&mut store);
            }
        })?;
        Ok(Database(jobs))
    }

    /// Runs a request on the thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        open: OpenDatabase,
        act: impl FnOnce(&mut Store) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |slot| {
            let opened = match slot.take() {
                Some(store) => Ok(store),
                None => open().map_err(|error| problem(&error)),
            };
            let result = opened.and_then(|store| act(slot.insert(store)));
            if result.as_ref().is_err_and(Problem::is_server_error) {
                // The next request opens the database again.
                *slot = None;
            }
            let _ = reply.send(result);
        });
        match self.0.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return Err(Problem::unavailable("the subscriber database has too many requests: try again"));
            }
        }
        answer.await.unwrap_or_else(|_| Err(Problem::unavailable("the request was not executed: try again")))
    }
}

/// Returns the problem details of a database error.
pub(crate) fn problem(error: &StoreError) -> Problem {
    match error {
        StoreError::Exists(_) => Problem::conflict("the subscriber is there already: change it with PUT"),
        StoreError::MsisdnTaken(_) => Problem::conflict("another subscriber has this MSISDN: change that one first"),
        StoreError::Locked { .. } | StoreError::Missing { .. } | StoreError::Open { .. } => Problem::unavailable(error),
        StoreError::Unreachable { .. } | StoreError::Insecure { .. } => Problem::unavailable(error),
        _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
