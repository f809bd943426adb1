//! State of an authentication of a registered UE.

use crate::amf::procedures::common::security_setup::SecuritySetup;
use crate::amf::procedures::common::service::RequestedService;
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// Authentication of a registered UE in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Authenticating {
    pub securing: SecuritySetup,
    pub(super) started: Instant,
    /// Service request that is served afterwards; `None` for a connected UE.
    pub(super) service: Option<RequestedService>,
}

impl Authenticating {
    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Instant {
        self.securing.deadline()
    }

    /// Returns true if the UE waits for the answer to a service request.
    pub fn has_service(&self) -> bool {
        self.service.is_some()
    }

    /// Returns true if the UE waits for the answer to this service request.
    pub fn serves(&self, request: RequestedService) -> bool {
        self.service == Some(request)
    }
}
