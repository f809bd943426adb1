//! Echoes of a UE that moves: one every 20 ms while it has a tunnel, each sent once.

use super::slot::{Pings, UeSlot, flag};
use super::timers::Kind;
use super::worker::Worker;
use crate::traffic::{self, Echo, Mark, Received};
use std::net::IpAddr;

/// Time between two echoes of a UE.
const INTERVAL_US: u64 = 20_000;
/// Identifier of these echoes; that of others has another highest bit.
const IDENTIFIER: u16 = 0x8000;

impl UeSlot {
    /// Returns true if an echo of a moving UE has no answer.
    pub(super) fn has_open_pings(&self) -> bool {
        self.moving.pings.as_ref().is_some_and(|pings| !pings.open.is_empty())
    }
}

impl Worker<'_> {
    pub(super) fn start_pings(&mut self, owner: u32) {
        let target = self.options.echoes.v4;
        let slot = &mut self.slots[owner as usize];
        let source = slot.ue.sessions().iter().find_map(|session| session.address.ipv4);
        let (Some(source), Some(target)) = (source, target) else {
            return self.fail(owner, "no IPv4 session or target for echoes: give --echo-v4".into());
        };
        let (source, target) = (source.into(), target.into());
        let number = slot.sequence;
        slot.moving.pings =
            Some(Box::new(Pings { source, target, next: 0, open: Vec::new(), answered: None, number, ends: false }));
        self.on_ping_due(owner, number);
    }

    /// Sends the next echo, if the UE has a tunnel.
    pub(super) fn on_ping_due(&mut self, owner: u32, number: u32) {
        let echoes = &self.options.echoes;
        let slot = &mut self.slots[owner as usize];
        let Some(pings) = slot.moving.pings.as_mut().filter(|pings| pings.number == number && !pings.ends) else {
            return;
        };
        self.timers.set(self.now_us + INTERVAL_US, owner, number, Kind::Ping);
        let link = &self.links[usize::from(slot.link)];
        let session =
            slot.ue.sessions().iter().find(|session| session.address.ipv4.map(IpAddr::V4) == Some(pings.source));
        let tunnels = slot.ran.map_or(&[][..], |ran| link.node.tunnels(ran));
        let tunnel = session.and_then(|session| tunnels.iter().find(|tunnel| tunnel.psi == session.psi));
        let Some(tunnel) = tunnel else { return };
        let mark = Mark { identifier: IDENTIFIER | (owner as u16 & 0x3fff), sequence: pings.next };
        let echo = Echo { kind: echoes.kind, mark, octets: echoes.octets };
        let write = |frame: &mut Vec<u8>| traffic::write_echo(echo, pings.source, pings.target, frame);
        if self.n3.send(link.node.n3(), tunnel, write).is_none() {
            return self.fail(owner, "an echo could not be written: check --echo-octets".into());
        }
        pings.open.push(pings.next);
        pings.next = pings.next.wrapping_add(1);
        self.n3.counts.moves.echoes += 1;
    }

    /// Counts the answer to one of these echoes. Returns true if the packet for the UE is one, also
    /// if the echo was answered before.
    pub(super) fn count_ping_answer(&mut self, owner: u32, range: &std::ops::Range<usize>) -> bool {
        let slot = &mut self.slots[owner as usize];
        let Some(pings) = &mut slot.moving.pings else { return false };
        let Received::Echo { mark, .. } = traffic::read(&self.n3.buffer[range.clone()], &[pings.source]) else {
            return false;
        };
        if mark.identifier & IDENTIFIER == 0 {
            return false;
        }
        if let Some(at) = pings.open.iter().position(|sequence| *sequence == mark.sequence) {
            pings.open.swap_remove(at);
            self.n3.counts.moves.echoes_answered += 1;
            let is_late = pings.answered.is_some_and(|last| mark.sequence.wrapping_sub(last) >= 1 << 15);
            self.n3.counts.moves.echoes_reordered += u64::from(is_late);
            pings.answered = Some(mark.sequence);
        }
        if pings.ends {
            self.settle(owner);
        }
        true
    }

    /// Sends no further echo, and waits for the answers.
    pub(super) fn stop_pings(&mut self, owner: u32) {
        let timeout = self.options.echoes.answer_timeout.as_micros() as u64;
        let slot = &mut self.slots[owner as usize];
        match &mut slot.moving.pings {
            Some(pings) => pings.ends = true,
            None => slot.flags |= flag::PAUSED,
        }
        self.timers.set(self.now_us + timeout, owner, slot.sequence, Kind::Pause);
    }

    /// Counts the echoes that were not answered.
    pub(super) fn end_pings(&mut self, owner: u32) {
        if let Some(pings) = self.slots[owner as usize].moving.pings.take() {
            self.n3.counts.moves.echoes_lost += pings.open.len() as u64;
        }
    }
}
