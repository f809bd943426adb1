//! Events of the SBI for the host.

use vireo_core::sba::{N1N2Transfer, PiggybackedSmContext, SessionNumber, SmfRequest, SmfResponse};
use vireo_types::{Ltmsi, Supi};

/// An event of the SBI for the host.
#[derive(Debug)]
pub(crate) enum SmfEvent {
    /// The SMF's response to a request, or its failure.
    Response {
        ltmsi: Ltmsi,
        /// Idempotency key of the request.
        key: u64,
        number: SessionNumber,
        /// The request that was sent.
        request: Box<SmfRequest>,
        response: SmfResponse,
        /// SM context after the request, if it is piggybacked (`state.carry = "piggyback"`).
        sm_context: Option<Box<PiggybackedSmContext>>,
        /// Number of the input that this response completes; 0 unless a balancer assigned a number
        /// and the SMF commits for the AMF.
        input: u64,
    },
    /// An N1N2 transfer of an SMF for a UE and its RAN node.
    Transfer {
        supi: Supi,
        /// Idempotency key of the transfer; 0 = none.
        key: u64,
        transfer: Box<N1N2Transfer>,
        /// Number of the completed input as in [`SmfEvent::Response`], if the transfer answers a
        /// request.
        input: u64,
    },
    /// An SMF has released an SM context.
    Released {
        supi: Supi,
        number: SessionNumber,
        /// Token of the notification, used for the response.
        token: u64,
    },
}

/// Queue of the host for events of the SBI.
pub(crate) trait SmfEventQueue: std::fmt::Debug + Send + Sync {
    /// Enqueues an event and wakes the host; blocks while the queue is full. A host that has exited
    /// receives nothing.
    fn send(&self, event: SmfEvent);

    /// Enqueues an event and wakes the host. Returns false if the queue is full or the host has
    /// exited.
    fn try_send(&self, event: SmfEvent) -> bool;
}
