//! Status of a core with several shards: that of its balancer and of each shard.

use super::link::ShardLink;
use super::message::{Reply, Request};
use super::metrics::MergedMetrics;
use super::supervisor::{ShardState, ShardStates, Stage};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vireo_controller::EmbeddedController;
use vireo_ops::api::{
    GnbStatus, LatencyStatus, MoveError, MoveRequest, MoveResult, OverloadStatus, PoolStatus, RelocateError,
    ShardStatus, SlicesStatus, Status, StatusFilter, StatusSource, UePage, UeQuery, UeSelector, WorkerStatus,
};
use vireo_ops::metrics::process::cpu_us_of;
use vireo_types::{DeregistrationCause, Supi};
use vireo_upf::UpfHandle;

/// Maximum time for the answers of all shards.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Position of the shard in the position of a page.
const SHARD_SHIFT: u32 = 32;
/// Mask of the position in the shard; all ones = before its first UE.
const AFTER: u64 = u32::MAX as u64;
/// Overload levels, the mildest first.
const LEVELS: [&str; 4] = ["normal", "registrations", "low-priority", "others"];

/// A shard with its reply to a request, if it has answered.
struct ShardAnswer {
    number: usize,
    state: ShardState,
    reply: Option<Reply>,
}

/// Status source of a core with several shards.
pub(super) struct ShardsSource {
    pub(super) balancer: Arc<dyn StatusSource>,
    pub(super) controller: Arc<EmbeddedController>,
    pub(super) states: Arc<ShardStates>,
    pub(super) upf: Option<Arc<UpfHandle>>,
    /// Names and N4 addresses of the UPFs.
    pub(super) upfs: Vec<(String, SocketAddr)>,
}

impl ShardAnswer {
    /// Returns true if the shard has the UE of the request.
    fn is_done(&self) -> bool {
        matches!(self.reply, Some(Reply::Done(true)))
    }
}

impl ShardsSource {
    /// Sends a request to each shard. Returns the replies that arrive in time.
    fn query(&self, request: impl Fn(usize) -> Option<Request>) -> Vec<ShardAnswer> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let query = |(number, state): (usize, ShardState)| {
            let link = state.link.as_deref().filter(|_| state.stage == Stage::Serving);
            let reply =
                link.zip(request(number)).and_then(|(link, request): (&ShardLink, _)| link.request(request, deadline));
            ShardAnswer { number, state, reply }
        };
        self.states.all().into_iter().enumerate().map(query).collect()
    }

    /// Sends an order about a UE to each shard. Returns true if one has the UE, `None` if a shard
    /// without an answer may have it.
    fn order(&self, order: &Request) -> Option<bool> {
        let replies = self.query(|_| Some(order.clone()));
        if replies.iter().any(ShardAnswer::is_done) {
            return Some(true);
        }
        replies.iter().all(|answer| matches!(answer.reply, Some(Reply::Done(false)))).then_some(false)
    }

    /// Returns a page of the UEs of one shard after another; `None` if that shard does not answer.
    fn next_page(&self, query: &UeQuery) -> Option<UePage> {
        let (shard, after) = query.after.map_or((0, None), |after| (after >> SHARD_SHIFT, Some(after & AFTER)));
        let after = after.filter(|after| *after != AFTER);
        let asked = usize::try_from(shard).unwrap_or(usize::MAX);
        let own = UeQuery { after, ..query.clone() };
        let rest = UeQuery { limit: 0, after: None, ..query.clone() };
        let mut page = UePage { total: Some(0), ..UePage::default() };
        let answers = self.query(|number| Some(Request::Ues(if number == asked { own.clone() } else { rest.clone() })));
        let last = answers.len().saturating_sub(1);
        if asked < last {
            // The next shard from its first UE on.
            page.next = Some((shard + 1) << SHARD_SHIFT | AFTER);
        }
        for ShardAnswer { number, state, reply } in answers {
            let Some(Reply::Ues(Some(mut own))) = reply else {
                if number == asked {
                    return None;
                }
                page.total = None;
                continue;
            };
            own.ues.iter_mut().for_each(|ue| ue.host = state.host);
            page.total = page.total.zip(own.total).map(|(sum, own)| sum + own);
            if number == asked {
                page.ues = own.ues;
                page.next = own.next.map(|next| shard << SHARD_SHIFT | next).or(page.next);
            }
        }
        Some(page)
    }

    /// Returns the UEs that each shard finds without a scan; `None` if no shard has any and one
    /// does not answer.
    fn find_in_each(&self, query: &UeQuery) -> Option<UePage> {
        let (mut page, mut is_whole) = (UePage { total: Some(0), ..UePage::default() }, true);
        for answer in self.query(|_| Some(Request::Ues(query.clone()))) {
            let Some(Reply::Ues(Some(mut own))) = answer.reply else {
                is_whole = false;
                continue;
            };
            own.ues.iter_mut().for_each(|ue| ue.host = answer.state.host);
            page.ues.extend(own.ues);
            page.changes.extend(own.changes);
            page.total = page.total.zip(own.total).map(|(sum, own)| sum + own);
        }
        (is_whole || !page.ues.is_empty()).then_some(page)
    }

    /// Returns the window of UEs that each shard lists, by the number of its UEs.
    fn windows(counts: &BTreeMap<usize, usize>, filter: &StatusFilter) -> BTreeMap<usize, StatusFilter> {
        let (mut offset, mut limit) = (filter.offset, filter.limit);
        let mut windows = BTreeMap::new();
        for (shard, ues) in counts {
            let listed = ues.saturating_sub(offset).min(limit);
            windows.insert(*shard, StatusFilter { offset, limit: listed, ..filter.clone() });
            (offset, limit) = (offset.saturating_sub(*ues), limit - listed);
        }
        windows
    }
}

