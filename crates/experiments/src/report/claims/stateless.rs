//! Claims of the paper on stateless network functions.

use super::super::source::Prediction::Ours;
use super::super::source::{Answer, Claim, Source};
use vireo_bench::results::Bound::{Above, AtLeast, AtMost};

pub(super) const SOURCE: Source = Source {
    name: "stateless",
    title: "The Cost of Stateless Network Functions in 5G",
    published: "Kulkarni, Sheoran, Fahmy; ANCS 2021. Open5GS with MongoDB on 11 nodes of a Kubernetes cluster. Vireo's \
                AMF, SMF and UPF, its database and the load generator share 2 cores.",
    claims: &[
        PROCEDURAL,
        TRANSACTIONAL,
        MESSAGES,
        SHARING,
        NON_BLOCKING,
        DELETE_CREATE,
        CPU,
        QUEUES,
        EDGE,
        ROBUSTNESS,
        PIGGYBACK,
        IMPLIED,
        GRPC,
    ],
};

const FIG3: &str = "stateless-fig3";
const FIG4: &str = "stateless-fig4";
const FIG5: &str = "stateless-fig5";
const FIG6: &str = "stateless-fig6";
const FIG7: &str = "stateless-fig7";
const BEYOND: &str = "stateless-beyond";
const DISTANCE: &str = "stateless-distance";
const KILLS: &str = "stateless-kills";
const MONGODB: &str = "stateless-mongodb";

const PROCEDURAL: Claim = Claim {
    title: "Procedural statelessness costs 3%",
    location: "section 4.3.1, figure 3",
    words: "The mean time difference is only 3%, which can go up to 10% maximum (for 100 to 1000 requests).",
    answers: &[
        Answer::compared(FIG3, "procedural over stateful, mean of all sizes", "3", Ours(AtMost(3.0))),
        Answer::compared(FIG3, "procedural over stateful, most", "10", Ours(AtMost(10.0))),
        Answer::shown(FIG3, "stateful: establishment, mean of all sizes"),
        Answer::shown(FIG3, "procedural: establishment, mean of all sizes"),
    ],
    caveat: "All functions and the database share two saturated processors, so that each database operation adds its \
             CPU time to the time of a procedure. The paper spreads them over ten worker nodes.",
};

const TRANSACTIONAL: Claim = Claim {
    title: "Transactional statelessness costs 56%",
    location: "section 4.3.1, figure 3",
    words: "In contrast, if we compare the stateful and transactionally-stateless implementations, the mean time \
            difference is around 56% which goes up to 71%.",
    answers: &[
        Answer::compared(FIG3, "transactional over stateful, mean of all sizes", "about 56", Ours(AtMost(56.0))),
        Answer::compared(FIG3, "transactional over stateful, most", "71", Ours(AtMost(71.0))),
        Answer::compared(MONGODB, "transactional over stateful, mean of all sizes", "about 56", Ours(AtMost(56.0))),
        Answer::shown(FIG3, "transactional: establishment, mean of all sizes"),
    ],
    caveat: "As above: functions, database and load saturate two processors. `stateless-mongodb` has FerretDB on \
             PostgreSQL, which speaks MongoDB's protocol, and bursts of 10 to 30 UEs.",
};

const MESSAGES: Claim = Claim {
    title: "A stateless transaction needs 4n database messages",
    location: "section 2.3",
    words: "for a total of 4 × n messages for a service function chain of n functions (where n does not include the \
            triggering function NF0).",
    answers: &[
        Answer::shown(FIG3, "procedural: commands of the database per UE"),
        Answer::shown(FIG3, "transactional: commands of the database per UE"),
        Answer::shown(FIG4, "shared: commands of the database per UE"),
    ],
    caveat: "Commands of Redis for registration, establishment and release of a UE; a commit is several commands. The \
             messages of one transaction are not recorded: tests of SMF and UPF count them.",
};

