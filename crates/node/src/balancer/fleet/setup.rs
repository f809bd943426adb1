//! NG Setup in a cluster.
//!
//! One host decides. The balancer sends the request to the other hosts only when the first host
//! accepts it, before the NG Setup Response leaves. Hosts that join later receive it, too.

use super::steer::{NG_SETUP, put};
use super::{Fleet, UNSENT};
use crate::balancer::admission::SETUP_FAILED;
use crate::host::Input;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vireo_core::amf::n2::{self, Route, ShallowView};
use vireo_core::placement::balance::HostId;
use vireo_ops::clock::clock;
use vireo_types::AssocId;

/// NG SETUP RESPONSE (TS 38.413 9.4.7).
const NG_SETUP_RESPONSE: [u8; 2] = [0x20, 21];

/// An unanswered NG Setup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    host: HostId,
    number: u64,
    #[serde(with = "serde_bytes")]
    pdu: Vec<u8>,
}

impl Setup {
    /// Converts to a numbered input for redelivery.
    fn again(self, assoc: AssocId) -> (u64, Input) {
        let Setup { number, pdu, .. } = self;
        (number, Input::Ngap { assoc, view: n2::peek(&pdu), pdu, at: clock(), number, answers: true, bucket: None })
    }
}

/// Returns true if an input is an NG Setup.
pub(super) fn is_setup(input: &Input) -> bool {
    let Input::Ngap { view: Ok(ShallowView { route: Route::Node, .. }), pdu, .. } = input else { return false };
    pdu.starts_with(&NG_SETUP)
}

impl Fleet {
    /// Sends an NG Setup to the responder host.
    ///
    /// # Errors
    ///
    /// Returns the input if it must wait.
    pub(super) fn give_setup(&mut self, number: u64, input: Input) -> Result<(), Input> {
        let Some(host) = self.responder_host() else { return Err(input) };
        let Some(member) = self.serving.get(&host).and_then(|token| self.members.get_mut(token)) else {
            return Err(input);
        };
        if member.stream.unsent() > UNSENT {
            return Err(input);
        }
        put(member, number, &input, true);
        if let Input::Ngap { assoc, pdu, .. } = input {
            self.setups.insert(assoc, Setup { host, number, pdu });
        }
        Ok(())
    }

    /// Handles a host's message that does not concern a UE: distributes an accepted NG Setup to the
    /// other hosts.
    pub(in crate::balancer) fn sends(&mut self, assoc: AssocId, pdu: &[u8]) {
        if pdu.starts_with(&SETUP_FAILED) {
            self.setups.remove(&assoc);
        }
        if !pdu.starts_with(&NG_SETUP_RESPONSE) {
            return;
        }
        let (Some(setup), Some(node)) = (self.setups.remove(&assoc), self.nodes.get_mut(&assoc)) else { return };
        (node.said, node.of) = (VecDeque::from([setup.pdu.clone()]), None);
        let (host, (number, input)) = (setup.host, setup.again(assoc));
        for (_, token) in self.serving.iter().filter(|(other, _)| **other != host) {
            if let Some(member) = self.members.get_mut(token) {
                put(member, number, &input, false);
            }
        }
    }

    /// Removes an association that is about to end, so that hosts that join do not receive it.
    pub(in crate::balancer) fn ends(&mut self, assoc: AssocId) {
        self.nodes.remove(&assoc);
        self.setups.remove(&assoc);
    }

    /// Queues NG Setups of removed hosts for the present responder host.
    pub(super) fn setups_again(&mut self) {
        let gone = |setup: &Setup| self.map.as_ref().is_none_or(|map| !map.has_host(setup.host));
        let again: Vec<_> = self.setups.extract_if(|_, setup| gone(setup)).collect();
        self.again.extend(again.into_iter().map(|(assoc, setup)| setup.again(assoc)));
    }
}
