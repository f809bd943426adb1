//! Contents of a service request, which a UE may have to wait for until it is authenticated.

use serde::{Deserialize, Serialize};

/// Contents of SERVICE REQUEST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedService {
    /// Sessions with uplink data, one bit each.
    pub uplink_data: u16,
    /// Sessions that the UE has, one bit each; `None` if the IE is absent.
    pub session_status: Option<u16>,
}
