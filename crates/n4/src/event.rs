use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Seid};
use vireo_wire::pfcp::{Cause, HeaderError, UpFunctionFeatures};

/// Output of the endpoint.
pub trait Sink {
    /// Sends a datagram.
    fn send(&mut self, to: SocketAddr, octets: &[u8]);

    /// Reports an event to the control plane.
    fn event(&mut self, event: Event<'_>);
}

/// An event of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message for a session: the response to its request, or a report of the UPF that must be
    /// answered.
    Deliver {
        /// Configured address of the UPF.
        upf: SocketAddr,
        /// SEID of the control plane. For a response it is the submitted one, whatever the UPF
        /// sent.
        seid: Seid,
        /// True for a request of the UPF.
        request: bool,
        message: &'a [u8],
    },
    /// A G-PDU for a session whose user data are sent over NAS. It is valid only from the UPF's end
    /// of the tunnel of that session.
    UserData {
        /// Source of the G-PDU.
        from: SocketAddr,
        /// Session of its TEID, with generation 0.
        seid: Seid,
        message: &'a [u8],
    },
    /// A session's request has no response, after all repeats or because the UPF restarted. Whether
    /// the UPF has executed it is unknown.
    Timeout {
        /// Configured address of the UPF.
        upf: SocketAddr,
        /// SEID of the control plane.
        seid: Seid,
        /// The key of the submitted request.
        key: Option<u64>,
    },
    /// The UPF accepts sessions, for the first time or again.
    UpfUp {
        /// Configured address of the UPF.
        upf: SocketAddr,
        features: UpFunctionFeatures,
    },
    /// An association setup failed; the endpoint retries.
    SetupFailed {
        /// Configured address of the UPF.
        upf: SocketAddr,
        /// Cause in the response, or the error of the response; `None` if there was none.
        cause: Option<Cause>,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// The UPF does not answer, or has released the association with its sessions.
    UpfDown {
        /// Configured address of the UPF.
        upf: SocketAddr,
        /// True if the UPF presumably still has its sessions.
        sessions_kept: bool,
    },
    /// The UPF restarted: its sessions are gone. [`Event::UpfUp`] follows when it accepts new ones.
    UpfRestarted {
        /// Configured address of the UPF.
        upf: SocketAddr,
    },
    /// The UPF requests that its sessions be relocated. It releases the association afterwards.
    UpfReleasing {
        /// Configured address of the UPF.
        upf: SocketAddr,
        /// Time until the release.
        within: Duration,
    },
    /// The UPF reports that a GTP-U peer (a RAN node) fails or responds again.
    GtpuPath {
        /// Configured address of the UPF.
        upf: SocketAddr,
        peer: IpAddr,
        /// True if the peer responds.
        works: bool,
    },
}

/// Result of submitting a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitResult {
    Sent,
    /// Nothing was sent yet. A request of the same key is unanswered, or the association is being
    /// taken over.
    Waiting,
}

/// Reason why a request was not sent. The session must handle it like a missing response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The UPF is not configured.
    #[error("no UPF at {0} is configured")]
    UnknownUpf(SocketAddr),
    /// The UPF is down or was never reached.
    #[error(
        "no PFCP association with the UPF at {0}; check that it runs and that its upf.control-planes permits this Node ID"
    )]
    NoAssociation(SocketAddr),
    /// Too many requests are unanswered.
    #[error("too many PFCP requests wait for a response; add UPFs")]
    Full,
    /// The octets are not a PFCP message.
    #[error("the message to send is no PFCP message: {0}")]
    Malformed(HeaderError),
}

/// Counters since the start, and the present number of unanswered requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    /// Datagrams sent, including repeats.
    pub sent: u64,
    /// Requests repeated because no response arrived in time.
    pub repeated: u64,
    /// Requests without response after all repeats.
    pub timeouts: u64,
    /// Repeated requests of UPFs.
    pub duplicates: u64,
    /// Responses without a pending request: late, repeated or unsolicited.
    pub unexpected: u64,
    /// Datagrams that are not PFCP, or not for a control plane.
    pub garbage: u64,
    /// Messages from addresses of no configured UPF, or of one without an association.
    pub unassociated: u64,
    /// Datagrams from addresses that are not permitted.
    pub unlisted: u64,
    /// Datagrams from addresses of UEs.
    pub from_ues: u64,
    /// Submissions whose key had an unanswered request.
    pub resubmitted: u64,
    /// Requests that are unanswered at present.
    pub outstanding: u64,
}
