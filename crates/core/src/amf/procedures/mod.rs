//! NAS and NGAP procedures.
//!
//! Each has its shared logic (`mod`) and its 5G messages (`nr`). No procedure depends on another
//! one. [`common`] has their shared parts, and the engine dispatches messages to them.

pub mod an_release;
pub mod authentication;
pub mod common;
pub mod configuration_update;
pub mod deregistration;
pub mod handover;
pub mod paging;
pub mod registration;
pub mod service_request;
pub mod session;
