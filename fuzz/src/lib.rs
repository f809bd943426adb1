//! Entries of every decode path, for fuzzers and for the replay of their seeds.
//!
//! crates/vireo/tests/fuzz_seeds.rs replays the seeds. Each target accepts any octets and must
//! return: no panic, no endless loop, memory in proportion to the input. Further assertions of a
//! target, such as stable encoding, hold for every input.

pub mod codecs;
pub mod engine;
pub mod eps;
pub mod fabric;
pub mod input;
pub mod records;
pub mod sbi;
pub mod seeds;
pub mod session;
pub mod subscribers;
pub mod user_plane;

/// Decode path: name, entry and seeds that reach deep into it.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the fuzz target and its corpus.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Start inputs of a search.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every decode path.
pub const TARGETS: &[Target] = &[
    Target { name: "ngap", run: codecs::ngap, seeds: seeds::ngap },
    Target { name: "nas", run: codecs::nas, seeds: seeds::nas },
    Target { name: "nas_protected", run: codecs::nas_protected, seeds: seeds::nas_protected },
    Target { name: "identity", run: codecs::identity, seeds: seeds::identity },
    Target { name: "eap", run: codecs::eap, seeds: seeds::eap },
    Target { name: "pfcp", run: codecs::pfcp, seeds: seeds::pfcp },
    Target { name: "flow_description", run: codecs::flow_description, seeds: seeds::flow_description },
    Target { name: "gtpu", run: codecs::gtpu, seeds: seeds::gtpu },
    Target { name: "user_plane", run: user_plane::packets, seeds: seeds::user_plane },
    Target { name: "session", run: session::steps, seeds: seeds::session },
    Target { name: "core_step", run: engine::steps, seeds: seeds::core_step },
    Target { name: "ran_node", run: engine::node_messages, seeds: seeds::ran_node },
    Target { name: "fabric", run: fabric::connection, seeds: fabric::seeds },
    Target { name: "cluster_record", run: fabric::record, seeds: fabric::record_seeds },
    Target { name: "sbi", run: sbi::message, seeds: sbi::seeds },
    Target { name: "sbi_grpc", run: sbi::in_grpc, seeds: sbi::grpc_seeds },
    Target { name: "sm_context", run: sbi::sm_context, seeds: sbi::sm_context_seeds },
    Target { name: "subscribers", run: subscribers::import, seeds: seeds::subscribers },
    Target { name: "records", run: records::protobuf, seeds: records::seeds },
    Target { name: "s1ap", run: eps::s1ap, seeds: eps::s1ap_seeds },
    Target { name: "nas_eps", run: eps::nas, seeds: eps::nas_seeds },
];
