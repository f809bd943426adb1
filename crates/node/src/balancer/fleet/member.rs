//! One connection of the fabric, as a balancer sees it: a host, or somebody who has not said yet.

use crate::balancer::Command;
use crate::clock::clock;
use crate::host::Input;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vireo_core::balance::HostId;
use vireo_core::replica::{Claim, EffectDedup, InflightInputs, RecentEffects};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::message::{AssociationOwner, ClusterMap, PoolLoad, ToBalancer};
use vireo_fabric::stream::Stream;
use vireo_types::{Dnn, Instant, SessionAddress};

/// Pieces that are read of one host before others are.
const PIECES: usize = 16;

/// How far a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// It has not said who it is, or is in no map that this balancer knows yet.
    Stranger,
    /// It is a host of the map.
    Serving,
    /// It is a host's heartbeat.
    Pulse,
    /// It is none, or no longer, and is told so: what else it says is passed over, and it ends the connection. Ended here, that
    /// would take along what it has not received, and who has not heard that it is over takes this balancer for dead.
    Refused,
}

/// One connection.
#[derive(Debug)]
pub(super) struct HostConnection {
    pub(super) stream: Stream,
    pub(super) host: Option<HostId>,
    pub(super) state: State,
    /// Since when there is the connection.
    pub(super) since: Instant,
    pub(super) flying: InflightInputs<Input>,
    pub(super) emitted: RecentEffects,
    /// NGAP PDUs that it has given, and how many of them it was told are sent.
    pub(super) given: u64,
    pub(super) told: u64,
}

/// What a host has said, beside what it wants sent.
#[derive(Debug, Default)]
pub(super) struct HostReport {
    pub(super) host: Option<HostId>,
    /// This connection is the heartbeat of a host.
    pub(super) pulse: Option<HostId>,
    /// What follows is said by this map; nothing more was read.
    pub(super) map: Option<Box<ClusterMap>>,
    pub(super) report: Option<(f32, Vec<PoolLoad>)>,
    pub(super) claims: Vec<Claim>,
    /// Inputs for other hosts.
    pub(super) back: Vec<(u64, Input)>,
    /// Addresses that it has no more use for, and whose part they are of.
    pub(super) returns: Vec<(HostId, Dnn, SessionAddress)>,
    /// Associations that are of nodes which have set NG up on others.
    pub(super) nodes: Vec<AssociationOwner>,
    /// Effects that another host has had sent already.
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

    /// Reads what is there, some of it: as far as the next map that is newer than this epoch's.
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
                    // One that has left in good order waits to hear that all is done which it had said before.
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
                    // Only who serves has something to say of UEs.
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
                    // Answered in its order.
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
