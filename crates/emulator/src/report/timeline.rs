//! Latency over time: the effect of an outage on the UEs.

use super::{PROCEDURES, Procedure};
use std::io;
use std::time::Duration;

/// Procedures due within one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Start of the interval, in seconds since the start of the steady load (without one: of the
    /// run).
    pub at_s: f64,
    /// Procedure of the row; `None` for all together.
    pub procedure: Option<Procedure>,
    /// Procedures due in the interval that completed.
    pub count: u64,
    /// Procedures due in the interval that failed.
    pub failures: u64,
    /// Failed procedures that cost the UE its registration.
    pub lost: u64,
    /// Median latency of the completed procedures, in microseconds.
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// Writes rows as CSV with a header.
pub fn write_csv(rows: &[Row], mut to: impl io::Write) -> io::Result<()> {
    writeln!(to, "at_s,procedure,count,failures,p50_us,p99_us,max_us,lost")?;
    for row in rows {
        let Row { at_s, count, failures, p50_us, p99_us, max_us, lost, .. } = row;
        let name = row
            .procedure
            .map_or_else(|| "all".to_owned(), |procedure| procedure.name().replace(' ', "-").to_lowercase());
        writeln!(to, "{at_s:.3},{name},{count},{failures},{p50_us},{p99_us},{max_us},{lost}")?;
    }
    Ok(())
}

/// Latencies in order of arrival, four octets each, by interval and procedure.
#[derive(Debug)]
pub(crate) struct Timeline {
    interval_us: u64,
    /// Procedures due earlier are ignored.
    origin_us: u64,
    intervals: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
struct Cell {
    procedure: Procedure,
    failures: u64,
    lost: u64,
    latencies_us: Vec<u32>,
}

/// Maximum number of intervals; procedures due later are ignored.
const MAX_INTERVALS: usize = 1 << 20;

impl Timeline {
    pub(crate) fn new(interval: Duration) -> Self {
        let interval_us = (interval.as_micros() as u64).max(1000);
        Timeline { interval_us, origin_us: 0, intervals: Vec::new() }
    }

    /// Clears the timeline and sets its origin.
    pub(crate) fn begin(&mut self, origin_us: u64) {
        self.origin_us = origin_us;
        self.intervals.clear();
    }

    pub(crate) fn record(&mut self, procedure: Procedure, intended_us: u64, latency_us: u64) {
        // Follow-up procedures are not user-visible latency.
        let follows = [Procedure::Release, Procedure::SessionRelease, Procedure::Deregistration, Procedure::Departure];
        if follows.contains(&procedure) || matches!(procedure, Procedure::RegistrationAndSession | Procedure::Echo) {
            return;
        }
        if let Some(cell) = self.cell(procedure, intended_us) {
            cell.latencies_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn fail(&mut self, procedure: Procedure, intended_us: u64) {
        if let Some(cell) = self.cell(procedure, intended_us) {
            cell.failures += 1;
        }
    }

    /// Counts a failed procedure whose UE must register again.
    pub(crate) fn record_loss(&mut self, procedure: Procedure, intended_us: u64) {
        if let Some(cell) = self.cell(procedure, intended_us) {
            cell.lost += 1;
        }
    }

    fn cell(&mut self, procedure: Procedure, intended_us: u64) -> Option<&mut Cell> {
        let index = (intended_us.checked_sub(self.origin_us)? / self.interval_us) as usize;
        if index >= MAX_INTERVALS {
            return None;
        }
        if self.intervals.len() <= index {
            self.intervals.resize_with(index + 1, Vec::new);
        }
        let cells = &mut self.intervals[index];
        let known = cells.iter().position(|cell| cell.procedure == procedure);
        let place = known.unwrap_or_else(|| {
            cells.push(Cell { procedure, failures: 0, lost: 0, latencies_us: Vec::new() });
            cells.len() - 1
        });
        cells.get_mut(place)
    }

    pub(crate) fn merge(&mut self, other: &Timeline) {
        self.origin_us = self.origin_us.max(other.origin_us);
        for (index, cells) in other.intervals.iter().enumerate() {
            for theirs in cells {
                let at = self.origin_us + index as u64 * self.interval_us;
                let Some(own) = self.cell(theirs.procedure, at) else { continue };
                own.failures += theirs.failures;
                own.lost += theirs.lost;
                own.latencies_us.extend_from_slice(&theirs.latencies_us);
            }
        }
    }

    /// Returns a row for all procedures and one for each procedure of each interval, including
    /// empty intervals.
    pub(crate) fn rows(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        let interval_s = self.interval_us as f64 / 1e6;
        for (index, cells) in self.intervals.iter_mut().enumerate() {
            let at_s = index as f64 * interval_s;
            let mut all: Vec<u32> = cells.iter().flat_map(|cell| &cell.latencies_us).copied().collect();
            let failed =
                cells.iter().fold((0, 0), |(failures, lost), cell| (failures + cell.failures, lost + cell.lost));
            rows.push(row(at_s, None, failed, &mut all));
            for procedure in PROCEDURES {
                if let Some(cell) = cells.iter_mut().find(|cell| cell.procedure == procedure) {
                    let failed = (cell.failures, cell.lost);
                    rows.push(row(at_s, Some(procedure), failed, &mut cell.latencies_us));
                }
            }
        }
        rows
    }
}

fn row(at_s: f64, procedure: Option<Procedure>, (failures, lost): (u64, u64), latencies_us: &mut [u32]) -> Row {
    latencies_us.sort_unstable();
    let count = latencies_us.len();
    // Nearest-rank method.
    let quantile = |q: f64| {
        let rank = ((q * count as f64).ceil() as usize).max(1);
        latencies_us.get(rank - 1).map_or(0, |latency| u64::from(*latency))
    };
    let (p50_us, p99_us, max_us) = (quantile(0.5), quantile(0.99), quantile(1.0));
    Row { at_s, procedure, count: count as u64, failures, lost, p50_us, p99_us, max_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_by_when_a_procedure_was_due() {
        let (mut one, mut two) = (Timeline::new(Duration::from_millis(100)), Timeline::new(Duration::from_millis(100)));
        one.record(Procedure::Registration, 5, 5);
        one.begin(1_000_000);
        two.begin(1_000_000);
        for n in 0..99 {
            one.record(Procedure::ServiceRequest, 1_000_000 + n * 1000, 100 + n);
        }
        // Due in the first interval, completed long after it.
        two.record(Procedure::ServiceRequest, 1_050_000, 5_000_000);
        two.record(Procedure::XnHandover, 1_250_000, 7);
        two.fail(Procedure::XnHandover, 1_210_000);
        two.record_loss(Procedure::XnHandover, 1_210_000);
        two.record(Procedure::Release, 1_260_000, 9);
        two.record(Procedure::ServiceRequest, 999_999, 1);
        one.merge(&two);
        let rows = one.rows();
        let mut text = Vec::new();
        write_csv(&rows, &mut text).expect("memory takes it");
        let expected = "at_s,procedure,count,failures,p50_us,p99_us,max_us,lost\n\
                        0.000,all,100,0,149,198,5000000,0\n\
                        0.000,service-request,100,0,149,198,5000000,0\n\
                        0.100,all,0,0,0,0,0,0\n\
                        0.200,all,1,1,7,7,7,1\n\
                        0.200,xn-handover,1,1,7,7,7,1\n";
        assert_eq!(String::from_utf8(text).expect("ASCII"), expected);
    }
}