const SHARING: Claim = Claim {
    title: "Sharing records saves 10%",
    location: "section 4.3.2, figure 4",
    words: "The improvements over traditional transactional statelessness are 10% on average, and can go up to 21% \
            (for 100 to 1000 requests).",
    answers: &[
        Answer::compared(FIG4, "transactional over shared, mean of all sizes", "10", Ours(AtLeast(10.0))),
        Answer::compared(FIG4, "transactional over shared, most", "21", Ours(AtLeast(21.0))),
        Answer::compared(FIG4, "transactional over shared-amf-smf, mean of all sizes", "10", Ours(AtLeast(10.0))),
        Answer::compared(FIG4, "transactional over shared-amf-smf, most", "21", Ours(AtLeast(21.0))),
        Answer::shown(FIG4, "shared over transactional, mean of all sizes"),
    ],
    caveat: "\"A over B\" is the time of A beyond that of B, in percent of B: the gain is divided by the shorter time. \
             The last row divides by the longer one.",
};

const NON_BLOCKING: Claim = Claim {
    title: "Non-blocking writes save 6%",
    location: "section 4.3.3, figure 4",
    words: "this approach performs better than default transactional statelessness with an average reduction of more \
            than 6%, and a maximum reduction of 17% (for 100 to 1000 requests).",
    answers: &[
        Answer::compared(FIG4, "transactional over non-blocking, mean of all sizes", "> 6", Ours(Above(6.0))),
        Answer::compared(FIG4, "transactional over non-blocking, most", "17", Ours(AtLeast(17.0))),
        Answer::shown(FIG4, "non-blocking over transactional, mean of all sizes"),
    ],
    caveat: "Writers in the background gain where processors are idle. Here all processors are busy, and the writers' \
             CPU time is on the path of every UE.",
};

const DELETE_CREATE: Claim = Claim {
    title: "Delete and create is faster than update",
    location: "section 4.3.4, figure 5",
    words: "the total (read + write) time that mongoDB spends on these operations is on an average 3.5% lower than the \
            update API (Figure 5). Thus, we see reduction in the procedure completion time by on average 2.5%, and up \
            to 12% (for 100 to 1000 requests).",
    answers: &[
        Answer::compared(FIG5, "transactional over delete-create, mean of all sizes", "2.5", Ours(AtLeast(2.5))),
        Answer::compared(FIG5, "transactional over delete-create, most", "12", Ours(AtLeast(12.0))),
        Answer::shown(FIG5, "transactional: time of the database per UE"),
        Answer::shown(FIG5, "delete-create: time of the database per UE"),
        Answer::shown(MONGODB, "transactional: time of the database per UE"),
        Answer::shown(MONGODB, "delete-create: time of the database per UE"),
    ],
    caveat: "The gain comes from MongoDB's storage engine; Redis and PostgreSQL are other engines. Here SMF and UPF \
             delete and create, in the paper the AMF.",
};

const CPU: Claim = Claim {
    title: "CPU usage falls as the cost rises",
    location: "section 4.3.5, figures 6 and 7",
    words: "As seen in Figure 6, as the cost of statelessness increases, the average NF CPU usage (over 300 ms) \
            decreases.",
    answers: &[
        Answer::shown(FIG6, "stateful: AMF, mean"),
        Answer::shown(FIG6, "procedural: AMF, mean"),
        Answer::shown(FIG6, "transactional: AMF, mean"),
        Answer::shown(FIG6, "stateful: SMF, mean"),
        Answer::shown(FIG6, "procedural: SMF, mean"),
        Answer::shown(FIG6, "transactional: SMF, mean"),
    ],
    caveat: "The text has no numbers. Ours are means over the whole burst of 1000 UEs, in percent of one processor; \
             the functions compete with the database for two processors.",
};

const QUEUES: Claim = Claim {
    title: "Queues grow along the chain of functions",
    location: "section 4.3.5, figures 6 and 7",
    words: "Figure 7 shows that the CPU spikes immediately after an increase in the queue length. This trend starts at \
            the first NF in the service chain (AMF) and propagates to the following NFs (SMF, UPF) in the chain.",
    answers: &[
        Answer::shown(FIG7, "transactional: AMF, most"),
        Answer::shown(FIG7, "transactional: SMF, most"),
        Answer::shown(FIG7, "transactional: UPF, most"),
        Answer::shown(FIG7, "stateful: AMF, most"),
        Answer::shown(FIG7, "stateful: SMF, most"),
        Answer::shown(FIG7, "stateful: UPF, most"),
    ],
    caveat: "The paper takes queue lengths from epoll, ours are octets in socket buffers. The order in time is in the \
             plots of `results/stateless-fig7`.",
};

