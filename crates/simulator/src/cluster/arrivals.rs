//! Procedures that begin: their times, UEs and kinds.

use super::Setup;
use super::clock::{Clock, Nanos};
use super::host_weights::bucket_map;
use super::run::nanos;
use super::workload::{KINDS, Procedure, Slice, Workload, WorkloadError};
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::schedule::kind::NfKind;
use vireo_emulator::load::{Arrivals, Pattern, Rng};
use vireo_types::{Bucket, Duration};

/// Maximum number of UEs whose order of arrival is stored.
const MAX_ORDERED_UES: u32 = 1 << 20;

/// Procedure that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    pub(super) slice: usize,
    pub(super) ue: u32,
    /// Hash of the UE.
    pub(super) own: u64,
    pub(super) bucket: Bucket,
    pub(super) kind: NfKind,
    pub(super) messages: u32,
    /// Core time of one message.
    pub(super) each: Nanos,
    pub(super) between: Nanos,
}

impl Arriving {
    /// Returns the index of the procedure's pool.
    pub(super) fn pool(&self) -> usize {
        self.slice * KINDS + self.kind.index()
    }
}

/// Slice, prepared for the simulation.
struct SliceSource<'a> {
    slice: &'a Slice,
    arrivals: Arrivals,
    buckets: Vec<Bucket>,
    parts: f64,
    /// Order of arrival by UE, where it matters and there are not too many UEs.
    order: Box<[u32]>,
}

/// All slices with their arrivals, which do not depend on the choice of hosts.
pub(super) struct Traffic<'a> {
    sources: Vec<SliceSource<'a>>,
    rng: Rng,
    /// Salt of the UE identifiers, which decide the placement of their state.
    salt: u64,
    speed: f64,
}

impl<'a> Traffic<'a> {
    /// Creates the traffic. `is_ordered`: round robin needs the order of arrival of UEs.
    pub(super) fn new(
        workload: &'a Workload,
        map: &BucketMap,
        (speed, is_ordered): (f64, bool),
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let patterns = workload.patterns()?;
        let source = |((n, slice), pattern): ((usize, &'a Slice), Pattern)| SliceSource {
            slice,
            arrivals: Arrivals::new(&pattern, slice.rate, seed.wrapping_add(n as u64)),
            // Those of the first part are for UEs of unknown slice.
            buckets: map.buckets(n + 1).collect(),
            parts: slice.procedures.iter().map(|p| p.part).sum(),
            order: if is_ordered && slice.ues <= MAX_ORDERED_UES { shuffled(slice.ues, seed) } else { Box::default() },
        };
        let sources = workload.slices.iter().enumerate().zip(patterns).map(source).collect();
        Ok(Traffic { sources, rng: Rng::new(seed), salt: Rng::new(seed ^ 0x5eed).bits(), speed })
    }

    /// Returns the time of a slice's next procedure.
    pub(super) fn next_at(&mut self, slice: usize) -> Nanos {
        (self.sources[slice].arrivals.next_s() * 1e9) as Nanos
    }

    /// Draws the UE and kind of a slice's next procedure.
    pub(super) fn draw(&mut self, number: usize) -> Option<Arriving> {
        let source = &self.sources[number];
        let ue = ue(source.slice, &mut self.rng);
        let own = Rng::new((u64::from(ue) << 8 | number as u64) ^ self.salt).bits();
        let procedure = pick(source, &mut self.rng)?;
        let bucket = source.buckets[(own as usize).checked_rem(source.buckets.len())?];
        let messages = procedure.messages;
        let each = procedure.time_us * source.slice.factor(ue) * 1000.0 / f64::from(messages) / self.speed;
        Some(Arriving {
            slice: number,
            ue,
            own,
            bucket,
            kind: procedure.kind,
            messages,
            each: each as Nanos,
            between: (procedure.between_ms * 1e6) as Nanos,
        })
    }

    /// Returns the order of arrival of a UE.
    pub(super) fn order_of(&self, drawn: &Arriving) -> u64 {
        // A random order is equally even for many UEs.
        let order = self.sources[drawn.slice].order.get(drawn.ue as usize);
        order.map_or(drawn.own, |order| u64::from(*order))
    }
}

/// Procedure of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Seconds since the measured time began.
    pub at_s: f64,
    /// Seconds of work on one core of a host, alone.
    pub work_s: f64,
    /// Latency objective, in seconds.
    pub slo_s: f64,
}

/// Returns the procedures that begin in the measured time, as in [`simulate`](super::simulate).
pub fn trace(
    setup: Setup,
    workload: &Workload,
    seed: u64,
    warm_up: Duration,
    length: Duration,
) -> Result<Vec<Arrival>, WorkloadError> {
    let (setup, workload) = sampled(setup, workload);
    let map = bucket_map(&[], workload.slices.len(), 0);
    let mut traffic = Traffic::new(&workload, &map, (setup.speed, false), seed)?;
    let (from, mut arrivals, mut clock) = (nanos(warm_up), Vec::new(), Clock::new());
    for slice in 0..workload.slices.len() {
        clock.at(traffic.next_at(slice), slice);
    }
    while let Some(slice) = clock.next_before(from.saturating_add(nanos(length))) {
        let (at, drawn) = (clock.now(), traffic.draw(slice));
        clock.at(traffic.next_at(slice), slice);
        let Some(drawn) = drawn.filter(|_| at >= from) else { continue };
        let procedure = workload.slices[slice].procedures.iter().find(|p| p.kind == drawn.kind);
        arrivals.extend(procedure.map(|procedure| Arrival {
            at_s: (at - from) as f64 / 1e9,
            work_s: drawn.each as f64 * f64::from(drawn.messages) / 1e9,
            slo_s: procedure.slo_ms / 1e3,
        }));
    }
    Ok(arrivals)
}

/// Returns the sample of a workload, and the hosts that are slower by the same factor.
pub(super) fn sampled(setup: Setup, workload: &Workload) -> (Setup, Workload) {
    let one_of = f64::from(setup.sample.max(1));
    (Setup { speed: setup.speed / one_of, ..setup }, workload.scaled(1.0 / one_of))
}

/// Returns the order of arrival of UEs, which differs from that of their ranks.
fn shuffled(ues: u32, seed: u64) -> Box<[u32]> {
    let mut rng = Rng::new(seed ^ 0x0bde);
    let mut order: Box<[u32]> = (0..ues).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last + 1));
    }
    order
}

/// Draws the rank of the active UE of a slice.
fn ue(slice: &Slice, rng: &mut Rng) -> u32 {
    (slice.rank(rng.unit()) as u32).min(slice.ues - 1)
}

/// Draws the kind of procedure.
fn pick<'a>(source: &SliceSource<'a>, rng: &mut Rng) -> Option<&'a Procedure> {
    let mut remaining = rng.unit() * source.parts;
    let procedures = &source.slice.procedures;
    let found = procedures.iter().find(|p| {
        remaining -= p.part;
        remaining < 0.0
    });
    found.or(procedures.last())
}
