//! Settings of the roles of a process, from a configuration.

use crate::worker_process::{log_of_data_workers, program};
use crate::{Config, Failure};
use std::sync::Arc;
use vireo_node::cluster::BalancerConfig;
use vireo_node::control::ControlConfig;
use vireo_ops::metrics::Metrics;
use vireo_subscribers::Store;
use vireo_upf::UpfHandle;

/// Configuration of a control plane, and the running embedded UPF.
#[derive(Debug)]
pub struct Prepared {
    pub control: ControlConfig,
    pub store: Store,
    pub metrics: Arc<Metrics>,
    /// Embedded UPF, if configured. It must outlive the control plane.
    pub upf: Option<Arc<UpfHandle>>,
}

/// Allows the embedded UPF to associate with its own core, and with other control planes only if
/// `upf.control-planes` lists them.
pub fn serve_this_core(config: &mut Config) -> Result<(), Failure> {
    let Some(upf) = &mut config.upf else { return Ok(()) };
    let own = config.n4.listen.ip();
    upf.associations.or_only(own);
    match upf.associations.may_associate(own, &config.core.n4_node.id()) {
        true => Ok(()),
        false => Err(Failure(format!("upf.control-planes: this core's own {own} (n4.listen) is not in it; add it"))),
    }
}

/// Opens the subscriber database and starts the UPF. The UPF starts first so that the control plane
/// can associate with it.
pub fn prepare(mut config: Config) -> Result<Prepared, Failure> {
    config.state.check_tls()?;
    let metrics = Arc::new(Metrics::new());
    config.unlock_state()?;
    let management = config.management();
    let store = config.subscribers.open()?;
    log_of_data_workers(config.upf.as_mut(), &config.log);
    serve_this_core(&mut config)?;
    let upf = config.upf.map(vireo_upf::start).transpose()?.map(Arc::new);
    if let Some(upf) = &upf {
        upf.publish(&metrics);
    }
    let control = ControlConfig {
        core: config.core,
        n2: config.n2,
        n4: config.n4,
        api: config.api,
        slices: config.slices,
        pools: config.pools,
        state: config.state,
        overload: config.overload,
        program: program(&config.log),
        udm: config.subscribers.udm,
        upf: upf.clone(),
        sbi: None,
        management,
    };
    Ok(Prepared { control, store, metrics, upf })
}

/// Returns the balancer's configuration, beside a UPF that already runs.
pub fn balancer(config: Config, upf: Option<Arc<UpfHandle>>) -> BalancerConfig {
    let management = config.management();
    let Config { core, slices, n2, n4, api, cluster, .. } = config;
    BalancerConfig { core, slices, n2, n4, api, cluster, upf, management }
}
