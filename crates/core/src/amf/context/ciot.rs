//! CIoT EPS optimisations of a UE (TS 24.301 5.3.15).

use super::{RanContext, UeContext};
use crate::config::CiotConfig;
use serde::{Deserialize, Serialize};

/// Features that UE and network have to support both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CiotFeatures {
    /// EMM-REGISTERED without PDN connection.
    pub without_pdn: bool,
    /// Control plane CIoT EPS optimisation.
    pub control_plane: bool,
}

/// CIoT EPS optimisations of a UE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ciot {
    /// Features that the UE supports, and prefers, by its last request.
    pub requested: CiotFeatures,
    /// Features that the last accept had (EPS network feature support).
    pub accepted: CiotFeatures,
    /// True if the UE expects one packet, and nothing more on its connection (TS 24.301 9.9.4.25).
    pub ends_after_downlink: bool,
    /// True if the UE supports service gap control (TS 24.301 9.9.3.34).
    #[serde(default)]
    pub service_gap: bool,
    /// True if the UE supports the control plane data back-off timer (TS 24.301 9.9.3.34).
    #[serde(default)]
    pub data_back_off: bool,
}

impl CiotFeatures {
    /// Returns true if no feature is in use.
    pub fn is_empty(self) -> bool {
        self == CiotFeatures::default()
    }
}

impl Ciot {
    /// Accepts the requested features that the configuration permits. A UE with sessions keeps the
    /// kind of their user plane.
    pub(crate) fn accept(&mut self, config: CiotConfig, has_sessions: bool) {
        let control_plane = if has_sessions { self.accepted.control_plane } else { self.requested.control_plane };
        self.accepted = CiotFeatures {
            without_pdn: self.requested.without_pdn && config.without_pdn,
            control_plane: control_plane && config.control_plane,
        };
    }
}

impl UeContext {
    /// Returns the CIoT EPS optimisations in use.
    pub fn ciot(&self) -> CiotFeatures {
        self.reachability.paging.ciot.accepted
    }

    /// Returns true if the UE is served by NAS messages alone: it needs no context at the eNB.
    pub fn is_served_by_nas(&self) -> bool {
        let is_secured = self.connection.is_some_and(|connection| connection.ran == RanContext::Secured);
        is_secured && self.is_registered() && !self.ciot().is_empty()
    }
}
