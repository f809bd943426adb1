//! Volume of user packets and fulfilment of QoS flows, as UPFs and RAN nodes report it.

use super::{METADATA, key};
use metrics::{Counter, Recorder};

/// Counters of octets and of QoS flows.
#[derive(Debug)]
pub struct Volumes {
    sessions: Directions,
    secondary_rats: Directions,
    fulfilled: Counter,
    not_fulfilled: Counter,
}

/// Counters of one metric by direction.
#[derive(Debug)]
struct Directions {
    uplink: Counter,
    downlink: Counter,
}

impl Directions {
    fn new(recorder: &dyn Recorder, name: &'static str, help: &'static str) -> Self {
        recorder.describe_counter(name.into(), None, help.into());
        let counter = |direction| recorder.register_counter(&key(name, &[("direction", direction)]), &METADATA);
        Directions { uplink: counter("uplink"), downlink: counter("downlink") }
    }

    fn increment(&self, uplink: u64, downlink: u64) {
        self.uplink.increment(uplink);
        self.downlink.increment(downlink);
    }
}

impl Volumes {
    pub(super) fn new(recorder: &dyn Recorder) -> Self {
        let sessions = "Bytes that sessions have carried, where they are counted, as UPFs report them.";
        let secondary = "Bytes that secondary RATs of eNBs have carried, as eNBs report them.";
        let name = "vireo_qos_flow_notifications_total";
        recorder.describe_counter(name.into(), None, "Notifications of RAN nodes about rates of QoS flows.".into());
        let flows = |state| recorder.register_counter(&key(name, &[("state", state)]), &METADATA);
        Volumes {
            sessions: Directions::new(recorder, "vireo_session_bytes_total", sessions),
            secondary_rats: Directions::new(recorder, "vireo_secondary_rat_bytes_total", secondary),
            fulfilled: flows("fulfilled"),
            not_fulfilled: flows("not_fulfilled"),
        }
    }

    /// Counts the volume of sessions, in octets as reported by UPFs:
    /// `vireo_session_bytes_total{direction}`.
    pub fn sessions(&self, uplink: u64, downlink: u64) {
        self.sessions.increment(uplink, downlink);
    }

    /// Counts the volume of secondary RATs, in octets as reported by eNBs. The volume of sessions
    /// includes it: `vireo_secondary_rat_bytes_total{direction}`.
    pub fn secondary_rats(&self, uplink: u64, downlink: u64) {
        self.secondary_rats.increment(uplink, downlink);
    }

    /// Counts QoS flows whose rates RAN nodes can or cannot fulfil any more:
    /// `vireo_qos_flow_notifications_total{state}`.
    pub fn qos_flows(&self, fulfilled: u8, not_fulfilled: u8) {
        self.fulfilled.increment(fulfilled.into());
        self.not_fulfilled.increment(not_fulfilled.into());
    }
}
