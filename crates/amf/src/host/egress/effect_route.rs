//! How the effects of a commit leave.

use vireo_core::placement::balance::HostId;
use vireo_core::placement::replica::EffectAssociations;

/// Associations and hosts that the effects of a commit concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::host) struct EffectRoute {
    /// Associations that the effects use.
    pub(in crate::host) associations: EffectAssociations,
    /// Host that has run the step in this one's place, and gets the responses of UPFs.
    pub(in crate::host) served_by: Option<HostId>,
}
