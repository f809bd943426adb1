//! The procedures, each with its shared decision (`mod`) and its 5G dialect (`nr`).
//!
//! No procedure knows another: what they share is in [`common`], and the engine says which of them a message is for.

pub mod an_release;
pub mod common;
pub mod deregistration;
pub mod handover;
pub mod paging;
pub mod registration;
pub mod service_request;
pub mod session;
