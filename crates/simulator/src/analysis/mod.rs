//! From what was measured to figures.

pub mod growth;
pub mod saturation;
pub mod timeline;
