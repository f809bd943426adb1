//! Join requests and their answers.

use super::ControllerMachine;
use super::connection::ConnectionState;
use super::io::{Notice, Output};
use crate::placement::ConnectionId;
use crate::placement::cluster::{Member, Refusal, Secrets, partition_of};
use crate::placement::message::{BalancerAssignment, ToController, ToMember, Welcome};
use vireo_types::{Duration, Instant};

impl ControllerMachine {
    /// Handles the join requests that came too early.
    pub(super) fn join_pending(&mut self, now: Instant, output: &mut dyn Output) {
        let pending = self.connections.iter().filter(|(_, known)| known.has_pending_join());
        let pending: Vec<ConnectionId> = pending.map(|(connection, _)| *connection).collect();
        pending.into_iter().for_each(|connection| self.join(connection, now, output));
    }

    /// Answers a join request, unless the controller cannot decide yet.
    pub(super) fn join(&mut self, connection: ConnectionId, now: Instant, output: &mut dyn Output) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        let ConnectionState::Unidentified { join: Some(request) } = &known.state else { return };
        let (joined, rejoined) = match request {
            ToController::JoinHost { copies, past } => {
                let past = past.as_deref().cloned();
                let rejoined = past.is_some();
                (self.controller.join_host(*copies, past, now).map(Member::Host), rejoined)
            }
            ToController::JoinBalancer { address, past } => {
                let past = past.as_deref().cloned();
                let rejoined = past.is_some();
                (self.controller.join_balancer(*address, past, now).map(Member::Balancer), rejoined)
            }
            _ => return,
        };
        let member = match joined {
            Ok(member) => member,
            Err(Refusal::NotReady | Refusal::UnknownCluster) => return,
            Err(reason) => {
                output.notify(Notice::JoinRefused { connection, reason });
                output.send(connection, &ToMember::Refused(reason.to_string()));
                return self.close(connection, output);
            }
        };
        known.state = ConnectionState::Member(member);
        output.send(connection, &self.welcome(member));
        if let Some(map) = self.controller.map() {
            output.send(connection, &ToMember::Map(Box::new(map.clone())));
        }
        output.notify(Notice::Joined { connection, member, rejoined });
        // An earlier connection of the same member has ended unnoticed.
        if let Some(earlier) = self.members.insert(member, connection) {
            self.close(earlier, output);
        }
        // So have its heartbeats, which use another connection.
        let heartbeats = self.connections.iter().filter(|(_, known)| known.heartbeat_member() == Some(member));
        let heartbeats: Vec<ConnectionId> = heartbeats.map(|(connection, _)| *connection).collect();
        heartbeats.into_iter().for_each(|connection| self.close(connection, output));
    }

    fn welcome(&self, member: Member) -> ToMember {
        let millis = |span: Duration| u32::try_from(span.as_micros() / 1000).unwrap_or(u32::MAX);
        let Secrets { tmsi_key, recovery } = self.controller.secrets();
        let heartbeat = (millis(self.settings.heartbeat), self.settings.misses);
        match member {
            Member::Host(host) => ToMember::Welcome(Welcome {
                host,
                tmsi_key,
                part: (partition_of(host, self.settings.partitions), self.settings.partitions),
                heartbeat,
                report: millis(self.settings.report),
                recovery,
            }),
            Member::Balancer(balancer) => {
                ToMember::Assignment(BalancerAssignment { balancer, tmsi_key, recovery, heartbeat })
            }
        }
    }
}
