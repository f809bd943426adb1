//! Sessions of kept contexts that are being set up again.

use rustc_hash::FxHashSet;
use std::net::SocketAddr;
use vireo_cluster::Input;
use vireo_core::amf::context::UeContext;
use vireo_types::{AssocId, Instant, Seid};

/// Sessions of kept contexts that their UPFs have not set up again.
#[derive(Debug, Default)]
pub(in crate::host) struct RestoringSessions {
    /// UPFs that receive their sessions as soon as they are associated.
    pub(super) upfs: FxHashSet<SocketAddr>,
    /// Sessions without a response.
    pub(super) sessions: FxHashSet<Seid>,
    /// End of the waiting time of RAN nodes; `None`: they do not wait.
    pub(super) deadline: Option<Instant>,
    /// Messages of RAN nodes received meanwhile, each with its association.
    pub(super) waiting: Vec<(AssocId, Input)>,
}

impl RestoringSessions {
    /// Adds the sessions of a resumed UE.
    pub(super) fn add(&mut self, ue: &UeContext) {
        for session in &ue.sessions {
            self.upfs.insert(session.pfcp.upf);
            self.sessions.insert(session.pfcp.cp_seid);
        }
    }
}
