//! Record of a choice, for the check of the rule on the loads of that time.

use crate::placement::balance::HostId;
use crate::placement::balance::load_table::HostLoad;
use crate::placement::balance::map::BucketPlacement;
use crate::placement::balance::steer::{Policy, Preference, SteeringRequest, select_among};
use crate::schedule::estimate::ServiceTime;
use serde::{Deserialize, Serialize};
use vireo_types::{Bucket, Duration};

/// Choice of the host that serves a procedure, with all values that decided it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedChoice {
    /// Name of the policy, and of its preference.
    pub policy: String,
    pub prefer: String,
    /// Latency objective of the procedure in microseconds.
    pub objective_us: u64,
    /// Estimated service time of the procedure in nanoseconds.
    pub service_ns: u64,
    /// Number of choices of the balancer so far.
    pub turn: u64,
    pub bucket: u16,
    /// Hosts that may serve, the owner first.
    pub candidates: Vec<TracedCandidate>,
    /// Host that the balancer chose.
    pub chosen: u16,
}

/// Host that may serve a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedCandidate {
    pub host: u16,
    /// Load for the kind of procedure; `None` without a recent report.
    pub load: Option<HostLoad>,
}

impl TracedChoice {
    pub(super) fn new(
        (policy, prefer): (Policy, Preference),
        request: &SteeringRequest,
        load: impl Fn(HostId) -> Option<HostLoad>,
        chosen: HostId,
    ) -> Self {
        TracedChoice {
            policy: policy.name().into(),
            prefer: prefer.name().into(),
            objective_us: request.slo.0,
            service_ns: request.time.nanos(),
            turn: request.turn,
            bucket: request.bucket.get(),
            candidates: request.owners.all().map(|host| TracedCandidate { host: host.0, load: load(host) }).collect(),
            chosen: chosen.0,
        }
    }

    /// Returns the host that the rule selects on the recorded loads; `None` if the record names no
    /// known policy, or no candidate.
    pub fn by_rule(&self) -> Option<u16> {
        let (policy, prefer) = (Policy::from_name(&self.policy)?, Preference::from_name(&self.prefer)?);
        let request = SteeringRequest {
            bucket: Bucket::new(self.bucket),
            owners: BucketPlacement::new(self.candidates.iter().map(|candidate| HostId(candidate.host))),
            pool: 0,
            time: ServiceTime::new(self.service_ns),
            slo: Duration(self.objective_us),
            turn: self.turn,
        };
        let load = |host: HostId| self.candidates.iter().find(|candidate| candidate.host == host.0)?.load;
        select_among(policy, prefer, &request, load).map(|choice| choice.host.0)
    }

    /// Returns true if the chosen host owns the UE.
    pub fn is_owner(&self) -> bool {
        self.candidates.first().is_some_and(|owner| owner.host == self.chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(prefer: Preference, backlogs: [f64; 3], chosen: u16) -> TracedChoice {
        let candidate = |(host, backlog): (u16, f64)| TracedCandidate {
            host,
            load: Some(HostLoad { cpu: 0.2 * f64::from(host), backlog, work: backlog * 1e6, wait: backlog * 1e6 }),
        };
        TracedChoice {
            policy: Policy::SkewedCh.name().into(),
            prefer: prefer.name().into(),
            objective_us: 10_000,
            service_ns: 1_000_000,
            turn: 3,
            bucket: 7,
            candidates: (0..).zip(backlogs).map(candidate).collect(),
            chosen,
        }
    }

    #[test]
    fn recorded_choice_is_evaluated_again() {
        let by_rule = |prefer, backlogs| choice(prefer, backlogs, 0).by_rule();
        assert_eq!(by_rule(Preference::Spare, [1.0, 0.0, 0.0]), Some(0), "within a quarter of the objective");
        assert_eq!(by_rule(Preference::Spare, [2.0, 1.0, 0.0]), Some(1), "the first replica within it");
        assert_eq!(by_rule(Preference::Spare, [2.0, 2.0, 1.0]), Some(2));
        assert_eq!(by_rule(Preference::Spare, [20.0, 10.0, 11.0]), Some(0), "none: the owner");
        assert_eq!(by_rule(Preference::MostLoaded, [0.0, 0.0, 0.0]), Some(2));
        let unknown = TracedChoice { policy: "best".into(), ..choice(Preference::Spare, [0.0; 3], 0) };
        assert_eq!(unknown.by_rule(), None);
        assert!(
            choice(Preference::Spare, [0.0; 3], 0).is_owner() && !choice(Preference::Spare, [0.0; 3], 1).is_owner()
        );
    }
}
