//! Events in transit to a worker: content of a packet of the region.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_core::amf::engine::Event;
use vireo_core::postcard_writer;
use vireo_core::sba::SmfRequest;
use vireo_ops::metrics::Transaction;
use vireo_types::{AssocId, Instant, Seid};

/// An event for one UE, encoded for another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EventMessage<'a> {
    /// An event of the step.
    Event {
        /// Idempotency key of an SMF's response or transfer; 0 = none.
        key: u64,
        #[serde(borrow)]
        event: Event<'a>,
    },
    /// The first message of an NG connection, which the worker decodes.
    Initial {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
        /// Time at which the context was created for this message. `None` if the UE was found by
        /// the 5G-TMSI in the message: its identity must still be proved.
        created: Option<Instant>,
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// The first message of an NG connection whose UE is rejected for lack of room.
    Congested {
        /// RAN node number (the association of its NG Setup).
        assoc: AssocId,
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// A PFCP request of a UPF, valid for its own sessions only.
    UpfRequest {
        upf: SocketAddr,
        seid: Seid,
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
}

impl<'a> From<Event<'a>> for EventMessage<'a> {
    fn from(event: Event<'a>) -> Self {
        EventMessage::Event { key: 0, event }
    }
}

/// An event that was decoded, with its origin.
#[derive(Debug)]
pub(crate) struct ReceivedEvent<'a> {
    /// Time of arrival at this core.
    pub(crate) arrived: Instant,
    /// Balancer's number of the input; 0 = none.
    pub(crate) input: u64,
    pub(crate) event: EventMessage<'a>,
}

/// Key by which a repeat of an SBA event is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatKey {
    /// The event has no key.
    No,
    /// Response to the request with this key.
    Answer(u64),
    /// Transfer with this key. The token identifies the response to it.
    Transfer(u64, u64),
}

impl<'a> EventMessage<'a> {
    /// Returns the key by which a repeat is recognised.
    pub(crate) fn repeat_key(&self) -> RepeatKey {
        match self {
            EventMessage::Event { key, event: Event::Smf { .. } } => RepeatKey::Answer(*key),
            EventMessage::Event { key, event: Event::Transfer(transfer) } if *key != 0 => {
                RepeatKey::Transfer(*key, transfer.token)
            }
            _ => RepeatKey::No,
        }
    }

    /// Appends the encoding: time of arrival at this core, balancer's input number (0 = none),
    /// event.
    pub(crate) fn encode(&self, arrived: Instant, input: u64, mut to: Vec<u8>) -> Vec<u8> {
        to.extend_from_slice(&arrived.0.to_le_bytes());
        to.extend_from_slice(&input.to_le_bytes());
        // Every event message has an encoding.
        match postcard_writer::to_vec(self, &mut to) {
            Ok(()) => to,
            Err(_) => Vec::new(),
        }
    }

    /// Decodes an event of this release. `None` is a bug of this build.
    pub(crate) fn decode(octets: &'a [u8]) -> Option<ReceivedEvent<'a>> {
        let (arrived, octets) = octets.split_first_chunk()?;
        let (input, octets) = octets.split_first_chunk()?;
        let event = postcard::from_bytes(octets).ok()?;
        let (arrived, input) = (Instant(u64::from_le_bytes(*arrived)), u64::from_le_bytes(*input));
        Some(ReceivedEvent { arrived, input, event })
    }

    /// Returns the time since which the event has been in the queues of this core. A new UE waits
    /// in the line of its RAN node before, which says nothing about these queues.
    pub(crate) fn queued_at(&self, arrived: Instant) -> Instant {
        match self {
            EventMessage::Initial { created: Some(created), .. } => *created,
            _ => arrived,
        }
    }

    /// Returns the SBA transaction that the event completes or starts.
    pub(crate) fn transaction(&self) -> Transaction {
        match self {
            EventMessage::Event { event: Event::Smf { request, .. }, .. } => match request {
                SmfRequest::Create(_) => Transaction::CreateSmContext,
                SmfRequest::Update { .. } => Transaction::UpdateSmContext,
                SmfRequest::Release { .. } => Transaction::ReleaseSmContext,
                SmfRequest::Unreached { .. } => Transaction::Transfer,
            },
            EventMessage::Event { event: Event::Transfer(_), .. } => Transaction::Transfer,
            _ => Transaction::Other,
        }
    }

    /// Returns the event of the step; `None` for the first message of a connection, which must be
    /// decoded.
    pub(crate) fn into_event(self) -> Option<Event<'a>> {
        match self {
            EventMessage::Event { event, .. } => Some(event),
            EventMessage::UpfRequest { seid, message, .. } => Some(Event::Pfcp { seid, message }),
            EventMessage::Initial { .. } | EventMessage::Congested { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::sba::{N1N2Content, SmfResponse};
    use vireo_core::subscription::Subscription;
    use vireo_types::Ltmsi;

    /// The variants of [`Event`] are encoded by their position.
    #[test]
    fn event_survives_encoding() {
        let upf = ([192, 0, 2, 1], 8805).into();
        let seid = Seid::new(Ltmsi::from_raw(7), 1, 9);
        let events = [
            Event::Pfcp { seid, message: b"message" },
            Event::PfcpTimeout { seid },
            Event::UpfLost { upf },
            Event::Deadline,
            Event::ConnectionLost { assoc: AssocId(3) },
            Event::Superseded,
            Event::Evicted,
            Event::Deregister { reregister: true, cause: None },
            Event::Smf {
                number: 4,
                request: SmfRequest::Release { reference: "1".into() },
                response: SmfResponse::Done(N1N2Content::default()),
                sm_context: None,
            },
            Event::SmContextReleased { number: 5 },
            Event::SubscriberChanged { subscription: None, is_repeated: false },
            Event::SubscriberChanged { subscription: Some(Subscription::default()), is_repeated: true },
            Event::Locate,
        ];
        for event in events {
            let text = format!("{event:?}");
            let octets = EventMessage::Event { key: 6, event }.encode(Instant(1), 2, Vec::new());
            let decoded = EventMessage::decode(&octets).expect("an event");
            let ReceivedEvent { arrived: Instant(1), input: 2, event: EventMessage::Event { key: 6, event } } = decoded
            else {
                panic!("{decoded:?}")
            };
            assert_eq!(format!("{event:?}"), text);
        }
    }

    #[test]
    fn new_ue_is_queued_when_it_is_created() {
        let at = |created| {
            let octets =
                EventMessage::Initial { assoc: AssocId(3), created, pdu: b"pdu" }.encode(Instant(1), 2, Vec::new());
            let ReceivedEvent { arrived, event, .. } = EventMessage::decode(&octets).expect("an event");
            event.queued_at(arrived)
        };
        assert_eq!((at(Some(Instant(500))), at(None)), (Instant(500), Instant(1)));
    }
}
