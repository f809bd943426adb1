//! Imports that run, and the last ones that have ended.
//!
//! An import has a thread and a database connection of its own. A process that ends meanwhile
//! imports nothing: it is one transaction.

use crate::management::OpenDatabase;
use crate::problem::Problem;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use vireo_subscribers::{OnExisting, StoreError, Subscriber};
use vireo_types::Supi;

/// Imports that are stored.
const MAX_STORED_IMPORTS: usize = 16;

/// Handling of subscribers that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    Fail,
    Replace,
    Skip,
}

/// Progress of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) rows: u64,
    pub(crate) done: u64,
    pub(crate) state: ImportState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImportState {
    Running,
    Done,
    /// Nothing was imported, for this reason.
    Failed(String),
}

/// All imports of this process.
#[derive(Clone, Default)]
pub(crate) struct Imports(Arc<Mutex<StoredImports>>);

#[derive(Default)]
struct StoredImports {
    /// Number of the last import.
    last: u64,
    all: VecDeque<(u64, Progress)>,
}

impl Imports {
    /// Begins an import on a thread of its own. `ended` is called with its result.
    pub(crate) fn begin(
        &self,
        open: OpenDatabase,
        records: Vec<Subscriber>,
        conflict: Conflict,
        ended: impl FnOnce(Result<u64, String>) + Send + 'static,
    ) -> Result<u64, Problem> {
        let id = {
            let mut stored = self.lock();
            if stored.all.iter().any(|(_, progress)| progress.state == ImportState::Running) {
                return Err(Problem::conflict("another import is running: wait until it has ended"));
            }
            stored.last += 1;
            let (id, rows) = (stored.last, records.len() as u64);
            stored.all.push_back((id, Progress { rows, done: 0, state: ImportState::Running }));
            if stored.all.len() > MAX_STORED_IMPORTS {
                stored.all.pop_front();
            }
            id
        };
        let own = self.clone();
        let thread = std::thread::Builder::new().name("api-import".into()).spawn(move || {
            let result = import(&open, records, conflict, &|done| own.change(id, |progress| progress.done = done));
            let result = result.map_err(|error| error.to_string());
            ended(result.clone());
            own.change(id, |progress| {
                progress.state = match &result {
                    Ok(_) => ImportState::Done,
                    Err(reason) => ImportState::Failed(reason.clone()),
                };
            });
        });
        if let Err(error) = thread {
            self.change(id, |progress| progress.state = ImportState::Failed(error.to_string()));
            return Err(Problem::unavailable(error));
        }
        Ok(id)
    }

    /// Returns the progress of an import.
    pub(crate) fn progress(&self, id: u64) -> Option<Progress> {
        self.lock().all.iter().find(|(known, _)| *known == id).map(|(_, progress)| progress.clone())
    }

    fn change(&self, id: u64, act: impl FnOnce(&mut Progress)) {
        if let Some((_, progress)) = self.lock().all.iter_mut().find(|(known, _)| *known == id) {
            act(progress);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoredImports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn import(
    open: &OpenDatabase,
    mut records: Vec<Subscriber>,
    conflict: Conflict,
    progress: &dyn Fn(u64),
) -> Result<u64, StoreError> {
    let mut store = open()?;
    if conflict == Conflict::Skip {
        let supis: Vec<Supi> = records.iter().map(|record| record.supi).collect();
        let found = store.get_many(&supis, &mut |_| {})?;
        let found: HashSet<Supi> = found.into_iter().map(|subscriber| subscriber.supi).collect();
        records.retain(|record| !found.contains(&record.supi));
    }
    let existing = if conflict == Conflict::Replace { OnExisting::Replace } else { OnExisting::Refuse };
    store.import(&records, existing, &mut |done| progress(done))
}
