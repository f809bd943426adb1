//! Routing, numbering and redelivery of inputs.

use super::BalancerMachine;
use super::output::{Notice, Output};
use crate::amf::n2::{Route, ShallowView};
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::message::{Envelope, PeerEvent, Receiver, ToHost};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use vireo_types::{Bucket, Instant};

/// Inputs that no host has received.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct InputQueue {
    /// Number of the last input.
    last: u64,
    /// Numbered inputs to redeliver, which precede all new ones.
    pub(super) redelivery: VecDeque<Envelope>,
    /// New inputs that wait for a host.
    pub(super) waiting: VecDeque<Envelope>,
}

impl InputQueue {
    pub(super) fn new(last: u64) -> Self {
        InputQueue { last, ..InputQueue::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.redelivery.len() + self.waiting.len()
    }
}

impl BalancerMachine {
    /// Sends queued inputs to hosts, as far as these have room.
    pub(super) fn deliver(&mut self, now: Instant, output: &mut dyn Output) {
        if self.map.is_none() || self.serving.is_empty() {
            return;
        }
        if !self.redeliver(now, output) {
            return;
        }
        while let Some(mut envelope) = self.queue.waiting.pop_front() {
            let own = self.queue.last + 1;
            envelope.number = self.settings.balancer.input(own);
            if let Err(envelope) = self.dispatch(envelope, true, now, output) {
                return self.queue.waiting.push_front(envelope);
            }
            self.queue.last = own;
        }
    }

    /// Sends the inputs to redeliver. Returns false if one of them must wait.
    fn redeliver(&mut self, now: Instant, output: &mut dyn Output) -> bool {
        while let Some(envelope) = self.queue.redelivery.pop_front() {
            if let Err(envelope) = self.dispatch(envelope, false, now, output) {
                self.queue.redelivery.push_front(envelope);
                return false;
            }
        }
        true
    }

    /// Sends an input to the host that must handle it, or to all hosts. `is_new`: it was never
    /// sent; only then a serving host may handle it.
    ///
    /// # Errors
    ///
    /// Returns the input if it must wait.
    fn dispatch(
        &mut self,
        mut envelope: Envelope,
        is_new: bool,
        now: Instant,
        output: &mut dyn Output,
    ) -> Result<(), Envelope> {
        let host = match (&envelope.event, &mut envelope.bucket) {
            // Redelivery: to the present owner of the bucket that was chosen first.
            (PeerEvent::Ngap { .. }, Some(bucket)) => self.owner(*bucket),
            (PeerEvent::Ngap { view, .. }, bucket) => self.host_of_message(view.as_ref(), bucket, now),
            (PeerEvent::Pfcp { seid, .. } | PeerEvent::PfcpTimeout { seid }, _) => self.owner(seid.ltmsi().bucket()),
            (PeerEvent::Undelivered { ue, .. }, _) => self.owner(ue.bucket()),
            _ => None,
        };
        match host {
            Some(owner) => {
                let host = if is_new { self.serving_host(owner, &envelope, now, output) } else { owner };
                if is_new {
                    envelope.receiver = if host == owner { Receiver::Owner } else { Receiver::ServingHost };
                    // The choice may have changed: earlier inputs of the procedure precede this
                    // one.
                    if !self.redeliver(now, output) {
                        return Err(envelope);
                    }
                }
                self.send_to_one(host, envelope, now, output)
            }
            None if envelope.event.is_ng_setup() => self.send_setup(envelope, output),
            None => self.send_to_all(envelope, now, output),
        }
    }

