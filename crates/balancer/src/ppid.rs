//! Payload protocol identifiers of the RAN's protocols.

use vireo_ops::metrics::Fault;
use vireo_types::{AssocId, Dialect, limits};

/// Payload protocol identifier of NGAP (TS 38.412 clause 7).
pub const PPID_NGAP: u32 = 60;
/// Payload protocol identifier of S1AP (TS 36.412 clause 7).
pub const PPID_S1AP: u32 = 18;

/// Returns the identifier of messages on an association.
pub(crate) fn by_dialect(assoc: AssocId) -> u32 {
    match assoc.dialect() {
        Dialect::Nr => PPID_NGAP,
        Dialect::Eps => PPID_S1AP,
    }
}

/// Returns the fault of a message that must be dropped: its identifier is not the association's, or
/// it is too long.
///
/// No response to such a message is specified.
pub(crate) fn fault(assoc: AssocId, ppid: u32, octets: usize) -> Option<Fault> {
    if ppid != by_dialect(assoc) {
        Some(Fault::SctpPpid)
    } else {
        (octets > limits::NGAP_PDU_OCTETS).then_some(Fault::Limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_other_dialect_is_fault() {
        let (gnb, enb) = (AssocId(1), AssocId(1).with_dialect(Dialect::Eps));
        for (assoc, own, other) in [(gnb, PPID_NGAP, PPID_S1AP), (enb, PPID_S1AP, PPID_NGAP)] {
            assert!(fault(assoc, own, 9).is_none());
            assert!(matches!(fault(assoc, other, 9), Some(Fault::SctpPpid)));
            assert!(matches!(fault(assoc, own, limits::NGAP_PDU_OCTETS + 1), Some(Fault::Limit)));
        }
    }
}
