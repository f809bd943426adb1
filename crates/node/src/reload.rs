//! What running parts take of a configuration that was read again. Everything else of it needs a restart.

use crate::config::SliceRuntime;
use vireo_core::config::{CoreConfig, DnnConfig};
use vireo_core::ran::admission::Allow;
use vireo_types::Network;

/// The values that change while a process runs.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Which RAN nodes may come from where; empty = any. Associations that are up stay.
    pub n2_allow: Vec<Allow>,
    /// Where PFCP is read from; empty = anywhere.
    pub n4_allow: Vec<Network>,
    /// Slices with their latency objectives; those that are not running are passed over.
    pub slices: Vec<SliceRuntime>,
    /// Data networks with the DNS servers and the MTU that sessions are told from now on; those that are not running are passed
    /// over.
    pub dnns: Vec<DnnConfig>,
    /// What worker processes log: a level, or directives.
    pub log_level: String,
}

/// What a balancer takes of it.
#[derive(Debug)]
pub(crate) struct AllowLists {
    pub(crate) n2: Vec<Allow>,
    pub(crate) n4: Vec<Network>,
}

impl Reload {
    /// Brings DNS servers and MTU of the data networks up to date.
    pub(crate) fn update_dnns(&self, core: &mut CoreConfig) {
        for dnn in &mut core.dnns {
            if let Some(new) = self.dnns.iter().find(|new| new.name == dnn.name) {
                (dnn.dns, dnn.mtu) = (new.dns.clone(), new.mtu);
            }
        }
    }

    /// Brings the objectives of the slices up to date.
    pub(crate) fn update_objectives(&self, slices: &mut [SliceRuntime]) {
        for slice in slices {
            if let Some(new) = self.slices.iter().find(|new| new.name == slice.name) {
                slice.slo = new.slo;
            }
        }
    }

    /// What is for the balancer.
    pub(crate) fn allow_lists(&self) -> AllowLists {
        AllowLists { n2: self.n2_allow.clone(), n4: self.n4_allow.clone() }
    }
}
