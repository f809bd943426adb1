//! Metric of dropped log lines, of this process and its workers.

use vireo_logging::counts::{self, Counts};

const NAME: &str = "vireo_log_lines_dropped_total";

/// Returns `vireo_log_lines_dropped_total{reason}` in the Prometheus text format.
pub(super) fn text() -> String {
    let Counts { dropped, suppressed } = counts::all();
    format!(
        "# HELP {NAME} Log lines not written: standard error full, closed or slow (output), over the limit of their kind or peer \
         (rate).\n# TYPE {NAME} counter\n{NAME}{{reason=\"output\"}} {dropped}\n{NAME}{{reason=\"rate\"}} {suppressed}\n"
    )
}
