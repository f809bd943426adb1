//! Actions that a step requests.

use crate::octets;
use crate::sba::{N1N2TransferResult, PiggybackedSmContext, SessionNumber, SmfRequest};
use crate::subscription::AuthenticationRequest;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{AmfUeNgapId, AssocId, Dnn, Instant, RanUeNgapId, SessionAddress, SessionIndex, Supi, Tmsi};

/// Action requested by a step. Effects are executed in order, after the commit of the step, and
/// never before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Sends an NGAP PDU about the UE to a RAN node.
    Ngap {
        assoc: AssocId,
        #[serde(with = "octets")]
        pdu: Vec<u8>,
    },
    /// Has a RAN node release a UE-associated logical connection that the UE context does not have
    /// (TS 38.413 10.6). The UE would never be served on that connection. The message goes only to
    /// this RAN node. It is dropped if there are too many of its kind.
    ReleaseStale {
        assoc: AssocId,
        /// AMF-UE-NGAP-ID as the RAN node sent it.
        amf_id: AmfUeNgapId,
        ran_id: RanUeNgapId,
    },
    /// Sends a PFCP message to a UPF. The N4 endpoint sets the sequence number of a request. A
    /// G-PDU is a packet of a UE that has sent it over NAS; `upf` is then the UPF's end of its
    /// tunnel.
    Pfcp {
        upf: SocketAddr,
        session: SessionIndex,
        #[serde(with = "octets")]
        message: Vec<u8>,
    },
    /// Sends a request to the subscriber service. The response arrives as an event.
    Authenticate(AuthenticationRequest),
    /// Maps this 5G-TMSI to the UE.
    BindTmsi(Tmsi),
    /// Releases this 5G-TMSI for other UEs.
    FreeTmsi(Tmsi),
    /// Makes this context the subscriber's context. An earlier context of the subscriber is
    /// superseded.
    BindSupi(Supi),
    /// As [`Effect::BindSupi`], for a registration that began at this time and was not completed.
    /// It has no effect if another registration was completed since.
    BindSupiSince(Supi, Instant),
    /// Returns these addresses to the address pool.
    FreeAddress(Dnn, SessionAddress),
    /// Deletes the context, which has no state worth keeping.
    DeleteContext,
    /// Sends a request to the SMF about one of its sessions. The response arrives as an event.
    /// Requests about one session are sent one at a time.
    SmfRequest {
        number: SessionNumber,
        request: SmfRequest,
        /// SM context, if it is piggybacked.
        sm_context: Option<PiggybackedSmContext>,
    },
    /// Sends the result of an N1N2 transfer to the SMF that requested it.
    N1N2TransferReply {
        /// Token of the request, [`N1N2Transfer::token`](crate::sba::N1N2Transfer::token).
        token: u64,
        result: N1N2TransferResult,
        /// SM context, if the SMF requested it.
        sm_context: Option<PiggybackedSmContext>,
    },
}

impl Effect {
    /// Returns true if a serving host may propose the effect. The others need the owner: they claim
    /// the subscriber, delete the context, or have answers that only the owner receives.
    pub fn may_be_proposed(&self) -> bool {
        match self {
            Effect::Ngap { .. }
            | Effect::ReleaseStale { .. }
            | Effect::Pfcp { .. }
            | Effect::BindTmsi(_)
            | Effect::FreeTmsi(_)
            | Effect::FreeAddress(..) => true,
            Effect::Authenticate(_)
            | Effect::BindSupi(_)
            | Effect::BindSupiSince(..)
            | Effect::DeleteContext
            | Effect::SmfRequest { .. }
            | Effect::N1N2TransferReply { .. } => false,
        }
    }

    /// Returns the subscriber whose context this effect sets, and the time from which it is valid.
    /// `at` is the time of the commit.
    pub fn claims_subscriber(&self, at: Instant) -> Option<(Supi, Instant)> {
        match self {
            Effect::BindSupi(supi) => Some((*supi, at)),
            Effect::BindSupiSince(supi, began) => Some((*supi, *began)),
            _ => None,
        }
    }
}
