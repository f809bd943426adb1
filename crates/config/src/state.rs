//! `[state]` of the configuration file.

use crate::surfaces::ClientTls;
use crate::values::CountOrAuto;
use serde::{Deserialize, Serialize};
use vireo_core::config::{
    StateAnswer, StateAxes, StateCarry, StateChange, StateFormat, StateLocation, StateMode, StatePersist, StatePreset,
    StateScope, StateWrite,
};
use vireo_ops::config::StateConfig;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct State {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preset: Option<StatePreset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) location: Option<StateLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) persist: Option<StatePersist>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<StateChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<StateFormat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<StateScope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) carry: Option<StateCarry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) write: Option<StateWrite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<StateAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<String>,
    #[serde(skip_serializing_if = "ClientTls::is_none")]
    pub(super) tls: ClientTls,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confirm: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keep: Option<bool>,
    pub(super) keep_directory: String,
    pub(super) key: String,
    pub(super) encrypt: bool,
    pub(super) key_file: String,
    pub(super) ues: u32,
    pub(super) bytes: CountOrAuto,
    pub(super) packets: u32,
}

impl Default for State {
    fn default() -> Self {
        let s = StateConfig::default();
        State {
            preset: None,
            location: None,
            persist: None,
            change: None,
            format: None,
            scope: None,
            carry: None,
            write: None,
            answer: None,
            database: None,
            tls: ClientTls::default(),
            confirm: None,
            keep: None,
            keep_directory: "/dev/shm".into(),
            key: s.key,
            encrypt: true,
            key_file: "vireo-state.key".into(),
            ues: s.ues,
            bytes: CountOrAuto::Auto,
            packets: s.packets,
        }
    }
}

impl State {
    /// Returns the state mode.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys contradict each other.
    pub(super) fn chosen(&self) -> Result<StateMode, &'static str> {
        let &State { preset, location, persist, change, format, scope, carry, write, answer, .. } = self;
        let named = self.database.as_deref().and_then(StateLocation::from_url);
        StateMode::choose(preset, StateAxes { location, named, persist, change, format, scope, carry, write, answer })
    }

    /// Returns the state mode, or the default if the keys contradict each other. The check of
    /// `state.preset` reports the contradiction.
    pub(super) fn mode(&self) -> StateMode {
        self.chosen().unwrap_or_default()
    }
}