impl StatusSource for ShardsSource {
    fn status(&self, filter: &StatusFilter) -> Option<Status> {
        let mut status = self.balancer.status(&StatusFilter { limit: 0, ..filter.clone() })?;
        // The cluster is private.
        let (mut settled, hosts) = (self.controller.view().is_settled, std::mem::take(&mut status.hosts));
        status.balancers.clear();
        for upf in &mut status.upfs {
            let known = self.upfs.iter().find(|(_, n4)| n4.to_string() == upf.node);
            upf.name = known.map_or_else(String::new, |(name, _)| name.clone());
        }
        let gnbs = StatusFilter { reveal_supi: false, ues: false, ..filter.clone() };
        let first = self.query(|_| Some(Request::Status(gnbs.clone())));
        let mut ues = BTreeMap::new();
        for ShardAnswer { number, state, reply } in first {
            let mut shard = ShardStatus {
                shard: u8::try_from(number).unwrap_or(u8::MAX),
                pid: state.pid,
                state: stage(state.stage).into(),
                host: state.host,
                cpu_us: cpu_us_of(state.pid).unwrap_or(0),
                ends: state.ends,
                ..ShardStatus::default()
            };
            let is_member = |host: u16| hosts.iter().any(|entry| entry.host == host && entry.buckets > 0);
            settled &= state.host.is_some_and(is_member);
            if let Some(Reply::Status(Some(own))) = reply {
                (shard.ues, shard.copies) = (own.counts.ues, own.copies);
                ues.insert(number, own.counts.ues);
                merge(&mut status, (number, state.pid), *own);
            } else if state.stage == Stage::Serving {
                // The sums lack this shard.
                shard.state = SILENT.into();
            }
            status.shards.push(shard);
        }
        status.shards.iter_mut().for_each(|shard| shard.copied = settled);
        if filter.limit > 0 && filter.ues {
            let windows = ShardsSource::windows(&ues, filter);
            let listed =
                self.query(|number| windows.get(&number).filter(|w| w.limit > 0).cloned().map(Request::Status));
            for answer in listed {
                if let Some(Reply::Status(Some(own))) = answer.reply {
                    status.ues.extend(own.ues);
                }
            }
        }
        Some(status)
    }

