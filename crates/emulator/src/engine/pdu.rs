//! Events of received NGAP and S1AP PDUs, as steps of their UEs.

use super::slot::flag;
use super::worker::{BIND_AGAIN_US, Worker};
use crate::dialect::Node;
use crate::ran::{ConnectionId, Event, Inbox, NOBODY};
use std::fmt::Debug;
use vireo_types::RanUeNgapId;

impl Worker<'_> {
    /// Handles a PDU of association `by` of a node.
    pub(super) fn on_pdu(&mut self, index: usize, by: u8, data: &[u8]) {
        let link = &mut self.links[index];
        let received = match &mut link.node {
            Node::Gnb(gnb) => {
                let mut inbox = std::mem::take(&mut self.inboxes.ng);
                let received = gnb.receive_by(by, data, &mut inbox, &mut link.outbox);
                self.on_node_events(index, by, &mut inbox, data);
                self.inboxes.ng = inbox;
                received
            }
            Node::Enb(enb) => {
                let mut inbox = std::mem::take(&mut self.inboxes.s1);
                let received = enb.receive_by(by, data, &mut inbox, &mut link.outbox);
                self.on_node_events(index, by, &mut inbox, data);
                self.inboxes.s1 = inbox;
                received
            }
        };
        if let Err(error) = received {
            self.stats.violation(format!("the node could not answer: {error}"));
        }
    }

    fn on_node_events<C: Debug>(&mut self, index: usize, by: u8, inbox: &mut Inbox<C>, data: &[u8]) {
        for event in inbox.events.drain(..) {
            match event {
                // The UE has abandoned this connection.
                ref event if event.owner() == Some(NOBODY) => {}
                Event::Nas { owner, range } => self.on_nas(owner, &inbox.nas[range]),
                Event::ContextSetup { owner, key } => self.on_key(owner, &key),
                Event::TunnelUp { owner, .. } => self.settle(owner),
                Event::TunnelDown { owner, .. } => self.on_tunnel_down(owner),
                Event::TunnelModified { .. } => self.n3.counts.tunnels_moved += 1,
                Event::QosModified { .. } => self.n3.counts.qos_modified += 1,
                Event::Released { owner, .. } if self.is_on_other_gnb(owner, index) => self.on_source_released(owner),
                Event::PathSwitched { owner, key, chaining, renewed } => {
                    match renewed {
                        true => self.on_key(owner, &key),
                        false => self.on_next_hop(owner, &key, chaining),
                    }
                    self.on_source_released(owner);
                }
                Event::HandoverPrepared { owner, source, target, key, chaining, mapped } => {
                    if self.on_handover_prepared(owner, source, (index, target)) {
                        match mapped {
                            true => self.on_system_target(owner, key, chaining),
                            false => self.on_next_hop(owner, &key, chaining),
                        }
                    }
                }
                Event::HandoverCommand { owner, target, nas, forwarding } => {
                    self.on_handover_command(owner, (target, &forwarding), &nas);
                }
                Event::StatusTransfer { owner } => self.on_status_transfer(owner),
                Event::ModificationConfirmed { owner, failed } => self.on_modification_confirmed(owner, failed),
                Event::ConfigurationReceived => self.on_configuration(index),
                Event::CapabilityReturned { owner } => self.set_flag(owner, flag::CAPABLE),
                Event::LocationRequested { owner } => self.set_flag(owner, flag::LOCATED),
                Event::PathSwitchFailed { owner } => self.fail(owner, "the core refused the handover".into()),
                Event::HandoverRefused { owner, cause } => self.on_handover_refused(owner, &cause),
                Event::HandoverCancelled { owner } => self.on_handover_cancelled(owner),
                Event::Released { owner, cause } => {
                    self.on_released(owner, || format!("the core released the UE: {cause:?}"));
                }
                Event::SetupFailed(cause) => {
                    self.links[index].refused = Some(format!("SETUP FAILURE, {cause:?}"));
                }
                Event::Paging(tmsi) => self.on_paging(self.links[index].node.rat(), tmsi, None),
                Event::ExtendedPaging(tmsi, drx) => {
                    self.on_paging(self.links[index].node.rat(), tmsi, Some(drx));
                }
                // Expected from a core that has already released a UE whose connection was
                // abandoned.
                Event::ErrorIndication(report)
                    if report.ran_id.is_some_and(|ran| self.is_abandoned(index, RanUeNgapId(ran))) => {}
                Event::ErrorIndication(report) => {
                    let what = format!("ERROR INDICATION of the core: {:?}", report.cause);
                    self.stats.violation_in(what, data);
                }
                Event::Violation(violation) => self.stats.violation_in(violation.to_string(), data),
                Event::Ready => self.attach(index),
                Event::ConfigurationUpdated(false) => {
                    let link = &mut self.links[index];
                    link.trouble = Some("CONFIGURATION UPDATE FAILURE".into());
                    link.associations[usize::from(by)].retry_us = Some(self.now_us + BIND_AGAIN_US);
                }
                Event::AssociationsWanted(addresses) => {
                    if let Err(error) = self.links[index].request_associations(addresses, self.now_us) {
                        self.stats.violation(format!("the node could not answer: {error}"));
                    }
                }
                Event::AssociationsRemoved(addresses) => self.links[index].remove(&addresses),
                Event::ResetDone | Event::ConfigurationUpdated(true) | Event::Overload(_) => {}
            }
        }
        inbox.clear();
    }

    fn is_abandoned(&self, index: usize, id: ConnectionId) -> bool {
        self.links[index].node.is_abandoned(id)
    }
}
