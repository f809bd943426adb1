//! Conditions of alarms in one poll of the core and the machine.

use super::{Condition, Kind, Level, Severity, certificate};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vireo_ops::api::{PoolStatus, Status};

/// RAN nodes and hosts that are remembered. Beyond it, none is added.
const MAX_OBJECTS: usize = 4096;
/// Procedures in the interval from which on their latency counts.
const PROCEDURES: u64 = 20;
/// Parts of late procedures: bad above the first, good up to the second.
const LATE: (f64, f64) = (0.05, 0.02);
const DAY_SECONDS: u64 = 86_400;

/// State of the previous poll, for comparison.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    nodes: BTreeSet<String>,
    /// Hosts that died, and those of them that are forgotten.
    dead: BTreeSet<u16>,
    forgotten: BTreeSet<u16>,
    /// Ended processes of each shard at the last poll.
    ends: BTreeMap<u8, u64>,
}

impl Memory {
    /// Forgets a RAN node or host that does not come back.
    pub(crate) fn forget(&mut self, kind: Kind, object: &str) {
        match kind {
            Kind::RanNodeLost => {
                self.nodes.remove(object);
            }
            Kind::HostDead => {
                let forgotten = self.dead.extract_if(.., |host| host_name(*host) == object);
                self.forgotten.extend(forgotten);
            }
            _ => {}
        }
    }

    /// Returns the conditions of RAN nodes. `nodes` are those with an association.
    pub(crate) fn ran_nodes(&mut self, nodes: &[String]) -> Vec<Condition> {
        let present: BTreeSet<&String> = nodes.iter().collect();
        for id in nodes {
            if self.nodes.len() < MAX_OBJECTS {
                self.nodes.insert(id.clone());
            }
        }
        let condition = |id: &String| Condition {
            kind: Kind::RanNodeLost,
            object: id.clone(),
            level: if present.contains(id) { Level::Good } else { Level::Bad(Severity::Major) },
            detail: "no association with the RAN node".into(),
        };
        self.nodes.iter().map(condition).collect()
    }

    /// Returns the conditions of hosts and shards.
    pub(crate) fn hosts(&mut self, status: &Status) -> Vec<Condition> {
        let mut conditions = Vec::new();
        // The process that follows the cluster map tells a death from a drain: a poll may miss the
        // maps between.
        for host in &status.dead_hosts {
            if self.dead.len() + self.forgotten.len() < MAX_OBJECTS && !self.forgotten.contains(host) {
                self.dead.insert(*host);
            }
        }
        let condition = |object, level: Level, detail: &str| Condition {
            kind: Kind::HostDead,
            object,
            level,
            detail: detail.to_owned(),
        };
        for host in &self.dead {
            let level = Level::Bad(Severity::Major);
            conditions.push(condition(host_name(*host), level, "the host left the cluster map while it owned buckets"));
        }
        for shard in &status.shards {
            let before = self.ends.insert(shard.shard, shard.ends).unwrap_or(shard.ends);
            let ended = shard.state == "ended" || shard.ends > before;
            let level = if ended { Level::Bad(Severity::Major) } else { Level::Good };
            conditions.push(condition(format!("shard {}", shard.shard), level, "the process of the shard has ended"));
        }
        conditions
    }
}

fn host_name(host: u16) -> String {
    format!("host {host}")
}

/// Returns the conditions of latency objectives.
pub(crate) fn objectives(status: &Status) -> Vec<Condition> {
    let condition = |latency: &vireo_ops::api::LatencyStatus| {
        let late = latency.violations as f64 / latency.count.max(1) as f64;
        let level = match late {
            _ if latency.count < PROCEDURES => Level::Good,
            late if late > LATE.0 => Level::Bad(Severity::Minor),
            late if late > LATE.1 => Level::Between,
            _ => Level::Good,
        };
        let slice = if latency.slice.is_empty() { "unknown slice" } else { &latency.slice };
        Condition {
            kind: Kind::ObjectiveMissed,
            object: format!("{slice} {}", latency.kind),
            level,
            detail: format!("{:.1}% of the procedures are later than {} us", late * 100.0, latency.slo_us),
        }
    };
    status.latencies.iter().map(condition).collect()
}

/// Returns the conditions of address pools.
pub(crate) fn pools(pools: &[PoolStatus]) -> Vec<Condition> {
    let condition = |pool: &PoolStatus| Condition {
        kind: Kind::PoolExhausted,
        object: format!("{} {}", pool.dnn, pool.cidr),
        level: match pool.used as f64 / pool.size.max(1) as f64 {
            used if used >= 0.99 => Level::Bad(Severity::Critical),
            used if used >= 0.95 => Level::Bad(Severity::Major),
            used if used >= 0.9 => Level::Between,
            _ => Level::Good,
        },
        detail: format!("{} of {} addresses are in use", pool.used, pool.size),
    };
    pools.iter().filter(|pool| pool.size > 0).map(condition).collect()
}

