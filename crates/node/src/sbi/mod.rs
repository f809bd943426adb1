//! The service-based chain: AMF and SMF as functions of their own, which ask each other over HTTP/2 ([`vireo_sbi`]). The steps
//! are the core's: the AMF's are those of a host that has no sessions itself ([`amf`]), the SMF's are `core::session`'s
//! ([`smf`]).

pub(crate) mod amf;
pub mod smf;
mod translate;

use rand::RngCore;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use vireo_sbi::Settings;

/// Where the functions of the chain are, and how they ask each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SbiConfig {
    /// The AMFs, at least one. They have the same state: an SMF asks the next where one does not answer, or has no such UE.
    pub amf: Vec<SocketAddr>,
    /// Which of them is here, of several.
    pub listen: Option<SocketAddr>,
    /// The SMF.
    pub smf: SocketAddr,
    /// How long an answer is waited for, each time.
    pub timeout: Duration,
    /// How often a function waits that long in all. One that refuses is asked more often in that time.
    pub attempts: u32,
}

/// A loopback address of its own.
const DEFAULT_AMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 18)), 7777);

impl Default for SbiConfig {
    /// Loopback addresses of their own.
    fn default() -> Self {
        SbiConfig {
            amf: vec![DEFAULT_AMF],
            listen: None,
            smf: SocketAddr::from(([127, 0, 0, 19], 7777)),
            timeout: Duration::from_secs(2),
            attempts: 3,
        }
    }
}

impl SbiConfig {
    /// Where the AMF is that is here.
    pub fn own_amf(&self) -> SocketAddr {
        self.listen.or_else(|| self.amf.first().copied()).unwrap_or(DEFAULT_AMF)
    }

    /// How the endpoint of a function behaves.
    fn endpoint(&self, agent: &str, listen: SocketAddr) -> Settings {
        let nonce = rand::rng().next_u64();
        Settings { listen, agent: agent.to_owned(), timeout: self.timeout, attempts: self.attempts, nonce }
    }
}

/// The root of a function's URIs.
fn root(address: SocketAddr) -> String {
    format!("http://{address}")
}
