//! Thread that promotes active users to the hot table and demotes idle ones.

use crate::engine::shared_tables::SharedTables;
use crate::sys::poll::{Poller, STOP, Waker};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Interval of promotion and demotion.
const INTERVAL: Duration = Duration::from_millis(5);

/// Maintenance of the hot table of these tables.
pub(crate) struct HotTableThread {
    tables: SharedTables,
    poller: Poller,
}

impl HotTableThread {
    pub(crate) fn new(tables: SharedTables, stop: &Waker) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(stop.as_fd(), STOP)?;
        Ok(HotTableThread { tables, poller })
    }

    /// Runs until the stop signal.
    pub(crate) fn run(&self) -> io::Result<()> {
        let mut stop = false;
        while !stop {
            self.poller.wait(Some(INTERVAL), |_| stop = true)?;
            self.tables.maintain_hot_table();
        }
        Ok(())
    }
}