/// Returns the conditions of certificates, each with the key that names its file. A file that is
/// not readable is bad too: the next start would fail.
pub(crate) fn certificates(files: &[(String, PathBuf)], now: u64) -> Vec<Condition> {
    let condition = |(key, path): &(String, PathBuf)| {
        let (level, detail) = match certificate::end(path) {
            Err(reason) => (Level::Bad(Severity::Major), format!("{}: {reason}", path.display())),
            Ok(end) => {
                let days = end.saturating_sub(now) / DAY_SECONDS;
                let level = match end {
                    end if end <= now => Level::Bad(Severity::Critical),
                    _ if days < 7 => Level::Bad(Severity::Major),
                    _ if days < 30 => Level::Bad(Severity::Warning),
                    _ => Level::Good,
                };
                (level, format!("{}: valid until {}", path.display(), crate::time::rfc3339(end)))
            }
        };
        Condition { kind: Kind::CertificateExpiring, object: key.clone(), level, detail }
    };
    files.iter().map(condition).collect()
}

/// Returns the condition of the disk of a directory; `None` if it is not known.
pub(crate) fn disk(directory: &Path) -> Option<Condition> {
    let found = rustix::fs::statvfs(directory).ok()?;
    // Blocks that root alone may use do not count.
    let (free, all) = (found.f_bavail as f64, found.f_blocks as f64);
    let percent = if all > 0.0 { free / all * 100.0 } else { return None };
    Some(Condition {
        kind: Kind::DiskFull,
        object: directory.display().to_string(),
        level: match percent {
            percent if percent < 1.0 => Level::Bad(Severity::Critical),
            percent if percent < 5.0 => Level::Bad(Severity::Major),
            percent if percent < 10.0 => Level::Bad(Severity::Warning),
            percent if percent < 12.0 => Level::Between,
            _ => Level::Good,
        },
        detail: format!("{percent:.1}% are free"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::{LatencyStatus, ShardStatus};

    fn levels(conditions: Vec<Condition>) -> Vec<(String, Level)> {
        conditions.into_iter().map(|condition| (condition.object, condition.level)).collect()
    }

    #[test]
    fn dead_host_is_bad_until_forgotten() {
        let mut memory = Memory::default();
        let status = |dead: &[u16]| Status { dead_hosts: dead.to_vec(), ..Status::default() };
        assert!(memory.hosts(&status(&[])).is_empty());
        let bad = Level::Bad(Severity::Major);
        assert_eq!(levels(memory.hosts(&status(&[2]))), [("host 2".into(), bad)]);
        assert_eq!(levels(memory.hosts(&status(&[]))), [("host 2".into(), bad)], "another process leads");
        memory.forget(Kind::HostDead, "host 2");
        assert_eq!(levels(memory.hosts(&status(&[2, 3]))), [("host 3".into(), bad)]);
    }

    #[test]
    fn replaced_shard_is_bad_once() {
        let mut memory = Memory::default();
        let status = |ends, state: &str| Status {
            shards: vec![ShardStatus { shard: 1, ends, state: state.into(), ..Default::default() }],
            ..Status::default()
        };
        let mut level = |ends, state| levels(memory.hosts(&status(ends, state))).remove(0).1;
        let bad = Level::Bad(Severity::Major);
        assert_eq!(level(3, "serving"), Level::Good);
        assert_eq!(level(4, "starting"), bad);
        assert_eq!(level(4, "serving"), Level::Good);
        assert_eq!(level(4, "ended"), bad);
    }

    #[test]
    fn few_procedures_miss_no_objective() {
        let level = |count, violations| {
            let latencies = vec![LatencyStatus { count, violations, ..Default::default() }];
            levels(objectives(&Status { latencies, ..Status::default() })).remove(0).1
        };
        assert_eq!(level(19, 19), Level::Good);
        assert_eq!(level(100, 6), Level::Bad(Severity::Minor));
        assert_eq!(level(100, 3), Level::Between);
        assert_eq!(level(100, 2), Level::Good);
    }

    #[test]
    fn lost_node_is_bad_until_it_is_back() {
        let mut memory = Memory::default();
        let (a, b) = ("99970-1".to_owned(), "99970-2".to_owned());
        memory.ran_nodes(&[a.clone(), b.clone()]);
        let lost = levels(memory.ran_nodes(std::slice::from_ref(&b)));
        assert_eq!(lost, [(a.clone(), Level::Bad(Severity::Major)), (b.clone(), Level::Good)]);
        assert_eq!(levels(memory.ran_nodes(&[a.clone(), b.clone()]))[0].1, Level::Good);
        memory.forget(Kind::RanNodeLost, &a);
        assert_eq!(levels(memory.ran_nodes(std::slice::from_ref(&b))), [(b, Level::Good)]);
    }

    #[test]
    fn full_pool_is_critical() {
        let level = |used| levels(pools(&[PoolStatus { used, size: 100, ..PoolStatus::default() }])).remove(0).1;
        assert_eq!(
            [89, 90, 95, 99].map(level),
            [Level::Good, Level::Between, Level::Bad(Severity::Major), Level::Bad(Severity::Critical)]
        );
    }
}
