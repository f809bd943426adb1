//! NG connection of a UE and the state of its context in the RAN.

use super::NextHop;
use serde::{Deserialize, Serialize};
use vireo_types::{AmfUeNgapId, AssocId, Instant, NrCgi, RanUeNgapId, Tai};

/// NG connection of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Association on which the RAN node has set up NG (`RanNodes`). Messages to the RAN node may
    /// use another of its associations.
    pub assoc: AssocId,
    pub ran_id: RanUeNgapId,
    pub amf_id: AmfUeNgapId,
    /// Tracking area of the UE.
    pub tai: Tai,
    pub cell: NrCgi,
    /// State of the UE context in the RAN.
    pub ran: RanContext,
}

/// State of the UE context in the RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RanContext {
    /// None: only NAS transport is possible. The network has sent no ciphered message on the
    /// connection.
    None,
    /// INITIAL CONTEXT SETUP REQUEST was sent.
    SettingUp {
        /// Time by which the RAN node must respond.
        deadline: Instant,
    },
    /// The RAN has a UE context.
    SetUp,
    /// UE CONTEXT RELEASE COMMAND was sent.
    Releasing {
        /// Time by which the RAN node must respond.
        deadline: Instant,
    },
    /// None, and the secure exchange of NAS messages is established on the connection (TS 24.501
    /// 4.4.2.5). It is established in every state but [`RanContext::None`].
    Secured,
    /// The RAN has a UE context, and is to take another key into use: UE CONTEXT MODIFICATION
    /// REQUEST was sent, or the answer to a path switch will have the key (TS 33.501 6.9.2.3.2,
    /// 6.9.4.4). Release 0.2.0 does not read it.
    Rekeying {
        /// Time by which the RAN node must respond.
        deadline: Instant,
        /// Next NH of the former keys, for a path switch of an eNB meanwhile.
        former: Option<NextHop>,
    },
}

impl RanContext {
    /// Returns true if the RAN has no UE context and was not asked to set one up.
    pub fn is_none(self) -> bool {
        matches!(self, RanContext::None | RanContext::Secured)
    }

    /// Returns true if the RAN has a UE context, under its key or the former one.
    pub fn is_set_up(self) -> bool {
        matches!(self, RanContext::SetUp | RanContext::Rekeying { .. })
    }

    /// Returns true if the RAN is not known to have taken the key into use that follows from new
    /// NAS keys.
    pub fn is_rekeying(self) -> bool {
        matches!(self, RanContext::Rekeying { .. })
    }
}
