//! UE that a message names.
//!
//! Balancers route an NGAP message by it, and hosts deliver the message by it.

use crate::amf::n2::{Route, ShallowView, is_own_code};
use crate::config::CoreConfig;
use crate::placement::message::{Envelope, PeerEvent};
use vireo_types::{AmfUeNgapId, Bucket, RanUeNgapId, Tmsi};

/// UE that an NGAP message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedUe {
    /// None: the message is about the RAN node.
    RanNode,
    /// The UE of a connection, which may be unknown.
    Connected(AmfUeNgapId),
    /// The UE of a new connection.
    Initial {
        ran_id: RanUeNgapId,
        /// 5G-TMSI, if this AMF allocated it. The message is not verified.
        tmsi: Option<Tmsi>,
    },
}

/// Returns the UE that an NGAP message names. A registration request may name its UE only in the
/// NAS message, by 5G-GUTI.
pub fn named_ue(view: &ShallowView, config: &CoreConfig) -> NamedUe {
    match view.route {
        Route::Node => NamedUe::RanNode,
        Route::Ue(id) => NamedUe::Connected(id),
        Route::Initial { ran_id, s_tmsi, nas_identity } => {
            let tmsi = match s_tmsi {
                Some((set, pointer, tmsi)) if is_own_code(config, set, pointer) => Some(tmsi),
                _ => nas_identity.and_then(|identity| identity.tmsi_of(config)),
            };
            NamedUe::Initial { ran_id, tmsi }
        }
    }
}

/// Concern of an input, as far as its admission depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputTarget {
    /// A UE of a bucket.
    Bucket(Bucket),
    /// A RAN node or UPF, and all its UEs. Every host receives the input.
    Node,
    /// A RAN node that a balancer introduces to this host. UEs that arrive become idle if their RAN
    /// node is unknown, so it does not wait for them.
    Introduction,
    /// No UE that exists.
    Other,
}

impl InputTarget {
    /// Returns the target of an event of a RAN node or UPF; `None` if it needs no admission.
    pub fn from_envelope(envelope: &Envelope) -> Option<Self> {
        match &envelope.event {
            PeerEvent::Up { .. } => Some(InputTarget::Introduction),
            PeerEvent::Ngap { view, .. } => {
                Some(InputTarget::from_ngap(view.as_ref(), envelope.number, envelope.bucket))
            }
            PeerEvent::Pfcp { seid, .. } | PeerEvent::PfcpTimeout { seid } => {
                Some(InputTarget::Bucket(seid.ltmsi().bucket()))
            }
            PeerEvent::Down { .. } | PeerEvent::Undelivered { .. } | PeerEvent::UpfLost { .. } => {
                Some(InputTarget::Node)
            }
            PeerEvent::Alive { .. } | PeerEvent::Upf { .. } => None,
        }
    }

    /// Returns the target of an NGAP message with a balancer's input number (0 = none). `view` is
    /// absent for an invalid message. `bucket` selected this host for a first message.
    pub fn from_ngap(view: Option<&ShallowView>, number: u64, bucket: Option<Bucket>) -> Self {
        match view.map(|view| view.route) {
            Some(Route::Ue(id)) => InputTarget::Bucket(id.ltmsi().bucket()),
            Some(Route::Initial { .. }) => bucket.map_or(InputTarget::Other, InputTarget::Bucket),
            Some(Route::Node) if number == 0 => InputTarget::Introduction,
            Some(Route::Node) => InputTarget::Node,
            None => InputTarget::Other,
        }
    }
}
