//! Values of a configuration by key, for the detection of changes.

use crate::file::File;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use toml::Value;

/// Keys with their values as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written(BTreeMap<String, String>);

impl Written {
    pub(super) fn from_file(file: &File) -> Self {
        let mut file = file.clone();
        (file.slice, file.dnn) = (file.slices(), file.dnns());
        let mut keys = BTreeMap::new();
        // Every value of a file has a TOML form, because it comes from TOML.
        if let Ok(all) = Value::try_from(&file) {
            collect_keys(&mut keys, "", &all);
        }
        for key in &file.subscribers.home_network_key {
            if let Some(private) = &key.private {
                let name = format!("subscribers.home-network-key.{}.private", key.id);
                keys.insert(name, digest(&private.0).to_string());
            }
        }
        Written(keys)
    }

    /// Takes the values of these keys from `other`.
    pub fn adopt(&mut self, keys: &[String], other: &Written) {
        for key in keys {
            match other.0.get(key) {
                Some(value) => drop(self.0.insert(key.clone(), value.clone())),
                None => drop(self.0.remove(key)),
            }
        }
    }

    /// Returns the value of a key as TOML. That of a secret is a number without meaning.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the keys whose values differ in `other`.
    pub fn changed_keys(&self, other: &Written) -> Vec<String> {
        let gone = self.0.keys().filter(|key| !other.0.contains_key(*key));
        let new = other.0.iter().filter(|(key, value)| self.0.get(*key) != Some(value)).map(|(key, _)| key);
        let mut keys: Vec<_> = gone.chain(new).cloned().collect();
        keys.sort();
        keys
    }
}

/// Returns a hash that reveals only whether a secret has changed.
fn digest(secret: &str) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    STATE.get_or_init(RandomState::new).hash_one(secret)
}

/// Adds a value and its nested values by key. A list is one value.
fn collect_keys(keys: &mut BTreeMap<String, String>, path: &str, value: &Value) {
    let Value::Table(table) = value else {
        keys.insert(path.to_owned(), value.to_string());
        return;
    };
    for (key, value) in table {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        collect_keys(keys, &path, value);
    }
}
