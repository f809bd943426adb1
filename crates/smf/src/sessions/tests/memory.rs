use crate::storage;
use crossbeam_channel::never;
use std::sync::{Arc, LazyLock, Mutex};
use vireo_ops::database::{Database, DatabaseJob, OperationResult, Pending};
use vireo_ops::metrics::{Metrics, StateFunction};
use vireo_store::Version;
use vireo_store::records::{
    Change, Codec, LIFE, MemoryRecords, Name, Operations, RecordError, RecordStore, StoredRecord,
};
use vireo_types::Ltmsi;

/// Metrics that no test reads.
pub(super) static METRICS: LazyLock<Arc<Metrics>> = LazyLock::new(|| Arc::new(Metrics::new()));

/// In-memory records. All clones share the content and the operation counts.
#[derive(Clone)]
pub(super) struct Memory(Arc<Mutex<MemoryRecords>>);

impl Memory {
    pub(super) fn new() -> Self {
        Memory(Arc::new(Mutex::new(MemoryRecords::new(LIFE))))
    }

    /// Executes a job as the SMF's database thread does.
    pub(super) fn carry_out(&self, codec: Codec, job: DatabaseJob) -> (Ltmsi, OperationResult) {
        let (metrics, stop) = (Arc::clone(&METRICS), Arc::default());
        let (records, function, node) = (Box::new(self.clone()), StateFunction::Smf, storage::NODE);
        let mut database = Database { records, codec, jobs: never(), metrics, stop, function, node };
        let mut answers = Vec::new();
        let works = database
            .run_pending(&mut [Pending::new(job)].into(), &mut |name, done| answers.push((storage::ltmsi(name), done)));
        assert!(works && answers.len() == 1, "memory is always there");
        answers.remove(0)
    }
}

impl RecordStore for Memory {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.0.lock().unwrap().load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.0.lock().unwrap().change(changes)
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.0.lock().unwrap().list_ids(collection)
    }

    fn operations(&self) -> Operations {
        self.0.lock().unwrap().operations()
    }
}
