//! Execution of a scenario: threads, associations, sockets, clocks and counters.
//!
//! One worker thread owns one SCTP endpoint, some gNBs and their UEs. Workers share only counters.
//! The calling thread reports the progress.

mod changes;
mod chaos;
#[cfg(test)]
mod eps_tests;
mod forwarding;
mod handover;
mod link;
mod n3;
mod pdu;
mod pings;
mod retry;
mod sctp_endpoint;
mod slot;
mod steady;
mod steps;
mod timers;
mod user_plane;
mod worker;

pub(crate) use sctp_endpoint::bind;

use crate::error::Error;
use crate::options::Options;
use crate::progress::{Counters, EndpointFactory, Phase, Progress};
use crate::rat::Rat;
use crate::report::{Report, Stats};
use crate::scenario::Scenario;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Guard that ends the run if its thread panics. Otherwise the other threads would wait forever.
struct PanicGuard<'a>(&'a Counters);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
            self.0.finish.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs a scenario or a steady load with SCTP endpoints that `open` creates.
pub(crate) fn run_with(
    options: &Options,
    open: EndpointFactory<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    check(options)?;
    let own;
    let options = if options.movers > 0 || options.scenario.changes_rat() {
        let mut moving = options.clone();
        moving.profile.interworks = true;
        own = moving;
        &own
    } else {
        options
    };
    let threads = worker::threads(options);
    let counters = Counters::default();
    let begun = Instant::now();
    let mut resident = 0;
    let results: Vec<Result<(Stats, String), Error>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let counters = &counters;
                scope.spawn(move || {
                    let _leave = PanicGuard(counters);
                    let result = worker::run(options, n, threads, open, counters, begun);
                    if result.is_err() {
                        counters.stop.store(true, Ordering::Relaxed);
                        counters.finish.store(true, Ordering::Relaxed);
                    }
                    counters.settled.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let _leave = PanicGuard(&counters);
        resident = watch(options, &counters, threads, begun, progress);
        workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Stopped))).collect()
    });
    let mut total = Stats::new(options.timeline);
    let mut driver = String::new();
    for result in results {
        let (stats, its_driver) = result?;
        total.merge(&stats);
        driver = its_driver;
    }
    let mut report = total.finish();
    let is_steady = options.steady.is_some() && options.chaos.is_none();
    report.scenario = if is_steady { "steady load" } else { options.scenario.name }.into();
    report.rat = options.rats;
    report.gnbs = options.gnbs;
    report.ues = options.ues;
    report.driver = driver;
    report.memory_bytes_per_ue = resident as f64 / report.started.max(1) as f64;
    Ok(report)
}

/// Returns the reason for which a run with eNBs is invalid.
fn eps_fault(options: &Options) -> Option<&'static str> {
    if !options.rats.list().contains(&Rat::Eps) {
        return None;
    }
    if Scenario::find_for(options.rats, options.scenario.name).is_none() {
        return Some("the scenario does not exist for this --rat: see vireo emulate --rat R --list");
    }
    if options.tac.0 > 0xffff || options.first_gnb_id.saturating_add(options.gnbs) > 1 << 20 {
        return Some("an eNB has a TAC of 16 bits and an ID of 20 bits: check --tac and --gnb-id");
    }
    if options.ues.div_ceil(options.gnbs) > 60_000 {
        return Some("an eNB connects at most 65,536 UEs: give --gnbs more");
    }
    None
}

/// Reports the progress until all workers are settled, then lets them shut down. Returns the memory
/// growth of the process in bytes. It counts from when all gNBs are up until all UEs end their
/// scenario or begin the steady load.
fn watch(
    options: &Options,
    counters: &Counters,
    threads: u32,
    begun: Instant,
    progress: &mut dyn FnMut(Progress),
) -> u64 {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let snapshot = |phase| Progress {
        phase,
        ues: u64::from(options.ues),
        started: get(&counters.started),
        done: get(&counters.done),
        failed: get(&counters.failed),
        registered: get(&counters.registered),
        sessions: get(&counters.sessions),
        procedures: get(&counters.procedures),
        lost: get(&counters.lost),
        elapsed: begun.elapsed(),
    };
    let mut pause = Duration::from_millis(1);
    let (mut before, mut after) = (resident(), None);
    while get(&counters.settled) < u64::from(threads) && !counters.finish.load(Ordering::Relaxed) {
        let stopped = options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
        counters.stop.fetch_or(stopped, Ordering::Relaxed);
        let connecting = get(&counters.connected) < u64::from(options.gnbs) * options.rats.list().len() as u64;
        if connecting {
            before = resident();
        } else if after.is_none() && get(&counters.steady_us) != 0 {
            after = Some(resident());
        }
        progress(snapshot(if connecting { Phase::Connecting } else { Phase::Running }));
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    let after = after.unwrap_or_else(resident);
    if !counters.finish.load(Ordering::Relaxed) {
        progress(snapshot(Phase::Settled));
    }
    counters.finish.store(true, Ordering::Relaxed);
    after.saturating_sub(before)
}

/// Returns the resident memory of the process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Refuses options that no run can have.
pub(crate) fn check(options: &Options) -> Result<(), Error> {
    let bad = |why: &str| Err(Error::Options(why.into()));
    if options.rats.list().iter().any(|rat| options.cores(*rat).is_empty()) {
        return bad("no core: give --core ADDR");
    }
    if options.gnbs == 0 || options.ues == 0 {
        return bad("there must be at least one gNB and one UE");
    }
    if options.moves() && options.gnbs < 2 {
        return bad("these UEs go from gNB to gNB: give --gnbs 2 or more");
    }
    if options.tnl_associations > crate::gnb::MAX_ASSOCIATIONS as u32 {
        return bad("a gNB has at most 32 associations with its AMF: check --tnl-associations");
    }
    if options.drop_association.is_some() && options.tnl_associations < 2 {
        return bad("a gNB that drops its only association loses its UEs: give --tnl-associations 2 or more");
    }
    if options.ues >= 1 << 23 {
        return bad("at most 8,388,607 UEs");
    }
    if let Some(why) = eps_fault(options) {
        return bad(why);
    }
    if options.n3.is_empty() {
        return bad("no N3 address: give --n3 ADDR");
    }
    if options.subscribers.get(options.ues - 1).is_none() {
        return bad("there are fewer subscribers than UEs: check --ues against --imsi or --subscribers");
    }
    if let Some(steady) = &options.steady {
        if options.duration.is_none() {
            return bad("for how long shall the load be there? give --duration");
        }
        return steady.fault(options.ues, worker::threads(options)).map_or(Ok(()), |fault| Err(Error::Options(fault)));
    }
    if options.scenario.has_traffic() && options.echoes.v4.is_none() && options.echoes.v6.is_none() {
        return bad("this scenario sends traffic: give --echo ADDR, an address in the data network");
    }
    Ok(())
}
