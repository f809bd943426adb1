//! Breakdown of a packet's time by driver: receive, send, user plane.
//!
//! The packets are made on the processor that handles them, with a bounded number in flight. They
//! end at successive points of the path: at the interface, after reception, after a bare forwarder,
//! after the user plane. The time that each step adds is the time of its part.
//!
//! Differences are only sound if batches are alike. All steps therefore run in turns (`in_turns`):
//! packets are made until the queue is full, then the worker handles them. Otherwise the kernel
//! lets a waiting worker preempt the packet source after each packet. The worker then handles
//! single packets, each at the price of a wake-up, in some steps and not in others. In that case
//! receiving alone measured slower than receiving and sending.

use super::compute::Compute;
use super::drivers::Driver;
use super::network::Network;
use super::process::{self, Upf};
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_datapath::DropReason;
use vireo_lab::Interrupt;
use vireo_lab::process::{in_turns, on_processors};
use vireo_traffic::frame_loop::{Direction, FrameLoop, FrameLoopError, Teids};
use vireo_types::Teid;

/// Packets made per call.
const BURST: u32 = 64;
/// Packets that fit into the queue of a veth interface, less a burst.
const PLACES: u64 = 128;
/// Windows of a measurement. The median is used, because other work may disturb some windows.
const WINDOWS: u32 = 8;
/// Attempts to measure a driver if a part is implausible.
const ATTEMPTS: u32 = 3;
/// Packets in flight count as lost after this time without an arrival.
const LOST_AFTER: Duration = Duration::from_millis(50);

/// Time of one packet by part, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PacketTimeParts {
    /// From the interface to the worker, including the kernel's part.
    pub receive: f64,
    /// From the worker to the far end of a link.
    pub send: f64,
    /// Lookup, decision and headers, measured alone.
    pub compute: f64,
    /// Additional time of the user plane over a bare forwarder and `compute`.
    pub other: f64,
}

impl PacketTimeParts {
    /// Returns true if the parts are plausible. A negative part shows that another task disturbed a
    /// step. `other` is small and may be slightly negative.
    fn can_be(&self) -> bool {
        self.receive >= 0.0 && self.send > 0.0 && self.compute > 0.0 && self.other > -self.network() / 5.0
    }

    /// Returns the time of receiving and sending.
    pub fn network(&self) -> f64 {
        self.receive + self.send
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> f64 {
        self.network() + self.compute + self.other
    }

    /// Returns the mean of `self` and `with`.
    pub fn mean(self, with: PacketTimeParts) -> PacketTimeParts {
        PacketTimeParts {
            receive: f64::midpoint(self.receive, with.receive),
            send: f64::midpoint(self.send, with.send),
            compute: f64::midpoint(self.compute, with.compute),
            other: f64::midpoint(self.other, with.other),
        }
    }
}

/// Network, processors and duration of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct TestBed<'a> {
    pub network: &'a Network,
    pub processor: usize,
    /// Processors of the user plane's other threads.
    pub beside: &'a [usize],
    pub sessions: u32,
    pub span: Duration,
    pub interrupt: &'a Interrupt,
}

const WAYS: [Direction; 2] = [Direction::Uplink, Direction::Downlink];

/// Uplink and downlink values.
type BothDirections = [f64; 2];

