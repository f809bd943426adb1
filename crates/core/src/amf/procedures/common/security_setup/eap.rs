//! EAP-AKA' of one authentication: the challenge and the evaluation of its answer (TS 33.501
//! 6.1.3.1, TS 24.501 5.4.1.2.2; RFC 9048).
//!
//! The AUSF and the EAP server are parts of this core. It requests no identity by EAP and sends no
//! notification: EAP-Success and EAP-Failure end the conversation.

use crate::subscription::TransformedVector;
use serde::{Deserialize, Serialize};
use vireo_wire::eap::{self, AkaPrime, Body, Code, Packet, SessionKeys, Subtype, TransformedKeys};
use vireo_wire::security::constant_time_eq;
use vireo_wire::security::nas_5gs::derive_kseaf;

/// Challenge of EAP-AKA' that the UE has not answered. A retransmission has the same octets, as RFC
/// 3748 4.1 requires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EapChallenge {
    pub(super) vector: TransformedVector,
    pub(super) identifier: u8,
}

/// Evaluated answer of the UE.
#[derive(Debug, PartialEq)]
pub(super) enum EapAnswer {
    /// RES and `AT_MAC` are right. The value is KSEAF.
    Accepted([u8; 32]),
    /// AKA'-Synchronization-Failure with this AUTS.
    Synchronisation([u8; 14]),
    /// The UE is not the subscriber, or does not take the network for its own. The value is the
    /// reason in the log.
    Mismatch(&'static str),
    /// The UE cannot use the method, or deviates from it. The value is the reason in the log.
    Refused(&'static str),
    /// No packet of this conversation, which a server discards (RFC 3748 4, 4.1).
    Discarded,
}

impl EapChallenge {
    /// Returns EAP-Request/AKA'-Challenge.
    pub(super) fn packet(&self) -> Vec<u8> {
        let vector = &self.vector;
        let network_name = &vector.serving_network.serving_network_octets();
        let values = eap::Challenge { rand: &vector.rand, autn: &vector.autn, network_name };
        eap::challenge(self.identifier, &values, self.keys().k_aut())
    }

    fn keys(&self) -> SessionKeys {
        let keys = TransformedKeys::new(&self.vector.ck_prime, &self.vector.ik_prime);
        SessionKeys::derive(&keys, self.vector.supi.reveal().as_bytes())
    }

    /// Evaluates an EAP message of the UE.
    pub(super) fn evaluate(&self, octets: &[u8]) -> EapAnswer {
        let message = match Packet::parse(octets) {
            Ok(Packet { code: Code::Response, identifier, body }) if identifier == self.identifier => body,
            _ => return EapAnswer::Discarded,
        };
        match message {
            Body::AkaPrime(message) => self.evaluate_message(octets, &message),
            Body::Nak(_) => EapAnswer::Refused("the device does not support EAP-AKA'"),
            Body::Other(_) | Body::None => EapAnswer::Refused("the EAP response is of another method"),
        }
    }

    fn evaluate_message(&self, octets: &[u8], message: &AkaPrime<'_>) -> EapAnswer {
        let Ok(attributes) = message.attributes() else {
            return EapAnswer::Refused("the EAP response is malformed");
        };
        match message.subtype {
            Some(Subtype::Challenge) => match (attributes.res, attributes.mac_at) {
                (Some(res), Some(at)) => self.verify(octets, res, at),
                // The one key derivation function that is offered is the one that all have.
                _ if attributes.kdf.is_some() => EapAnswer::Refused("the device wants another key derivation"),
                _ => EapAnswer::Refused("the EAP response lacks AT_RES or AT_MAC"),
            },
            Some(Subtype::SynchronizationFailure) => match attributes.auts {
                Some(auts) => EapAnswer::Synchronisation(*auts),
                None => EapAnswer::Refused("synchronisation failure without AUTS"),
            },
            Some(Subtype::AuthenticationReject) => EapAnswer::Mismatch("MAC failure: check K and OPc"),
            Some(Subtype::ClientError) => EapAnswer::Refused("the device cannot process the challenge"),
            _ => EapAnswer::Refused("the EAP response does not answer the challenge"),
        }
    }

    /// Verifies `AT_MAC` at this offset, then RES.
    fn verify(&self, octets: &[u8], res: &[u8], at: usize) -> EapAnswer {
        let keys = self.keys();
        if !eap::has_mac(octets, at, keys.k_aut()) {
            return EapAnswer::Mismatch("wrong AT_MAC: check K and OPc");
        }
        if !constant_time_eq(res, &self.vector.xres) {
            return EapAnswer::Mismatch("wrong RES: check K and OPc");
        }
        match derive_kseaf(keys.kausf(), &self.vector.serving_network.serving_network_octets()) {
            Ok(kseaf) => EapAnswer::Accepted(*kseaf.as_octets()),
            Err(_) => EapAnswer::Refused("no key for this network name"),
        }
    }
}
