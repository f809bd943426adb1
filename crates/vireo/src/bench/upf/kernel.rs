//! What a packet costs in the kernel's program, against a program that only moves headers.

use super::network::Network;
use crate::cli::Failure;
use crate::lab::process::on_processors;
use std::time::{Duration, Instant};
use vireo_traffic::circuit::{Circuit, Counted, Direction};

/// Frames in flight: what one poll of a veth interface takes.
const FRAMES: usize = 64;
const WARM_UP: Duration = Duration::from_millis(150);
/// How long frames may need to be gone.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How long a measurement takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans {
    pub(super) window: Duration,
}

/// A packet's time in ns, by direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) uplink: f64,
    pub(super) downlink: f64,
}

impl Cost {
    /// The costs relative to the middle of two others.
    pub(super) fn over(self, before: Cost, after: Cost) -> Cost {
        Cost {
            uplink: self.uplink / f64::midpoint(before.uplink, after.uplink),
            downlink: self.downlink / f64::midpoint(before.downlink, after.downlink),
        }
    }
}

/// Both directions, one after the other, of `count` sessions from `first` on.
pub(super) fn both(
    network: &Network,
    load: &mut Circuit,
    sessions: (u32, u32),
    processor: usize,
    spans: Spans,
) -> Result<Cost, Failure> {
    let mut one = |direction| nanoseconds(network, load, direction, sessions, processor, spans);
    Ok(Cost { uplink: one(Direction::Uplink)?, downlink: one(Direction::Downlink)? })
}

fn nanoseconds(
    network: &Network,
    load: &mut Circuit,
    direction: Direction,
    (first, count): (u32, u32),
    processor: usize,
    spans: Spans,
) -> Result<f64, Failure> {
    let of = |counted: Counted| match direction {
        Direction::Uplink => counted.uplink,
        Direction::Downlink => counted.downlink,
    };
    load.run(first, count)?;
    let inject = || on_processors(&[processor], || load.inject(direction, first, FRAMES));
    network.outside(inject)???;
    std::thread::sleep(WARM_UP);
    let (began, before) = (Instant::now(), of(load.counted()?));
    std::thread::sleep(spans.window);
    let (ended, after) = (Instant::now(), of(load.counted()?));
    load.run(0, 0)?;
    if after == before {
        return Err(Failure(format!(
            "no packet comes through {}: the UPF drops them or the interfaces lose them",
            if direction == Direction::Uplink { "uplink" } else { "downlink" }
        )));
    }
    let deadline = Instant::now() + END_WITHIN;
    let mut last = of(load.counted()?);
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let now = of(load.counted()?);
        if now == last {
            break;
        }
        last = now;
        if Instant::now() > deadline {
            return Err(Failure("the frames of the load do not end".into()));
        }
    }
    Ok((ended - began).as_nanos() as f64 / (after - before) as f64)
}
