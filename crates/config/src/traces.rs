//! `[traces]`: where traces of procedures are sent.

use crate::problems::Problems;
use crate::receiver::{Receiver, receiver};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Traces {
    /// URL; empty = none.
    collector: String,
    /// PEM file; empty = those of this machine.
    authorities: String,
    sample_ratio: f64,
}

impl Default for Traces {
    fn default() -> Self {
        Traces { collector: String::new(), authorities: String::new(), sample_ratio: 0.01 }
    }
}

/// Returns the collector and the sampled part, if there is a collector.
pub(super) fn traces(file: &Traces, problems: &mut Problems) -> Option<(Receiver, f64)> {
    problems.check((0.0..=1.0).contains(&file.sample_ratio), "traces.sample-ratio", "0 to 1 is allowed");
    let receiver = receiver(("traces.collector", &file.collector), &file.authorities, problems);
    receiver.map(|receiver| (receiver, file.sample_ratio))
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        let file = crate::load::parse(text, Env::prefixed("NO_VARIABLE_BEGINS_SO_"))?;
        crate::check::config(&file)
    }

    #[test]
    fn traces_are_off_unless_configured() {
        assert_eq!(load("").unwrap().traces, None);
        let (receiver, ratio) = load("traces.collector = 'https://c.example/v1/traces'").unwrap().traces.unwrap();
        assert_eq!((receiver.authorities, ratio), (None, 0.01));
    }

    #[test]
    fn wrong_receivers_are_refused() {
        for (text, expected) in [
            ("traces.collector = 'c.example:4318'", "traces.collector: an http:// or https:// URL"),
            ("traces.sample-ratio = 1.5", "traces.sample-ratio: 0 to 1 is allowed"),
            ("alarms.webhook = 'http://u:p@h/'", "alarms.webhook: an http:// or https:// URL"),
        ] {
            let problems = load(text).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}: {problems:?}");
        }
    }
}
