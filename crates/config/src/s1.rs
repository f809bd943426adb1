//! `[s1]`: endpoint for eNBs.

use crate::problems::{Problems, addresses};
use crate::values::LocalAddress;
use serde::{Deserialize, Serialize};
use vireo_core::config::DnnConfig;
use vireo_ops::config::S1Config;
use vireo_types::Dnn;

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
    /// Name of the data network of emergency PDN connections; empty = there are none.
    pub(super) emergency_dnn: String,
}

impl Default for S1 {
    fn default() -> Self {
        let S1Config { port, udp_port, .. } = S1Config::default();
        S1 { addresses: Vec::new(), port, udp_port, dcnr: true, emergency_dnn: String::new() }
    }
}

impl S1 {
    /// Returns true if there is an endpoint for eNBs.
    pub(super) fn is_served(&self) -> bool {
        !self.addresses.is_empty()
    }
}

/// Returns the data network of emergency services, whose name a key has; empty = there are none.
pub(super) fn emergency(key: &str, name: &str, dnns: &[DnnConfig], problems: &mut Problems) -> Option<Dnn> {
    let dnn = dnns.iter().find(|dnn| dnn.name.as_str() == name);
    problems.check(dnn.is_some() || name.is_empty(), key, format_args!("there is no [dnn.{name}]"));
    dnn.map(|dnn| dnn.name.clone())
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
