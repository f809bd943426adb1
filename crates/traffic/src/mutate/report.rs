//! Counters of a campaign: messages, depth of decoding, and responses.

use super::make::Level;
use super::world::World;
use serde::Serialize;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vireo_wire::pfcp::*;

/// Maximum number of described violations.
const DESCRIBED: usize = 10;

/// Counters of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Seed of all random choices.
    pub seed: u64,
    /// Messages sent, without heartbeats between them and answers to the UPF.
    pub messages: u64,
    /// Time from the first to the last message, in seconds.
    pub seconds: f64,
    /// Messages by kind of mutation.
    pub levels: BTreeMap<&'static str, u64>,
    /// Messages by validity: `header` (invalid header), `elements` (an element is invalid or
    /// missing), `unserved` (a message type that a UPF does not parse further), `decoded`.
    pub depth: BTreeMap<&'static str, u64>,
    /// Fraction of the messages that is decoded, 0 to 1.
    pub decoded: f64,
    /// Messages by the sender's association (`associated`, `without association`) and the session
    /// of the header (`own`, `foreign`, `gone`, `unknown`, `none`).
    pub states: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Requests by type and response: a cause, `answered` (without a cause), or `none`.
    pub answers: BTreeMap<String, BTreeMap<String, u64>>,
    /// Requests of the UPF.
    #[serde(rename = "asked")]
    pub upf_requests: u64,
    /// Datagrams of the UPF that are no PFCP messages.
    pub unsound: u64,
    /// Messages that differ after they are encoded and decoded again: a fault of the codec.
    pub codec_faults: u64,
    /// Accepted requests about another control plane's association or session.
    pub violations: u64,
    /// Descriptions of the first violations.
    pub described: Vec<String>,
    /// Sessions of the attacker at the end.
    pub own_sessions: usize,
}

/// Sessions of the other control plane, before and after the campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sessions {
    /// Sessions that were set up.
    pub established: u64,
    /// Sessions found afterwards: a modification was accepted, and the URR continued to count.
    pub found: u64,
}

/// Properties of a message that are needed when its response arrives.
#[derive(Clone, Debug)]
pub(super) struct SentMessage {
    pub(super) kind: MessageType,
    pub(super) level: Level,
    /// SEID of the header.
    pub(super) seid: Option<u64>,
    /// True if the message names the attacker as its sender, as far as it contains a name.
    pub(super) own_name: bool,
    /// Octets of the message, if its association or session does not belong to the sender.
    pub(super) foreign: Option<Vec<u8>>,
    /// For an Association Setup Request: its Recovery Time Stamp.
    pub(super) recovery: Option<u32>,
}

impl Counts {
    pub(super) fn new(seed: u64) -> Self {
        Counts { seed, ..Counts::default() }
    }

    /// Counts a sent message.
    pub(super) fn count(&mut self, octets: &[u8], level: Level, associated: bool, world: &World) -> SentMessage {
        self.messages += 1;
        *self.levels.entry(level.name()).or_default() += 1;
        let depth = self.depth_of(octets);
        *self.depth.entry(depth).or_default() += 1;
        let decoded = self.depth.get("decoded").copied().unwrap_or_default();
        self.decoded = decoded as f64 / self.messages as f64;
        let header = Message::new(octets).ok();
        let seid = header.and_then(|message| message.header().seid);
        let session = match seid {
            None | Some(0) => "none",
            Some(seid) if world.target.seids.contains(&seid) => "foreign",
            Some(seid) if world.own.contains(&seid) => "own",
            Some(seid) if world.ended.contains(&seid) => "gone",
            Some(_) => "unknown",
        };
        let state = if associated { "associated" } else { "without association" };
        *self.states.entry(state).or_default().entry(session).or_default() += 1;
        let node: Option<NodeId> = header.and_then(|message| message.get().ok().flatten());
        let recovery: Option<RecoveryTimeStamp> = header.and_then(|message| message.get().ok().flatten());
        let target = node.as_ref().is_some_and(|node| node.address() == Some(world.target.address.into()));
        let is_session = header.is_some_and(|message| message.message_type().is_session());
        let names_node = header.is_some_and(|message| {
            let kind = message.message_type();
            !kind.is_session() || kind == MessageType::SESSION_ESTABLISHMENT_REQUEST
        });
        SentMessage {
            kind: header.map_or(MessageType(0), |message| message.message_type()),
            level,
            seid: seid.filter(|_| is_session),
            own_name: node.is_none_or(|node| node == world.node_id()),
            foreign: (is_session && session == "foreign" || target && names_node).then(|| octets.to_vec()),
            recovery: recovery.map(|stamp| stamp.0),
        }
    }

    fn depth_of(&mut self, octets: &[u8]) -> &'static str {
        let Ok(message) = Message::new(octets) else { return "header" };
        let Ok(walked) = catch_unwind(AssertUnwindSafe(|| walk(octets))) else {
            self.codec_faults += 1;
            return "decoded";
        };
        let kind = message.message_type();
        let unserved = [MessageType::PFD_MANAGEMENT_REQUEST, MessageType::SESSION_SET_MODIFICATION_REQUEST];
        match walked {
            Some(_) => "decoded",
            None if kind.name().is_none() || unserved.contains(&kind) => "unserved",
            None => "elements",
        }
    }

    pub(super) fn answer(&mut self, kind: MessageType, answer: &str) {
        let kind = kind.name().map_or_else(|| "unknown type".to_owned(), str::to_owned);
        *self.answers.entry(kind).or_default().entry(answer.to_owned()).or_default() += 1;
    }

    /// Counts a response.
    pub(super) fn take(&mut self, of: &SentMessage, message: &Message<'_>) {
        let cause = message.get::<Cause>().ok().flatten();
        let answer = match cause {
            _ if message.message_type() == MessageType::VERSION_NOT_SUPPORTED_RESPONSE => {
                "version not supported".into()
            }
            Some(cause) => format!("{cause:?}"),
            None => "answered".to_owned(),
        };
        self.answer(of.kind, &answer);
        if let Some(octets) = of.foreign.as_ref().filter(|_| cause.is_some_and(Cause::is_accepted)) {
            self.violations += 1;
            if self.described.len() < DESCRIBED {
                let octets: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
                self.described.push(format!("{:?} ({}) was accepted: {octets}", of.kind, of.level.name()));
            }
        }
    }
}
