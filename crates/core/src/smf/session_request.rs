//! The request for a session, as both dialects have it.

use vireo_types::PduSessionType;
use vireo_wire::nas::NasExtendedProtocolConfigurationOptions;

/// Request of the UE for a new session, of either dialect.
pub(super) struct SessionRequest {
    pub(super) pti: u8,
    /// Requested session type; `None` leaves the choice to the network.
    pub(super) kind: Option<PduSessionType>,
    /// Protocol configuration options; EPS has the same coding in its usual IE.
    pub(super) options: Option<NasExtendedProtocolConfigurationOptions>,
    /// True if a UE of EPS has sent the options in the extended IE, which the answer has then, too
    /// (TS 24.301 6.6.1.1). 5GS has no other IE.
    pub(super) is_extended: bool,
    pub(super) always_on: bool,
    pub(super) integrity_rate: u16,
}
