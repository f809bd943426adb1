//! Changes of the state machine since they were last stored.

/// Changes that are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct DirtyState {
    /// Sessions that were changed, created or removed; may contain duplicates.
    pub(crate) sessions: Vec<u64>,
    /// True if the associations have changed.
    pub(crate) node: bool,
}
