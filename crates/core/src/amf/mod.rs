//! Decisions of the AMF: contexts, procedures, the engine that runs them, NGAP.
//!
//! [`engine`] receives each event of a UE, [`procedures`] decides, [`context`] is the state that
//! both change. [`n2`] reads and writes NGAP, [`s1`] S1AP, and [`access`] selects between them;
//! [`ran`] has the procedures of RAN nodes.

pub mod access;
pub mod context;
pub mod engine;
pub mod n2;
pub mod procedures;
pub mod ran;
pub mod s1;