const EDGE: Claim = Claim {
    title: "A UPF at the edge is far from the database",
    location: "section 4.3.2",
    words: "we experiment with both types of implementations to explore the latency implications if the UPF is not \
            located close to the database",
    answers: &[
        Answer::shown(DISTANCE, "1 ms away over transactional, mean of all sizes"),
        Answer::shown(DISTANCE, "5 ms away over transactional, mean of all sizes"),
        Answer::shown(FIG4, "transactional over shared-amf-smf, mean of all sizes"),
    ],
    caveat: "The paper compares the two ways to share records without a distance; ours adds a delay in each direction \
             between the UPF and the database. On saturated processors a delay hides behind the wait for a processor.",
};

const ROBUSTNESS: Claim = Claim {
    title: "Transactional statelessness is robust, procedural is not",
    location: "section 7 and section 2.2",
    words: "Procedural statelessness has a low performance overhead, but has robustness concerns. Transactional \
            statelessness is robust, at the cost of higher performance overhead.",
    answers: &[
        Answer::compared(KILLS, "transactional, workers of the AMF killed: UEs lost", "0", Ours(AtMost(0.0))),
        Answer::compared(KILLS, "transactional, the SMF killed: UEs lost", "0", Ours(AtMost(0.0))),
        Answer::compared(KILLS, "transactional, the UPF killed: UEs lost", "0", Ours(AtMost(0.0))),
        Answer::shown(KILLS, "procedural, workers of the AMF killed: UEs lost"),
        Answer::shown(KILLS, "procedural, the SMF killed: UEs lost"),
        Answer::shown(KILLS, "stateful, the SMF killed: UEs lost"),
    ],
    caveat: "The paper has no experiment with failures. Of 100 UEs, with at most 4 kills in each case.",
};

const PIGGYBACK: Claim = Claim {
    title: "Carried state and binary records reduce the cost",
    location: "section 5",
    words: "such a solution, coupled with Binary Large Object (BLOB) or in-memory databases and using protocol buffers \
            [11] for serialization, can reduce the impact of database communication latency on performance.",
    answers: &[
        Answer::shown(BEYOND, "transactional over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "binary over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "protobuf over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "piggyback over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "lean over stateful, mean of all sizes"),
        Answer::compared(
            BEYOND,
            "what lean costs over stateful, of what transactional does",
            "< 100",
            Ours(AtMost(100.0)),
        ),
    ],
    caveat: "The paper proposes these and measures none. \"Lean\" is piggyback with binary records.",
};

const IMPLIED: Claim = Claim {
    title: "Responses inferred from the database save messages",
    location: "section 5",
    words: "the NFs can use the database state to infer the success/failure of previous transactions in an ongoing \
            procedure, eliminating the need for propagation of some response messages through the service function \
            chain.",
    answers: &[
        Answer::shown(BEYOND, "implied over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "transactional over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "implied: commands of the database per UE"),
        Answer::shown(BEYOND, "transactional: commands of the database per UE"),
    ],
    caveat: "The paper proposes it and does not measure it. Here the SMF's first transfer is its answer to the AMF.",
};

const GRPC: Claim = Claim {
    title: "gRPC can replace REST over HTTP/2",
    location: "section 5",
    words: "5G control-plane operations can also benefit from the use of QUIC/gRPC-based communication",
    answers: &[
        Answer::shown(BEYOND, "grpc over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "transactional over stateful, mean of all sizes"),
        Answer::shown(BEYOND, "grpc: CPU of the AMF per UE"),
        Answer::shown(BEYOND, "transactional: CPU of the AMF per UE"),
    ],
    caveat: "The paper proposes it and does not measure it. Ours is gRPC over HTTP/2; QUIC is not implemented.",
};
