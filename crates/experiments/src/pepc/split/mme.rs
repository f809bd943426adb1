//! MME-like part of the split core: location and bearer of each user.
//!
//! It requests the changes of an event from the S-GW-like part.

use super::link::LinkEnd;
use super::messages::{self, Create};
use super::{ENB, WorkResult};
use crate::pepc::events::{Event, Script};
use crate::pepc::{Signalling, VISITORS};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use vireo_bench::upf::network::FIRST_UE;
use vireo_config::Failure;
use vireo_datapath::Tunnel;
use vireo_wire::pfcp::MessageType;

/// Maximum number of events in progress.
const WINDOW: u64 = 64;

/// State of a user.
#[derive(Clone, Copy, Debug, Default)]
struct Ue {
    /// Tracking area code (TAC).
    tac: u16,
    /// TEID of the eNB's tunnel endpoint.
    enb: u32,
    /// The S-GW's session identifier and tunnel endpoint.
    sgw: Option<(u64, Tunnel)>,
}

/// The MME-like part.
pub(in crate::pepc) struct Mme {
    ues: Vec<Ue>,
    /// Number of permanent users.
    users: u32,
    /// Number of permanent users whose attach was started.
    attached: u32,
    visitors: VecDeque<u32>,
    script: Script,
    sgw: LinkEnd,
    /// Requests in progress, in order of sequence number: sequence number, event, index of the
    /// user.
    waiting: VecDeque<(u32, Event, u32)>,
    sequence: u32,
    octets: Vec<u8>,
}

impl Mme {
    pub(super) fn new(users: u32, sgw: LinkEnd) -> Self {
        Mme {
            ues: vec![Ue::default(); (users + VISITORS) as usize],
            users,
            attached: 0,
            visitors: VecDeque::new(),
            script: Script::new(users),
            sgw,
            waiting: VecDeque::new(),
            sequence: 0,
            octets: vec![],
        }
    }

    /// Returns the number of permanent users that are not attached yet.
    pub(super) fn missing(&self) -> u64 {
        u64::from(self.users - self.attached) + self.waiting.len() as u64
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let event = if self.attached < self.users {
            self.attached += 1;
            Event::Attach(self.attached - 1)
        } else {
            self.script.next(self.visitors.len())
        };
        self.sequence = (self.sequence + 1) & 0xff_ffff;
        let lost = || Failure("the script of events names a user that is not there".into());
        let (number, out) = (self.sequence, &mut self.octets);
        let session = match event {
            Event::Attach(session) => {
                let tunnel = messages::end(session + 1, ENB);
                let ue = Ipv4Addr::from_bits(FIRST_UE.to_bits() + session);
                messages::create(&Create { seid: u64::from(session) + 1, ue, tunnel }, number, out)?;
                let ue = Ue { tac: 1, enb: session + 1, sgw: None };
                *self.ues.get_mut(session as usize).ok_or_else(lost)? = ue;
                session
            }
            Event::Handover(user, moves) => {
                let ue = self.ues.get_mut(user as usize).ok_or_else(lost)?;
                (ue.enb, ue.tac) = ((user + 1).wrapping_add(moves << 24), moves as u16);
                let (seid, _) = ue.sgw.ok_or_else(lost)?;
                messages::modify(seid, messages::end(ue.enb, ENB), number, out)?;
                user
            }
            Event::Detach => {
                let session = self.visitors.pop_front().ok_or_else(lost)?;
                let (seid, _) = self.ues[session as usize].sgw.ok_or_else(lost)?;
                messages::delete(seid, number, out)?;
                session
            }
        };
        self.waiting.push_back((number, event, session));
        self.sgw.out.send(&self.octets)
    }
}

impl Signalling for Mme {
    fn work(&mut self, due: u64) -> Result<WorkResult, Failure> {
        let Mme { ues, users, visitors, sgw, waiting, .. } = self;
        let mut ended = 0;
        sgw.inbox.take(|octets| {
            let message = messages::view(octets)?;
            // Deletions and creations pass more parts than modifications, so responses arrive out
            // of order.
            let place = waiting.iter().position(|(number, ..)| *number == message.sequence());
            let Some((_, event, session)) = place.and_then(|place| waiting.remove(place)) else { return Ok(()) };
            let Some(ue) = ues.get_mut(session as usize) else { return Ok(()) };
            match (event, message.message_type()) {
                (Event::Attach(_), MessageType::SESSION_ESTABLISHMENT_RESPONSE) => {
                    let created = messages::accepted(&message)?;
                    ue.sgw = Some((created.seid, created.tunnel));
                    if session >= *users {
                        visitors.push_back(session);
                    }
                }
                (Event::Handover(..), _) => messages::granted(&message)?,
                _ => {
                    messages::granted(&message)?;
                    *ue = Ue::default();
                }
            }
            ended += 1;
            Ok(())
        })?;
        let mut busy = ended > 0;
        while (self.waiting.len() as u64) < WINDOW.min(due.saturating_sub(ended)) {
            self.begin()?;
            busy = true;
        }
        self.sgw.out.flush()?;
        Ok(WorkResult { ended, busy })
    }
}
