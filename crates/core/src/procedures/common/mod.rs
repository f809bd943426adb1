//! What the procedures share: making sure who the UE is and agreeing on keys ([`securing`]), setting the UE context up in
//! the RAN ([`context_setup`]), carrying what the session part says ([`user_plane`]) or asking an SMF elsewhere ([`remote`]), and keeping UEs away from a network
//! that has too much to do ([`congestion`]).

pub mod congestion;
pub mod context_setup;
pub mod security_setup;
pub mod smf_requests;
pub mod user_plane;
