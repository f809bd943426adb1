//! What an experiment leaves: `summary.json` with our figures beside the paper's and the baseline's, SVG plots, and CSV
//! tables with all that was measured.

mod machine;
mod measured;
pub mod plot;
mod summary;
mod table;
mod write;

pub use machine::Machine;
pub use measured::Measured;
pub use summary::{Baseline, Bound, Configuration, Figure, Paper, Summary};
pub use table::Table;
pub use write::{Folder, WriteError};
