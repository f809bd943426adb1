//! CPU time of a procedure by stage, as `vireo bench host` recorded it.

use super::model::Stage;
use serde::Deserialize;
use std::collections::BTreeMap;
use vireo_config::Failure;

/// Procedure of the model: a service request with its N4 exchange, and the release that follows.
const PROCEDURE: &str = "service request and release";
/// Figure with its CPU time, with messages in memory and with SCTP.
const FIGURE: &str = "CPU per service request and release";
const MEMORY: &str = "memory per registered UE with session";

/// Way to run the core, with the stages of a procedure. The balancer is the first one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) toml: &'static str,
    pub(crate) stages: Vec<Stage>,
}

/// Costs of the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Costs {
    /// Ways that are recorded.
    pub(crate) paths: Vec<Path>,
    /// Memory of a registered UE with a session, in bytes.
    pub(crate) bytes_per_ue: f64,
}

/// Parts of a summary of `vireo bench host` that the model needs.
#[derive(Debug, Deserialize)]
struct Record {
    figures: Vec<RecordedFigure>,
    parts: BTreeMap<String, BTreeMap<String, f64>>,
}

#[derive(Debug, Deserialize)]
struct RecordedFigure {
    name: String,
    messages: Option<View>,
    with_sctp: Option<View>,
}

#[derive(Debug, Deserialize)]
struct View {
    ours: Median,
}

#[derive(Debug, Deserialize)]
struct Median {
    median: f64,
}

impl Record {
    /// Returns the medians of a figure: with messages in memory, and with SCTP.
    fn medians(&self, name: &str) -> [Option<f64>; 2] {
        let figure = self.figures.iter().find(|figure| figure.name == name);
        let median = |view: &Option<View>| view.as_ref().map(|view| view.ours.median);
        figure.map_or([None; 2], |figure| [median(&figure.messages), median(&figure.with_sctp)])
    }

    fn part(&self, procedure: &str, name: &str) -> Option<f64> {
        self.parts.get(procedure)?.get(name).copied().filter(|us| *us > 0.0)
    }
}

impl Costs {
    /// Reads the costs from a summary of `vireo bench host`.
    ///
    /// # Errors
    ///
    /// Fails if the summary lacks the procedure of the model.
    pub(crate) fn read(summary: &[u8]) -> Result<Self, Failure> {
        let record: Record = serde_json::from_slice(summary)
            .map_err(|error| Failure(format!("results/bench-host/summary.json: {error}")))?;
        let missing = |what: &str| Failure(format!("results/bench-host/summary.json: no {what}; run vireo bench host"));
        let ([Some(in_memory), Some(with_sctp)], [_, Some(bytes_per_ue)]) =
            (record.medians(FIGURE), record.medians(MEMORY))
        else {
            return Err(missing(FIGURE));
        };
        let inline = format!("{PROCEDURE}, inline");
        let stage = |name, procedure: &str, parts: &[&str]| {
            let us = parts.iter().map(|part| record.part(procedure, part)).sum::<Option<f64>>();
            us.map(|us| Stage { name, us })
        };
        let processes = [
            stage("balancer", PROCEDURE, &["balancer"]),
            stage("host", PROCEDURE, &["host"]),
            stage("worker", PROCEDURE, &["workers"]),
        ];
        let processes: Option<Vec<Stage>> = processes.into_iter().collect();
        let processes = processes.ok_or_else(|| missing(PROCEDURE))?;
        let one_thread = [stage("balancer", &inline, &["balancer"]), stage("host", &inline, &["host"])];
        let one_thread: Option<Vec<Stage>> = one_thread.into_iter().collect();
        // SCTP is work of the balancer.
        let more = (with_sctp - in_memory).max(0.0);
        let mut paths = vec![
            Path {
                name: "processes, messages in memory",
                about: "Worker processes run the steps; SCTP costs nothing.",
                toml: "",
                stages: processes.clone(),
            },
            Path {
                name: "processes, SCTP",
                about: "Worker processes run the steps; the balancer's thread also runs SCTP.",
                toml: "",
                stages: with_balancer(processes, more),
            },
        ];
        if let Some(stages) = one_thread {
            paths.push(Path {
                name: "inline, messages in memory",
                about: "The thread of the host runs the steps; SCTP costs nothing.",
                toml: INLINE,
                stages: stages.clone(),
            });
            paths.push(Path {
                name: "inline, SCTP",
                about: "The thread of the host runs the steps; the balancer's thread also runs SCTP.",
                toml: INLINE,
                stages: with_balancer(stages, more),
            });
        }
        Ok(Costs { paths, bytes_per_ue })
    }
}

const INLINE: &str = "[pools]\nworker-model = \"inline\"\n";

/// Returns the stages with more CPU time in the first one.
fn with_balancer(mut stages: Vec<Stage>, more_us: f64) -> Vec<Stage> {
    stages.iter_mut().take(1).for_each(|balancer| balancer.us += more_us);
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_costs_are_read() {
        let costs = Costs::read(crate::host_capacity::RECORDED).unwrap();
        assert!(costs.paths.len() >= 2 && costs.bytes_per_ue > 100.0, "{costs:?}");
        let [memory, sctp] = [0, 1].map(|place| costs.paths[place].stages.iter().map(|stage| stage.us).sum::<f64>());
        assert!(sctp > memory && memory > 1.0, "{memory} {sctp}");
        assert!(Costs::read(b"{\"figures\":[],\"parts\":{}}").is_err_and(|error| error.0.contains("bench host")));
    }

    #[test]
    fn inline_costs_are_read_if_recorded() {
        let figure = |name: &str| {
            let view = |median: f64| serde_json::json!({ "ours": { "median": median } });
            serde_json::json!({ "name": name, "messages": view(20.0), "with_sctp": view(30.0) })
        };
        let parts = serde_json::json!({
            PROCEDURE: { "balancer": 5.0, "host": 7.0, "workers": 8.0 },
            "service request and release, inline": { "balancer": 5.0, "host": 9.0, "workers": 0.0 },
        });
        let summary = serde_json::json!({ "figures": [figure(FIGURE), figure(MEMORY)], "parts": parts });
        let costs = Costs::read(&serde_json::to_vec(&summary).unwrap()).unwrap();
        let us = |place: usize| costs.paths[place].stages.iter().map(|stage| stage.us).collect::<Vec<f64>>();
        assert_eq!(costs.paths.len(), 4);
        assert_eq!((us(1), us(3)), (vec![15.0, 7.0, 8.0], vec![15.0, 9.0]));
    }
}
