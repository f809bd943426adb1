//! File of the choices of serving hosts, for measurements.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use vireo_core::placement::balancer::TracedChoice;

/// Maximum number of choices in a file: 30 MB.
const CHOICES: u32 = 100_000;

/// File with one choice per line, as JSON. It ends after [`CHOICES`] choices or at the first error.
#[derive(Debug)]
pub(super) struct ChoiceTrace {
    file: BufWriter<File>,
    /// Number of choices that may follow; 0 after an error.
    remaining: u32,
}

impl ChoiceTrace {
    /// Creates the file, or truncates it.
    pub(super) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(ChoiceTrace { file: BufWriter::new(File::create(path)?), remaining: CHOICES })
    }

    /// Adds a choice. Errors end the trace, because measurements must not disturb the balancer.
    pub(super) fn add(&mut self, choice: &TracedChoice) {
        if self.remaining == 0 {
            return;
        }
        self.remaining -= 1;
        if let Err(error) = self.write(choice) {
            tracing::warn!(%error, "trace of choices ended");
            self.remaining = 0;
        }
    }

    fn write(&mut self, choice: &TracedChoice) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.file, choice)?;
        self.file.write_all(b"\n")?;
        if self.remaining == 0 { self.file.flush() } else { Ok(()) }
    }
}
