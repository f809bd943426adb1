//! PEPC migrations of users between two slices of a user plane, 10,000 per second.
//!
//! All workers of both slices are saturated with packets. The experiment measures the remaining
//! packet rate, lost packets and counts, and the additional time of a packet.

use super::context::{ExperimentContext, Findings, each};
use super::scaleout::InterfaceMode;
use super::scaleout::network::{FIRST_UE, LENGTH, Network, POOL};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, Measured, OfferedLoad, Table};
use vireo_client::slices;
use vireo_config::Failure;
use vireo_lab::files::api;
use vireo_lab::netns::interface_counters;
use vireo_lab::process::on_processors;
use vireo_lab::upf::{N4, Upf};
use vireo_ops::api::SlicesStatus;
use vireo_traffic::frame_loop::{Direction, FrameLoop, LoopCounters, Teids};
use vireo_traffic::pfcp;
use vireo_types::Teid;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-migration",
    about: "What do ten thousand migrations of users a second cost the packets of a user plane?",
    paper: "A High Performance Packet Core for Next Generation Cellular Networks (PEPC), migrations",
    informative: None,
    run: Run::Core(run),
};

pub(super) const API: &str = "http://127.0.0.1:9090";
pub(super) const NAMES: [&str; 2] = ["first", "second"];
/// Migrations per second.
const RATE: f64 = 10_000.0;
/// Users that one request migrates.
const TOGETHER: u32 = 500;
/// Alternating turns without and with migrations. Each turn with migrations is compared with both
/// its neighbours.
const TURNS: usize = 9;
/// Maximum number of unanswered session requests.
pub(super) const WINDOW: usize = 64;
/// Time without a packet after which none is expected any more.
const STALLED: Duration = Duration::from_secs(2);
const QUIET_POLL: Duration = Duration::from_millis(5);
/// Polls without a new frame after which no further frame is expected, while frames are missing
/// and after all have ended.
const QUIET: u32 = 200;
const QUIET_AT_END: u32 = 10;
/// Time until the metrics have the drop counts of rings.
const RING_COUNTS: Duration = Duration::from_millis(2200);
const END_WITHIN: Duration = Duration::from_secs(15);
/// Averaging time of a packet's time with one packet in flight.
pub(super) const SLOT: Duration = Duration::from_millis(20);

/// A driver with its number of frames in flight per direction.
pub(super) struct Driver {
    pub(super) name: &'static str,
    pub(super) flight: usize,
}

/// Saturates all workers: two directions and two workers, each with blocks of about 400 frames to
/// fill.
pub(super) const BUSY: Driver = Driver { name: "af-packet", flight: 4096 };
/// Saturation without rings, which lose no packets. The queue of a TUN device has 500 places.
pub(super) const SOCKETS: Driver = Driver { name: "sockets", flight: 192 };
/// Returns the drivers that other experiments also use; one in the short form.
pub(super) fn drivers(session: &ExperimentContext) -> &'static [Driver] {
    if session.quick { &[SOCKETS] } else { &[SOCKETS, BUSY] }
}

/// One packet in flight, with a driver that does not wait for a full block.
const ALONE: Driver = Driver { name: "sockets", flight: 1 };

/// Results with one driver by turn. Turns with odd index have migrations.
#[derive(Default)]
struct MigrationResult {
    /// Packets per second in both directions together.
    rates: Vec<f64>,
    /// Time of a packet in microseconds: median over the means of short windows.
    times: Vec<f64>,
    /// Median of the migrations per second.
    moves: f64,
    /// Frames missing at the end, except those that the kernel dropped for lack of room.
    lost: u64,
    /// Frames that links and AF_PACKET rings dropped for lack of room.
    no_room: u64,
    /// Frames that ended although they were not put in.
    duplicated: u64,
    /// Difference in packets or bytes between the entries' counts and those of the far ends.
    miscounted: u64,
}

/// Returns the median over turns with migrations of `held`, applied to the turn and to the mean of
/// its neighbours.
fn against(turns: &[f64], held: fn(f64, f64) -> f64) -> f64 {
    let each = turns.windows(3).step_by(2).map(|three| held(three[1], f64::midpoint(three[0], three[2])));
    Measured::from_runs(each.collect()).map_or(f64::NAN, |all| all.median)
}

