//! Packet counters. Each worker counts for itself and adds to the shared counters once a batch.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason for not forwarding a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All reasons, in the order of [`Stats::drops`].
            pub const ALL: &[DropReason] = &[$(DropReason::$name,)*];

            /// Returns the label value in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// Not GTP-U, or longer than the MTU of any link.
    Malformed = "malformed",
    /// GTP-U that a UE sent through its tunnel.
    FromUe = "gtpu_from_ue",
    /// GTP-U message type without a meaning for a UPF.
    Unexpected = "unexpected_message",
    /// Unsupported extension header that the receiver must understand.
    ExtensionHeader = "unsupported_extension_header",
    /// No tunnel has this TEID.
    UnknownTeid = "unknown_teid",
    /// No session has this destination address.
    UnknownUe = "unknown_ue",
    /// The inner packet is not valid IPv4 or IPv6, or its IPv4 header checksum is wrong.
    InnerMalformed = "inner_malformed",
    /// The source is not the session's address.
    Spoofed = "spoofed_source",
    /// Link-scope packet: from a UE and no router solicitation, or multicast of the machine itself.
    LinkLocal = "link_local",
    /// The session's rule does not allow the QoS flow.
    WrongFlow = "wrong_qos_flow",
    /// The gate is closed (TS 29.244 8.2.7).
    GateClosed = "gate_closed",
    /// Above the maximum bit rate (TS 29.244 8.2.8).
    RateExceeded = "rate_exceeded",
    /// The rule of the session drops the packet.
    Action = "rule",
    /// To be forwarded, but there is no tunnel to the RAN.
    NoTunnel = "no_tunnel",
    /// The buffer of the session or the total buffer is full.
    BufferFull = "buffer_full",
    /// Buffered longer than the limit.
    BufferExpired = "buffer_expired",
    /// The rate limit of the UPF's answers is exceeded.
    AnswerLimit = "answer_limit",
    /// The kernel refused to send the packet on N3.
    N3Send = "n3_send",
    /// The kernel refused to send the packet on N6.
    N6Send = "n6_send",
    /// No rule of the session matches.
    NoRule = "no_rule",
    /// The quota of a URR is used up (TS 29.244 5.2.2.2).
    QuotaSpent = "quota_spent",
    /// The AF_PACKET ring had no room for the frame, or the kernel was switching to the next block.
    RingFull = "ring_full",
    /// Upper bound of the packets that a data worker process held when it died.
    WorkerDied = "worker_died",
    /// A UE sent the packet to an address of this machine, of the core or of a RAN node.
    Protected = "protected_destination",
    /// A UE sent the packet to another UE, in a data network that isolates its UEs.
    UeToUe = "ue_to_ue",
    /// G-PDU from an address that no control plane has named.
    UnknownPeer = "unknown_gtpu_peer",
}

/// Number of drop reasons.
pub const DROP_REASONS: usize = DropReason::ALL.len();

/// Packets and octets of user packets, without tunnel headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub packets: u64,
    pub octets: u64,
}

impl Volume {
    /// Returns the sum of both volumes.
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
    /// Packets stored in buffers.
    pub buffered: u64,
    /// Answers of the UPF: Echo Response, Error Indication, router advertisement and others.
    pub answers: u64,
    /// Dropped packets, indexed by [`DropReason`].
    pub drops: [u64; DROP_REASONS],
}

impl Stats {
    /// Returns the sum of both.
    pub(crate) fn plus(mut self, other: &Stats) -> Stats {
        (self.uplink, self.downlink) = (self.uplink.plus(other.uplink), self.downlink.plus(other.downlink));
        (self.buffered, self.answers) = (self.buffered + other.buffered, self.answers + other.answers);
        self.drops.iter_mut().zip(other.drops).for_each(|(sum, of)| *sum += of);
        self
    }

    /// Returns the number of packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}

/// Counters of all workers. Plain words, so that processes can share them in memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    volumes: [AtomicU64; 4],
    buffered: AtomicU64,
    answers: AtomicU64,
    drops: [AtomicU64; DROP_REASONS],
}

impl Counters {
    /// Adds the counts of a worker and clears them there.
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

    /// Adds `packets` packets that were dropped for `reason`.
    pub(crate) fn add_drops(&self, reason: DropReason, packets: u64) {
        self.drops[reason as usize].fetch_add(packets, Relaxed);
    }

    /// Returns the current sums.
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
