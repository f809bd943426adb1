//! Responses of the core's API at one time.

use std::time::Instant;
use vireo_client::Api;
use vireo_config::Failure;
use vireo_ops::api::Status;

/// Status and metrics of a core at one time.
#[derive(Clone, Debug)]
pub(super) struct ApiSample {
    pub(super) at: Instant,
    pub(super) status: Status,
    pub(super) metrics: Metrics,
}

/// Metrics of the Prometheus text format, as name with labels and value.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics(Vec<(String, f64)>);

impl ApiSample {
    /// Requests status and metrics from the core.
    pub(super) fn take(api: &Api) -> Result<Self, Failure> {
        let status = serde_json::from_str(&api.fetch("/status?limit=0")?)
            .map_err(|e| Failure(format!("{api}: unexpected answer ({e}); use a vireo of the release of the core")))?;
        let metrics = Metrics::read(&api.fetch("/metrics")?);
        Ok(ApiSample { at: Instant::now(), status, metrics })
    }
}

impl Metrics {
    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.rsplit_once(' '));
        Metrics(pairs.filter_map(|(series, value)| Some((series.to_owned(), value.parse().ok()?))).collect())
    }

    /// Returns the sum of the series of a name whose labels contain `label`, or `None` without such
    /// a series.
    pub(super) fn sum(&self, name: &str, label: &str) -> Option<f64> {
        let of = |series: &str| match series.strip_prefix(name) {
            Some(labels) => (labels.is_empty() || labels.starts_with('{')) && labels.contains(label),
            None => false,
        };
        let mut values = self.0.iter().filter(|(series, _)| of(series)).map(|(_, value)| *value).peekable();
        values.peek()?;
        Some(values.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_label() {
        let text = "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\",y=\"2\"} 4.5\nab 7\n\nb 1e2\nbroken\n";
        let metrics = Metrics::read(text);
        assert_eq!(metrics.sum("a", ""), Some(7.5));
        assert_eq!(metrics.sum("a", "x=\"1\""), Some(3.0));
        assert_eq!((metrics.sum("ab", ""), metrics.sum("b", "")), (Some(7.0), Some(100.0)));
        assert_eq!((metrics.sum("a", "x=\"3\""), metrics.sum("c", "")), (None, None));
    }
}
