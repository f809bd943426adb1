//! Keeps the addresses of this machine protected, as they come and go.

use crate::fast::SharedTables;
use crate::filter::Network;
use crate::sockets::STOP;
use crate::sys::local::{self, AddressChanges};
use crate::sys::poll::{Poller, Waker};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tracing::error;

/// How often the kernel is asked though it has told of no change: of prefixes that are delivered here it tells nothing.
const AGAIN: Duration = Duration::from_secs(5);
const CHANGED: u64 = 0;

/// Follows the machine's addresses.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    tables: SharedTables,
    changes: AddressChanges,
    poller: Poller,
    known: Vec<Network>,
}

impl LocalAddresses {
    /// Protects those that there are.
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

    /// Runs until it is told to stop.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut failed = false;
        loop {
            let mut stop = false;
            self.poller.wait(Some(AGAIN), |token| stop |= token == STOP)?;
            if stop {
                return Ok(());
            }
            self.changes.clear();
            let refreshed = self.refresh();
            // those that were there stay protected; one line for many failures in a row
            if let (Err(error), false) = (&refreshed, failed) {
                error!(%error, "the machine's addresses cannot be read; new ones are not protected from UEs");
            }
            failed = refreshed.is_err();
        }
    }
}
