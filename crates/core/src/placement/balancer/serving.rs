//! Choice of the host that serves a procedure, and the fallback to the owner.
//!
//! At the first message of a procedure the balancer chooses the owner of the UE or one of its
//! replicas. The choice is a hint: any host that keeps the UE may serve any message, because only
//! the owner commits. It applies to the NG connection until the connection has had no unanswered
//! input for 50 ms. An input that is not completed after
//! [`SERVING_TIMEOUT`](crate::placement::message::SERVING_TIMEOUT) goes to the owner, with all
//! later ones of its connection.

mod choices;

pub(super) use choices::Serving;

use super::BalancerMachine;
use super::output::{Notice, Output};
use super::settings::Serve;
use crate::amf::n2::{Route, ShallowView};
use crate::placement::balance::HostId;
use crate::placement::balance::steer::HostSelection;
use crate::placement::message::{Envelope, PeerEvent, RanOutput, Receiver};
use crate::schedule::kind::NfKind;
use choices::{HostRole, InputInProgress, InputSource};
use vireo_types::{Bucket, Instant};

impl BalancerMachine {
    /// Returns the time of the next [`super::Input::Poll`] at the latest, if inputs at serving
    /// hosts may be late then.
    pub fn due(&self) -> Option<Instant> {
        self.serving_hosts.due()
    }

    /// Returns the host for a new input about a UE of `owner`.
    pub(super) fn serving_host(
        &mut self,
        owner: HostId,
        envelope: &Envelope,
        now: Instant,
        output: &mut dyn Output,
    ) -> HostId {
        if self.settings.serve == Serve::Owner {
            return owner;
        }
        let (source, bucket, view) = match &envelope.event {
            PeerEvent::Ngap { assoc, view: Some(view @ ShallowView { ran_id: Some(ran_id), .. }), .. } => {
                let Some(bucket) = bucket_of(view, envelope.bucket) else { return owner };
                (InputSource::NgConnection(*assoc, *ran_id), bucket, Some((*assoc, view)))
            }
            PeerEvent::Pfcp { seid, request: false, .. } => (InputSource::Session(*seid), seid.ltmsi().bucket(), None),
            _ => return owner,
        };
        let Some(placement) = self.map.as_ref().map(|map| map.buckets.owners(bucket)) else { return owner };
        let may_serve = |host: HostId| placement.has(host) && self.serving.contains_key(&host);
        let known = match view {
            Some((assoc, ShallowView { route: Route::Initial { .. }, .. })) => {
                self.serving_hosts.host_of_group((assoc, bucket), owner)
            }
            _ => self.serving_hosts.host_of(source, owner),
        };
        let chosen = match (known, view) {
            (Some(host), _) if may_serve(host) => host,
            (Some(_), _) | (None, None) => owner,
            // Only the owner commits, and earlier inputs may wait for it.
            (None, Some(_)) if !may_serve(owner) => owner,
            // The subscriber service and new identifiers need the owner.
            (None, Some((_, view))) if view.kind == NfKind::Registration => owner,
            (None, Some((_, view))) => {
                let of = (bucket, placement);
                let choice = self.steering.choose_serving_host(view.kind, of, (&self.settings, may_serve), now);
                choice.map_or(owner, |(HostSelection { host, violation, .. }, traced)| {
                    self.steering.violations += u32::from(violation);
                    output.notify(Notice::ServingHostChosen { is_owner: host == owner, violation });
                    traced.iter().for_each(|traced| output.notify(Notice::ChoiceTraced(traced)));
                    host
                })
            }
        };
        let role = HostRole { host: chosen, is_serving: chosen != owner };
        if self.serving_hosts.is_at_other_host(source, role) {
            self.recall(source);
        }
        if let Some((assoc, ShallowView { route: Route::Initial { .. }, .. })) = view {
            for source in self.serving_hosts.overtaken((assoc, bucket), role) {
                self.recall(source);
            }
        }
        chosen
    }