    /// Returns the host of an NGAP message; `None` = all hosts. Sets the bucket by which an initial
    /// message is routed.
    fn host_of_message(
        &mut self,
        view: Option<&ShallowView>,
        routed_by: &mut Option<Bucket>,
        now: Instant,
    ) -> Option<HostId> {
        match view {
            // An invalid message needs only one host, which sends the error indication.
            None => self.responder_host(),
            Some(ShallowView { route: Route::Node, .. }) => None,
            Some(ShallowView { route: Route::Ue(id), .. }) => self.owner(id.ltmsi().bucket()),
            Some(view @ ShallowView { route: Route::Initial { .. }, .. }) => {
                if let Some(bucket) = self.steering.named_bucket(view, &self.settings) {
                    *routed_by = Some(bucket);
                    return self.owner(bucket);
                }
                let map = &self.map.as_ref()?.buckets;
                let (host, bucket) = self.steering.place_new_ue(view, map, &self.settings, now)?;
                *routed_by = Some(bucket);
                Some(host)
            }
        }
    }

    fn owner(&self, bucket: Bucket) -> Option<HostId> {
        self.map.as_ref()?.buckets.owners(bucket).owner()
    }

    /// Returns the host that answers messages sent to all hosts.
    pub(super) fn responder_host(&self) -> Option<HostId> {
        self.serving.keys().next().copied()
    }

    /// Sends an input to one host.
    fn send_to_one(
        &mut self,
        host: HostId,
        mut envelope: Envelope,
        now: Instant,
        output: &mut dyn Output,
    ) -> Result<(), Envelope> {
        envelope.answers = true;
        let (number, bucket) = (envelope.number, envelope.bucket);
        let share = match &envelope.event {
            PeerEvent::Ngap { view: Some(view), .. } => self.steering.load_share(host, view, bucket, &self.settings),
            _ => None,
        };
        if let Some(lost) = self.lost.get_mut(&host) {
            // The input waits with those in flight until a map names the new owner.
            lost.inputs.add(number, envelope, share, now);
            return Ok(());
        }
        let Some(connection) = self.serving.get(&host).filter(|connection| output.has_room(**connection)) else {
            return Err(envelope);
        };
        output.send(*connection, &ToHost::Event(Cow::Borrowed(&envelope)));
        self.on_ue_input_sent(host, &envelope, now);
        let Some(known) = self.serving.get(&host).and_then(|to| self.connections.get_mut(to)) else { return Ok(()) };
        known.in_progress.inputs.add(number, envelope, share, now);
        self.steering.on_ended(host, known.in_progress.inputs.take_ended_shares());
        share.into_iter().for_each(|share| self.steering.on_sent(host, share));
        Ok(())
    }

    /// Sends an NG Setup to the responder host.
    fn send_setup(&mut self, mut envelope: Envelope, output: &mut dyn Output) -> Result<(), Envelope> {
        let Some((host, connection)) = self.serving.first_key_value().filter(|(_, to)| output.has_room(**to)) else {
            return Err(envelope);
        };
        envelope.answers = true;
        output.send(*connection, &ToHost::Event(Cow::Borrowed(&envelope)));
        self.ran.on_setup_sent(*host, envelope);
        Ok(())
    }

    /// Sends an input to all hosts, one of which answers.
    fn send_to_all(&mut self, mut envelope: Envelope, now: Instant, output: &mut dyn Output) -> Result<(), Envelope> {
        if self.serving.values().any(|connection| !output.has_room(*connection)) {
            return Err(envelope);
        }
        self.ran.on_event(&envelope.event);
        if let PeerEvent::Upf { upf, up } = &envelope.event {
            self.upfs.insert(*upf, *up);
            output.notify(Notice::UpfsChanged(&self.upfs));
        }
        let responder = self.responder_host();
        for (host, connection) in &self.serving {
            envelope.answers = Some(*host) == responder;
            output.send(*connection, &ToHost::Event(Cow::Borrowed(&envelope)));
        }
        // A message that needs an answer is redelivered to the then responder if this one dies.
        let known = self.responder_connection().and_then(|connection| self.connections.get_mut(&connection));
        if let (PeerEvent::Ngap { .. }, Some(known)) = (&envelope.event, known) {
            known.in_progress.inputs.add(envelope.number, envelope, None, now);
        }
        Ok(())
    }

    fn responder_connection(&self) -> Option<ConnectionId> {
        self.serving.values().next().copied()
    }
}
