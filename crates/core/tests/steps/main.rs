//! The core's steps against the emulator's UE and gNB, each part of them in a module of its own.

mod chain;
mod cost;
mod eviction;
mod handover;
mod lab;
mod layout;
mod lost_tunnel;
mod paging;
mod procedures;
mod protection;
mod relocate;
mod security_mode;
mod stale;
mod view;
