//! Limit of log lines about one device.

use crate::{Duration, Instant};
use std::collections::HashMap;

/// Admits one line of each device in a period. The number of devices is bounded: while the table is
/// full, lines of further devices are not admitted.
#[derive(Clone, Debug)]
pub struct DeviceLimit {
    period: Duration,
    devices: usize,
    /// Time of the last line, by the number of the device.
    last: HashMap<u64, Instant>,
}

impl DeviceLimit {
    /// Creates a limit of one line in `period` for each of up to so many devices.
    pub fn new(period: Duration, devices: usize) -> Self {
        DeviceLimit { period, devices, last: HashMap::new() }
    }

    /// Returns true if a line about the device may be written now.
    pub fn admits(&mut self, device: u64, now: Instant) -> bool {
        let period = self.period;
        let is_recent = |at: &Instant| now < *at + period;
        if self.last.get(&device).is_some_and(is_recent) {
            return false;
        }
        if self.last.len() >= self.devices {
            self.last.retain(|_, at| is_recent(at));
        }
        let admitted = self.last.len() < self.devices;
        if admitted {
            self.last.insert(device, now);
        }
        admitted
    }
}

impl Default for DeviceLimit {
    /// Returns one line in a minute, of up to 4,096 devices.
    fn default() -> Self {
        DeviceLimit::new(Duration::from_secs(60), 4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_has_one_line_in_period() {
        let mut limit = DeviceLimit::new(Duration::from_secs(60), 2);
        let at = |seconds: u64| Instant(seconds * 1_000_000);
        assert!(limit.admits(1, at(0)) && !limit.admits(1, at(59)) && limit.admits(1, at(60)));
        assert!(limit.admits(2, at(61)) && !limit.admits(3, at(62)), "the table is full");
        assert!(limit.admits(3, at(121)), "the lines of others are old");
    }
}
