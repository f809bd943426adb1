//! Data side and control side in separate processes: XDP and N4.
//!
//! XDP handles the packets of `vireo upf` on one processor. A control plane in this process changes
//! the UPF's sessions via N4 on another one, where the UPF's N4 thread also runs.

use super::median;
use crate::experiment::Plane;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::upf::network::GNB;
use vireo_bench::upf::process::{Upf, xdp};
use vireo_config::Failure;
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::{Direction, FrameLoop};

/// Frames in flight: one poll of a veth interface takes as many.
pub(super) const FRAMES: usize = 64;
/// Time without a packet after which none is expected any more.
const STALLED: Duration = Duration::from_secs(2);
/// Turns without events. A turn with events follows each but the last.
pub(super) const TURNS: usize = 4;

/// Results of the measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct SignallingResult {
    /// Packets per second by turn. Turns with odd index have events.
    pub(super) rates: Vec<f64>,
    /// Events per second of those turns.
    pub(super) events: f64,
}

impl SignallingResult {
    /// Returns the packets per second without events.
    pub(super) fn rate_alone(&self) -> f64 {
        median(self.rates.iter().step_by(2).copied())
    }

    /// Returns the fraction of the rate that remains under events. Each turn with events is
    /// compared with its neighbours.
    pub(super) fn kept_rate(&self) -> f64 {
        let turns = self.rates.windows(3).step_by(2);
        median(turns.map(|around| around[1] / f64::midpoint(around[0], around[2])))
    }
}

/// Sends packets of `users` users in a loop, alternately without events and with events at the
/// given rate.
pub(super) fn measure(
    plane: &Plane,
    users: u32,
    rate: f64,
    span: Duration,
    (data, control): (usize, usize),
) -> Result<SignallingResult, Failure> {
    let mut upf = Upf::start(&plane.network, &[control], users, &xdp(&plane.network), &plane.interrupt)?;
    upf.establish(0..users, false)?;
    let teids = upf.teids.take().ok_or_else(|| Failure("the UPF has no sessions".into()))?;
    // Packets that XDP passes to the sockets stay on the packets' processor.
    upf.workers_on(data)?;
    upf.signalling_on(control)?;
    let packets = plane.network.packets(teids);
    let mut load = plane.network.outside(|| FrameLoop::load(&plane.network.ours, packets))??;
    load.run(0, users)?;
    plane.network.outside(|| on_processors(&[data], || load.inject(Direction::Downlink, 0, FRAMES)))???;
    std::thread::sleep(span / 2);
    let (mut seen, mut events) = (SignallingResult::default(), vec![]);
    for turn in 0..2 * TURNS - 1 {
        plane.interrupt.check()?;
        if turn % 2 == 0 {
            seen.rates.push(watch(&load, span)?);
            continue;
        }
        let (stop, began) = (AtomicBool::new(false), Instant::now());
        let (seen_rate, moved) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| on_processors(&[control], || upf.update_tunnels(GNB, rate, &stop)));
            let seen_rate = watch(&load, span);
            stop.store(true, Relaxed);
            (seen_rate, beside.join())
        });
        let spent = began.elapsed();
        let moved = moved.map_err(|_| Failure("the control plane ended by itself".into()))???;
        events.push(moved as f64 / spent.as_secs_f64());
        seen.rates.push(seen_rate?);
    }
    seen.events = median(events.into_iter());
    load.run(0, 0)?;
    drop(load);
    upf.stop()?;
    Ok(seen)
}

/// Returns the packets per second over `span`. On a busy machine, the packets' processor may have
/// other work for longer than a short span.
pub(super) fn watch(load: &FrameLoop, span: Duration) -> Result<f64, Failure> {
    let (began, before) = (Instant::now(), load.counted()?.downlink);
    while began.elapsed() < STALLED {
        std::thread::sleep(span);
        let (passed, packets) = (began.elapsed(), load.counted()?.downlink - before);
        if packets > 0 {
            return Ok(packets as f64 / passed.as_secs_f64());
        }
    }
    Err(Failure(format!("no packet comes through the UPF for {STALLED:?}: all frames in flight were lost")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_with_events_uses_runs_around() {
        let seen = SignallingResult { rates: vec![100.0, 99.0, 98.0, 90.0, 102.0, 101.0, 98.0], events: 1e4 };
        assert_eq!((seen.rate_alone(), seen.kept_rate()), (99.0, 1.0));
    }
}
