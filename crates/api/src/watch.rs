//! Watcher of the core: rates, alarms and events, by one poll per second.
//!
//! A poll costs the core two short answers without lists of UEs.

use crate::alarms::conditions::{self, Memory};
use crate::alarms::webhook::Webhook;
use crate::alarms::{Alarm, Alarms, Condition};
use crate::context::{Api, blocking};
use crate::overview::{all_ran_nodes, without_lists};
use crate::time::now;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use vireo_ops::api::{PoolStatus, Status};

/// Poll interval of the core.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Polls from one list of all RAN nodes to the next, if their number does not change.
const POLLS_PER_NODE_LIST: u32 = 10;
/// Polls from one check of certificates and disks to the next.
const POLLS_PER_MACHINE_CHECK: u32 = 60;

/// Knowledge of the watcher.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Time of the last poll, and procedures since the start of the core.
    procedures: Option<(Instant, u64)>,
    rate: f64,
    /// RAN nodes by ID, with the time from which on they are known.
    nodes: HashMap<String, u64>,
    /// IDs of the RAN nodes when they were last listed.
    present: Vec<String>,
    /// Hosts with their buckets at the last poll.
    hosts: BTreeMap<u16, usize>,
    pub(crate) memory: Memory,
    pub(crate) alarms: Alarms,
}

