//! Events of received NGAP and S1AP PDUs, as steps of their UEs.

use super::dialect::Node;
use super::worker::{BIND_AGAIN_US, Worker};
use crate::ran::{ConnectionId, NOBODY};
use crate::rat::Rat;
use crate::{enb, gnb};
use vireo_types::RanUeNgapId;

impl Worker<'_> {
    /// Handles a PDU of association `by` of a node.
    pub(super) fn on_pdu(&mut self, index: usize, by: u8, data: &[u8]) {
        match self.links[index].node {
            Node::Gnb(_) => self.on_ngap(index, by, data),
            Node::Enb(_) => self.on_s1ap(index, by, data),
        }
    }

    fn on_ngap(&mut self, index: usize, by: u8, data: &[u8]) {
        let mut inbox = std::mem::take(&mut self.inboxes.ng);
        inbox.clear();
        let link = &mut self.links[index];
        let Node::Gnb(gnb) = &mut link.node else { return };
        if let Err(error) = gnb.receive_by(by, data, &mut inbox, &mut link.outbox) {
            self.stats.violation(format!("the gNB could not answer: {error}"));
        }
        for event in inbox.events.drain(..) {
            match event {
                // The UE has abandoned this connection.
                ref event if event.owner() == Some(NOBODY) => {}
                gnb::Event::Nas { owner, range } => self.on_nas(owner, &inbox.nas[range]),
                gnb::Event::ContextSetup { owner, key } => self.on_key(owner, &key),
                gnb::Event::TunnelUp { owner, .. } => self.settle(owner),
                gnb::Event::TunnelDown { owner, .. } => self.on_tunnel_down(owner),
                gnb::Event::TunnelModified { .. } => self.n3.counts.tunnels_moved += 1,
                gnb::Event::Released { owner, .. } if self.is_on_other_gnb(owner, index) => {
                    self.on_source_released(owner)
                }
                gnb::Event::PathSwitched { owner, key, chaining } => {
                    self.on_next_hop(owner, &key, chaining);
                    self.on_source_released(owner);
                }
                gnb::Event::HandoverPrepared { owner, source, target, key, chaining } => {
                    let slot = self.slots.get(owner as usize);
                    if slot.is_some_and(|slot| slot.ran == Some(source)) {
                        self.on_next_hop(owner, &key, chaining);
                    } else {
                        // The UE has left meanwhile.
                        self.drop_prepared(index, target);
                    }
                }
                gnb::Event::HandoverCommand { owner, target } => self.on_handover_command(owner, target),
                gnb::Event::StatusTransfer { owner } => self.on_status_transfer(owner),
                gnb::Event::PathSwitchFailed { owner } | gnb::Event::HandoverRefused { owner } => {
                    self.fail(owner, "the core refused the handover".into());
                }
                gnb::Event::Released { owner, cause } => {
                    self.on_released(owner, || format!("the core released the UE: {cause:?}"));
                }
                gnb::Event::SetupFailed(cause) => {
                    self.links[index].refused = Some(format!("NG SETUP FAILURE, {cause:?}"));
                }
                gnb::Event::Paging(tmsi) => self.on_paging(Rat::Nr, tmsi),
                // Expected from an AMF that has already released a UE whose connection was
                // abandoned.
                gnb::Event::ErrorIndication(report)
                    if report.ran_id.is_some_and(|ran| self.is_abandoned(index, RanUeNgapId(ran))) => {}
                gnb::Event::ErrorIndication(report) => {
                    let what = format!("ERROR INDICATION of the core: {:?}", report.cause);
                    self.stats.violation_in(what, data);
                }
                gnb::Event::Violation(violation) => self.stats.violation_in(violation.to_string(), data),
                gnb::Event::Ready => self.attach(index),
                gnb::Event::ConfigurationUpdated(false) => {
                    let link = &mut self.links[index];
                    link.trouble = Some("RAN CONFIGURATION UPDATE FAILURE".into());
                    link.associations[usize::from(by)].retry_us = Some(self.now_us + BIND_AGAIN_US);
                }
                gnb::Event::AssociationsWanted(addresses) => {
                    if let Err(error) = self.links[index].request_associations(addresses, self.now_us) {
                        self.stats.violation(format!("the gNB could not answer: {error}"));
                    }
                }
                gnb::Event::AssociationsRemoved(addresses) => self.links[index].remove(&addresses),
                gnb::Event::ResetDone
                | gnb::Event::ConfigurationUpdated(true)
                | gnb::Event::HandoverCancelled { .. }
                | gnb::Event::Overload(_) => {}
            }
        }
        self.inboxes.ng = inbox;
    }

    fn drop_prepared(&mut self, index: usize, target: ConnectionId) {
        if let Node::Gnb(gnb) = &mut self.links[index].node {
            gnb.drop_prepared(target);
        }
    }

    fn is_abandoned(&self, index: usize, id: ConnectionId) -> bool {
        match &self.links[index].node {
            Node::Gnb(gnb) => gnb.is_abandoned(id),
            Node::Enb(enb) => enb.is_abandoned(id),
        }
    }

    fn on_s1ap(&mut self, index: usize, by: u8, data: &[u8]) {
        let mut inbox = std::mem::take(&mut self.inboxes.s1);
        inbox.clear();
        let link = &mut self.links[index];
        let Node::Enb(enb) = &mut link.node else { return };
        if let Err(error) = enb.receive_by(by, data, &mut inbox, &mut link.outbox) {
            self.stats.violation(format!("the eNB could not answer: {error}"));
        }
        for event in inbox.events.drain(..) {
            match event {
                // The UE has abandoned this connection.
                ref event if event.owner() == Some(NOBODY) => {}
                enb::Event::Nas { owner, range } => self.on_nas(owner, &inbox.nas[range]),
                enb::Event::ContextSetup { owner, key } => self.on_key(owner, &key),
                enb::Event::TunnelUp { owner, .. } => self.settle(owner),
                enb::Event::TunnelDown { owner, .. } => self.on_tunnel_down(owner),
                enb::Event::Released { owner, .. } if self.is_on_other_gnb(owner, index) => {}
                enb::Event::Released { owner, cause } => {
                    self.on_released(owner, || format!("the core released the UE: {cause:?}"));
                }
                enb::Event::SetupFailed(cause) => {
                    self.links[index].refused = Some(format!("S1 SETUP FAILURE, {cause:?}"));
                }
                enb::Event::Paging(tmsi) => self.on_paging(Rat::Eps, tmsi),
                // Expected from an MME that has already released a UE whose connection was
                // abandoned.
                enb::Event::ErrorIndication(report)
                    if report.enb_id.is_some_and(|id| self.is_abandoned(index, RanUeNgapId(id))) => {}
                enb::Event::ErrorIndication(report) => {
                    let what = format!("ERROR INDICATION of the core: {:?}", report.cause);
                    self.stats.violation_in(what, data);
                }
                enb::Event::Violation(violation) => self.stats.violation_in(violation.to_string(), data),
                enb::Event::Ready => self.attach(index),
                enb::Event::ResetDone | enb::Event::ConfigurationUpdated(_) | enb::Event::Overload(_) => {}
            }
        }
        self.inboxes.s1 = inbox;
    }
}
