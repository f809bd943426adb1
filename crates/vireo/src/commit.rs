//! Git commit of the source.

/// Git commit of the source, or `unknown`.
pub(crate) const COMMIT: &str = env!("VIREO_COMMIT");