/// An event that a poll has detected.
type WatchEvent = (&'static str, serde_json::Value);

impl Watched {
    pub(crate) fn procedures_per_second(&self) -> f64 {
        self.rate
    }

    pub(crate) fn since(&self, node: &str) -> Option<u64> {
        self.nodes.get(node).copied()
    }

    fn count(&mut self, status: &Status, at: Instant) {
        let total = status.latencies.iter().map(|latency| latency.total).sum::<u64>();
        if let Some((before, count)) = self.procedures {
            let seconds = at.duration_since(before).as_secs_f64();
            // The total of a shard that is replaced begins again.
            let rate = total.saturating_sub(count) as f64 / seconds.max(0.001);
            self.rate = (rate * 10.0).round() / 10.0;
        }
        self.procedures = Some((at, total));
    }

    /// Takes the RAN nodes that are there. Returns those that have come and gone.
    fn note_nodes(&mut self, ids: &[String]) -> Vec<WatchEvent> {
        let mut before = std::mem::take(&mut self.nodes);
        let (at, mut news) = (now(), Vec::new());
        let event = |id: &String, state| ("ran_node", serde_json::json!({ "id": id, "state": state }));
        for id in ids {
            let since = before.remove(id).unwrap_or_else(|| {
                news.push(event(id, "up"));
                at
            });
            self.nodes.insert(id.clone(), since);
        }
        news.extend(before.keys().map(|id| event(id, "lost")));
        news
    }

    /// Takes the hosts that are there. Returns those that have come, gone, or changed their
    /// buckets.
    fn note_hosts(&mut self, status: &Status) -> Vec<WatchEvent> {
        let present: BTreeMap<u16, usize> = status.hosts.iter().map(|host| (host.host, host.buckets)).collect();
        let present = if present.is_empty() {
            status.shards.iter().filter_map(|shard| Some((shard.host?, shard.ues))).collect()
        } else {
            present
        };
        let is_cluster = !status.hosts.is_empty();
        let before = std::mem::replace(&mut self.hosts, present);
        let mut news = Vec::new();
        for (id, buckets) in &self.hosts {
            match before.get(id) {
                None => news.push(("host", serde_json::json!({ "id": id, "state": "up" }))),
                Some(old) if is_cluster && old != buckets => {
                    news.push(("host", serde_json::json!({ "id": id, "buckets": buckets })));
                }
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|id| !self.hosts.contains_key(id));
        news.extend(gone.map(|id| ("host", serde_json::json!({ "id": id, "state": "gone" }))));
        news
    }

    /// Evaluates a poll. Returns events and changed alarms.
    fn evaluate(&mut self, view: &CoreView, machine: Option<Vec<Condition>>) -> (Vec<WatchEvent>, Vec<Alarm>) {
        self.count(&view.status, Instant::now());
        let mut news = Vec::new();
        if let Some(nodes) = &view.nodes {
            news.extend(self.note_nodes(nodes));
            self.present.clone_from(nodes);
        }
        news.extend(self.note_hosts(&view.status));
        let mut conditions = self.memory.ran_nodes(&self.present);
        conditions.extend(self.memory.hosts(&view.status));
        conditions.extend(conditions::objectives(&view.status));
        conditions.extend(conditions::pools(&view.pools));
        conditions.extend(machine.unwrap_or_default());
        (news, self.alarms.evaluate(conditions, now()))
    }
}

/// Result of a poll of the core.
struct CoreView {
    status: Status,
    /// IDs of all RAN nodes; `None` = they are as before.
    nodes: Option<Vec<String>>,
    pools: Vec<PoolStatus>,
}

/// Watches the core until the API ends.
pub(crate) async fn run(api: Api) {
    let webhook = Webhook::start(api.management().alarms.webhook.as_ref());
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0u32.. {
        tick.tick().await;
        let known = api.watched(|watched| watched.present.len());
        let view = api.core(move |source| {
            let status = source.status(&without_lists())?;
            // A list of very many RAN nodes costs the core milliseconds.
            let is_due = status.counts.gnbs != known || number.is_multiple_of(POLLS_PER_NODE_LIST);
            let nodes = if is_due { Some(all_ran_nodes(source)?) } else { None };
            let nodes = nodes.map(|nodes| nodes.into_iter().map(|node| node.id).collect());
            Some(CoreView { nodes, status, pools: source.pools() })
        });
        // Nothing is known while the core does not answer.
        let Ok(Some(view)) = view.await else { continue };
        let machine = if number.is_multiple_of(POLLS_PER_MACHINE_CHECK) { machine(&api).await } else { None };
        let (news, alarms) = api.watched(|watched| watched.evaluate(&view, machine));
        for (kind, data) in news {
            api.events().publish(kind, data.to_string());
        }
        for alarm in alarms {
            api.announce(&alarm);
            webhook.send(&alarm);
        }
        api.count_alarms();
        if api.events().readers() > 0 {
            let overview = serde_json::to_string(&api.overview(&view.status));
            api.events().publish("overview", overview.unwrap_or_default());
        }
    }
}

/// Looks at certificates and disks.
async fn machine(api: &Api) -> Option<Vec<Condition>> {
    let (certificates, directory) =
        (api.management().alarms.certificates.clone(), api.management().state_directory.clone());
    let check = move || {
        let mut all = conditions::certificates(&certificates, now());
        all.extend(directory.as_deref().and_then(conditions::disk));
        all
    };
    blocking(check).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::{HostStatus, LatencyStatus};

    #[test]
    fn rate_covers_the_last_interval() {
        let status =
            |total| Status { latencies: vec![LatencyStatus { total, ..Default::default() }], ..Default::default() };
        let (mut watched, begun) = (Watched::default(), Instant::now());
        watched.count(&status(1000), begun);
        assert_eq!(watched.procedures_per_second(), 0.0);
        watched.count(&status(1100), begun + Duration::from_secs(2));
        assert_eq!(watched.procedures_per_second(), 50.0);
        watched.count(&status(10), begun + Duration::from_secs(3));
        assert_eq!(watched.procedures_per_second(), 0.0, "the count began anew");
    }

    #[test]
    fn node_is_known_since_its_first_poll() {
        let mut watched = Watched::default();
        watched.nodes.insert("99970-1".into(), 7);
        let news = watched.note_nodes(&["99970-1".to_owned(), "99970-2".to_owned()]);
        assert_eq!(news, [("ran_node", serde_json::json!({ "id": "99970-2", "state": "up" }))]);
        assert_eq!(watched.since("99970-1"), Some(7));
        assert!(watched.since("99970-2").is_some_and(|since| since > 7));
        assert_eq!(watched.note_nodes(&[]).len(), 2);
        assert_eq!(watched.since("99970-1"), None);
    }

    #[test]
    fn moves_of_buckets_are_news() {
        let status = |hosts: &[(u16, usize)]| Status {
            hosts: hosts
                .iter()
                .map(|(host, buckets)| HostStatus { host: *host, buckets: *buckets, ..Default::default() })
                .collect(),
            ..Status::default()
        };
        let mut watched = Watched::default();
        watched.note_hosts(&status(&[(1, 2000), (2, 2096)]));
        assert!(watched.note_hosts(&status(&[(1, 2000), (2, 2096)])).is_empty());
        let news = watched.note_hosts(&status(&[(1, 4096)]));
        let data: Vec<_> = news.into_iter().map(|(_, data)| data).collect();
        assert_eq!(
            data,
            [serde_json::json!({ "id": 1, "buckets": 4096 }), serde_json::json!({ "id": 2, "state": "gone" })]
        );
    }
}
