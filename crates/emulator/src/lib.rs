//! A RAN and its UEs that test any 4G or 5G core.
//!
//! The pure parts have no I/O and no clock: [`ue`] (a UE over NAS), [`ue::eps`] (a UE of EPS),
//! [`gnb`] (a gNB over NGAP), [`enb`] (an eNB over S1AP), [`usim`] and [`traffic`] (IP packets).
//! [`run`] adds threads, SCTP and UDP. It runs each UE through a [`scenario`], or applies a steady
//! load: [`mix`] defines the procedures, [`load`] their times. The result is a [`Report`]. The
//! emulator shares only codecs, algorithms and identifiers with the core, so it stays an
//! independent peer.
//!
//! With a core in the same process the emulator needs no network: [`run_with`] accepts SCTP
//! endpoints of any kind, including [`vireo_sctp::memory`]. A steady load sends user packets only
//! if it has an echo target ([`Options::echoes`]). Without a target it opens no UDP socket. The
//! addresses of UEs are never configured on an interface.
//!
//! ```
//! use std::time::Duration;
//! use vireo_emulator::load::Pattern;
//! use vireo_emulator::mix::{Activity, Steady};
//! use vireo_emulator::{Options, run_with, scenario::Scenario};
//! use vireo_sctp::{Config, memory::Network};
//!
//! let network = Network::new();
//! // The core's side: an endpoint of the same network that listens, on a thread of its own. Here nobody polls it.
//! let core = "10.0.0.1:38412".parse().unwrap();
//! let listening = Config { addresses: vec![[10, 0, 0, 1].into()], port: 38412, listen: true, ..Config::default() };
//! let _core = network.bind(&listening).unwrap();
//!
//! let mut options = Options::lab(core, Scenario::find("session").unwrap());
//! let kinds = [(Activity::ServiceRequest, 0.7), (Activity::XnHandover, 0.3)];
//! options.steady = Some(Steady::weighted(&kinds, 1000.0, Pattern::Constant, Duration::ZERO));
//! (options.ues, options.gnbs, options.duration) = (100, 2, Some(Duration::from_secs(1)));
//! options.timeout = Duration::from_millis(100);
//! // The gNBs of worker `n` are at an address of their own.
//! let open = |n: u32| Ok(network.bind(&Config { addresses: vec![[10, 0, 1, n as u8].into()], ..Config::default() })?);
//! let error = run_with(&options, &open, &mut |_progress| ()).unwrap_err();
//! assert!(error.to_string().contains("did not take gNB 0"));
//! ```
//!
//! `examples/memory.rs` runs it against a core that does answer.
#![forbid(unsafe_code)]

// The support of the integration tests names the crate.
#[cfg(test)]
extern crate self as vireo_emulator;

pub mod chaos;
mod dialect;
pub mod enb;
mod engine;
mod error;
pub mod gnb;
#[cfg(test)]
mod golden_tests;
pub mod load;
pub mod mix;
mod mutate;
pub mod negative;
mod node_set;
mod options;
mod progress;
mod ran;
mod rat;
mod report;
mod run;
pub mod scenario;
#[cfg(test)]
mod test_mme;
pub mod traffic;
pub mod ue;
pub mod usim;

/// Distance of a host in the network behind a UE from the IPv4 address of the UE, in the steps with
/// framed routes. The subscriber's framed route contains that address.
pub const BEHIND_UE: u32 = 0x1_0000;

pub use error::Error;
pub use mutate::{GoodUes, Growth, Mutations};
pub use options::{BusyUes, Echoes, LAB_K, LAB_OPC, Load, NGAP_PORT, Options, Retry, S1AP_PORT, Subscribers};
pub use progress::{EndpointFactory, Phase, Progress};
pub use rat::{Rat, Rats};
pub use report::{
    ChaosReport, Latency, PROCEDURES, Procedure, Report, Row, SessionAtEnd, Steady, UeAtEnd, UserPlane, write_csv,
};
pub use run::{run, run_with};