/// Returns the median of the turns with migrations, or of those without.
fn median_of(turns: &[f64], with: bool) -> f64 {
    let turns = turns.iter().skip(usize::from(with)).step_by(2).copied();
    Measured::from_runs(turns.collect()).map_or(f64::NAN, |all| all.median)
}

struct Pass {
    busy: MigrationResult,
    sockets: MigrationResult,
    alone: MigrationResult,
}

impl Pass {
    fn all(&self) -> [&MigrationResult; 3] {
        [&self.busy, &self.sockets, &self.alone]
    }
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let users = if session.quick { 500 } else { 20_000 };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let passes = session.repeat("migrations", |_| {
        let [busy, sockets, alone] = [BUSY, SOCKETS, ALONE].map(|driver| measure(session, &driver, users, processors));
        let pass = Pass { busy: busy?, sockets: sockets?, alone: alone? };
        let (kept, moves) = ([kept_rate(&pass.busy), kept_rate(&pass.sockets)], pass.busy.moves);
        eprintln!("experiment: {moves:.0} moves/s, {kept:.4?} of the rates, {:.2} us more a packet", added(&pass));
        Ok(pass)
    })?;
    findings(&passes, users, processors)
}

/// Returns the fraction of the rate that remains.
fn kept_rate(seen: &MigrationResult) -> f64 {
    against(&seen.rates, |with, without| with / without)
}

/// Returns the additional time of a packet, in microseconds.
fn added(pass: &Pass) -> f64 {
    against(&pass.alone.times, |with, without| with - without)
}

/// Returns the configuration of two slices, each with a worker on a separate processor.
pub(super) fn slices_of(processors: usize) -> String {
    let slice = |(name, number): (&&str, usize)| {
        let (sst, core) = (number + 1, number % processors.max(1));
        format!("[slice.{name}]\nsnssai = {{ sst = {sst} }}\ndata-cores = [{core}]\n")
    };
    NAMES.iter().zip(0..).map(slice).collect()
}

/// Returns the configuration of a UPF with a driver, further keys of its table, a number of users
/// and the given slices.
pub(super) fn config(network: &Network<'_>, (driver, keys): (&Driver, &str), users: u32, slices: &str) -> String {
    let ends = &network.ends[0];
    let interfaces = match driver.name {
        "sockets" => String::new(),
        _ => format!(
            "interfaces = [\"{}\", \"{}\"]\nnext-hops = [\"{}\"]\n",
            ends.n3.name,
            ends.n6.name,
            network.server(0)
        ),
    };
    format!(
        "[upf]\nn4 = \"{N4}\"\nn3 = [\"{}\"]\nmax-sessions = {users}\n[dnn.internet]\nipv4-pool = \"{POOL}\"\n[api]\nlisten \
         = \"127.0.0.1:9090\"\n[log]\nlevel = \"error\"\n{slices}[datapath]\ndriver = \"{}\"\n{keys}{interfaces}",
        network.n3(0),
        driver.name,
    )
}

