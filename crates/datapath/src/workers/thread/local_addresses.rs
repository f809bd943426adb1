//! Tracking of this machine's addresses, which are protected from UEs.

use crate::engine::shared_tables::SharedTables;
use crate::network::Network;
use crate::sys::local::{self, AddressChanges};
use crate::sys::poll::{Poller, STOP, Waker};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tracing::error;

/// Interval of reading all addresses. The kernel does not report changes of prefixes that are
/// delivered locally.
const INTERVAL: Duration = Duration::from_secs(5);
const CHANGED: u64 = 0;

/// Tracks the addresses of the machine.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    tables: SharedTables,
    changes: AddressChanges,
    poller: Poller,
    known: Vec<Network>,
}

impl LocalAddresses {
    /// Protects the present addresses.
    pub(crate) fn open(tables: SharedTables, stop: &Waker) -> io::Result<Self> {
        let (changes, poller) = (AddressChanges::open()?, Poller::new()?);
        poller.add(changes.as_fd(), CHANGED)?;
        poller.add(stop.as_fd(), STOP)?;
        let mut local = LocalAddresses { tables, changes, poller, known: vec![] };
        local.refresh()?;
        Ok(local)
    }

    fn refresh(&mut self) -> io::Result<()> {
        let addresses = local::addresses()?;
        if addresses != self.known {
            self.tables.change(|tables, _| tables.set_local_addresses(&addresses), |_| ());
            self.known = addresses;
        }
        Ok(())
    }

    /// Runs until the stop signal.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut failed = false;
        loop {
            let mut stop = false;
            self.poller.wait(Some(INTERVAL), |token| stop |= token == STOP)?;
            if stop {
                return Ok(());
            }
            self.changes.clear();
            let refreshed = self.refresh();
            // Known addresses stay protected. A series of failures is logged once.
            if let (Err(error), false) = (&refreshed, failed) {
                error!(%error, "the machine's addresses cannot be read; new ones are not protected from UEs");
            }
            failed = refreshed.is_err();
        }
    }
}
