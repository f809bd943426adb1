//! What the procedures share: making sure who the UE is and agreeing on keys ([`securing`]), setting the UE context up in
//! the RAN ([`context_setup`]), and carrying what the session part says ([`user_plane`]).

pub mod context_setup;
pub mod securing;
pub mod user_plane;
