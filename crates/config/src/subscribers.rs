//! `[subscribers]` of the configuration file.

use crate::values::{CountOrAuto, Secret};
use serde::{Deserialize, Serialize};
use vireo_core::subscription::AuthenticationMethod;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Subscribers {
    pub(super) database: String,
    pub(super) key_file: String,
    pub(super) cache_records: usize,
    pub(super) preload: bool,
    pub(super) deconceal_threads: CountOrAuto,
    pub(super) queue: usize,
    pub(super) authentication_method: AuthenticationMethod,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) home_network_key: Vec<HnKey>,
}

impl Default for Subscribers {
    fn default() -> Self {
        let udm = vireo_subscribers::UdmConfig::default();
        Subscribers {
            database: "vireo.db".into(),
            key_file: String::new(),
            cache_records: udm.cache_records,
            preload: udm.preload,
            deconceal_threads: CountOrAuto::Auto,
            queue: udm.queue,
            authentication_method: udm.authentication_method,
            home_network_key: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HnKey {
    pub(super) id: u8,
    pub(super) profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) private: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
}
