//! Configuration values that running processes apply on reload.
//!
//! All other values need a restart.

use crate::config::SliceRuntime;
use vireo_core::amf::ran::admission::Allow;
use vireo_core::config::{CoreConfig, DnnConfig};
use vireo_types::Network;

/// The configuration values that a running process can change.
#[derive(Clone, Debug)]
pub struct Reload {
    /// RAN nodes and the networks that they may connect from; empty = any. Existing associations
    /// stay up.
    pub n2_allow: Vec<Allow>,
    /// Networks from which PFCP is accepted; empty = any.
    pub n4_allow: Vec<Network>,
    /// Slices with their latency objectives. Slices that are not running are skipped.
    pub slices: Vec<SliceRuntime>,
    /// Data networks, whose DNS servers and MTU apply to new sessions. Data networks that are not
    /// running are skipped.
    pub dnns: Vec<DnnConfig>,
    /// Log filter of the worker processes: a level, or `tracing` directives.
    pub log_level: String,
}

/// The part of a [`Reload`] that balancers apply.
#[derive(Debug)]
pub struct AllowLists {
    pub n2: Vec<Allow>,
    pub n4: Vec<Network>,
}

impl Reload {
    /// Replaces DNS servers and MTU of the data networks in `core`.
    pub fn update_dnns(&self, core: &mut CoreConfig) {
        for dnn in &mut core.dnns {
            if let Some(new) = self.dnns.iter().find(|new| new.name == dnn.name) {
                (dnn.dns, dnn.p_cscf, dnn.mtu) = (new.dns.clone(), new.p_cscf.clone(), new.mtu);
            }
        }
    }

    /// Replaces the latency objectives of the slices.
    pub fn update_objectives(&self, slices: &mut [SliceRuntime]) {
        for slice in slices {
            if let Some(new) = self.slices.iter().find(|new| new.name == slice.name) {
                slice.slo = new.slo;
            }
        }
    }

    /// Returns the allow lists of the balancer.
    pub fn allow_lists(&self) -> AllowLists {
        AllowLists { n2: self.n2_allow.clone(), n4: self.n4_allow.clone() }
    }
}