impl TestBed<'_> {
    /// Returns a load whose packets end at the far ends.
    fn load(&self, teids: impl Into<Teids>) -> Result<FrameLoop, Failure> {
        let packets = self.network.packets(teids);
        Ok(self.network.outside(|| FrameLoop::load(&self.network.ours, packets))??)
    }

    /// Returns the time of a packet in nanoseconds, from its creation to the point where `arrived`
    /// counts it.
    fn paced(
        &self,
        load: &FrameLoop,
        direction: Direction,
        ahead: u64,
        arrived: impl Fn(&FrameLoop) -> Result<u64, FrameLoopError> + Send + Sync,
    ) -> Result<f64, Failure> {
        self.interrupt.check()?;
        let (processor, span, sessions) = (self.processor, self.span, self.sessions);
        let work = || -> Result<Option<f64>, FrameLoopError> {
            let mut source = load.source(direction, sessions)?;
            let (begin, mut seen) = (Instant::now(), arrived(load)?);
            // `room` is the number of packets that may still be put in flight.
            let (mut room, mut moved) = (ahead, begin);
            // The first third fills caches and queues.
            let (mut marks, mut next) = (vec![], begin + span / 3);
            while begin.elapsed() < span {
                if room >= u64::from(BURST) {
                    source.send(BURST)?;
                    room -= u64::from(BURST);
                } else {
                    std::thread::yield_now();
                }
                let now = arrived(load)?;
                if now > seen {
                    (room, seen, moved) = ((room + (now - seen)).min(ahead), now, Instant::now());
                    if moved >= next {
                        marks.push((moved, seen));
                        next = moved + span * 2 / 3 / (WINDOWS + 1);
                    }
                } else if moved.elapsed() > LOST_AFTER {
                    (room, moved) = (ahead, Instant::now());
                }
            }
            Ok(typical(&marks))
        };
        let nanoseconds = self.network.outside(|| on_processors(&[processor], work))???;
        nanoseconds.ok_or_else(|| Failure("packets are made and none of them arrives".into()))
    }

    fn cost_ahead(&self, load: &FrameLoop, ahead: u64) -> Result<BothDirections, Failure> {
        self.both(|direction| {
            self.paced(load, direction, ahead, move |load| {
                let counted = load.counted()?;
                Ok(if direction == Direction::Uplink { counted.uplink } else { counted.downlink })
            })
        })
    }

    fn both(&self, mut one: impl FnMut(Direction) -> Result<f64, Failure>) -> Result<BothDirections, Failure> {
        let [uplink, downlink] = WAYS;
        Ok([one(uplink)?, one(downlink)?])
    }

    /// Measures the creation of packets that end at the interface.
    fn made(&self) -> Result<BothDirections, Failure> {
        let load = self.load(Teid(1))?;
        let sink = FrameLoop::sink(&self.network.ours, self.network.packets(Teid(1)))?;
        self.both(|direction| {
            self.paced(&load, direction, PLACES, |load| {
                // All steps read this counter, so that its cost cancels in the differences.
                load.counted()?;
                Ok(sink.counted()?.unrelated)
            })
        })
    }

    /// Measures packets through a user plane with sessions.
    fn ours(&self, toml: &str, ahead: u64) -> Result<BothDirections, Failure> {
        let mut upf = Upf::start(self.network, self.beside, self.sessions, toml, self.interrupt)?;
        upf.workers_on(self.processor)?;
        on_processors(&[self.processor], || upf.establish(0..self.sessions, false))??;
        let teids = upf.teids.take().ok_or_else(|| Failure("the UPF has no sessions".into()))?;
        let both = self.cost_ahead(&self.load(teids)?, ahead)?;
        upf.stop()?;
        Ok(both)
    }

    /// Returns the parts of a user-space driver, by direction.
    pub fn driver(&self, driver: &Driver, compute: &mut Compute) -> Result<[PacketTimeParts; 2], Failure> {
        sound(driver.name, || in_turns(|| self.driver_once(driver, compute))?)
    }

    fn driver_once(&self, driver: &Driver, compute: &mut Compute) -> Result<[PacketTimeParts; 2], Failure> {
        let ahead = driver.flight as u64;
        let made = self.made()?;
        let received = {
            let bare = driver.bare(self.network, self.processor, false)?;
            let view = bare.stats();
            let load = self.load(Teid(1))?;
            self.both(|direction| {
                self.paced(&load, direction, ahead, |load| {
                    load.counted()?;
                    Ok(view.stats().dropped(DropReason::Action))
                })
            })?
        };
        let sent = {
            let _bare = driver.bare(self.network, self.processor, true)?;
            self.cost_ahead(&self.load(Teid(1))?, ahead)?
        };
        let ours = self.ours(&driver.toml(self.network), ahead)?;
        let mut parts = [PacketTimeParts::default(); 2];
        for (n, (direction, parts)) in WAYS.into_iter().zip(&mut parts).enumerate() {
            let compute = on_processors(&[self.processor], || compute.nanoseconds(direction, self.span))??;
            *parts = PacketTimeParts {
                receive: received[n] - made[n],
                send: sent[n] - received[n],
                compute,
                other: ours[n] - sent[n] - compute,
            };
        }
        Ok(parts)
    }

    /// Returns the parts of the XDP program, by direction. Receiving and sending are one part. The
    /// rest is the difference from a program that only moves headers.
    pub fn xdp(&self) -> Result<[PacketTimeParts; 2], Failure> {
        sound("xdp", || in_turns(|| self.xdp_once())?)
    }

    fn xdp_once(&self) -> Result<[PacketTimeParts; 2], Failure> {
        let made = self.made()?;
        let sent = {
            let _bare = FrameLoop::bare(&self.network.ours, self.network.packets(Teid(1)))?;
            self.cost_ahead(&self.load(Teid(1))?, PLACES)?
        };
        let ours = self.ours(&process::xdp(self.network), PLACES)?;
        Ok([0, 1].map(|n| PacketTimeParts {
            receive: 0.0,
            send: sent[n] - made[n],
            compute: ours[n] - sent[n],
            other: 0.0,
        }))
    }
}

