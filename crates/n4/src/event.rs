use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Seid};
use vireo_wire::pfcp::{Cause, HeaderError, UpFunctionFeatures};

/// Where the endpoint's wishes go.
pub trait Sink {
    /// A datagram to send.
    fn send(&mut self, to: SocketAddr, octets: &[u8]);

    /// Something the rest of the control plane must know.
    fn event(&mut self, event: Event<'_>);
}

/// What the rest of the control plane must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message for a session: the response to its request, or a report of the UPF that must be answered.
    Deliver {
        /// The UPF, by the address of the configuration.
        upf: SocketAddr,
        /// The session: of a response that under which the request was submitted, whatever the UPF wrote.
        seid: Seid,
        /// Whether it is a request.
        request: bool,
        /// The message.
        message: &'a [u8],
    },
    /// A session's request had no answer, after all repeats or because the UPF restarted. Whether the UPF did what was
    /// asked is not known.
    Timeout {
        /// The UPF.
        upf: SocketAddr,
        /// The session.
        seid: Seid,
        /// The caller's name for the request.
        key: Option<u64>,
    },
    /// Sessions can be set up, from now on or again.
    UpfUp {
        /// The UPF.
        upf: SocketAddr,
        /// What it can.
        features: UpFunctionFeatures,
    },
    /// An attempt to have an association failed; there will be another.
    SetupFailed {
        /// The UPF.
        upf: SocketAddr,
        /// What the UPF said, or what is wrong with its response; `None` if it did not answer.
        cause: Option<Cause>,
        /// How long until the next attempt.
        retry_in: Duration,
    },
    /// The UPF does not answer, or ended the association (then its sessions are gone).
    UpfDown {
        /// The UPF.
        upf: SocketAddr,
        /// Whether it still has its sessions, as far as is known.
        sessions_kept: bool,
    },
    /// The UPF restarted: its sessions are gone. [`Event::UpfUp`] follows when it can have new ones.
    UpfRestarted {
        /// The UPF.
        upf: SocketAddr,
    },
    /// The UPF wants its sessions moved away: the association is released after that time.
    UpfReleasing {
        /// The UPF.
        upf: SocketAddr,
        /// How long it waits.
        within: Duration,
    },
    /// The UPF says that a GTP-U peer (a RAN node) answers no more, or again.
    GtpuPath {
        /// The UPF.
        upf: SocketAddr,
        /// The GTP-U peer.
        peer: IpAddr,
        /// Whether it answers.
        works: bool,
    },
}

/// What became of a submitted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It was sent.
    Sent,
    /// Nothing was sent: a request of the same key waits for its response already, or the association is being taken over,
    /// and the request leaves when it is.
    Waiting,
}

/// Why a request was not sent. For the session it is as if the UPF had not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No UPF of the configuration.
    #[error("no UPF at {0} is configured")]
    UnknownUpf(SocketAddr),
    /// The UPF is down or was never reached.
    #[error("there is no PFCP association with the UPF at {0}; check that it runs and allows this Node ID")]
    NoAssociation(SocketAddr),
    /// Too many requests wait.
    #[error("too many PFCP requests wait for a response; raise n4.outstanding or add UPFs")]
    Full,
    /// The octets are no message.
    #[error("the message to send is no PFCP message: {0}")]
    Malformed(HeaderError),
}

/// Counts since the start, and how many requests wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent, repeats too.
    pub sent: u64,
    /// Requests sent again because there was no response in time.
    pub repeated: u64,
    /// Requests given up.
    pub timeouts: u64,
    /// Requests of UPFs that were repeats.
    pub duplicates: u64,
    /// Responses that no request waits for: late, repeated or never asked for.
    pub unexpected: u64,
    /// Datagrams that are no message, or none that a control plane takes.
    pub garbage: u64,
    /// Messages of addresses that are no configured UPF, or of one without an association.
    pub strangers: u64,
    /// Datagrams of addresses that may not send any.
    pub unlisted: u64,
    /// Datagrams from addresses of UEs.
    pub from_ues: u64,
    /// Submits whose key was waiting already.
    pub resubmitted: u64,
    /// Requests that wait for a response now.
    pub outstanding: u64,
}