fn measure(
    session: &ExperimentContext,
    driver: &Driver,
    users: u32,
    processors: usize,
) -> Result<MigrationResult, Failure> {
    session.interrupt.check()?;
    let network = Network::build(&session.lab, InterfaceMode::Fanout, processors.min(2))?;
    let mut upf = Upf::start(
        network.upf(),
        &[],
        &config(&network, (driver, ""), users, &slices_of(processors)),
        &session.interrupt,
    )?;
    let teids = establish(&network, &mut upf, 0..users)?;
    let mover = UserMigrator::new(users);
    // Alternate ranges: half of the users start in the second slice.
    for place in (0..mover.places).step_by(2) {
        mover.migrate(place, 1)?;
    }
    let packets = network.packets(0, FIRST_UE, teids);
    let mut load = network.outside(|| FrameLoop::load(&network.ends[0], packets))??;
    load.run(0, users)?;
    let no_room = dropped(&network)?;
    for direction in [Direction::Uplink, Direction::Downlink] {
        let inject = || on_processors(&[0], || load.inject(direction, 0, driver.flight));
        network.outside(inject)???;
    }
    let window = Duration::from_millis(if session.quick { 80 } else { 1000 });
    std::thread::sleep(window / 2);
    let mut seen = MigrationResult::default();
    let mut moves = vec![];
    for turn in 0..TURNS {
        let (rate, time) = match turn % 2 {
            1 => {
                let (watched, moved) = mover.during(|| watch(&load, window, driver))?;
                moves.push(moved);
                watched
            }
            _ => watch(&load, window, driver)?,
        };
        seen.rates.push(rate);
        seen.times.push(time);
    }
    seen.moves = Measured::from_runs(moves).map_or(0.0, |all| all.median);
    load.run(0, 0)?;
    let end = end_of(&load, &network, driver, no_room)?;
    (seen.lost, seen.no_room) = (end.lost, end.no_room);
    (seen.duplicated, seen.miscounted) = (end.duplicated, end.miscounted());
    if end.is_wrong() {
        let Driver { name, flight } = driver;
        eprintln!("experiment: {name}, {} frames: {}", 2 * flight, tally(&end.far_ends, &end.status));
    }
    drop(load);
    upf.stop()?;
    Ok(seen)
}

/// Returns the frames dropped by full AF_PACKET rings, from the metrics of the user plane.
pub(super) fn ring_full() -> Result<u64, Failure> {
    let text = api(API)?.fetch("/metrics")?;
    let line = text.lines().find(|line| line.starts_with("vireo_upf_dropped") && line.contains("\"ring_full\""));
    Ok(line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0))
}

/// Returns the frames that the links around the user plane have dropped for lack of room.
pub(super) fn dropped(network: &Network<'_>) -> Result<u64, Failure> {
    let of = |names: [&str; 2]| -> Result<u64, Failure> {
        names.iter().try_fold(0, |sum, name| Ok(sum + interface_counters(name)?.dropped))
    };
    let ends = &network.ends[0];
    Ok(of([&ends.n3.name, &ends.n6.name])? + network.outside(|| of([&ends.ran.name, &ends.dn.name]))??)
}

/// Sets up the first sessions of a UPF. Returns their TEIDs.
pub(super) fn establish(network: &Network<'_>, upf: &mut Upf, users: Range<u32>) -> Result<Teids, Failure> {
    sessions(network, upf, (users, None), WINDOW)
}

/// Sets up sessions, with the given TEIDs if there are any and at most `window` unanswered
/// requests. Returns their TEIDs.
pub(super) fn sessions(
    network: &Network<'_>,
    upf: &mut Upf,
    (users, given): (Range<u32>, Option<&Teids>),
    window: usize,
) -> Result<Teids, Failure> {
    let build = |session: u32| pfcp::Session {
        ue: Ipv4Addr::from_bits(FIRST_UE.to_bits() + session),
        gnb: network.gnb(0),
        teid: Teid(session + 1),
        f_teid: given.map(|teids| (teids.teid(session), network.n3(0))),
        qfi: 1,
        mbr_kbps: None,
        measured: false,
        filters: 0,
    };
    let (mut teids, mut odd) = (None, None);
    upf.plane.establish(users, window, build, |established| {
        let (session, teid) = (established.session, established.teid);
        if !teids.get_or_insert_with(|| Teids::with(session, teid)).add(session, teid) {
            odd = Some(established);
        }
    })?;
    match (odd, teids) {
        (None, Some(teids)) => Ok(teids),
        (odd, _) => Err(Failure(format!("the UPF gives TEIDs out of order: {odd:?}, so there can be no load"))),
    }
}

/// Migrates users to a slice. Returns the number of users that changed their worker.
pub(super) fn move_range(users: Range<u32>, to: &str) -> Result<u64, Failure> {
    let [first, last] = [users.start, users.end - 1].map(|user| Ipv4Addr::from_bits(FIRST_UE.to_bits() + user));
    Ok(slices::move_users(&api(API)?, &format!("address={first}&last={last}&to={to}"))?.moved)
}

