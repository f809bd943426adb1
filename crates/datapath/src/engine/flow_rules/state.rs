//! Counters of a session's URRs and policers of its QERs.
//!
//! Each keeps its location while its URR or QER exists, even if the rules change. A kernel program
//! that still applies the old rules counts in the same cell.

use super::cells::{Cell, CellRef, Cells};
use super::types::{FlowRule, Metered, Quota, SessionFlows};
use crate::engine::counters::Volume;
use crate::engine::entry::{WATCH, passes_watched_multiple};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `NO_QUOTA` of `bpf/entry.h`.
const NO_QUOTA: u64 = u64::MAX;
/// `METER_TOLD` of `bpf/entry.h`: exhaustion was reported.
const REPORTED: u64 = 1 << 32;
/// `METER_WATCH` of `bpf/entry.h`.
const WATCHED: u64 = WATCH as u64;

/// Counters of one URR: `struct meter` of `bpf/entry.h`.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    packets: [&'a AtomicU64; 2],
    octets: [&'a AtomicU64; 2],
    quota: [&'a AtomicU64; 2],
    total: &'a AtomicU64,
    /// Watch granularity of the counters, as in entries, and the bit [`REPORTED`].
    state: &'a AtomicU64,
}

impl<'a> Meter<'a> {
    fn from_cell([p0, p1, o0, o1, q0, q1, total, state]: &'a Cell) -> Self {
        Meter { packets: [p0, p1], octets: [o0, o1], quota: [q0, q1], total, state }
    }

    fn set_quota(self, quota: Quota) {
        let limit = |quota: Option<u64>| quota.unwrap_or(NO_QUOTA);
        self.quota[0].store(limit(quota.downlink), Relaxed);
        self.quota[1].store(limit(quota.uplink), Relaxed);
        self.total.store(limit(quota.total), Relaxed);
        self.state.fetch_and(!REPORTED, Relaxed);
    }

    pub(crate) fn set_watch(self, watch: u32) {
        self.state.fetch_and(REPORTED, Relaxed);
        self.state.fetch_or(u64::from(watch) & WATCHED, Relaxed);
    }

    pub(crate) fn spent(self, uplink: bool) -> bool {
        let reached = |quota: &AtomicU64, octets: u64| match quota.load(Relaxed) {
            NO_QUOTA => false,
            quota => octets >= quota,
        };
        let [down, up] = self.octets.map(|octets| octets.load(Relaxed));
        reached(self.total, down + up) || reached(self.quota[usize::from(uplink)], if uplink { up } else { down })
    }

    /// Marks the exhausted quota as reported. Returns false if it was marked already.
    pub(crate) fn mark_reported(self) -> bool {
        self.state.fetch_or(REPORTED, Relaxed) & REPORTED == 0
    }

    /// Counts a packet. Returns true if the control side must be notified.
    pub(crate) fn count(self, uplink: bool, octets: usize) -> bool {
        self.packets[usize::from(uplink)].fetch_add(1, Relaxed);
        let before = self.octets[usize::from(uplink)].fetch_add(octets as u64, Relaxed);
        passes_watched_multiple((self.state.load(Relaxed) & WATCHED) as u32, before, octets)
    }

    pub(crate) fn metered(self) -> Metered {
        let volume = |n: usize| Volume { packets: self.packets[n].load(Relaxed), octets: self.octets[n].load(Relaxed) };
        Metered { uplink: volume(1), downlink: volume(0) }
    }
}

/// Policer of one QER and direction.
#[derive(Clone, Debug)]
struct PolicerSlot {
    qer: u32,
    uplink: bool,
    cell: CellRef,
    word: usize,
}

/// Counters and policers of a session.
#[derive(Debug, Default)]
pub(crate) struct FlowState {
    meters: Vec<(u32, CellRef)>,
    words: Vec<PolicerSlot>,
    /// Cells that contain the policer words.
    words_in: Vec<CellRef>,
}

impl FlowState {
    /// Creates the state for these rules. Counters and policers in `before` are kept.
    pub(crate) fn new(flows: &SessionFlows, before: Option<FlowState>, cells: &mut Cells) -> Self {
        let mut state = before.unwrap_or_default();
        let mut meters = Vec::with_capacity(flows.meters.len());
        for (urr, quota) in &flows.meters {
            let cell = match state.meters.iter().position(|(old, _)| old == urr) {
                Some(n) => cells.share(state.meters.swap_remove(n).1),
                None => cells.allocate_counters(),
            };
            Meter::from_cell(cells.at(&cell)).set_quota(*quota);
            meters.push((*urr, cell));
        }
        let unused = std::mem::replace(&mut state.meters, meters);
        unused.iter().filter_map(|(_, cell)| cell.shared()).for_each(|cell| cells.release(cell));
        state.follow_rates(&flows.rules, cells);
        state
    }

    /// Returns true if the URRs of the session are those in `meters`.
    pub(crate) fn counts(&self, meters: &[(u32, Quota)]) -> bool {
        self.meters.iter().map(|(urr, _)| urr).eq(meters.iter().map(|(urr, _)| urr))
    }

    /// Moves private cells to shared ones, as far as cells are free.
    pub(crate) fn share(&mut self, cells: &mut Cells) {
        for (_, cell) in &mut self.meters {
            *cell = cells.share(cell.clone());
        }
        self.share_words(cells);
    }

    fn follow_rates(&mut self, rules: &[FlowRule], cells: &mut Cells) {
        let named = |qer: u32, uplink: bool| {
            rules.iter().any(|rule| rule.uplink == uplink && rule.rates.iter().any(|(id, _)| *id == qer))
        };
        self.words.retain(|word| named(word.qer, word.uplink));
        self.share_words(cells);
        for rule in rules {
            for (qer, _) in &rule.rates {
                if !self.words.iter().any(|word| (word.qer, word.uplink) == (*qer, rule.uplink)) {
                    let (cell, word) = self.free_word(cells);
                    cells.at(&cell)[word].store(0, Relaxed);
                    self.words.push(PolicerSlot { qer: *qer, uplink: rule.uplink, cell, word });
                }
            }
        }
        let words = &self.words;
        self.words_in.retain(|cell| {
            let used = words.iter().any(|word| is_same(&word.cell, cell));
            if let (false, Some(cell)) = (used, cell.shared()) {
                cells.release(cell);
            }
            used
        });
    }

    fn free_word(&mut self, cells: &mut Cells) -> (CellRef, usize) {
        for cell in &self.words_in {
            let used = |n: usize| self.words.iter().any(|word| word.word == n && is_same(&word.cell, cell));
            if let Some(word) = (0..8).find(|n| !used(*n)) {
                return (cell.clone(), word);
            }
        }
        let cell = cells.allocate_counters();
        self.words_in.push(cell.clone());
        (cell, 0)
    }

    fn share_words(&mut self, cells: &mut Cells) {
        for cell in self.words_in.iter_mut().filter(|cell| cell.shared().is_none()) {
            let shared = cells.share(cell.clone());
            let here = self.words.iter_mut().filter(|word| is_same(&word.cell, cell));
            here.for_each(|word| word.cell = shared.clone());
            *cell = shared;
        }
    }

    /// Frees all cells.
    pub(crate) fn end(self, cells: &mut Cells) {
        let places = self.meters.iter().map(|(_, cell)| cell).chain(&self.words_in);
        places.filter_map(CellRef::shared).for_each(|cell| cells.release(cell));
    }

    pub(crate) fn meters<'a>(&'a self, cells: &'a Cells) -> impl Iterator<Item = (u32, Meter<'a>)> {
        self.meters.iter().map(|(urr, cell)| (*urr, Meter::from_cell(cells.at(cell))))
    }

    /// Returns the cells of these URRs, in session order. `None` if one of them is not shared with
    /// the program.
    pub(crate) fn meter_cells(&self, urrs: &[u32]) -> Option<Vec<u32>> {
        self.meters.iter().filter(|(urr, _)| urrs.contains(urr)).map(|(_, cell)| cell.shared()).collect()
    }

    /// Returns true if the program shares all cells.
    pub(crate) fn is_shared(&self) -> bool {
        self.meters.iter().map(|(_, cell)| cell).chain(&self.words_in).all(|cell| cell.shared().is_some())
    }

    /// Returns the policer word of a QER.
    pub(crate) fn policer<'a>(&'a self, qer: u32, uplink: bool, cells: &'a Cells) -> Option<&'a AtomicU64> {
        let PolicerSlot { cell, word, .. } = self.word(qer, uplink)?;
        Some(&cells.at(cell)[*word])
    }

    /// Returns the number of a policer word for the kernel program.
    pub(crate) fn policer_word(&self, qer: u32, uplink: bool) -> Option<u32> {
        let PolicerSlot { cell, word, .. } = self.word(qer, uplink)?;
        Some(cell.shared()? * 8 + *word as u32)
    }

    fn word(&self, qer: u32, uplink: bool) -> Option<&PolicerSlot> {
        self.words.iter().find(|word| (word.qer, word.uplink) == (qer, uplink))
    }
}

fn is_same(a: &CellRef, b: &CellRef) -> bool {
    match (a, b) {
        (CellRef::Shared(a), CellRef::Shared(b)) => a == b,
        (CellRef::Private(a), CellRef::Private(b)) => std::sync::Arc::ptr_eq(a, b),
        _ => false,
    }
}
