//! A host's connection to its balancer, on a thread of its own: what the balancer gives goes through the host's door, what
//! the host wants sent goes to the balancer. When the connection is lost the host is too: others have its UEs then.

use super::ClusterConfig;
use crate::balancer::{Command, Commands};
use crate::clock::clock;
use crate::fabric::Role;
use crate::fabric::frame::{self, FrameError};
use crate::fabric::message::{ToBalancer, ToHost, Welcome};
use crate::fabric::stream::Stream;
use crate::host::{Door, Input};
use crossbeam_channel::TrySendError;
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_core::n2;
use vireo_sctp::Waker;

/// How long a host looks for its balancer.
const FOUND_WITHIN: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(200);
/// Octets that wait for the balancer before the host has to.
const UNSENT: usize = 4 << 20;
/// Commands that are put into the connection in one go.
const BATCH: usize = 1024;
/// Heartbeats without a word of the balancer, as a multiple of those after which it gives a host up.
const PATIENCE: u32 = 5;
/// How long the host may be at one thing before it counts as hung: then nothing more is said in its name, and others get its
/// UEs.
const HUNG: Duration = Duration::from_secs(1);
/// How often is looked again whether the host has room.
const ROOM: Duration = Duration::from_micros(100);

/// Why a host does not join, or is in its cluster no longer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nobody there.
    #[error("there is no balancer at {address}: {error}; start `vireo balancer`, and check cluster.balancer")]
    Nobody {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The connection.
    #[error("the connection to the balancer is lost: {0}; the hosts that have copies of its UEs take over")]
    Lost(#[from] FrameError),
    /// The balancer does not want it.
    #[error("the balancer has sent this host away: {0}")]
    Refused(String),
    /// It has said nothing.
    #[error("the balancer has said nothing for {0:?}; the hosts that have copies of this one's UEs take over")]
    Silent(Duration),
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Stream,
    heartbeat: Duration,
    misses: u32,
    /// An input that the host has no room for.
    held: Option<Input>,
    ended: Arc<AtomicBool>,
}

/// What is seen of a link from other threads.
#[derive(Clone, Debug)]
pub(crate) struct Ended(Arc<AtomicBool>);

impl Ended {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Link {
    /// Finds the balancer and asks to join; other hosts' copies are taken at `copies`.
    pub(crate) fn join(config: &ClusterConfig, copies: SocketAddr) -> Result<(Self, Welcome), LinkError> {
        let address = config.balancer;
        let until = Instant::now() + FOUND_WITHIN;
        let socket = loop {
            match TcpStream::connect_timeout(&address, FOUND_WITHIN) {
                Ok(socket) => break socket,
                Err(error) if Instant::now() > until => return Err(LinkError::Nobody { address, error }),
                Err(_) => std::thread::sleep(AGAIN),
            }
        };
        let mut stream = Stream::new(socket, Role::Host, Role::Balancer).map_err(FrameError::from)?;
        let own = stream.local().map(|local| local.ip()).filter(|_| copies.ip().is_unspecified());
        let copies = SocketAddr::new(own.unwrap_or(copies.ip()), copies.port());
        stream.put(&ToBalancer::Join { copies });
        loop {
            stream.flush()?;
            stream.fill()?;
            while let Some(octets) = stream.frame()? {
                match frame::decode(octets)? {
                    ToHost::Welcome(welcome) => {
                        let heartbeat = Duration::from_millis(welcome.heartbeat.0.max(1).into());
                        let misses = welcome.heartbeat.1.max(1);
                        let ended = Arc::default();
                        return Ok((Link { stream, heartbeat, misses, held: None, ended }, welcome));
                    }
                    ToHost::Refused(why) => return Err(LinkError::Refused(why)),
                    _ => {}
                }
            }
            if Instant::now() > until {
                return Err(LinkError::Silent(FOUND_WITHIN));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn ended(&self) -> Ended {
        Ended(Arc::clone(&self.ended))
    }

    /// Says that the host is ready, and carries until the connection is over or nobody wants anything any more.
    pub(crate) fn run(mut self, door: &Door, commands: &Commands, waker: &Waker) -> Result<(), LinkError> {
        self.stream.put(&ToBalancer::Ready);
        let carried = self.carry(door, commands, waker);
        self.ended.store(true, Ordering::Relaxed);
        carried
    }

    fn carry(&mut self, door: &Door, commands: &Commands, waker: &Waker) -> Result<(), LinkError> {
        let (mut beaten, mut heard) = (Instant::now(), Instant::now());
        let (mut turns, mut turned) = (door.turns(), Instant::now());
        let patience = self.heartbeat * self.misses * PATIENCE;
        loop {
            self.take(commands);
            let now = Instant::now();
            if now.duration_since(beaten) >= self.heartbeat {
                beaten = now;
                if door.turns() != turns {
                    (turns, turned) = (door.turns(), now);
                }
                if now.duration_since(turned) < HUNG {
                    self.stream.put(&ToBalancer::Beat);
                }
                // One that sleeps does not hang: it is asked.
                door.ring();
            }
            self.stream.flush()?;
            if self.hear(door)? {
                door.ring();
            }
            if self.stream.was_heard() || self.held.is_some() {
                heard = now;
            } else if now.duration_since(heard) > patience {
                return Err(LinkError::Silent(patience));
            }
            self.sleep(commands, waker, self.heartbeat.saturating_sub(now.duration_since(beaten)))?;
        }
    }

    /// Puts what the host wants sent into the connection, as far as that keeps up: beyond, the host waits.
    fn take(&mut self, commands: &Commands) {
        for _ in 0..BATCH {
            if self.stream.unsent() > UNSENT {
                return;
            }
            let Ok(command) = commands.queue.try_recv() else { return };
            let message = match &command {
                Command::Ngap { assoc, ue, key, pdu } => {
                    ToBalancer::Ngap { assoc: *assoc, ue: *ue, key: if ue.is_some() { *key } else { 0 }, pdu }
                }
                Command::Pfcp { upf, key, seid, message } => {
                    ToBalancer::Pfcp { upf: *upf, key: *key, seid: *seid, message }
                }
                Command::RefuseReport { upf, message } => ToBalancer::RefuseReport { upf: *upf, message },
                Command::Abort { assoc } => ToBalancer::Abort { assoc: *assoc },
                Command::Done { number } => ToBalancer::Done { number: *number },
                Command::Claim { supi, ue } => ToBalancer::Claim { supi: *supi, ue: *ue },
                Command::Report { cpu, pools } => ToBalancer::Report { cpu: *cpu, pools: pools.clone() },
                Command::CaughtUp { epoch, host } => ToBalancer::CaughtUp { epoch: *epoch, host: *host },
                Command::Sync { number, .. } => ToBalancer::Sync { number: *number },
                Command::Back { number } => ToBalancer::Back { number: *number },
                Command::Return { to, of } => ToBalancer::Return { to: *to, dnn: of.0.clone(), address: of.1 },
                Command::Leave => ToBalancer::Leave,
            };
            self.stream.put(&message);
        }
    }

    /// Gives the host what the balancer has said. Whether there was something.
    fn hear(&mut self, door: &Door) -> Result<bool, LinkError> {
        if let Some(input) = self.held.take()
            && let Err(TrySendError::Full(input)) = door.try_put(input)
        {
            self.held = Some(input);
            return Ok(true);
        }
        let mut some = false;
        loop {
            while let Some(octets) = self.stream.frame()? {
                let input = match frame::decode(octets)? {
                    ToHost::Beat | ToHost::Welcome(_) => continue,
                    ToHost::Refused(why) => return Err(LinkError::Refused(why)),
                    message => input(message),
                };
                some = true;
                if let Some(input) = input
                    && let Err(TrySendError::Full(input)) = door.try_put(input)
                {
                    self.held = Some(input);
                    return Ok(true);
                }
            }
            if self.stream.fill()? == 0 {
                return Ok(some);
            }
        }
    }

    fn sleep(&mut self, commands: &Commands, waker: &Waker, wait: Duration) -> Result<(), LinkError> {
        let (unsent, held) = (self.stream.unsent(), self.held.is_some());
        let nothing = unsent > UNSENT || commands.sleep();
        let mut wait = if nothing { wait } else { Duration::ZERO };
        let mut interest = if unsent > 0 { PollFlags::OUT } else { PollFlags::empty() };
        if held {
            // The host tells nobody when it has room.
            wait = wait.min(ROOM);
        } else {
            interest |= PollFlags::IN;
        }
        let mut fds = [PollFd::from_borrowed_fd(self.stream.fd(), interest), PollFd::new(waker, PollFlags::IN)];
        let wait = rustix::event::Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        let polled = poll(&mut fds, Some(&wait));
        waker.clear();
        commands.awake();
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(FrameError::Io(error.into()).into()),
        }
    }
}

/// What a message of the balancer is to the host.
fn input(message: ToHost<'_>) -> Option<Input> {
    Some(match message {
        ToHost::Welcome(_) | ToHost::Refused(_) | ToHost::Beat => return None,
        ToHost::Map(map) => Input::Map(map),
        ToHost::Up { assoc, peer } => Input::Up { assoc, peer },
        ToHost::Down { assoc, restarted } => Input::Down { assoc, restarted },
        ToHost::Ngap { number, assoc, answers, bucket, view, pdu } => {
            // One at fault is looked at again: what is wrong with it is said in the answer.
            let view = view.map_or_else(|| n2::view(pdu), Ok);
            Input::Ngap { assoc, view, pdu: pdu.to_vec(), at: clock(), number, answers, bucket }
        }
        ToHost::Pfcp { number, upf, seid, request, message } => {
            Input::Pfcp { upf, seid, request, message: message.to_vec(), number }
        }
        ToHost::PfcpTimeout { number, seid } => Input::PfcpTimeout { seid, number },
        ToHost::Upf { upf, up } => Input::Upf { upf, up },
        ToHost::UpfLost { upf } => Input::UpfLost { upf },
        ToHost::Claimed { supi, ue } => Input::Claimed { supi, ue },
        ToHost::Synced { number } => Input::Synced { number },
        ToHost::Returned { dnn, address } => Input::Returned { of: Box::new((dnn, address)) },
        ToHost::Left => Input::Left,
    })
}
