//! Real processes over one region, killed at any instruction: what is left is looked at after each.
//!
//! A worker is this test binary started again with a descriptor of the region in its environment.

mod commit;
mod mailbox;
mod process;
mod ring;
