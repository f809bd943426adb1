//! A RAN and its UEs that work against any 5G core.
//!
//! The pure parts come first: [`ue`] (a UE over NAS), [`gnb`] (a gNB over NGAP), [`usim`] and [`traffic`] (IP packets)
//! have no I/O and no clock. [`run`] puts threads, SCTP and UDP around them and takes the UEs of a run through a
//! [`scenario`]; what it measured is a [`Report`]. The emulator shares the codecs, the algorithms and the identifiers
//! with the core, and nothing else, so it stays an independent peer.
#![forbid(unsafe_code)]

pub mod abuse;
mod engine;
pub mod gnb;
pub mod load;
pub mod mix;
mod options;
mod report;
pub mod scenario;
pub mod traffic;
pub mod ue;
pub mod usim;

pub use engine::{Error, Open, Phase, Progress, run, run_with};
pub use options::{Echoes, LAB_K, LAB_OPC, Load, NGAP_PORT, Options, Retry, Subscribers};
pub use report::{Latency, PROCEDURES, Procedure, Report, Row, Steady, UserPlane, write_csv};
