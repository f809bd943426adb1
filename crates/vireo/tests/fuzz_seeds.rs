//! Every fuzz target on its seeds and on damaged seeds, in a few seconds.
//!
//! Bits are flipped, octets changed, and seeds cut, lengthened and mixed. The inputs are
//! deterministic; a failure prints the octets. `make fuzz-smoke` searches further.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is a library of its own for the fuzzer")]
mod targets;

use std::panic::catch_unwind;
use targets::{TARGETS, Target};

/// Number of changed inputs for each target.
const INPUTS: usize = 3_000;

/// Generator xorshift64: the test needs a fixed sequence, not good random numbers.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn run(target: &Target, input: &[u8]) {
    if catch_unwind(|| (target.run)(input)).is_err() {
        panic!("target {} fails on {}", target.name, hex::encode(input));
    }
}

fn mutated(seeds: &[Vec<u8>], sequence: &mut Sequence) -> Vec<u8> {
    let mut input = seeds[sequence.below(seeds.len())].clone();
    for _ in 0..=sequence.below(3) {
        let at = sequence.below(input.len());
        match sequence.below(6) {
            0 => input.truncate(at),
            1 => input.extend((0..sequence.below(9)).map(|n| n as u8)),
            2 => {
                let other = &seeds[sequence.below(seeds.len())];
                input.truncate(at);
                input.extend_from_slice(&other[sequence.below(other.len())..]);
            }
            3 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff][sequence.below(5)],
            4 if at < input.len() => input[at] = sequence.next() as u8,
            _ if at < input.len() => input[at] ^= 1 << sequence.below(8),
            _ => {}
        }
    }
    input
}

/// Defines a separate test for each target, so that they run in parallel and a failure names the
/// target.
macro_rules! replay {
    ($($test:ident $name:literal)*) => {
        $(
            #[test]
            fn $test() {
                replay($name);
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

replay! {
    ngap "ngap"
    nas "nas"
    protected_nas "nas_protected"
    identities "identity"
    packets_of_eap "eap"
    pfcp "pfcp"
    flow_descriptions "flow_description"
    gtpu "gtpu"
    user_plane "user_plane"
    sessions "session"
    steps_of_the_core "core_step"
    ran_nodes "ran_node"
    fabric "fabric"
    cluster_records "cluster_record"
    service_based_interface "sbi"
    service_based_interface_in_grpc "sbi_grpc"
    sm_contexts "sm_context"
    subscriber_files "subscribers"
    records_in_protocol_buffers "records"
    s1ap "s1ap"
    nas_of_eps "nas_eps"
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty() && seeds.iter().all(|seed| !seed.is_empty()), "{name} has no seeds");
    for seed in &seeds {
        // Long seeds are mostly repetitive.
        (0..seed.len()).step_by(1 + seed.len() / 512).for_each(|length| run(target, &seed[..length]));
        run(target, seed);
    }
    let mut sequence = Sequence(0x5649_5245_4f00_0001);
    (0..INPUTS).for_each(|_| run(target, &mutated(&seeds, &mut sequence)));
}

/// Seeds are useful only if they are accepted completely.
#[test]
fn seeds_reach_their_targets() {
    use vireo_core::step::Kind;
    use vireo_wire::{gtpu, nas::Nas5gsMessage, ngap::NGAP_PDU, pfcp};
    assert!(targets::seeds::ngap().iter().all(|seed| NGAP_PDU::decode(seed).is_ok()));
    assert!(targets::eps::s1ap_seeds().iter().all(|seed| vireo_wire::s1ap::S1AP_PDU::decode(seed).is_ok()));
    assert!(targets::eps::nas_seeds().iter().all(|seed| vireo_wire::nas_eps::NasEpsMessage::decode(seed).is_ok()));
    assert!(targets::seeds::nas().iter().all(|seed| Nas5gsMessage::decode(seed).is_ok()));
    for seed in targets::seeds::pfcp() {
        assert!(pfcp::walk(&seed).is_some(), "no sound PFCP message: {}", hex::encode(seed));
    }
    let reached: Vec<_> = targets::seeds::core_step().iter().flat_map(|s| targets::engine::succeeded(s)).collect();
    for kind in [Kind::Registration, Kind::Session, Kind::ServiceRequest, Kind::Deregistration] {
        assert!(reached.contains(&kind), "no {kind:?} in {reached:?}");
    }
    for seed in targets::sbi::grpc_seeds() {
        assert!(targets::sbi::is_grpc(&seed), "no sound message of gRPC: {}", hex::encode(seed));
    }
    for seed in targets::seeds::gtpu() {
        assert!(gtpu::Packet::parse(&seed).is_ok(), "no sound GTP-U message: {}", hex::encode(seed));
    }
}
