//! One gNB with its association: what is to be sent waits here while the association takes nothing.

use crate::gnb::{Gnb, Outbox, PPID};
use std::collections::VecDeque;
use std::net::SocketAddr;
use vireo_sctp::{Endpoint, SendError};
use vireo_types::AssocId;

/// How much may wait for an association that takes nothing: beyond it the core is dead or far too slow.
const BACKLOG: usize = 100_000;

/// A gNB with its association.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) gnb: Gnb,
    /// Its number in the run.
    pub(super) number: u32,
    pub(super) core: SocketAddr,
    pub(super) assoc: Option<AssocId>,
    pub(super) outbox: Outbox,
    backlog: VecDeque<(u16, Vec<u8>)>,
    blocked: bool,
    /// When to connect again after a loss, in microseconds.
    pub(super) retry_us: Option<u64>,
    /// Why the association went down last.
    pub(super) trouble: Option<String>,
    /// Why the core refused NG SETUP.
    pub(super) refused: Option<String>,
}

impl Link {
    pub(super) fn new(gnb: Gnb, number: u32, core: SocketAddr) -> Self {
        Link {
            gnb,
            number,
            core,
            assoc: None,
            outbox: Outbox::default(),
            backlog: VecDeque::new(),
            blocked: false,
            retry_us: None,
            trouble: None,
            refused: None,
        }
    }

    /// The association takes messages again.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// The association is gone.
    pub(super) fn lost(&mut self) {
        self.gnb.lost();
        self.assoc = None;
        self.outbox.clear();
        self.backlog.clear();
        self.blocked = false;
    }

    /// Sends what waits. An error says why the association is of no more use.
    pub(super) fn flush(&mut self, endpoint: &mut dyn Endpoint) -> Result<(), String> {
        let Some(assoc) = self.assoc else {
            self.outbox.clear();
            return Ok(());
        };
        while !self.blocked
            && let Some((stream, pdu)) = self.backlog.front()
        {
            match endpoint.send(assoc, *stream, PPID, pdu) {
                Ok(()) => drop(self.backlog.pop_front()),
                Err(SendError::Full) => self.blocked = true,
                Err(error) => return Err(error.to_string()),
            }
        }
        for (stream, pdu) in self.outbox.pdus() {
            if !self.blocked {
                match endpoint.send(assoc, stream, PPID, pdu) {
                    Ok(()) => continue,
                    Err(SendError::Full) => self.blocked = true,
                    Err(error) => return Err(error.to_string()),
                }
            }
            self.backlog.push_back((stream, pdu.to_vec()));
        }
        self.outbox.clear();
        if self.backlog.len() > BACKLOG {
            return Err("the core takes no messages".into());
        }
        Ok(())
    }
}
