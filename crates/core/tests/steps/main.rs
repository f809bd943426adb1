//! Steps of the core against the emulator's UE and gNB, one Rust module per area.

mod compatibility;
mod cost;
mod eps;
mod eviction;
mod forwarding;
mod handover;
mod lab;
mod layout;
mod lost_tunnel;
mod moves;
mod paging;
mod procedures;
mod protection;
mod registration_variants;
mod relocate;
mod sba;
mod security_mode;
mod session_requests;
mod stale;
mod view;
