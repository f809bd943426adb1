//! Message of a session that waits until it can be sent to UE and RAN.

use crate::smf::N2Sm;
use serde::{Deserialize, Serialize};

/// N1 and N2 output of a session step. While the UE moves from one RAN node to another, neither can
/// receive it: the context stores it until the UE is at one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredSessionMessage {
    pub(in crate::amf) psi: u8,
    pub(in crate::amf) n1: Option<Vec<u8>>,
    pub(in crate::amf) n2: Option<(N2Sm, Vec<u8>)>,
}

impl DeferredSessionMessage {
    /// Returns true if the message has the RAN set up this session.
    pub fn sets_up(&self, psi: u8) -> bool {
        self.psi == psi && matches!(self.n2, Some((N2Sm::SetupRequest, _)))
    }
}
