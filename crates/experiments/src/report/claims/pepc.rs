//! Claims of the PEPC talk.

use super::super::source::Prediction::Ours;
use super::super::source::{Answer, Claim, Source};
use vireo_bench::results::Bound::{About, Above, AtLeast};

pub(super) const SOURCE: Source = Source {
    name: "pepc",
    title: "A High Performance Packet Core for Next Generation Cellular Networks (PEPC)",
    published: "Qazi, Walls, Panda, Sekar, Ratnasamy, Shenker; SIGCOMM 2017. The quotations are those of the talk. \
                PEPC runs on NetBricks with a DPDK traffic generator.",
    claims: &[
        SIGNALLING,
        INDUSTRIAL,
        OVERALL,
        USERS,
        SEPARATE_CORES,
        LOCKS,
        TWO_LEVELS,
        IOT,
        MIGRATION,
        INDEPENDENT_SLICES,
    ],
};

const BESIDE: &str = "pepc-signalling";
const LOCKING: &str = "pepc-locking";
const LEVELS: &str = "pepc-two-level";
const SIMPLE: &str = "pepc-iot";
const MOVES: &str = "pepc-migration";
const ISOLATION: &str = "pepc-isolation";
const BENCH: &str = "bench-upf";

const SIGNALLING: Claim = Claim {
    title: "Throughput holds beside signalling",
    location: "slide \"Data plane performance comparison\"",
    words: "PEPC can sustain data plane throughput (~6 Mpps) for 1:10 signaling to data ratio",
    answers: &[
        Answer::compared(BESIDE, "slice, 1:10, packets", "about 6,000,000", Ours(AtLeast(6e6))),
        Answer::compared(BESIDE, "slice, batches, 1:10, packets", "about 6,000,000", Ours(AtLeast(6e6))),
        Answer::shown(BESIDE, "slice, no events, packets"),
        Answer::shown(BESIDE, "slice, 10K events/s, of those"),
        Answer::shown(BESIDE, "processes, 10K events/s, of those"),
    ],
    caveat: "Our packets lie in memory: receive and send are not in the rate, as they are in the paper's. An event is \
             a change of the user plane's state, not an attach with its S1AP messages. \"Processes\" is the UPF with \
             XDP and real PFCP.",
};

const INDUSTRIAL: Claim = Claim {
    title: "An EPC split by function collapses beside signalling",
    location: "slide \"Data plane performance comparison\"",
    words: "In contrast, Industrial#1 throughput drops significantly (0.1 Mpps) for more than 1:100 signaling to data \
            ratio",
    answers: &[
        Answer::compared(BESIDE, "split, sockets, 1:10, packets", "about 100,000", Ours(About(1e5))),
        Answer::shown(BESIDE, "split, sockets, 1:100, packets"),
        Answer::shown(BESIDE, "split, sockets, no events, packets"),
        Answer::shown(BESIDE, "split, queues, 1:10, packets"),
    ],
    caveat: "Industrial#1 is an unnamed product. Our split core has its structure (MME, S-GW and P-GW with a copy of \
             the state each) on our packet path; what the product did besides is not in it.",
};

const OVERALL: Claim = Claim {
    title: "A slice is 3 to 7 times as fast",
    location: "slide \"Summary\"",
    words: "PEPC performs 3-7x better and scales well with increasing user devices, signaling traffic, and state \
            migrations",
    answers: &[
        Answer::compared(BESIDE, "slice over split, sockets, 1:1000", ">= 3", Ours(AtLeast(3.0))),
        Answer::compared(BESIDE, "slice over split, sockets, 1:100", ">= 3", Ours(AtLeast(3.0))),
        Answer::compared(BESIDE, "slice over split, sockets, 1:10", ">= 3", Ours(AtLeast(3.0))),
        Answer::compared(BESIDE, "slice over split, queues, 1:100", ">= 3", Ours(AtLeast(3.0))),
        Answer::compared(BESIDE, "slice over split, queues, 1:10", ">= 3", Ours(AtLeast(3.0))),
    ],
    caveat: "The slide does not state ratio or baseline. \"Sockets\" are messages by UDP between the parts, \"queues\" \
             the least that messages can cost.",
};

const USERS: Claim = Claim {
    title: "Throughput scales with user devices",
    location: "slide \"Summary\"",
    words: "scales well with increasing user devices",
    answers: &[
        Answer::shown(BENCH, "XDP, uplink, 1 session"),
        Answer::shown(BENCH, "XDP, uplink, 250000 sessions"),
        Answer::shown(BENCH, "XDP, uplink, 1000000 sessions"),
        Answer::shown(BENCH, "T_c, downlink, 1 session"),
        Answer::shown(BENCH, "T_c, downlink, 250000 sessions"),
    ],
    caveat: "The talk has no number. Ours are times of a packet: smaller is better.",
};