/// Returns the packets per second and the median time of one in microseconds, over a window. On a
/// busy machine, all workers may be without a processor for longer than a short window.
fn watch(load: &FrameLoop, window: Duration, driver: &Driver) -> Result<(f64, f64), Failure> {
    let all = || load.counted().map(|counted| counted.uplink + counted.downlink);
    let (began, before) = (Instant::now(), all()?);
    let (mut last, mut times) = ((began, before), vec![]);
    while began.elapsed() < window || last.1 == before && began.elapsed() < STALLED {
        std::thread::sleep(SLOT);
        let (now, packets) = (Instant::now(), all()?);
        let spent = (now - last.0).as_secs_f64() * 1e6;
        // This many packets are in flight in each direction.
        times.push(spent * 2.0 * driver.flight as f64 / (packets - last.1).max(1) as f64);
        last = (now, packets);
    }
    let rate = (last.1 - before) as f64 / (last.0 - began).as_secs_f64();
    let median = Measured::from_runs(times).map_or(f64::NAN, |times| times.median);
    match rate > 0.0 {
        true => Ok((rate, median)),
        false => Err(Failure(format!("no packet comes through the driver {} for {STALLED:?}", driver.name))),
    }
}

/// Counts of a stopped load, after the last frame.
pub(super) struct EndOfLoad {
    far_ends: LoopCounters,
    /// Counts of entries and workers.
    status: SlicesStatus,
    /// Frames that links and rings of the kernel dropped for lack of room.
    pub(super) no_room: u64,
    /// Frames missing at the end, except those.
    pub(super) lost: u64,
    /// Frames that ended although they were not put in.
    duplicated: u64,
}

impl EndOfLoad {
    /// Returns the difference between the counts of the sessions' entries and the packets at the
    /// far ends. An entry also counts a packet that the kernel then drops for lack of room.
    pub(super) fn miscounted(&self) -> u64 {
        miscounted(&self.status, sum(&self.far_ends), self.no_room)
    }

    fn is_wrong(&self) -> bool {
        self.lost + self.duplicated + self.miscounted() > 0
    }
}

/// Waits for the end of a stopped load with `driver.flight` frames in each direction. `no_room` are
/// the frames that links had dropped before.
///
/// Counts of far ends and entries are compared only if neither changes: without a processor, a
/// worker keeps frames in its rings for longer than any fixed time.
pub(super) fn end_of(
    load: &FrameLoop,
    network: &Network<'_>,
    driver: &Driver,
    no_room: u64,
) -> Result<EndOfLoad, Failure> {
    let (all, api) = (2 * driver.flight as u64, api(API)?);
    let deadline = Instant::now() + END_WITHIN;
    let mut before: Option<(LoopCounters, SlicesStatus)> = None;
    loop {
        let (far_ends, quiet) = quiet_counters(load, all)?;
        // The user plane reads the drop counts of rings from the kernel once per second and then
        // updates its metrics.
        std::thread::sleep(if driver.flight > 1 { RING_COUNTS } else { QUIET_POLL });
        let status = slices::list_with_counts(&api)?;
        let dropped = dropped(network)? - no_room + ring_full()?;
        let now = (load.counted()?, status);
        let is_stable = quiet && now.0 == far_ends && before.as_ref().is_none_or(|before| *before == now);
        let is_known = far_ends.ended + dropped >= all && miscounted(&now.1, sum(&now.0), dropped) == 0;
        // What is missing may be held up: it is missing only if it stays so.
        if is_stable && (is_known || before.is_some()) {
            let missing = all.saturating_sub(far_ends.ended);
            return Ok(EndOfLoad {
                no_room: dropped,
                lost: missing.saturating_sub(dropped),
                duplicated: far_ends.ended.saturating_sub(all),
                far_ends,
                status: now.1,
            });
        }
        if Instant::now() > deadline {
            return Err(Failure("the frames of the load do not end".into()));
        }
        before = Some(now);
    }
}