    /// Handles that an input was sent to a host.
    pub(super) fn on_ue_input_sent(&mut self, host: HostId, envelope: &Envelope, now: Instant) {
        if self.settings.serve == Serve::Owner {
            return;
        }
        let is_serving = envelope.receiver == Receiver::ServingHost;
        let (source, group) = match &envelope.event {
            PeerEvent::Ngap { assoc, view: Some(view @ ShallowView { ran_id: Some(ran_id), .. }), .. } => {
                let Some(bucket) = bucket_of(view, envelope.bucket) else { return };
                (InputSource::NgConnection(*assoc, *ran_id), Some((*assoc, bucket)))
            }
            PeerEvent::Pfcp { seid, request: false, .. } if is_serving => (InputSource::Session(*seid), None),
            _ => return,
        };
        self.serving_hosts.on_sent(
            envelope.number,
            InputInProgress { role: HostRole { host, is_serving }, source, group },
            now,
        );
    }

    /// Handles that a request to a UPF names the host that gets the response.
    pub(super) fn on_served_request(&mut self, effect: &RanOutput, now: Instant) {
        if let RanOutput::Pfcp { seid: Some(seid), served_by: Some(host), .. } = effect {
            let source = InputSource::Session(*seid);
            if self.serving_hosts.is_at_other_host(source, HostRole { host: *host, is_serving: true }) {
                self.recall(source);
            }
            self.serving_hosts.choose(source, *host, now);
        }
    }

    /// Gives inputs that serving hosts have not done in time to the owners.
    pub(super) fn recall_late_inputs(&mut self, now: Instant, output: &mut dyn Output) {
        for source in self.serving_hosts.late(now) {
            let recalled = self.recall(source);
            output.notify(Notice::InputsRecalled(recalled));
        }
        if !self.queue.redelivery.is_empty() {
            self.deliver(now, output);
        }
    }

    /// Gives an input that a serving host has returned to the owner, with all later ones of its
    /// connection.
    pub(super) fn recall_returned(&mut self, number: u64) {
        if let Some(input) = self.serving_hosts.inputs.get(&number) {
            self.recall(input.source);
        }
    }

    /// Gives the inputs of a procedure to the owner. Returns their number.
    fn recall(&mut self, source: InputSource) -> usize {
        let Some((host, numbers)) = self.serving_hosts.remove(source) else { return 0 };
        for number in &numbers {
            let known = self.serving.get(&host).and_then(|connection| self.connections.get_mut(connection));
            let in_progress = match (known, self.lost.get_mut(&host)) {
                (Some(known), _) => &mut known.in_progress,
                (None, Some(lost)) => lost,
                (None, None) => break,
            };
            let envelope = in_progress.inputs.take_returned(*number);
            self.steering.on_ended(host, in_progress.inputs.take_ended_shares());
            self.queue.redelivery.extend(envelope.map(for_owner));
        }
        numbers.len()
    }

    /// Ends all choices: another process continues, and gives the inputs to the owners.
    pub(super) fn recall_all(&mut self) {
        let connections = self.connections.values_mut().map(|known| &mut known.in_progress.inputs);
        let inputs = connections.chain(self.lost.values_mut().map(|lost| &mut lost.inputs));
        let mut recalled: Vec<Envelope> = inputs
            .flat_map(|inputs| inputs.take_where(|envelope| envelope.receiver == Receiver::ServingHost))
            .collect();
        recalled.sort_by_key(|envelope| envelope.number);
        self.queue.redelivery.extend(recalled.into_iter().map(for_owner));
    }
}

/// Returns the input for the owner of its UE.
pub(super) fn for_owner(envelope: Envelope) -> Envelope {
    match envelope.receiver {
        Receiver::Owner => envelope,
        Receiver::ServingHost | Receiver::OwnerAfterServingHost => {
            Envelope { receiver: Receiver::OwnerAfterServingHost, ..envelope }
        }
    }
}

/// Returns the bucket of the UE that a message names.
fn bucket_of(view: &ShallowView, routed_by: Option<Bucket>) -> Option<Bucket> {
    match view.route {
        Route::Ue(id) => Some(id.ltmsi().bucket()),
        _ => routed_by,
    }
}
