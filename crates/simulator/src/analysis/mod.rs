//! Computation of figures from measurements.

pub mod growth;
pub mod saturation;
pub mod timeline;