fn sum(far_ends: &LoopCounters) -> u64 {
    far_ends.uplink + far_ends.downlink
}

/// Waits until no frame arrives at the far ends any more: a short time after all frames have ended,
/// else a longer one. Returns false if frames still arrive.
fn quiet_counters(load: &FrameLoop, all: u64) -> Result<(LoopCounters, bool), Failure> {
    let deadline = Instant::now() + END_WITHIN;
    let (mut last, mut quiet) = (load.counted()?, 0);
    // A duplicated frame ends after all others.
    while quiet < if last.ended < all { QUIET } else { QUIET_AT_END } {
        std::thread::sleep(QUIET_POLL);
        let now = load.counted()?;
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        if Instant::now() > deadline {
            return Ok((last, false));
        }
    }
    Ok((last, true))
}

/// Returns the difference between the counts of the sessions' entries and the packets that arrived
/// at the far ends. Of `no_room` packets it is unknown whether they were dropped before they were
/// counted, or after.
fn miscounted(slices: &SlicesStatus, packets: u64, no_room: u64) -> u64 {
    let sum = |of: fn(&vireo_ops::api::SliceCounted) -> u64| -> u64 {
        slices.slices.iter().filter_map(|slice| slice.counted.as_ref()).map(of).sum()
    };
    let off = |counted: u64, unit: u64| match counted.checked_sub(packets * unit) {
        Some(more) => more.saturating_sub(no_room * unit) / unit,
        None => (packets * unit - counted).div_ceil(unit),
    };
    off(sum(|one| one.packets), 1).max(off(sum(|one| one.octets), LENGTH.into()))
}

/// Describes what the far ends, the entries of each slice and each worker have counted.
fn tally(far_ends: &LoopCounters, status: &SlicesStatus) -> String {
    let slices = status.slices.iter().map(|slice| {
        let workers = slice.workers.iter().map(|one| one.uplink_packets + one.downlink_packets);
        let (users, workers, counted) = (slice.users, workers.sum::<u64>(), &slice.counted);
        format!("{}: users={users} entries={counted:?} workers={workers}", slice.name)
    });
    format!("far ends {far_ends:?}; {}; moved={}", slices.collect::<Vec<_>>().join("; "), status.moved)
}

/// Migrates users back and forth, range by range.
struct UserMigrator {
    /// Number of ranges of [`TOGETHER`] users.
    places: u32,
    moved: AtomicU64,
    /// Counter of the ranges taken in all rounds.
    next: AtomicU32,
}

impl UserMigrator {
    fn new(users: u32) -> Self {
        UserMigrator { places: users / TOGETHER, moved: AtomicU64::new(0), next: AtomicU32::new(0) }
    }

    /// Migrates the users of a range to a slice.
    fn migrate(&self, place: u32, to: usize) -> Result<(), Failure> {
        let moved = move_range(place * TOGETHER..(place + 1) * TOGETHER, NAMES[to])?;
        self.moved.fetch_add(moved, Relaxed);
        Ok(())
    }

    /// Migrates [`RATE`] users per second while `work` runs. Returns the results of `work` and the
    /// migrations per second.
    fn during(&self, work: impl FnOnce() -> Result<(f64, f64), Failure>) -> Result<((f64, f64), f64), Failure> {
        let stop = AtomicBool::new(false);
        let before = self.moved.load(Relaxed);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let (began, every) = (Instant::now(), f64::from(TOGETHER) / RATE);
                // Even ranges start in the second slice.
                for count in 1_u32.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    let n = self.next.fetch_add(1, Relaxed);
                    let (place, round) = (n % self.places, n / self.places);
                    self.migrate(place, ((place + round) % 2) as usize)?;
                    let due = began + Duration::from_secs_f64(f64::from(count) * every);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                Ok::<_, Failure>(())
            });
            let began = Instant::now();
            let result = work();
            let (spent, moved) = (began.elapsed(), self.moved.load(Relaxed) - before);
            stop.store(true, Relaxed);
            mover.join().map_err(|_| Failure("the thread that moves users has failed".into()))??;
            Ok((result?, moved as f64 / spent.as_secs_f64()))
        })
    }
}

