//! A configuration that was read again: what of it the host and its workers take while they run.

use super::Host;
use crate::reload::Reload;
use std::sync::Arc;

impl Host {
    /// Takes it; the workers are told by the bulletin that they were instructed by.
    pub(super) fn reload(&mut self, reload: &Reload) {
        self.nodes.set_allow(reload.n2_allow.clone());
        self.pools.update(|slices| reload.update_objectives(slices));
        self.account.set_objectives(self.pools.slices());
        reload.update_dnns(&mut self.instructions.core);
        self.instructions.log_level = Some(reload.log_level.clone());
        self.config = Arc::new(self.instructions.core.clone());
        // Records and claims of the database are read anew.
        self.udm.forget_records();
        if let Err(error) = self.instructions.publish(&self.region) {
            tracing::error!(%error, "workers keep the configuration that they have");
        }
    }
}
