//! Spans of the balancer: messages from and to RAN nodes, and requests to UPFs.

use vireo_core::amf::n2::{Route, ShallowView};
use vireo_ops::clock::clock;
use vireo_ops::traces::tracer;
use vireo_types::{Instant, Ltmsi, Seid};

/// Records a message of a RAN node. The first message of a UE names no number of this core, and
/// has no span.
pub(super) fn record_received(view: Option<&ShallowView>, octets: usize) {
    if let (Some(tracer), Some(ShallowView { route: Route::Ue(id), .. })) = (tracer(), view) {
        tracer.record_received(id.ltmsi(), octets, clock());
    }
}

/// Records a message to a RAN node that is about a UE.
pub(super) fn record_sent(ue: Option<Ltmsi>, key: u64, octets: usize) {
    if let (Some(tracer), Some(ltmsi)) = (tracer(), ue) {
        tracer.record_sent((ltmsi, key), octets, clock());
    }
}

/// Notes a request of a session to a UPF.
pub(super) fn note_submitted(seid: Option<Seid>, key: u64, message: &[u8], at: Instant) {
    if let (Some(tracer), Some(seid)) = (tracer(), seid) {
        tracer.note_submitted(seid, key, message, at);
    }
}

/// Records a request of a session to a UPF by its response.
pub(super) fn record_answered(seid: Seid, response: &[u8]) {
    if let Some(tracer) = tracer() {
        tracer.record_answered(seid, response, clock());
    }
}
