//! `[s1]`: endpoint for eNBs.

use crate::problems::{Problems, addresses};
use crate::values::LocalAddress;
use serde::{Deserialize, Serialize};
use vireo_ops::config::S1Config;

/// What is not here is of `[n2]`: the driver, the admission of RAN nodes, and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct S1 {
    /// Empty: there is no S1 endpoint.
    addresses: Vec<LocalAddress>,
    port: u16,
    udp_port: u16,
    /// True if UEs may use NR as secondary RAT.
    pub(super) dcnr: bool,
}

impl Default for S1 {
    fn default() -> Self {
        let S1Config { port, udp_port, .. } = S1Config::default();
        S1 { addresses: Vec::new(), port, udp_port, dcnr: true }
    }
}

impl S1 {
    /// Returns true if there is an endpoint for eNBs.
    pub(super) fn is_served(&self) -> bool {
        !self.addresses.is_empty()
    }
}

pub(super) fn s1(s1: &S1, n2_udp_port: u16, problems: &mut Problems) -> S1Config {
    for (key, port) in [("s1.port", s1.port), ("s1.udp-port", s1.udp_port)] {
        problems.check(port != 0, key, "1 to 65535 is allowed");
    }
    problems.check(s1.udp_port != n2_udp_port, "s1.udp-port", "a port other than n2.udp-port is allowed");
    let addresses = match &s1.addresses[..] {
        [] => Vec::new(),
        some => addresses("s1.addresses", some, problems),
    };
    S1Config { addresses, port: s1.port, udp_port: s1.udp_port }
}
