//! Overload control: rejection of new UEs, and Overload Start to RAN nodes.
//!
//! Overload Start (TS 38.413 8.7.7) asks RAN nodes to send fewer new UEs. Procedures in progress
//! are always completed.

mod state;

pub(super) use state::Overload;

use super::limits::{INPUTS, MAX_DEFERRED};
use super::state::Host;
use rustc_hash::FxHashMap;
use vireo_core::amf::n2::ShallowView;
use vireo_core::amf::ran;
use vireo_core::placement::message::RanOutput;
use vireo_core::schedule::shed::{OverloadLevel, Thresholds, relief};
use vireo_ops::api::OverloadStatus;
use vireo_ops::clock::clock;
use vireo_ops::config::OverloadConfig;
use vireo_types::{AssocId, Duration};

impl Host {
    /// Returns the fill level of the host, 0 to 1: the greatest of the relative queueing time, the
    /// deferred events and the input queue. Queue lengths of NFs say nothing: a thousand messages
    /// take less time than a few that are refused and repeated.
    fn fill(&self) -> f64 {
        let of = |waiting: usize, room: usize| waiting as f64 / room as f64;
        let waits = self.admission.overload.part_of_wait(self.workers.pools.longest_wait());
        waits.max(of(self.events.deferred.len(), MAX_DEFERRED)).max(of(self.waiting_inputs(), INPUTS)).min(1.0)
    }

    /// Updates the overload level and the requests to RAN nodes.
    pub(super) fn update_overload(&mut self) {
        let OverloadConfig { registrations, procedures, start, stop, .. } = self.admission.overload.config;
        let fill = self.fill();
        let level =
            self.admission.overload.level.after(fill, &Thresholds { registrations, new_procedures: procedures });
        if level != self.admission.overload.level {
            tracing::info!(?level, fill, "overload level changed");
            self.admission.overload.level = level;
        }
        let requested = relief(self.admission.overload.requested, fill, level, start, stop);
        if requested != self.admission.overload.requested {
            let before = std::mem::replace(&mut self.admission.overload.requested, requested);
            // A change of a few percent is not worth a message to every RAN node.
            let same =
                matches!((before, requested), (Some(b), Some(a)) if b.action == a.action && b.percent >= a.percent);
            if !same {
                tracing::warn!(?requested, fill, "Overload Start or Stop sent to RAN nodes");
                let associations = self.nodes.iter().filter_map(|(node, _)| self.nodes.association_to(node, None));
                let associations: Vec<AssocId> = associations.collect();
                associations.into_iter().for_each(|assoc| self.send_relief(assoc));
            }
        }
        self.relieve_of_newcomers();
    }

    /// Sends Overload Start to RAN nodes whose new UEs wait too long, and Overload Stop afterwards.
    fn relieve_of_newcomers(&mut self) {
        if self.admission.overload.requested.is_some() {
            // All RAN nodes have received Overload Start, and will receive Overload Stop.
            return self.admission.overload.crowded.clear();
        }
        let OverloadConfig { start, stop, .. } = self.admission.overload.config;
        let waits: FxHashMap<AssocId, Duration> = self.newcomers_wait(clock()).into_iter().collect();
        let before = self.admission.overload.crowded.keys().filter(|node| !waits.contains_key(*node));
        let idle: Vec<AssocId> = before.copied().collect();
        for (node, wait) in waits.into_iter().chain(idle.into_iter().map(|node| (node, Duration::default()))) {
            let fill = self.admission.overload.part_of_wait(wait).min(1.0);
            let before = self.admission.overload.crowded.get(&node).copied();
            let requested = relief(before, fill, OverloadLevel::Registrations, start, stop);
            // As for all RAN nodes, a smaller reduction is not worth a message.
            if requested.map(|requested| requested.percent) <= before.map(|before| before.percent)
                && requested.is_some() == before.is_some()
            {
                continue;
            }
            match requested {
                Some(requested) => self.admission.overload.crowded.insert(node, requested),
                None => self.admission.overload.crowded.remove(&node),
            };
            if let Some(assoc) = self.nodes.association_to(node, None) {
                tracing::debug!(assoc = assoc.0, ?requested, "new UEs of a RAN node wait");
                let pdu = ran::overload(assoc.dialect(), requested);
                self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu });
            }
        }
    }

    pub(super) fn overload_status(&self) -> OverloadStatus {
        let level = match self.admission.overload.level {
            OverloadLevel::Normal => "normal",
            OverloadLevel::Registrations => "registrations",
            OverloadLevel::LowPriority => "low-priority",
            OverloadLevel::NewProcedures => "others",
        };
        OverloadStatus {
            level: level.into(),
            fill: self.fill(),
            refused: self.admission.overload.refused,
            reduction_percent: self.admission.overload.requested.map(|relief| relief.percent),
        }
    }

    fn send_relief(&mut self, assoc: AssocId) {
        let pdu = ran::overload(assoc.dialect(), self.admission.overload.requested);
        self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu });
    }

    /// Sends Overload Start to a newly set up RAN node if the others have received it.
    pub(super) fn relieve_new_node(&mut self, assoc: AssocId) {
        if self.admission.overload.requested.is_some() {
            self.send_relief(assoc);
        }
    }

    /// Returns true if the first message of a connection is admitted. `known`: its UE has a
    /// context.
    pub(super) fn admits(&mut self, view: &ShallowView, known: bool) -> bool {
        let admits = self.admission.overload.level.admits(view, known);
        self.admission.overload.refused += u64::from(!admits);
        admits
    }
}
