//! From what was measured to figures.

pub mod saturation;
pub mod timeline;
