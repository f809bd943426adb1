//! Computation of figures from measurements.

pub(crate) mod growth;
pub(crate) mod saturation;
