//! The request for a session, as both dialects have it.

use vireo_types::PduSessionType;
use vireo_wire::nas::NasExtendedProtocolConfigurationOptions;

/// Request of the UE for a new session, of either dialect.
pub(super) struct SessionRequest {
    pub(super) pti: u8,
    /// Requested session type; `None` leaves the choice to the network.
    pub(super) kind: Option<PduSessionType>,
    pub(super) options: Option<NasExtendedProtocolConfigurationOptions>,
    pub(super) always_on: bool,
    pub(super) integrity_rate: u16,
}
