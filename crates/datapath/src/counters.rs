//! What became of the packets, counted by each worker on its own and added to the shared counters once a batch.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet was not forwarded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All of them, in the order of [`Stats::drops`].
            pub const ALL: &[DropReason] = &[$(DropReason::$name,)*];

            /// The name in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// Not GTP-U, or longer than any link's MTU.
    Malformed = "malformed",
    /// GTP-U that a UE sent through its tunnel.
    FromUe = "gtpu_from_ue",
    /// A GTP-U message that a UPF has no use for.
    Unexpected = "unexpected_message",
    /// An extension header that must be understood and is not.
    ExtensionHeader = "unsupported_extension_header",
    /// No such tunnel.
    UnknownTeid = "unknown_teid",
    /// No session has this destination address.
    UnknownUe = "unknown_ue",
    /// The inner packet is not sound IPv4 or IPv6.
    InnerMalformed = "inner_malformed",
    /// The source is not the session's address.
    Spoofed = "spoofed_source",
    /// What does not leave its link: the UE's that asks nothing of a router, and the machine's own multicast.
    LinkLocal = "link_local",
    /// A QoS flow that the session's rule does not allow.
    WrongFlow = "wrong_qos_flow",
    /// The gate is closed (TS 29.244 8.2.7).
    GateClosed = "gate_closed",
    /// Above the maximum bit rate (TS 29.244 8.2.8).
    RateExceeded = "rate_exceeded",
    /// The rule says drop.
    Action = "rule",
    /// To be forwarded, but there is no tunnel to the RAN.
    NoTunnel = "no_tunnel",
    /// The buffer of the session, or of all of them, is full.
    BufferFull = "buffer_full",
    /// Was buffered and never asked for.
    BufferExpired = "buffer_expired",
    /// More answers than the limit on answers allows.
    AnswerLimit = "answer_limit",
    /// The kernel did not take it towards the RAN.
    N3Send = "n3_send",
    /// The kernel did not take it towards the data network.
    N6Send = "n6_send",
    /// No rule of the session matches.
    NoRule = "no_rule",
    /// A URR's quota is used up (TS 29.244 5.2.2.2).
    QuotaSpent = "quota_spent",
    /// The ring of AF_PACKET that the frame was for had no room, or the kernel was just going on to its next block.
    RingFull = "ring_full",
    /// At most so many were in the hands of a data worker's process when that died.
    WorkerDied = "worker_died",
    /// A UE sent it to an address of this machine, of the core or of a RAN node.
    Protected = "protected_destination",
    /// A UE sent it to another, in a data network where UEs do not reach each other.
    UeToUe = "ue_to_ue",
    /// A G-PDU from an address that no control plane has named.
    UnknownPeer = "unknown_gtpu_peer",
}

/// How many reasons there are.
pub const DROP_REASONS: usize = DropReason::ALL.len();

/// Packets and octets; the octets are those of the users' packets, without tunnel headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub octets: u64,
}

impl Volume {
    /// The sum of both.
    pub(crate) fn plus(self, other: Volume) -> Volume {
        Volume { packets: self.packets + other.packets, octets: self.octets + other.octets }
    }

    pub(crate) fn add(&mut self, octets: usize) {
        self.packets += 1;
        self.octets += octets as u64;
    }
}

/// A sum of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Forwarded from the RAN to the data network.
    pub uplink: Volume,
    /// Forwarded from the data network to the RAN.
    pub downlink: Volume,
    /// Packets put into buffers.
    pub buffered: u64,
    /// Answers sent by the UPF itself: Echo Response, Error Indication, router advertisement and the like.
    pub answers: u64,
    /// Packets dropped, by [`DropReason`].
    pub drops: [u64; DROP_REASONS],
}

impl Stats {
    /// The sum of both.
    pub(crate) fn plus(mut self, other: &Stats) -> Stats {
        (self.uplink, self.downlink) = (self.uplink.plus(other.uplink), self.downlink.plus(other.downlink));
        (self.buffered, self.answers) = (self.buffered + other.buffered, self.answers + other.answers);
        self.drops.iter_mut().zip(other.drops).for_each(|(sum, of)| *sum += of);
        self
    }

    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}

/// The counters of all workers. Words alone: it may lie in memory that processes share.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    volumes: [AtomicU64; 4],
    buffered: AtomicU64,
    answers: AtomicU64,
    drops: [AtomicU64; DROP_REASONS],
}

impl Counters {
    /// Adds a worker's counts and clears them.
    pub fn flush(&self, stats: &mut Stats) {
        let add = |counter: &AtomicU64, n: u64| {
            if n != 0 {
                counter.fetch_add(n, Relaxed);
            }
        };
        let Volume { packets, octets } = stats.uplink;
        let down = stats.downlink;
        for (counter, n) in self.volumes.iter().zip([packets, octets, down.packets, down.octets]) {
            add(counter, n);
        }
        add(&self.buffered, stats.buffered);
        add(&self.answers, stats.answers);
        for (counter, n) in self.drops.iter().zip(stats.drops) {
            add(counter, n);
        }
        *stats = Stats::default();
    }

    /// Counts packets that were dropped for this reason.
    pub(crate) fn lose(&self, reason: DropReason, packets: u64) {
        self.drops[reason as usize].fetch_add(packets, Relaxed);
    }

    /// The sums so far.
    pub fn read(&self) -> Stats {
        let [up_packets, up_octets, down_packets, down_octets] = &self.volumes;
        let volume = |packets: &AtomicU64, octets: &AtomicU64| Volume {
            packets: packets.load(Relaxed),
            octets: octets.load(Relaxed),
        };
        let mut drops = [0; DROP_REASONS];
        for (n, counter) in drops.iter_mut().zip(&self.drops) {
            *n = counter.load(Relaxed);
        }
        Stats {
            uplink: volume(up_packets, up_octets),
            downlink: volume(down_packets, down_octets),
            buffered: self.buffered.load(Relaxed),
            answers: self.answers.load(Relaxed),
            drops,
        }
    }
}
