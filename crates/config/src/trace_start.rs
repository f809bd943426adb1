//! Start of traces by the configuration.

use crate::receiver::Receiver;
use crate::{Config, Failure};
use vireo_ops::http_post::HttpPost;
use vireo_ops::traces::{self, TracesConfig};

impl Config {
    /// Starts to record traces, if the configuration has a collector. `role` names the process.
    ///
    /// # Errors
    ///
    /// Returns an error if the authorities of the collector are not usable, or the system provides
    /// no thread.
    pub fn start_traces(&self, role: &str) -> Result<(), Failure> {
        let Some((Receiver { url, authorities }, ratio)) = &self.traces else { return Ok(()) };
        let collector = HttpPost::new(url.clone(), authorities.as_deref())
            .map_err(|error| Failure(format!("traces.authorities: {error}")))?;
        traces::start(TracesConfig { collector, ratio: *ratio }, role)
            .map_err(|error| Failure(format!("traces.collector: no thread for traces: {error}")))
    }
}
