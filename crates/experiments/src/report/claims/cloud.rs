//! Claims of the paper on the user plane in a public cloud.

use super::super::source::Prediction::Ours;
use super::super::source::{Answer, Claim, Source};
use vireo_bench::results::Bound::{About, AtLeast, AtMost, Below};

pub(super) const SOURCE: Source = Source {
    name: "cloud",
    title: "Scaling Telecom Core Network Functions in Public Cloud Infrastructure",
    published: "Kumar, Chakrabarti, Sunder Rajan, Huang. OMEC's user plane on Xeon E5-2699 v4 servers and on AWS. \
                Vireo's user plane, its interfaces (veth) and the load share a 2-core virtual machine.",
    claims: &[PACKET_TIME, NETWORK_SHARE, BETTER_IO, STRETCHED, MODULE, SEPARATE_INTERFACES, FANOUT, PUBLIC_CLOUD],
};

const BREAKDOWN: &str = "cloud-breakdown";
const SCALE_OUT: &str = "cloud-scaleout";

const PACKET_TIME: Claim = Claim {
    title: "A packet takes 3694 ns by Linux sockets",
    location: "section V.B, table 2",
    words: "The end-to-end packet processing time Tp is mostly dependent on Tn and drives the UPF PPS at around 270 \
            KPPS with Linux I/O calls.",
    answers: &[
        Answer::compared(BREAKDOWN, "sockets, T_rx", "1554", Ours(AtMost(1554.0))),
        Answer::compared(BREAKDOWN, "sockets, T_tx", "1594", Ours(AtMost(1594.0))),
        Answer::compared(BREAKDOWN, "sockets, T_n", "3147", Ours(AtMost(3147.0))),
        Answer::compared(BREAKDOWN, "sockets, T_c", "259", Ours(AtMost(259.0))),
        Answer::compared(BREAKDOWN, "sockets, T_p", "3694", Ours(AtMost(3694.0))),
    ],
    caveat: "128-byte packets in both. Our times of receive and send include the kernel's work outside of the system \
             calls and the way through a virtual link; the paper's are times of recvfrom() and sendto().",
};

const NETWORK_SHARE: Claim = Claim {
    title: "Input and output take over 80% of a packet's time",
    location: "section V.B, table 2",
    words: "The table also shows that the network I/O call 'Tn' accounts for more than 80% of the total processing \
            time 'Tp'.",
    answers: &[
        Answer::shown(BREAKDOWN, "sockets, T_n"),
        Answer::shown(BREAKDOWN, "sockets, T_p"),
        Answer::shown(BREAKDOWN, "af-packet, T_n"),
        Answer::shown(BREAKDOWN, "af-packet, T_p"),
        Answer::shown(BREAKDOWN, "xdp, T_n"),
        Answer::shown(BREAKDOWN, "xdp, T_p"),
    ],
    caveat: "The share is T_n of T_p. The parts are differences of measurements, so that T_n can exceed T_p by their \
             noise.",
};

const BETTER_IO: Claim = Claim {
    title: "Other Linux interfaces reduce the time of input and output",
    location: "section V.B",
    words: "Linux I/O calls like sendmmsg()/recvmmsg() [24] and advanced Network Interface Card (NIC) technologies can \
            reduce the cost of 'Tn' to a significant extent",
    answers: &[
        Answer::compared(BREAKDOWN, "af-packet, T_n", "< 3147", Ours(Below(3147.0))),
        Answer::compared(BREAKDOWN, "af-xdp, T_n", "< 3147", Ours(Below(3147.0))),
        Answer::compared(BREAKDOWN, "xdp, T_n", "< 3147", Ours(Below(3147.0))),
    ],
    caveat: "3147 ns is the paper's T_n by recvfrom() and sendto() on its machine. Virtual interfaces here, network \
             cards there.",
};

const STRETCHED: Claim = Claim {
    title: "500,000 packets per second would serve 50,000 devices",
    location: "section V.B",
    words: "If we can stretch packet processing performance with Linux to 500 KPPS, a single UPF supporting 50K \
            devices will be able to deliver a p value of 10 PPS per device, which is good enough for most markets.",
    answers: &[
        Answer::compared(BREAKDOWN, "af-packet, T_p", "<= 2000", Ours(AtMost(2000.0))),
        Answer::compared(BREAKDOWN, "af-xdp, T_p", "<= 2000", Ours(AtMost(2000.0))),
        Answer::compared(BREAKDOWN, "xdp, T_p", "<= 2000", Ours(AtMost(2000.0))),
    ],
    caveat: "500,000 packets per second of one core are 2000 ns per packet.",
};

const MODULE: Claim = Claim {
    title: "A module of two cores handles 250,000 packets per second each way",
    location: "section VII, figure 9",
    words: "Each UPF handles about ~250 KPPS in each direction using native Linux networking stack.",
    answers: &[
        Answer::compared(
            SCALE_OUT,
            "separate interfaces, 1 module, packets each way",
            "about 250,000",
            Ours(AtLeast(250e3)),
        ),
        Answer::compared(SCALE_OUT, "fanout, 1 module, packets each way", "about 250,000", Ours(AtLeast(250e3))),
    ],
    caveat: "Our module is one worker with the XDP driver; the load runs on the same processors. The paper's has \
             sockets, two cores and two network cards, with the load on other machines.",
};

const SEPARATE_INTERFACES: Claim = Claim {
    title: "Capacity grows linearly with modules",
    location: "section VII, figure 9",
    words: "The total capacity scales out linearly with an aggregate capacity of 2 MPPS in each direction using 8 UPF \
            instances, equivalent to '8 x M' modules of capacity.",
    answers: &[
        Answer::compared(
            SCALE_OUT,
            "separate interfaces, 2 modules (oversubscribed), of what one module does, times their number",
            "1",
            Ours(About(1.0)),
        ),
        Answer::compared(
            SCALE_OUT,
            "separate interfaces, 2 modules (oversubscribed), packets each way",
            "about 500,000",
            Ours(AtLeast(500e3)),
        ),
    ],
    caveat: "2 modules, not 8: this machine has 2 processors, and the load needs them too (\"oversubscribed\"). \
             500,000 is the paper's 2 MPPS for two of eight modules. 2 MPPS of 128 bytes are 2 Gbit/s; the abstract's \
             ~20 Gbit/s do not follow from it.",
};

const FANOUT: Claim = Claim {
    title: "Fanout is as fast as separate interfaces",
    location: "section VII, figure 10",
    words: "These results show the packet fanout scheme can achieve the same performance as SR-IOV without extra cores \
            to process the system interrupts to receive and transmit packets.",
    answers: &[
        Answer::compared(
            SCALE_OUT,
            "fanout, 2 modules (oversubscribed), of what one module does, times their number",
            "1",
            Ours(About(1.0)),
        ),
        Answer::shown(SCALE_OUT, "fanout, 2 modules (oversubscribed), packets each way"),
        Answer::shown(SCALE_OUT, "separate interfaces, 2 modules (oversubscribed), packets each way"),
    ],
    caveat: "Fanout by queues of one XDP interface; the paper uses PACKET_FANOUT_QM and filters of a network card.",
};

const PUBLIC_CLOUD: Claim = Claim {
    title: "10 instances in a public cloud reach 2 MPPS",
    location: "section VII, figure 11",
    words: "Performance scales out to approximately 2 MPPS with 10 UPF instances i.e. the equivalent of '10 x M' units \
            of capacity, as shown in Figure 11.",
    answers: &[],
    caveat: "No experiment runs in a public cloud. `vireo plan` computes the number of modules from measured packet \
             times.",
};
