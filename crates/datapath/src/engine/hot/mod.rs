//! Hot table: the two-level store of downlink entries (PEPC).
//!
//! The *cold* table is the arrays that hold all users. The *hot* table is a dense table of the
//! users with packets, sized for the CPU caches. With many users of whom few have packets, the
//! lookup by address is the main cost. It needs one cache line in the index and another for the
//! entry.
//!
//! Uplink entries stay in the cold table: a TEID is an index, and its entry is one line in either
//! table. A hot table for them was measured, and cost more than it saved. Downlink entries move.
//! They are found by the tags of the hot table: UE addresses, four of them in half a cache line.
//!
//! Invariants:
//! - An entry is in one table at a time, with rule, counters and policer. Packets are counted
//!   there, and no value is the sum of two places.
//! - Packets of a cold user use the cold table and request its promotion. A promoted entry leaves
//!   its hot index in the cold table.
//! - The writer of the tables promotes and demotes ([`manager`]). A slot gets another user only
//!   after the end of every batch that may have found the previous one there
//!   ([`crate::engine::quiescence`]).

pub(crate) mod manager;
pub(crate) mod table;