    fn ues(&self, query: &UeQuery) -> Option<UePage> {
        match query.select {
            UeSelector::All | UeSelector::State(_) | UeSelector::RanNode(_) => self.next_page(query),
            UeSelector::Supi(_) | UeSelector::Tmsi(_) | UeSelector::Address(_) | UeSelector::Changed => {
                self.find_in_each(query)
            }
        }
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let mut all: Vec<PoolStatus> = Vec::new();
        for answer in self.query(|_| Some(Request::Pools)) {
            let Some(Reply::Pools(pools)) = answer.reply else { continue };
            for pool in pools {
                // Shards share the pools.
                match all.iter_mut().find(|known| (&known.dnn, &known.cidr) == (&pool.dnn, &pool.cidr)) {
                    Some(known) => known.used += pool.used,
                    None => all.push(pool),
                }
            }
        }
        all
    }

    fn slices(&self, counts: bool) -> SlicesStatus {
        self.upf.as_ref().map(|upf| upf.slices(counts)).unwrap_or_default()
    }

    fn move_users(&self, order: &MoveRequest) -> Result<MoveResult, MoveError> {
        self.upf.as_ref().ok_or(MoveError::NoSlices)?.move_users(order)
    }

    fn with_shards(&self, own: String) -> String {
        let mut merged = MergedMetrics::default();
        merged.add(&own, None);
        for answer in self.query(|_| Some(Request::Metrics)) {
            if let Some(Reply::Metrics(text)) = answer.reply {
                merged.add(&text, Some(("shard", answer.number)));
            }
        }
        let mut text = String::from(
            "# HELP vireo_shard_ends_total Processes of the shard that have ended.\n# TYPE vireo_shard_ends_total counter\n",
        );
        let mut up = String::from("# HELP vireo_shard_up 1 if the shard serves UEs.\n# TYPE vireo_shard_up gauge\n");
        for (number, state) in self.states.all().into_iter().enumerate() {
            text += &format!("vireo_shard_ends_total{{shard=\"{number}\"}} {}\n", state.ends);
            up += &format!("vireo_shard_up{{shard=\"{number}\"}} {}\n", u8::from(state.stage == Stage::Serving));
        }
        merged.add(&text, None);
        merged.add(&up, None);
        merged.render()
    }

    fn deregister(&self, supi: Supi, again: bool, cause: Option<DeregistrationCause>) -> Option<bool> {
        self.order(&Request::Deregister { supi: supi.as_u64(), reregister: again, cause })
    }

    fn locate(&self, supi: Supi) -> Option<bool> {
        self.order(&Request::Locate { supi: supi.as_u64() })
    }

    fn relocate(&self, supi: Supi, to: &str) -> Result<(), RelocateError> {
        if !self.upfs.iter().any(|(name, _)| name == to) {
            let known: Vec<_> = self.upfs.iter().map(|(name, _)| name.as_str()).collect();
            return Err(RelocateError::UnknownUpf { name: to.to_owned(), known: known.join(", ") });
        }
        let request = Request::Relocate { supi: supi.as_u64(), upf: to.to_owned() };
        let replies = self.query(|_| Some(request.clone()));
        if replies.iter().any(ShardAnswer::is_done) {
            return Ok(());
        }
        let has_all = replies.iter().all(|answer| matches!(answer.reply, Some(Reply::Done(false))));
        Err(if has_all { RelocateError::NoUe } else { RelocateError::Busy })
    }
}

/// State of a serving shard that does not answer in time.
const SILENT: &str = "silent";

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Starting => "starting",
        Stage::Serving => "serving",
        Stage::Ended => "ended",
    }
}

