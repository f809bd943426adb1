//! Steps of the core against the emulator's UE and gNB, one Rust module per area.

mod areas;
mod authentication;
mod collisions;
mod compatibility;
mod cost;
mod eap;
mod emergency;
mod eps;
mod eviction;
mod forwarding;
#[path = "../../src/golden.rs"]
mod golden;
mod handover;
mod information;
mod lab;
mod layout;
mod lost_tunnel;
mod moves;
mod paging;
mod procedures;
mod protection;
mod ran_changes;
mod ran_failures;
mod registration_variants;
mod rekeying;
mod relocate;
mod sba;
mod security_mode;
mod session_requests;
mod slices;
mod stale;
mod subscriber;
mod view;
