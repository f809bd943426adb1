//! Several shards in one process tree (`pools.shards`): a private cluster of `vireo run`.
//!
//! `vireo run` is balancer and controller of the cluster, and starts the shards, its hosts
//! ([`ShardMember`]). Membership, takeover and replication are those of any cluster. What differs:
//!
//! - The connections are on the loopback interface, with TLS by certificates that exist in the
//!   memory of these processes only.
//! - The supervisor of the shards reports ended processes to the controller, and replaces them.
//! - The API of `vireo run` is that of all shards.

mod config;
pub(crate) mod error;
mod link;
mod member;
mod message;
mod metrics;
mod source;
mod supervisor;

pub use config::ShardsConfig;
pub use error::ShardError;
pub use member::{Shard, ShardMember};
pub use message::ConfigText;

use crate::cluster::{BalancerConfig, BalancerNode};
use crate::control::{StartError, bind_ran, upfs};
use message::ShardSetup;
use source::ShardsSource;
use std::net::SocketAddr;
use std::sync::Arc;
use supervisor::ShardSupervisor;
use vireo_api::Management;
use vireo_controller::EmbeddedController;
use vireo_fabric::Security;
use vireo_fabric::identity::{CertificateRole, TlsTexts};
use vireo_ops::api::{self, ApiSocket};
use vireo_ops::metrics::Metrics;
use vireo_ops::reload::Reload;
use vireo_pki::Authority;

/// Name of the private cluster in certificates.
const NAME: &str = "shards";
/// Validity of the certificates in days: they are used as long as the core runs.
const DAYS: u32 = 3650;

/// Running core with several shards.
#[derive(Debug)]
pub struct ShardedCore {
    /// Declared before the balancer: dropping it ends the shards.
    shards: ShardSupervisor,
    balancer: BalancerNode,
    api: Option<api::Server>,
}

impl ShardedCore {
    /// Starts the balancer, then all shards, and returns when they serve. RAN nodes are answered
    /// from then on.
    ///
    /// # Errors
    ///
    /// Returns an error if a part does not start. None runs then.
    pub fn start(mut config: BalancerConfig, shards: ShardsConfig, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let prepared = api::Prepared::new(&config.api)?;
        let api = Api { prepared, management: std::mem::take(&mut config.management), metrics: Arc::clone(&metrics) };
        // The API of the balancer alone would show no UE.
        (config.api.listen, config.api.socket) = (None, ApiSocket::Off);
        let (own, tls) = certificates().map_err(ShardError::Spawn)?;
        let security = Security::from_texts(&own)?;
        let (names, upf) = (upfs(&config.core), config.upf.clone());
        let balancer = BalancerNode::start_secured(bind_ran(&config.n2)?, config, security, metrics)?;
        match start_rest(api, &balancer, shards, tls, (names, upf)) {
            Ok((shards, api)) => Ok(ShardedCore { shards, balancer, api }),
            Err(error) => {
                // The first error is the reason.
                let _ = balancer.stop();
                Err(error)
            }
        }
    }

    /// Returns the SCTP driver and the reason for its selection.
    pub fn driver(&self) -> &str {
        self.balancer.driver()
    }

    /// Returns the address of the API, if it has one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Returns true if a part has ended that is not replaced.
    pub fn has_failed(&self) -> bool {
        self.balancer.has_failed() || self.shards.has_failed()
    }

    /// Returns the number of iterations of the balancer, as [`BalancerNode::progress`] does. Shards
    /// that hang are replaced by their supervisor.
    pub fn progress(&self) -> u64 {
        self.balancer.progress()
    }

    /// Applies the settings that can change at run time. The shards parse `config` themselves.
    pub fn reload(&self, reload: &Reload, config: &ConfigText) {
        self.balancer.reload(reload);
        self.shards.states.reload(config);
    }

    /// Stops in order: the API, the associations, then the shards.
    ///
    /// # Errors
    ///
    /// Returns the error with which the balancer ended before, if it did.
    pub fn stop(self) -> std::io::Result<()> {
        let ShardedCore { shards, balancer, api } = self;
        drop(api);
        balancer.stop_before(|| drop(shards))
    }
}

/// Parts of the API.
struct Api {
    prepared: api::Prepared,
    management: Management,
    metrics: Arc<Metrics>,
}

type Upfs = (Vec<(String, SocketAddr)>, Option<Arc<vireo_upf::UpfHandle>>);

fn start_rest(
    api: Api,
    balancer: &BalancerNode,
    shards: ShardsConfig,
    tls: TlsTexts,
    (upfs, upf): Upfs,
) -> Result<(ShardSupervisor, Option<api::Server>), StartError> {
    let none = || ShardError::Spawn(std::io::Error::other("there is no controller"));
    let controller: Arc<EmbeddedController> = balancer.controller().cloned().ok_or_else(none)?;
    let address = controller.address().map_err(ShardError::Spawn)?;
    let setup = ShardSetup { controller: address, tls, config: shards.config.clone() };
    let shards = ShardSupervisor::start(shards, setup, Arc::clone(&controller))?;
    let source =
        ShardsSource { balancer: balancer.source(), controller, states: Arc::clone(&shards.states), upf, upfs };
    let api = vireo_api::serve(api.prepared, Arc::new(source), api.metrics, api.management)?;
    Ok((shards, api))
}

/// Creates an authority and the certificates of balancer and shards. The key of the authority is
/// dropped.
fn certificates() -> std::io::Result<(TlsTexts, TlsTexts)> {
    let authority = Authority::new()?;
    let authorities = authority.certificate();
    let sign = |subject: &str, roles: &[CertificateRole]| {
        let roles: Vec<String> = roles.iter().map(|role| role.uri(NAME)).collect();
        let names: Vec<&str> = roles.iter().map(String::as_str).collect();
        let signed = authority.sign(subject, &names, DAYS)?;
        let (certificate, key) = (signed.certificate, signed.key);
        Ok::<_, std::io::Error>(TlsTexts { certificate, key, authorities: authorities.clone(), name: NAME.into() })
    };
    let own = sign("core", &[CertificateRole::Balancer, CertificateRole::Controller])?;
    Ok((own, sign("shard", &[CertificateRole::Host])?))
}
