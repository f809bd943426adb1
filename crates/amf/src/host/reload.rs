//! Application of a reloaded configuration by a running host and its workers.

use super::slo_tracker::objectives;
use super::state::Host;
use std::sync::Arc;
use vireo_ops::reload::Reload;

impl Host {
    /// Applies the configuration, and publishes it to the workers in the value of their start-up
    /// configuration.
    pub(super) fn reload(&mut self, reload: &Reload) {
        self.nodes.set_allow(reload.n2_allow.clone());
        self.workers.pools.update(|slices| reload.update_objectives(slices));
        self.statistics.step_metrics.set_objectives(self.workers.pools.slices());
        self.events.waiting.set_objectives(&objectives(self.workers.pools.slices()));
        reload.update_dnns(&mut self.workers.instructions.core);
        self.workers.instructions.log_level = Some(reload.log_level.clone());
        self.config = Arc::new(self.workers.instructions.core.clone());
        // Cached subscriber records and claims are read again.
        self.udm.forget_records();
        if let Err(error) = self.workers.instructions.publish(&self.ues.region) {
            tracing::error!(%error, "configuration of workers not changed");
        }
    }
}
