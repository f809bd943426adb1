//! One connection of the fabric, as the balancer sees it: a host, or somebody who has not said yet.

use super::flight::{Emitted, Flying, Repeats};
use crate::balancer::Command;
use crate::clock::clock;
use crate::fabric::frame::{self, FrameError};
use crate::fabric::message::{PoolLoad, ToBalancer};
use crate::fabric::stream::Stream;
use crate::host::Input;
use rustix::event::epoll;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use vireo_core::balance::HostId;
use vireo_types::{Dnn, Ltmsi, SessionAddress, Supi};

/// Pieces that are read of one host before others are.
const PIECES: usize = 16;

/// How far a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not said who it is.
    Stranger,
    /// It may join, and starts its workers.
    Starting,
    /// It serves.
    Serving,
    /// It may not join: told so, its connection ends.
    Refused,
    /// It has nothing any more that others have not, and ends.
    Left,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) stream: Stream,
    pub(super) host: Option<HostId>,
    pub(super) state: State,
    /// Where it takes copies.
    pub(super) copies: Option<SocketAddr>,
    /// Looks in a row at which it had said nothing.
    pub(super) misses: u32,
    pub(super) flying: Flying,
    pub(super) emitted: Emitted,
    /// Whether it is waited for that the connection takes more.
    full: bool,
}

/// What a host has said, beside what it wants sent.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) join: Option<SocketAddr>,
    pub(super) ready: bool,
    pub(super) report: Option<(f32, Vec<PoolLoad>)>,
    pub(super) claims: Vec<(Supi, Ltmsi)>,
    /// Replicas that have all its copies, each by the map of an epoch.
    pub(super) caught_up: Vec<(u64, HostId)>,
    /// Inputs for other hosts.
    pub(super) back: Vec<(u64, Input)>,
    /// Addresses that it has no more use for, and whose part they are of.
    pub(super) returns: Vec<(HostId, Dnn, SessionAddress)>,
    /// Whether it wants to leave.
    pub(super) leaves: bool,
    /// Effects that another host has had sent already.
    pub(super) repeats: u64,
}

impl Member {
    pub(super) fn new(stream: Stream) -> Self {
        Member {
            stream,
            host: None,
            state: State::Stranger,
            copies: None,
            misses: 0,
            flying: Flying::default(),
            emitted: Emitted::default(),
            full: false,
        }
    }

    /// Reads what is there, some of it.
    pub(super) fn read(
        &mut self,
        said: &mut Said,
        repeats: &Repeats,
        commands: &mut VecDeque<Command>,
    ) -> Result<(), FrameError> {
        let now = clock();
        for _ in 0..PIECES {
            let read = self.stream.fill();
            let mut serving = said.ready || matches!(self.state, State::Serving | State::Left);
            while let Some(octets) = self.stream.frame()? {
                let message: ToBalancer<'_> = frame::decode(octets)?;
                let (key, command) = match message {
                    ToBalancer::Beat => continue,
                    ToBalancer::Join { copies } => {
                        said.join = Some(copies);
                        continue;
                    }
                    ToBalancer::Ready => {
                        said.ready = true;
                        serving |= self.state == State::Starting;
                        continue;
                    }
                    // Only who serves has something to say of UEs.
                    _ if !serving => return Err(FrameError::Message),
                    ToBalancer::Ngap { assoc, ue, key, pdu } => {
                        (key, Command::Ngap { assoc, ue, key, pdu: pdu.into() })
                    }
                    ToBalancer::Pfcp { upf, key, seid, message } => {
                        (key, Command::Pfcp { upf, key, seid, message: message.into() })
                    }
                    ToBalancer::RefuseReport { upf, message } => {
                        (0, Command::RefuseReport { upf, message: message.into() })
                    }
                    ToBalancer::Abort { assoc } => (0, Command::Abort { assoc }),
                    ToBalancer::Done { number } => {
                        self.flying.done(number);
                        continue;
                    }
                    ToBalancer::Claim { supi, ue } => {
                        said.claims.push((supi, ue));
                        continue;
                    }
                    ToBalancer::Report { cpu, pools } => {
                        said.report = Some((cpu, pools));
                        continue;
                    }
                    ToBalancer::CaughtUp { epoch, host } => {
                        said.caught_up.push((epoch, host));
                        continue;
                    }
                    ToBalancer::Back { number } => {
                        said.back.extend(self.flying.back(number).map(|input| (number, input)));
                        continue;
                    }
                    ToBalancer::Return { to, dnn, address } => {
                        said.returns.push((to, dnn, address));
                        continue;
                    }
                    ToBalancer::Leave => {
                        said.leaves = true;
                        continue;
                    }
                    // Answered in its order.
                    ToBalancer::Sync { number } => {
                        let Some(host) = self.host else { return Err(FrameError::Message) };
                        (0, Command::Sync { host, number })
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

    /// Sends what the connection takes.
    pub(super) fn flush(&mut self, epoll: &OwnedFd, token: u64) -> Result<(), FrameError> {
        self.stream.flush()?;
        let full = self.stream.unsent() > 0;
        if full != self.full {
            let flags = if full { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(epoll, self.stream.fd(), epoll::EventData::new_u64(token), flags)
                .map_err(std::io::Error::from)?;
            self.full = full;
        }
        Ok(())
    }
}