const SEPARATE_CORES: Claim = Claim {
    title: "Signalling blocks data unless threads are separate",
    location: "slide \"PEPC Slice\"",
    words: "Processing time for signaling messages > 10X higher",
    answers: &[
        Answer::shown(BESIDE, "slice, 1:100, control side's time of an event"),
        Answer::shown(BESIDE, "slice, no events, packets"),
        Answer::compared(BESIDE, "slice over slice, one processor, 1:100", "> 1", Ours(Above(1.0))),
        Answer::compared(BESIDE, "slice over slice, one processor, 1:10", "> 1", Ours(Above(1.0))),
    ],
    caveat: "A packet's time is the reciprocal of the packets per second. The ratios are what a processor for each \
             side gains over one for both. PEPC has a control thread for each slice. Here one N4 thread serves the \
             slices in turn, because each event changes tables that all slices share.",
};

const LOCKS: Claim = Claim {
    title: "Fine-grained locks gain up to 5 times",
    location: "slide \"PEPC Slice\"",
    words: "Use fine grained locks —> up to 5X improvement over coarse grained locks",
    answers: &[
        Answer::compared(LOCKING, "fine over coarse, 10K events/s", "up to 5", Ours(About(5.0))),
        Answer::compared(LOCKING, "fine over coarse, 100K events/s", "up to 5", Ours(About(5.0))),
        Answer::compared(LOCKING, "fine over coarse, most events", "up to 5", Ours(About(5.0))),
    ],
    caveat: "Our coarse lock is taken for a batch of 32 packets and not for each packet, which favours it. The talk \
             does not state the load of its 5 times.",
};

const TWO_LEVELS: Claim = Claim {
    title: "Two levels of storage speed up lookups",
    location: "slide \"PEPC Customization/Optimization Examples\"",
    words: "Improves state lookup performance for data packets",
    answers: &[
        Answer::compared(LEVELS, "1% active, two levels over one", "> 1", Ours(Above(1.0))),
        Answer::compared(LEVELS, "10% active, two levels over one", "> 1", Ours(Above(1.0))),
        Answer::compared(LEVELS, "1% active, ordinary pages, two levels over one", "> 1", Ours(Above(1.0))),
        Answer::compared(LEVELS, "10% active, ordinary pages, two levels over one", "> 1", Ours(Above(1.0))),
        Answer::shown(LEVELS, "1% active, nobody else attached, over one"),
    ],
    caveat: "The talk has no number. Uplink packets need no lookup here (a TEID is an index), so that only the \
             downlink half can gain. \"Nobody else attached\" is the most that a second level can gain. Two levels help \
             only with ordinary pages and 1% of the users active. Elsewhere they gain nothing or cost packets, so the \
             default is one level.",
};

const IOT: Claim = Claim {
    title: "A customised slice is up to 38% faster",
    location: "slide \"PEPC Customization Benefits\"",
    words: "For smart meter like devices, can achieve up to 38% improvement",
    answers: &[
        Answer::compared(
            SIMPLE,
            "user space, both directions, packets with iot over full",
            "up to 1.38",
            Ours(About(1.38)),
        ),
        Answer::compared(
            SIMPLE,
            "user space, one worker, both directions, packets with iot over full",
            "up to 1.38",
            Ours(About(1.38)),
        ),
        Answer::compared(SIMPLE, "XDP, both directions, packets with iot over full", "up to 1.38", Ours(About(1.38))),
    ],
    caveat: "In user space packets lie in memory, without receive and send; the XDP figure includes both. 38% is the \
             paper's largest gain.",
};

const MIGRATION: Claim = Claim {
    title: "10,000 migrations per second cost less than 5%",
    location: "slide \"Scalability with State Migrations\"",
    words: "Less than 5% drop in data plane throughput with 10K migrations per sec",
    answers: &[
        Answer::compared(MOVES, "af-packet, packets with migrations, of those without", "> 0.95", Ours(Above(0.95))),
        Answer::compared(MOVES, "sockets, packets with migrations, of those without", "> 0.95", Ours(Above(0.95))),
        Answer::compared(MOVES, "migrations", "10,000", Ours(AtLeast(1e4))),
        Answer::shown(MOVES, "packets lost"),
        Answer::shown(MOVES, "time that a packet takes longer"),
    ],
    caveat: "Users move between two slices of one UPF, as in the talk: their state stays in the UPF's memory and \
             changes its owner. `pepc-relocation` moves state between two UPFs, by PFCP and NGAP.",
};

const INDEPENDENT_SLICES: Claim = Claim {
    title: "Slices are independent",
    location: "slide \"Summary\"",
    words: "Enables horizontal slicing of EPC by users into independent and customizable slices",
    answers: &[
        Answer::shown(ISOLATION, "slices, control side placed, packets under a flood, of those without"),
        Answer::shown(ISOLATION, "slices, packets under a flood, of those without"),
        Answer::shown(ISOLATION, "shared workers, packets under a flood, of those without"),
    ],
    caveat: "The talk has no experiment of isolation.",
};