/// Returns the time of a packet in nanoseconds: the median over the intervals between `marks`,
/// which hold a time and the packets arrived by then.
fn typical(marks: &[(Instant, u64)]) -> Option<f64> {
    let of = |pair: &[(Instant, u64)]| {
        let [(from, before), (to, after)] = *pair else { return None };
        Some((to - from).as_nanos() as f64 / after.checked_sub(before)? as f64).filter(|ns| ns.is_finite())
    };
    let mut times: Vec<f64> = marks.windows(2).filter_map(of).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Repeats a measurement until all parts are plausible, at most [`ATTEMPTS`] times.
fn sound(
    name: &str,
    mut measure: impl FnMut() -> Result<[PacketTimeParts; 2], Failure>,
) -> Result<[PacketTimeParts; 2], Failure> {
    for _ in 0..ATTEMPTS {
        let ways = measure()?;
        if ways.iter().all(PacketTimeParts::can_be) {
            return Ok(ways);
        }
    }
    Err(Failure(format!(
        "{name}: a part took less than no time, {ATTEMPTS} times: something else runs: measure again on an idle machine"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_window_does_not_count() {
        let begin = Instant::now();
        let at = |ms: u64, packets| (begin + Duration::from_millis(ms), packets);
        assert_eq!(typical(&[at(0, 100), at(1, 1100), at(9, 2100), at(10, 3100), at(11, 4100)]), Some(1000.0));
        assert_eq!((typical(&[]), typical(&[at(0, 5)]), typical(&[at(0, 5), at(1, 5)])), (None, None, None));
    }

    #[test]
    fn impossible_value_is_retried_then_refused() {
        let part = |receive, send| PacketTimeParts { receive, send, compute: 30.0, other: -20.0 };
        let mut all = [part(700.0, -100.0), part(500.0, 900.0)].into_iter();
        let good = sound("af-xdp", || Ok([part(0.0, 500.0), all.next().unwrap()])).unwrap();
        assert_eq!(good[1].send, 900.0);
        let error = sound("af-xdp", || Ok([part(-1.0, 500.0); 2])).unwrap_err();
        assert!(error.0.contains("measure again on an idle machine"), "{}", error.0);
        let slow = PacketTimeParts { other: -700.0, ..part(100.0, 500.0) };
        assert!(!slow.can_be());
    }
}
