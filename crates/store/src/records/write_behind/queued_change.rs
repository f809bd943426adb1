use crate::Version;
use crate::records::{Change, RecordPart};

/// An owned copy of a change in the queue.
#[derive(Debug)]
pub(super) struct QueuedChange {
    kind: Kind,
    /// The expected version; for a creation, the version before it.
    version: Version,
    octets: Vec<u8>,
    parts: Vec<(String, Vec<u8>)>,
    /// True if a failed attempt may have been applied.
    pub(super) doubtful: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Commit,
    Replace,
    Update,
    Create,
    Remove,
}

impl QueuedChange {
    pub(super) fn new(change: &Change<'_>) -> Self {
        let (kind, version) = match change {
            Change::Commit { expected, .. } => (Kind::Commit, *expected),
            Change::Replace { expected, .. } => (Kind::Replace, *expected),
            Change::Update { expected, .. } => (Kind::Update, *expected),
            Change::Create { before, .. } => (Kind::Create, *before),
            Change::Remove { expected } => (Kind::Remove, *expected),
        };
        let octets = change.octets().unwrap_or_default().to_vec();
        let parts = change.parts().iter().map(|part| (part.name.to_owned(), part.octets.to_vec())).collect();
        QueuedChange { kind, version, octets, parts, doubtful: false }
    }

    /// Returns borrowed parts for [`QueuedChange::change`].
    pub(super) fn parts(&self) -> Vec<RecordPart<'_>> {
        self.parts.iter().map(|(name, octets)| RecordPart { name, octets }).collect()
    }

    pub(super) fn change<'a>(&'a self, parts: &'a [RecordPart<'a>]) -> Change<'a> {
        let expected = self.version;
        match self.kind {
            Kind::Commit => Change::Commit { expected, octets: &self.octets },
            Kind::Replace => Change::Replace { expected, parts },
            Kind::Update => Change::Update { expected, parts },
            Kind::Create => Change::Create { before: expected, parts },
            Kind::Remove => Change::Remove { expected },
        }
    }

    /// Returns the size of the contents in bytes.
    pub(super) fn size(&self) -> usize {
        let parts: usize = self.parts.iter().map(|(name, octets)| name.len() + octets.len()).sum();
        self.octets.len() + parts
    }

    pub(super) fn size_of(change: &Change<'_>) -> usize {
        let parts: usize = change.parts().iter().map(|part| part.name.len() + part.octets.len()).sum();
        change.octets().map_or(0, <[u8]>::len) + parts
    }
}
