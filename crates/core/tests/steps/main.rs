//! The core's steps against the emulator's UE and gNB, each part of them in a module of its own.

mod chain;
mod cost;
mod handover;
mod lab;
mod layout;
mod paging;
mod procedures;
mod relocate;
mod stale;
mod view;
