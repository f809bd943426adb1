//! What a process lets its API manage, besides the core itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use vireo_core::config::CoreConfig;
use vireo_ops::config::SliceRuntime;
use vireo_ops::http_post::HttpUrl;
use vireo_ops::reload::Reload;
use vireo_subscribers::{Store, StoreError};

/// Opens the subscriber database.
pub type OpenDatabase = Arc<dyn Fn() -> Result<Store, StoreError> + Send + Sync>;

/// Configuration of `/v1`.
#[derive(Clone, Default)]
pub struct Management {
    /// Git commit of the program; empty = unknown.
    pub commit: String,
    /// Directory of the audit log; `None` = changes are logged only, not kept.
    pub state_directory: Option<PathBuf>,
    /// Opens the subscriber database; `None` = this process has none.
    pub subscribers: Option<OpenDatabase>,
    /// The configuration file; `None` = it is not changed here.
    pub configuration: Option<Arc<dyn ConfigurationControl>>,
    pub slices: Slices,
    pub data_networks: Vec<DataNetwork>,
    pub alarms: AlarmsConfig,
}

impl fmt::Debug for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management").field("state_directory", &self.state_directory).finish_non_exhaustive()
    }
}

impl Management {
    /// Describes slices, data networks and UPFs of a core.
    #[must_use]
    pub fn with_core(mut self, core: &CoreConfig, slices: &[SliceRuntime]) -> Self {
        let permitted =
            |dnn: &vireo_core::config::DnnConfig, slice| dnn.slices.is_empty() || dnn.slices.contains(&slice);
        let slices = slices
            .iter()
            .map(|slice| Slice {
                runtime: slice.clone(),
                data_networks: core
                    .dnns
                    .iter()
                    .filter(|dnn| permitted(dnn, slice.snssai))
                    .map(|dnn| dnn.name.to_string())
                    .collect(),
            })
            .collect();
        self.slices = Slices(Arc::new(Mutex::new(slices)));
        let networks = core.dnns.iter().map(|dnn| DataNetwork {
            name: dnn.name.to_string(),
            upfs: core.upfs.iter().filter(|upf| upf.reaches(&dnn.name)).map(|upf| upf.name.clone()).collect(),
        });
        self.data_networks = networks.collect();
        self
    }
}

/// The slices of a core. A reload changes their objectives.
#[derive(Clone, Debug, Default)]
pub struct Slices(Arc<Mutex<Vec<Slice>>>);

impl Slices {
    /// Returns all slices.
    pub fn all(&self) -> Vec<Slice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies the objectives of a reloaded configuration.
    pub fn reload(&self, reload: &Reload) {
        for slice in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            reload.update_objectives(std::slice::from_mut(&mut slice.runtime));
        }
    }
}

/// A configured slice.
#[derive(Clone, Debug)]
pub struct Slice {
    pub runtime: SliceRuntime,
    /// Names of the data networks that the slice may use.
    pub data_networks: Vec<String>,
}

/// A configured data network.
#[derive(Clone, Debug)]
pub struct DataNetwork {
    pub name: String,
    /// Names of the UPFs that serve it.
    pub upfs: Vec<String>,
}

/// Alarms (`[alarms]`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmsConfig {
    /// Receiver of raised and cleared alarms.
    pub webhook: Option<WebhookConfig>,
    /// Certificates to watch, each with the key that names it.
    pub certificates: Vec<(String, PathBuf)>,
}

/// Receiver of alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    pub url: HttpUrl,
    /// File with the authorities of the receiver's certificate; `None` = those of this machine.
    pub authorities: Option<PathBuf>,
}

/// Reads and changes the configuration file of this process.
pub trait ConfigurationControl: Send + Sync {
    /// Returns the text of the file, with secrets.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    fn read(&self) -> Result<String, String>;

    /// Checks a text, and compares it with the configuration in force.
    fn validate(&self, text: &str) -> Validation;

    /// Writes the file, and applies it to the running process. On a failure the file before is
    /// restored and applied.
    ///
    /// # Errors
    ///
    /// Returns the reason why the file is as it was.
    fn apply(&self, text: &str) -> Result<Validation, String>;
}

/// Result of the check of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Problems, one sentence each; empty = the configuration is valid.
    pub errors: Vec<String>,
    pub changes: Vec<Change>,
}

/// Change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    /// Value as TOML; `None` = the key has none. Secrets are masked.
    pub old: Option<String>,
    pub new: Option<String>,
    /// True if the running process applies the change; else it needs a restart.
    pub is_live: bool,
}
