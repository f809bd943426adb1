//! Messages of hosts and their acknowledgement.

use super::BalancerMachine;
use super::connection::ConnectionState;
use super::output::{CloseReason, Notice, Output};
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::message::{BalancerNotice, HostNotice, RanOutput, Receiver, ToBalancer, ToHost};
use vireo_types::Instant;

impl BalancerMachine {
    /// Handles a message on a connection.
    pub(super) fn on_message(
        &mut self,
        connection: ConnectionId,
        message: ToBalancer<'_>,
        now: Instant,
        output: &mut dyn Output,
    ) {
        let epoch = self.epoch();
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.has_received = true;
        match (message, known.state, known.host) {
            // A drained host waits until all its earlier messages are executed.
            (ToBalancer::Barrier { number }, ConnectionState::Refused, Some(host)) => {
                output.reach_barrier(host, number)
            }
            (ToBalancer::Heartbeat, ..) | (_, ConnectionState::Refused, _) => {}
            (ToBalancer::Hello(host), ..) => self.on_host_hello(connection, host, now, output),
            (ToBalancer::HeartbeatOnly(host), ..) => {
                if known.host.is_none() {
                    (known.host, known.state) = (Some(host), ConnectionState::HeartbeatOnly);
                }
            }
            // The following messages apply to the new map. If it lacks the host, they are dropped.
            (ToBalancer::Map(map), ..) if map.epoch() > epoch => self.adopt(*map, now, output),
            (ToBalancer::Map(_), ConnectionState::Serving, _) => {}
            (ToBalancer::Map(map), ..) => self.close(connection, CloseReason::OldMap(map.epoch()), output),
            (message, ConnectionState::Serving, Some(host)) => {
                self.on_host_message(connection, host, message, now, output);
            }
            _ => self.close(connection, CloseReason::Message, output),
        }
    }

    /// Handles a message of a host of the map.
    fn on_host_message(
        &mut self,
        connection: ConnectionId,
        host: HostId,
        message: ToBalancer<'_>,
        now: Instant,
        output: &mut dyn Output,
    ) {
        match message {
            ToBalancer::Output(effect) => self.on_effect(connection, host, effect.into_owned(), now, output),
            ToBalancer::Notice(notice) => self.on_notice(connection, host, notice, now, output),
            ToBalancer::Report { cpu, pools } => self.steering.on_report(host, cpu, &pools, now),
            ToBalancer::Barrier { number } => output.reach_barrier(host, number),
            // Messages about the connection itself.
            ToBalancer::Hello(_) | ToBalancer::Map(_) | ToBalancer::Heartbeat | ToBalancer::HeartbeatOnly(_) => {}
        }
    }

    /// Has an effect of a host executed, unless a dead host or the next owner of its UE has had it
    /// executed.
    fn on_effect(
        &mut self,
        connection: ConnectionId,
        host: HostId,
        effect: RanOutput,
        now: Instant,
        output: &mut dyn Output,
    ) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        let key = match effect {
            RanOutput::Ngap { key, .. } => {
                known.ngap_received += 1;
                key
            }
            RanOutput::Pfcp { key, .. } => key,
            RanOutput::RefuseReport { .. } | RanOutput::Abort { .. } | RanOutput::Probe { .. } => 0,
        };
        if self.dedup.check_repeat(key, host, now) {
            return output.notify(Notice::RepeatDropped);
        }
        known.in_progress.effects.add(key, now);
        self.on_served_request(&effect, now);
        output.execute(host, effect);
    }

    /// Handles a notice of a host.
    fn on_notice(
        &mut self,
        connection: ConnectionId,
        host: HostId,
        notice: HostNotice,
        now: Instant,
        output: &mut dyn Output,
    ) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        let inputs = &mut known.in_progress.inputs;
        match notice {
            HostNotice::Done { number } => {
                inputs.acknowledge(number);
                self.steering.on_ended(host, inputs.take_ended_shares());
                // The owner has committed what a serving host proposed.
                if let Some(serving) = self.serving_hosts.on_done(number, now).filter(|serving| *serving != host)
                    && let Some(known) = self.serving.get(&serving).and_then(|to| self.connections.get_mut(to))
                {
                    known.in_progress.inputs.acknowledge(number);
                    self.steering.on_ended(serving, known.in_progress.inputs.take_ended_shares());
                }
            }
            HostNotice::ReturnInput { number } => {
                self.queue.redelivery.extend(inputs.take_returned(number));
                self.steering.on_ended(host, inputs.take_ended_shares());
            }
            HostNotice::ReturnServedInput { number } => {
                // Unless it was recalled before. The host may be the owner by now.
                if inputs.get(number).is_some_and(|envelope| envelope.receiver == Receiver::ServingHost) {
                    self.recall_returned(number);
                }
            }
            HostNotice::Claim(claim) => {
                self.claims.on_remote_claim(claim, now);
                self.send_to_others(Some(host), &ToHost::Notice(BalancerNotice::Claimed(claim)), output);
            }
            HostNotice::ReturnAddress { to, dnn, address } => {
                self.send_to(to, &ToHost::Notice(BalancerNotice::AddressReturned { dnn, address }), output);
            }
            HostNotice::RanNode(owner) => self.ran.set_owner(*owner),
        }
    }

    /// Confirms a barrier to a host: all its preceding messages are executed.
    pub(super) fn on_barrier(&mut self, host: HostId, number: u64, output: &mut dyn Output) {
        // A drained host that has left the map since exits after the confirmation.
        let removed = || self.connections.iter().find(|(_, known)| known.is_removed_host(host)).map(|(id, _)| *id);
        if let Some(connection) = self.serving.get(&host).copied().or_else(removed) {
            output.send(connection, &ToHost::BarrierReply { number });
        }
    }

    /// Acknowledges all NGAP PDUs of hosts as sent. A host resends the others by other balancers if
    /// this one is lost.
    pub(super) fn acknowledge_ngap(&mut self, output: &mut dyn Output) {
        if !self.settings.has_other_balancers {
            return;
        }
        for (connection, known) in &mut self.connections {
            if known.ngap_received > known.ngap_acknowledged {
                known.ngap_acknowledged = known.ngap_received;
                output.send(*connection, &ToHost::SentCount { count: known.ngap_received });
            }
        }
    }
}
