//! Output of an experiment: summary, plots and tables.
//!
//! `summary.json` has our figures beside the paper's and the baseline's. Plots are SVG.
//! Compressed CSV tables have the measurements.

mod machine;
mod measured;
mod offered_load;
mod summary;
mod table;
mod write;

pub use machine::Machine;
pub use measured::Measured;
pub use offered_load::OfferedLoad;
pub(crate) use summary::all_met;
pub use summary::{Baseline, Bound, Configuration, Figure, Paper, Summary};
pub use table::Table;
pub use write::{Folder, WriteError, read_table};
