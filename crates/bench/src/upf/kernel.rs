//! Packet cost of the XDP program, compared with a program that only moves headers.

use super::network::Network;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::{Direction, FrameLoop, LoopCounters};

/// Frames in flight: one poll of a veth interface takes as many.
const FRAMES: usize = 64;
/// Limit of the time until all frames of a stopped load have ended.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Durations of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    pub warm_up: Duration,
    pub window: Duration,
}

/// Time of a packet in nanoseconds, by direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub uplink: f64,
    pub downlink: f64,
}

impl Cost {
    /// Returns the costs relative to the mean of two others.
    pub fn over(self, before: Cost, after: Cost) -> Cost {
        Cost {
            uplink: self.uplink / f64::midpoint(before.uplink, after.uplink),
            downlink: self.downlink / f64::midpoint(before.downlink, after.downlink),
        }
    }
}

/// Measures both directions, one after the other, with `count` sessions from `first` on.
pub fn both(
    network: &Network,
    load: &mut FrameLoop,
    sessions: (u32, u32),
    processor: usize,
    spans: Spans,
) -> Result<Cost, Failure> {
    let mut one = |direction| nanoseconds(network, load, direction, sessions, processor, spans);
    Ok(Cost { uplink: one(Direction::Uplink)?, downlink: one(Direction::Downlink)? })
}

fn nanoseconds(
    network: &Network,
    load: &mut FrameLoop,
    direction: Direction,
    sessions: (u32, u32),
    processor: usize,
    spans: Spans,
) -> Result<f64, Failure> {
    Ok(round(network, load, direction, sessions, processor, (FRAMES, spans))?.nanoseconds)
}

/// Poll interval while the frames of a stopped load end.
const STEP: Duration = Duration::from_millis(5);
/// Polls without a new frame after which the remaining frames count as lost.
const QUIET: u32 = 30;

/// Measurement of frames in a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    /// Wall-clock time per packet.
    pub nanoseconds: f64,
    /// Busy time of the processor per packet.
    pub(crate) cpu_nanoseconds: f64,
    /// Injected frames that were still in the loop when the load ended.
    pub(crate) in_flight: u64,
}

/// Injects frames into the loop and measures them for a window.
pub fn round(
    network: &Network,
    load: &mut FrameLoop,
    direction: Direction,
    (first, count): (u32, u32),
    processor: usize,
    (frames, spans): (usize, Spans),
) -> Result<Round, Failure> {
    let of = |counted: LoopCounters| match direction {
        Direction::Uplink => counted.uplink,
        Direction::Downlink => counted.downlink,
    };
    load.run(first, count)?;
    let inject = || on_processors(&[processor], || load.inject(direction, first, frames));
    network.outside(inject)???;
    std::thread::sleep(spans.warm_up);
    let (began, idle_before, before) = (Instant::now(), idle(processor)?, of(load.counted()?));
    std::thread::sleep(spans.window);
    let (ended, idle_after, after) = (Instant::now(), idle(processor)?, of(load.counted()?));
    load.run(0, 0)?;
    if after == before {
        return Err(Failure(format!(
            "no packet comes through {}: the UPF drops them or the interfaces lose them",
            if direction == Direction::Uplink { "uplink" } else { "downlink" }
        )));
    }
    let last = ended_at(after + frames as u64, || Ok(of(load.counted()?)))?;
    let (packets, spent) = ((after - before) as f64, ended - began);
    let busy = spent.saturating_sub(idle_after.saturating_sub(idle_before));
    Ok(Round {
        nanoseconds: spent.as_nanos() as f64 / packets,
        cpu_nanoseconds: busy.as_nanos() as f64 / packets,
        in_flight: last - after,
    })
}

/// Waits until `all` frames are counted, or until the count stops growing because frames were lost.
fn ended_at(all: u64, counted: impl Fn() -> Result<u64, Failure>) -> Result<u64, Failure> {
    let deadline = Instant::now() + END_WITHIN;
    let (mut last, mut quiet) = (counted()?, 0);
    while quiet < QUIET {
        std::thread::sleep(STEP);
        let now = counted()?;
        // The last frames may still be in flight.
        quiet = if now >= all {
            QUIET
        } else if now == last {
            quiet + 1
        } else {
            0
        };
        last = now;
        if Instant::now() > deadline {
            return Err(Failure("the frames of the load do not end".into()));
        }
    }
    Ok(last)
}

/// Returns the idle time of a processor (`/proc/stat`), in steps of 10 ms.
fn idle(processor: usize) -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/stat")?;
    idle_of(&text, processor).ok_or_else(|| Failure(format!("the kernel tells nothing of processor {processor}")))
}

fn idle_of(stat: &str, processor: usize) -> Option<Duration> {
    let name = format!("cpu{processor}");
    let line =
        stat.lines().map(str::split_whitespace).find_map(|mut words| (words.next()? == name).then_some(words))?;
    // proc(5): user, nice, system, idle, iowait. The unit is USER_HZ, 100 on all Linux platforms
    // supported here.
    let mut ticks = line.skip(3).map(|ticks| ticks.parse::<u64>().ok());
    Some(Duration::from_millis((ticks.next()?? + ticks.next()??) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_includes_io_wait() {
        let stat = "cpu  9 9 9 9 9 9 9 0 0 0\ncpu0 1 2 3 400 5 6 7 0 0 0\ncpu1 1 1 1 7 3 0 0 0 0 0\nintr 5\n";
        assert_eq!(idle_of(stat, 0), Some(Duration::from_millis(4050)));
        assert_eq!(idle_of(stat, 1), Some(Duration::from_millis(100)));
        assert_eq!((idle_of(stat, 2), idle_of("cpu0 1 2", 0)), (None, None));
    }
}
