//! What the API of a process manages.

use crate::Config;
use crate::receiver::Receiver;
use std::path::PathBuf;
use std::sync::Arc;
use vireo_api::{AlarmsConfig, Management, OpenDatabase, WebhookConfig};
use vireo_subscribers::{Store, key_source};

/// Location of a subscriber database that ends with its process.
const IN_MEMORY: &str = ":memory:";

impl Config {
    /// Returns what the API of this process manages. The caller adds the configuration file.
    pub fn management(&self) -> Management {
        let (database, key_file) = (self.subscribers.database.clone(), self.subscribers.key_file.clone());
        let is_shared = !database.ends_with(IN_MEMORY);
        let open: OpenDatabase =
            Arc::new(move || Store::open_existing(&database, key_source(&database, key_file.as_deref())));
        let management = Management {
            state_directory: self.api.token.path.parent().map(PathBuf::from),
            subscribers: is_shared.then_some(open),
            alarms: self.alarms(),
            ..Management::default()
        };
        management.with_core(&self.core, &self.slices)
    }

    fn alarms(&self) -> AlarmsConfig {
        let api = self.api.tls.as_ref().map(|tls| ("api.tls-certificate", &tls.certificate));
        let cluster = self.cluster.tls.as_ref().map(|tls| ("cluster.tls.certificate", &tls.certificate));
        let sbi = self.sbi.tls.as_ref().map(|tls| ("sbi.tls.certificate", &tls.certificate));
        let certificates = [api, cluster, sbi].into_iter().flatten();
        let certificates = certificates.map(|(key, path)| (key.to_owned(), path.clone())).collect();
        let webhook = self.webhook.clone();
        let webhook = webhook.map(|Receiver { url, authorities }| WebhookConfig { url, authorities });
        AlarmsConfig { webhook, certificates }
    }
}