/// Adds the status of a shard, without its UEs.
fn merge(status: &mut Status, (number, pid): (usize, u32), own: Status) {
    let (sum, counts) = (&mut status.counts, own.counts);
    // Each shard knows all RAN nodes.
    sum.gnbs = sum.gnbs.max(counts.gnbs);
    sum.ues += counts.ues;
    sum.registered += counts.registered;
    sum.connected += counts.connected;
    sum.sessions += counts.sessions;
    own.gnbs.into_iter().for_each(|gnb| merge_gnb(&mut status.gnbs, gnb));
    own.latencies.into_iter().for_each(|latency| merge_latency(&mut status.latencies, latency));
    merge_overload(&mut status.overload, &own.overload);
    // With inline steps the only worker of a shard is its own thread.
    let nfs = own.workers.into_iter().flat_map(|worker| worker.nfs).collect();
    let (number, cpu_us) = (u8::try_from(number).unwrap_or(u8::MAX), cpu_us_of(pid).unwrap_or(0));
    status.workers.push(WorkerStatus { number, pid, cpu_us, nfs });
}

fn merge_gnb(all: &mut Vec<GnbStatus>, gnb: GnbStatus) {
    match all.iter_mut().find(|known| known.id == gnb.id) {
        Some(known) => known.ues += gnb.ues,
        None => all.push(gnb),
    }
}

/// Adds counts. A percentile of several shards is the highest of them.
fn merge_latency(all: &mut Vec<LatencyStatus>, own: LatencyStatus) {
    let Some(known) = all.iter_mut().find(|known| (&known.slice, &known.kind) == (&own.slice, &own.kind)) else {
        return all.push(own);
    };
    known.count += own.count;
    known.violations += own.violations;
    known.total += own.total;
    known.total_violations += own.total_violations;
    known.p50_us = known.p50_us.max(own.p50_us);
    known.p99_us = known.p99_us.max(own.p99_us);
}

/// Keeps the worst state.
fn merge_overload(all: &mut OverloadStatus, own: &OverloadStatus) {
    let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
    if rank(&own.level) >= rank(&all.level) {
        all.level.clone_from(&own.level);
    }
    all.fill = all.fill.max(own.fill);
    all.refused += own.refused;
    all.reduction_percent = all.reduction_percent.max(own.reduction_percent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_ues_spans_shards() {
        let counts = BTreeMap::from([(0, 5), (1, 3), (3, 4)]);
        let page = |offset, limit| {
            let filter = StatusFilter { offset, limit, reveal_supi: true, ..StatusFilter::default() };
            let windows = ShardsSource::windows(&counts, &filter);
            windows.into_iter().map(|(shard, w)| (shard, w.offset, w.limit)).collect::<Vec<_>>()
        };
        assert_eq!(page(0, 4), [(0, 0, 4), (1, 0, 0), (3, 0, 0)]);
        assert_eq!(page(4, 6), [(0, 4, 1), (1, 0, 3), (3, 0, 2)]);
        assert_eq!(page(6, 100), [(0, 6, 0), (1, 1, 2), (3, 0, 4)]);
        assert_eq!(page(50, 100), [(0, 50, 0), (1, 45, 0), (3, 42, 0)]);
    }

    #[test]
    fn statuses_of_shards_are_added() {
        let own = |ues, level: &str| Status {
            counts: vireo_ops::api::Counts { gnbs: 2, ues, registered: ues, connected: 1, sessions: 3 },
            gnbs: vec![GnbStatus { id: "a".into(), ues: 1, ..GnbStatus::default() }],
            overload: OverloadStatus { level: level.into(), refused: 1, ..OverloadStatus::default() },
            latencies: vec![LatencyStatus {
                kind: "paging".into(),
                count: 2,
                p99_us: ues as u64,
                ..Default::default()
            }],
            ..Status::default()
        };
        let mut all = Status::default();
        merge(&mut all, (0, 0), own(4, "registrations"));
        merge(&mut all, (1, 0), own(5, "normal"));
        assert_eq!((all.counts.gnbs, all.counts.ues, all.counts.sessions), (2, 9, 6));
        assert_eq!((all.gnbs.len(), all.gnbs[0].ues, all.workers.len()), (1, 2, 2));
        assert_eq!((all.overload.level.as_str(), all.overload.refused), ("registrations", 2));
        assert_eq!((all.latencies.len(), all.latencies[0].count, all.latencies[0].p99_us), (1, 4, 5));
    }
}