fn findings(passes: &[Pass], users: u32, processors: usize) -> Result<Findings, Failure> {
    const TALK: &str = "talk: less than 5% drop in data plane throughput with 10K migrations per second";
    const LATENCY: &str = "published paper, not in the talk: median latency";
    let sum = |of: fn(&MigrationResult) -> u64| {
        each(passes, move |pass: &Pass| pass.all().map(of).iter().sum::<u64>() as f64)
    };
    let (lost, miscounted) = (sum(|seen| seen.lost)?, sum(|seen| seen.miscounted)?);
    let duplicated = sum(|seen| seen.duplicated)?;
    let broken = (lost.max + duplicated.max + miscounted.max > 0.0).then(|| {
        format!("{} packets were lost, {} duplicated and {} miscounted", lost.max, duplicated.max, miscounted.max)
    });
    let figures = vec![
        Figure::new(
            "af-packet, packets with migrations, of those without",
            "ratio",
            each(passes, |p| kept_rate(&p.busy))?,
        )
        .paper(Bound::AtLeast(0.95), TALK)
        .mark(Bound::AtLeast(0.98)),
        Figure::new(
            "sockets, packets with migrations, of those without",
            "ratio",
            each(passes, |p| kept_rate(&p.sockets))?,
        )
        .paper(Bound::AtLeast(0.95), TALK)
        .mark(Bound::AtLeast(0.98)),
        Figure::new("migrations", "1/s", each(passes, |pass| pass.busy.moves)?)
            .paper(Bound::About(RATE), TALK)
            .mark(Bound::AtLeast(0.95 * RATE)),
        Figure::new("packets lost", "", lost).mark(Bound::AtMost(0.0)),
        Figure::new("packets that links and rings of the kernel had no room for", "", sum(|seen| seen.no_room)?),
        Figure::new("packets duplicated", "", duplicated).mark(Bound::AtMost(0.0)),
        Figure::new("packets miscounted", "", miscounted).mark(Bound::AtMost(0.0)),
        Figure::new("time that a packet takes longer", "us", each(passes, added)?)
            .paper(Bound::About(4.0), LATENCY)
            .mark(Bound::AtMost(4.0)),
        Figure::new("packets with migrations", "1/s", each(passes, |pass| median_of(&pass.busy.rates, true))?)
            .baseline("without", Some(each(passes, |pass| median_of(&pass.busy.rates, false))?)),
        Figure::new("time of a packet with migrations", "us", each(passes, |pass| median_of(&pass.alone.times, true))?)
            .baseline("without", Some(each(passes, |pass| median_of(&pass.alone.times, false))?)),
    ];
    let mut table = Table::new(&["run", "load", "turn", "packets_per_s", "packet_us"]);
    for (run, pass) in passes.iter().enumerate() {
        for (load, seen) in
            [("af-packet", &pass.busy), ("sockets", &pass.sockets), ("one packet at a time", &pass.alone)]
        {
            for (turn, (rate, time)) in seen.rates.iter().zip(&seen.times).enumerate() {
                let name = if turn % 2 == 1 { "with migrations" } else { "without" };
                let numbers = [rate, time].map(f64::to_string);
                table.row([(run + 1).to_string(), load.into(), name.into()].into_iter().chain(numbers));
            }
        }
    }
    let turns = |of: fn(&Pass) -> &[f64]| {
        let one = |n: usize| each(passes, move |pass| of(pass)[n]).map(|rate| ((n + 1) as f64, rate.median / 1e6));
        (0..passes.first().map_or(0, |pass| of(pass).len())).map(one).collect::<Result<Vec<_>, _>>()
    };
    let chart = Chart::new(
        "Packets without and with 10,000 migrations a second",
        Axis::linear("turn: those of even numbers are with migrations"),
        Axis::linear("million packets per second, both directions"),
    );
    let chart = chart.line("af-packet", turns(|pass| &pass.busy.rates)?).line("sockets", turns(|p| &p.sockets.rates)?);
    let alone = each(passes, |pass| median_of(&pass.busy.rates, false))?.median / 1e6;
    let chart = chart.mark("talk: less than 5% drop of af-packet", MarkPosition::Y(alone * 0.95));
    let about = "Two slices with a worker each; users move between them by `POST /slices/move`.";
    Ok(Findings {
        load: OfferedLoad::new("migrations beside 128-byte packets in a closed loop", [RATE], "1/s"),
        configurations: [BUSY, SOCKETS]
            .iter()
            .map(|driver| Configuration {
                name: driver.name.into(),
                about: about.into(),
                toml: format!("{}[datapath]\ndriver = \"{}\"\n", slices_of(processors), driver.name),
            })
            .collect(),
        figures,
        plots: vec![("rates", chart.svg()?)],
        tables: vec![("turns", table)],
        notes: vec![
            format!(
                "{users} users, {LENGTH}-byte packets of random ones in both directions at once, {} processors. Frames go \
                 round between the user plane and programs at the links' far ends, so one that is lost is missing at \
                 the end: so many were put in and so many must come to their end. What the sessions' records have \
                 counted is held against what the far ends counted, in packets and octets, once neither changes. A record \
                 also counts a packet that the kernel drops afterwards for lack of room.",
                processors
            ),
            "The rates are those of AF_PACKET and of sockets with both workers busy all the time; whoever moves users, and answers the \
             requests to do so, takes his time from them. A ring of AF_PACKET that frames come to from several \
             processors drops one now and then as the kernel goes on to its next block, with and without migrations: \
             the kernel counts these. The time of a packet is that of the sockets driver with one packet of \
             each direction on the way: the median of means over 20 ms."
                .into(),
        ],
        broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::{SliceCounted, SliceStatus};

    #[test]
    fn miscounted_packets_are_found() {
        let slice =
            |packets, octets| SliceStatus { counted: Some(SliceCounted { packets, octets }), ..SliceStatus::default() };
        let slices = |last| SlicesStatus { moved: 0, rebalanced: 0, slices: vec![slice(10, 1280), slice(5, last)] };
        assert_eq!(miscounted(&slices(640), 15, 0), 0);
        assert_eq!(miscounted(&slices(640), 16, 0), 1);
        assert_eq!(miscounted(&slices(512), 15, 0), 1, "octets of one packet are missing");
        assert_eq!(miscounted(&slices(639), 15, 0), 1, "an octet is missing");
        assert_eq!(miscounted(&slices(640), 16, 5), 1, "no entry counted what arrived");
    }

    #[test]
    fn packets_dropped_after_count_are_allowed() {
        let counted = Some(SliceCounted { packets: 10, octets: 1280 });
        let slices = SlicesStatus { slices: vec![SliceStatus { counted, ..<_>::default() }], ..<_>::default() };
        assert_eq!([0, 1, 2, 3].map(|no_room| miscounted(&slices, 8, no_room)), [2, 1, 0, 0]);
    }

    #[test]
    fn rate_with_migrations_uses_runs_around() {
        let seen = |rates: [f64; 5], times: [f64; 5], lost| MigrationResult {
            rates: rates.to_vec(),
            times: times.to_vec(),
            moves: 1e4,
            lost,
            no_room: 3,
            duplicated: 0,
            miscounted: 0,
        };
        let busy = |lost| seen([1e6, 0.99e6, 1e6, 0.98e6, 1e6], [1.0; 5], lost);
        let alone = || seen([1e5; 5], [20.0, 23.0, 22.0, 22.0, 18.0], 0);
        let pass = |lost| Pass { busy: busy(lost), sockets: busy(0), alone: alone() };
        assert_eq!((kept_rate(&pass(0).busy), added(&pass(0))), (0.985, 2.0));
        assert_eq!((median_of(&alone().times, true), median_of(&alone().times, false)), (22.5, 20.0));
        let good = findings(&[pass(0)], 100, 2).unwrap();
        assert!(good.broken.is_none() && good.figures.iter().all(|figure| figure.met != Some(false)));
        assert!(findings(&[pass(1)], 100, 2).unwrap().broken.unwrap().contains("1 packets were lost"));
    }
}
