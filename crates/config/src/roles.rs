//! Settings of the roles of a process, from a configuration.

use crate::worker_process::{log_of_data_workers, program};
use crate::{Config, Failure};
use std::sync::Arc;
use vireo_node::HostConfig;
use vireo_node::cluster::{BalancerConfig, HostNodeConfig};
use vireo_node::control::ControlConfig;
use vireo_ops::metrics::Metrics;
use vireo_ops::sbi::SbiConfig;
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
    config.read_home_network_keys()?;
    let store = config.subscribers.open()?;
    log_of_data_workers(config.upf.as_mut(), &config.log);
    serve_this_core(&mut config)?;
    let upf = config.upf.take().map(vireo_upf::start).transpose()?.map(Arc::new);
    if let Some(upf) = &upf {
        upf.publish(&metrics);
    }
    let (n2, n4) = (config.n2.clone(), config.n4.clone());
    let HostNodeConfig { host, api, udm, management, .. } = host(config, None);
    let control = ControlConfig { host, n2, n4, api, udm, upf: upf.clone(), sbi: None, management };
    Ok(Prepared { control, store, metrics, upf })
}

/// Returns the configuration of a host. In SBA mode (`sbi` set) the host is an AMF that uses a
/// separate SMF.
pub fn host(config: Config, sbi: Option<SbiConfig>) -> HostNodeConfig {
    let management = config.management();
    let Config { core, slices, pools, state, overload, log, n2, api, subscribers, cluster, .. } = config;
    let host = HostConfig { core, slices, pools, state, overload, program: program(&log), allow: n2.allow };
    HostNodeConfig { host, api, udm: subscribers.udm, cluster, sbi, management }
}

/// Returns the balancer's configuration, beside a UPF that already runs.
pub fn balancer(config: Config, upf: Option<Arc<UpfHandle>>) -> BalancerConfig {
    let management = config.management();
    let Config { core, slices, n2, n4, api, cluster, .. } = config;
    BalancerConfig { core, slices, n2, n4, api, cluster, upf, management }
}
