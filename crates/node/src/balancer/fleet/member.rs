//! Fabric connection of a balancer: a host, or a peer not yet identified.

use crate::balancer::Command;
use crate::host::Input;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::message::{AssociationOwner, PoolLoad, ToBalancer};
use vireo_core::placement::replica::{Claim, EffectDedup, InflightInputs, RecentEffects};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::Stream;
use vireo_ops::clock::clock;
use vireo_types::{Dnn, Instant, SessionAddress};

/// Maximum number of reads of one connection before other connections are read.
const PIECES: usize = 16;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// The peer has not sent its host ID, or no known map contains the host.
    Stranger,
    /// The peer is a host of the map.
    Serving,
    /// The connection carries only a host's heartbeats.
    Pulse,
    /// The peer is not a host of the cluster, or has been removed from the map, and has been
    /// notified. The balancer drops its further messages. The peer closes the connection. Closing
    /// it here would discard unreceived data, and a peer that misses the notification would take
    /// this balancer for dead.
    Refused,
}

/// A fabric connection and the state of its host.
#[derive(Debug)]
pub(super) struct HostConnection {
    pub(super) stream: Stream,
    pub(super) host: Option<HostId>,
    pub(super) state: State,
    /// Start of the connection, or for heartbeat connections the time of the last check.
    pub(super) since: Instant,
    pub(super) flying: InflightInputs<Input>,
    pub(super) emitted: RecentEffects,
    /// `given` = NGAP PDUs received from the host; `told` = how many of them the balancer has
    /// acknowledged as sent.
    pub(super) given: u64,
    pub(super) told: u64,
}

/// Result of one read of a connection, besides commands.
#[derive(Debug, Default)]
pub(super) struct HostReport {
    pub(super) host: Option<HostId>,
    /// The connection has identified itself as this host's heartbeat connection.
    pub(super) pulse: Option<HostId>,
    /// A newer map: the messages that follow apply to it. Reading stopped at this message.
    pub(super) map: Option<Box<ClusterMap>>,
    pub(super) report: Option<(f32, Vec<PoolLoad>)>,
    pub(super) claims: Vec<Claim>,
    /// Inputs to redeliver to other hosts.
    pub(super) back: Vec<(u64, Input)>,
    /// Returned UE addresses, each with the owner of its pool partition.
    pub(super) returns: Vec<(HostId, Dnn, SessionAddress)>,
    /// Associations of RAN nodes that have done NG Setup on another association.
    pub(super) nodes: Vec<AssociationOwner>,
    /// Effects dropped because another host has already had them sent.
    pub(super) repeats: u64,
}

impl HostConnection {
    pub(super) fn new(stream: Stream, since: Instant) -> Self {
        HostConnection {
            stream,
            host: None,
            state: State::Stranger,
            since,
            flying: InflightInputs::default(),
            emitted: RecentEffects::default(),
            given: 0,
            told: 0,
        }
    }

    /// Reads some pending messages, at most up to the next map that is newer than `epoch`.
    pub(super) fn read(
        &mut self,
        said: &mut HostReport,
        epoch: u64,
        repeats: &EffectDedup,
        commands: &mut VecDeque<Command>,
    ) -> Result<(), FrameError> {
        let now = clock();
        for _ in 0..PIECES {
            let read = self.stream.fill();
            let serving = self.state == State::Serving;
            while let Some(octets) = self.stream.frame()? {
                if self.state == State::Refused {
                    // A drained host waits until all its earlier commands are executed.
                    if let (Ok(ToBalancer::Sync { number }), Some(host)) = (frame::decode(octets), self.host) {
                        commands.push_back(Command::Barrier { host, number });
                    }
                    continue;
                }
                let message: ToBalancer<'_> = frame::decode(octets)?;
                let (key, command) = match message {
                    ToBalancer::Beat => continue,
                    ToBalancer::Host(host) => {
                        said.host = Some(host);
                        return Ok(());
                    }
                    ToBalancer::HeartbeatOnly(host) => {
                        said.pulse = Some(host);
                        return Ok(());
                    }
                    ToBalancer::Map(map) if map.epoch() > epoch => {
                        said.map = Some(map);
                        return Ok(());
                    }
                    ToBalancer::Map(_) if serving => continue,
                    ToBalancer::Map(map) => {
                        return Err(FrameError::Refused(format!("its map is of epoch {}", map.epoch())));
                    }
                    // Messages about UEs are accepted only from hosts of the map.
                    _ if !serving => return Err(FrameError::Message),
                    ToBalancer::Ngap { assoc, ue, key, pdu } => {
                        self.given += 1;
                        (key, Command::Ngap { assoc, ue, key, pdu: pdu.into() })
                    }
                    ToBalancer::Pfcp { upf, key, seid, message } => {
                        (key, Command::Pfcp { upf, key, seid, message: message.into() })
                    }
                    ToBalancer::RefuseReport { upf, message } => {
                        (0, Command::RefuseReport { upf, message: message.into() })
                    }
                    ToBalancer::Abort { assoc } => (0, Command::Abort { assoc }),
                    ToBalancer::Probe { assoc } => (0, Command::Probe { assoc }),
                    ToBalancer::Done { number } => {
                        self.flying.acknowledge(number);
                        continue;
                    }
                    ToBalancer::Claim { supi, ue, at } => {
                        said.claims.push(Claim { supi, ue, at });
                        continue;
                    }
                    ToBalancer::Report { cpu, pools } => {
                        said.report = Some((cpu, pools));
                        continue;
                    }
                    ToBalancer::Back { number } => {
                        said.back.extend(self.flying.returned(number).map(|input| (number, input)));
                        continue;
                    }
                    ToBalancer::Return { to, dnn, address } => {
                        said.returns.push((to, dnn, address));
                        continue;
                    }
                    ToBalancer::Node(of) => {
                        said.nodes.push(of);
                        continue;
                    }
                    // Executed in order with the other commands.
                    ToBalancer::Sync { number } => {
                        let Some(host) = self.host else { return Err(FrameError::Message) };
                        (0, Command::Barrier { host, number })
                    }
                };
                if key != 0 && repeats.has(key) {
                    said.repeats += 1;
                    continue;
                }
                self.emitted.add(key, now);
                commands.push_back(command);
            }
            if read? == 0 {
                break;
            }
        }
        Ok(())
    }
}
