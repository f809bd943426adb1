//! Takeover of UEs of a dead host whose contexts are in a database.
//!
//! The new owner of the buckets claims their records on a separate thread, and enters them like
//! replica entries. Inputs for these UEs wait meanwhile, as in a migration. A host that starts also
//! claims the existing records of its buckets, so the only AMF may be restarted.

use super::cluster::Owner;
use super::state::Host;
use crate::smf_link::RequestExtras;
use crate::worker::Location;
use crate::worker::context_database::{BucketClaim, ContextDatabaseConfig, DatabaseRef};
use crate::worker::outbox::Outbox;
use crate::worker::region_layout;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use vireo_cluster::{ClaimedUe, Input, LoadedBuckets};
use vireo_core::amf::context;
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::host::InputTarget;
use vireo_core::placement::message::{BalancerNotice, ClusterOutput, PeerEvent};
use vireo_core::placement::replica::{EffectAssociations, REEXECUTION_WINDOW};
use vireo_core::step::Effect;
use vireo_ops::clock::clock;
use vireo_ops::metrics::{Flow, StateOperation, Transaction};
use vireo_ops::shared_record::DelegatedCommit;
use vireo_ops::ue_record::{PendingOutbox, PendingSmfRequest, UeRecord};
use vireo_store::records::RecordError;
use vireo_store::region::{Key, Region, Slot};
use vireo_types::{Bucket, Instant, Ltmsi, Supi};

/// Interval of the retries after a database error.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the buckets that this host owns in the next map and not in the present one.
pub(super) fn newly_owned_buckets(owner: &Owner, next: &BucketMap) -> FxHashSet<Bucket> {
    let (own, before) = (owner.host_id(), owner.map());
    let had = |bucket: Bucket| before.is_some_and(|before| before.owners(bucket).owner() == Some(own));
    let buckets = (0..Bucket::COUNT).map(Bucket::new);
    buckets.filter(|bucket| next.owners(*bucket).owner() == Some(own) && !had(*bucket)).collect()
}

impl Host {
    /// Returns true if the UEs of dead hosts are loaded from a database.
    pub(super) fn loads(&self) -> bool {
        matches!(self.workers.location, Location::Database(_))
    }

    /// Starts to load the UEs of these buckets. `begins` is true for the first map of this host.
    pub(super) fn load(&mut self, buckets: FxHashSet<Bucket>, begins: bool) {
        let (Some(cluster), Location::Database(config)) = (self.cluster.as_mut(), &self.workers.location) else {
            return;
        };
        if buckets.is_empty() {
            return;
        }
        if begins && let Some(owner) = self.machine.as_mut().and_then(|machine| machine.owner_mut()) {
            let number = owner.next_barrier();
            cluster.loading.barrier = Some(number);
            self.egress.send(ClusterOutput::Introduce { number });
        }
        let (alive, config) = (Arc::downgrade(&cluster.loading.alive), config.clone());
        let (input_sender, region) = (self.input_sender.clone(), self.ues.region.clone());
        let thread = std::thread::Builder::new().name("contexts".into()).spawn(move || {
            if let Some(ues) = claim(&config, &region, &buckets, &alive) {
                // The host has exited if the send fails.
                let _ = input_sender.send_urgent(Input::DatabaseLoaded(Box::new(LoadedBuckets { buckets, ues })));
            }
        });
        if let Err(error) = thread {
            tracing::error!(%error, "UEs of another host not loaded; restart this host");
        }
    }

    /// Returns true if an SMF's message about a subscriber waits: the UE may be loading.
    pub(super) fn may_be_loading(&self, supi: Supi) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.is_loading())
            && self.ues.region.lookup(Key::Supi, supi.as_u64()).is_none()
    }

    /// Enters loaded UEs after the balancers have sent all RAN nodes.
    pub(super) fn enter_waiting(&mut self, barrier: u64) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        if cluster.loading.barrier.take_if(|number| *number == barrier).is_some() {
            let loaded = std::mem::take(&mut cluster.loading.waiting);
            loaded.into_iter().for_each(|loaded| self.enter_stored(loaded));
        }
    }

    /// Enters loaded UEs and executes their pending effects.
    pub(super) fn enter_stored(&mut self, loaded: LoadedBuckets) {
        let (began, now) = (std::time::Instant::now(), clock());
        let Some(cluster) = self.cluster.as_mut() else { return };
        if cluster.loading.barrier.is_some() {
            return cluster.loading.waiting.push(loaded);
        }
        let LoadedBuckets { buckets, ues } = loaded;
        let (newest, inputs) = newest_steps(&ues);
        let Some(machine) = self.machine.as_mut() else { return };
        machine.on_loaded(&buckets, inputs, now);
        // A starting host first processes RAN nodes: a UE without its RAN node would become idle.
        let is_complete = machine.owner().is_some_and(|owner| owner.incoming().is_empty());
        let nodes = if is_complete { introductions(machine.waiting_mut()) } else { Vec::new() };
        nodes.into_iter().for_each(|input| self.input(input));
        let count = ues.len();
        for ClaimedUe { id, before, stored } in ues {
            self.inputs.tick();
            self.enter_one((id, newest.get(&before).copied().unwrap_or_default()), stored);
        }
        self.drive(|machine, io| machine.finish_entry(io));
        self.release_waiting();
        if count > 0 {
            self.statistics.step_metrics.metrics.messages(Flow::Promoted, count as u64);
            tracing::warn!(ues = count, took = ?began.elapsed(), "UEs of a dead host taken over");
        }
    }

    /// Enters a UE and executes effects that may not have been sent. `newest` is the time of the
    /// last step of its previous host.
    fn enter_one(&mut self, (id, newest): (u64, Instant), stored: UeRecord) {
        let UeRecord { recovery, context, .. } = stored;
        let (mut slot, mut ltmsi) = (None, Ltmsi::default());
        if !context.is_empty() {
            let Ok(ue) = context::decode(&context) else {
                return tracing::error!(id, "bug: stored context does not decode; UE lost");
            };
            let octets = DatabaseRef { id, base: self.events.sequence, ..DatabaseRef::default() }.octets();
            ltmsi = ue.ltmsi;
            slot = self.enter_context((ltmsi, &ue), &octets, || subscriber_claim_time(&recovery.outboxes, newest));
            if slot.is_none() {
                return;
            }
        }
        let last = recovery.outboxes.len().saturating_sub(1);
        for (n, PendingOutbox { at, outbox }) in recovery.outboxes.into_iter().enumerate() {
            match Outbox::decode(&outbox) {
                Some(outbox) => {
                    let was_sent = newest.since(at) > REEXECUTION_WINDOW;
                    self.repeat_stored_effects(slot, outbox, (n == last, was_sent));
                }
                None => tracing::error!(id, "bug: outbox of a record does not decode"),
            }
        }
        for PendingSmfRequest { key, number, request, sm_context } in recovery.requests {
            let delegated_commit = self.smf_commits().then_some(DelegatedCommit { record: id, part: None });
            let with = RequestExtras {
                sm_context: sm_context.as_ref(),
                delegated_commit: delegated_commit.as_ref(),
                input: 0,
            };
            self.send_smf_request((ltmsi, key), number, request, with);
        }
    }

    /// Executes the effects of a step again. Subscriber requests are repeated only for the last
    /// step, and are all that is repeated if the effects were sent long ago. Requests to the SMF
    /// are stored separately.
    fn repeat_stored_effects(&mut self, slot: Option<Slot>, mut outbox: Outbox, (last, was_sent): (bool, bool)) {
        let is_authentication = |effect: &Effect| matches!(effect, Effect::Authenticate(_));
        if was_sent {
            outbox.effects.retain(|effect| last && is_authentication(effect));
        } else if !last {
            // The position of an effect is part of its key, so later effects keep theirs.
            outbox
                .effects
                .iter_mut()
                .filter(|effect| is_authentication(effect))
                .for_each(|effect| *effect = Effect::DeleteContext);
        }
        let repeated = (outbox, EffectAssociations::default());
        self.drive(|machine, io| machine.repeat_outbox(slot, repeated, clock(), io));
    }
}

/// Returns the time of the last step of each previous host, and the inputs of its UEs' steps.
fn newest_steps(ues: &[ClaimedUe]) -> (FxHashMap<u64, Instant>, Vec<u64>) {
    let (mut newest, mut inputs) = (FxHashMap::<u64, Instant>::default(), Vec::new());
    for ClaimedUe { before, stored, .. } in ues {
        let newest = newest.entry(*before).or_default();
        for PendingOutbox { at, outbox } in &stored.recovery.outboxes {
            *newest = (*newest).max(*at);
            inputs.extend(Outbox::decode(outbox).map(|outbox| outbox.input).filter(|input| *input != 0));
        }
    }
    (newest, inputs)
}

/// Returns the time at which a UE's last steps claimed its subscriber, if they did.
fn subscriber_claim_time(outboxes: &[PendingOutbox], newest: Instant) -> Option<Instant> {
    let recent = outboxes.iter().filter(|pending| newest.since(pending.at) <= REEXECUTION_WINDOW);
    recent.filter_map(|pending| Outbox::decode(&pending.outbox)?.claims()).max()
}

/// Returns true if the input is one that informs a joining host of existing RAN nodes.
fn introduces(input: &Input) -> bool {
    match input {
        Input::Notice(BalancerNotice::RanNode(_)) => true,
        Input::Peer { envelope, .. } => InputTarget::from_envelope(envelope) == Some(InputTarget::Introduction),
        _ => false,
    }
}

/// Removes and returns the inputs that inform a joining host of RAN nodes. They precede all
/// messages of these nodes.
fn introductions(waiting: &mut VecDeque<Input>) -> Vec<Input> {
    let ends = |input: &Input| match input {
        Input::Peer { envelope, .. } => matches!(envelope.event, PeerEvent::Down { .. }),
        input => matches!(input, Input::BalancerUnreachable(_) | Input::AssociationsLost(_)),
    };
    let end = waiting.iter().position(ends).unwrap_or(waiting.len());
    let (nodes, others): (Vec<Input>, Vec<Input>) = waiting.drain(..end).partition(introduces);
    others.into_iter().rev().for_each(|input| waiting.push_front(input));
    nodes
}

/// Claims the records of buckets for this host, until the host exits.
fn claim(
    config: &ContextDatabaseConfig,
    region: &Region,
    buckets: &FxHashSet<Bucket>,
    alive: &Weak<()>,
) -> Option<Vec<ClaimedUe>> {
    let mut claim = BucketClaim::new(config);
    let mut is_logged = false;
    while alive.strong_count() > 0 {
        match claim_of(&mut claim, region, buckets) {
            Ok(()) => return Some(claim.claimed),
            Err(error) if !std::mem::replace(&mut is_logged, true) => {
                tracing::warn!(%error, "takeover waits for the database of contexts");
            }
            Err(_) => {}
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    None
}

fn claim_of(claim: &mut BucketClaim<'_>, region: &Region, buckets: &FxHashSet<Bucket>) -> Result<(), RecordError> {
    let mut records = claim.open_records()?;
    let done = claim.run(&mut *records, |bucket| buckets.contains(&bucket));
    // Counted in the same words as the operations of workers.
    let operations = records.operations();
    let counts = [
        (StateOperation::Read, operations.reads),
        (StateOperation::Write, operations.writes),
        (StateOperation::Remove, operations.removals),
    ];
    for (operation, count) in counts {
        let [word, _] = region_layout::state_words(Transaction::Other, operation);
        region.shared_word(word).fetch_add(count, Ordering::Relaxed);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::amf::n2::{Route, ShallowView};
    use vireo_core::placement::message::Envelope;
    use vireo_core::schedule::kind::NfKind;
    use vireo_types::AssocId;

    fn pending_outbox(at: u64, input: u64, effects: Vec<Effect>) -> PendingOutbox {
        let (at, ltmsi) = (Instant(at), Ltmsi::from_raw(7));
        let outbox = Outbox {
            at,
            ltmsi,
            key: vireo_core::step::idempotency_key(ltmsi, 1),
            input,
            deadline: None,
            before: None,
            after: None,
            settled: Vec::new(),
            seids: Vec::new(),
            effects,
            notes: Vec::new(),
        };
        PendingOutbox { at, outbox: outbox.encode(Vec::new()).unwrap() }
    }

    #[test]
    fn newest_step_of_each_dead_host_is_found() {
        let supi: Supi = "999700000000001".parse().unwrap();
        let of = |before, outboxes: Vec<PendingOutbox>| {
            let mut stored = UeRecord::default();
            stored.recovery.outboxes = outboxes;
            ClaimedUe { id: 1, before, stored }
        };
        let bound = pending_outbox(5, 0, vec![Effect::BindSupi(supi)]);
        let ues = [
            of(1, vec![bound.clone(), pending_outbox(9, 71, Vec::new())]),
            of(1, vec![pending_outbox(8, 72, Vec::new())]),
            of(2, vec![pending_outbox(3, 73, Vec::new())]),
        ];
        let (newest, inputs) = newest_steps(&ues);
        assert_eq!((newest[&1], newest[&2], inputs), (Instant(9), Instant(3), vec![71, 72, 73]));
        assert_eq!(subscriber_claim_time(std::slice::from_ref(&bound), Instant(9)), Some(Instant(5)));
        assert_eq!(subscriber_claim_time(&[bound], Instant(9_000_000)), None, "all know of it by then");
    }

    #[test]
    fn ran_nodes_are_entered_before_their_messages() {
        let (assoc, peer) = (AssocId(1), ([127, 0, 0, 1], 1).into());
        let ngap = || {
            let view = Some(ShallowView {
                route: Route::Node,
                ran_id: None,
                kind: NfKind::StateManagement,
                establishment: None,
            });
            PeerEvent::Ngap { assoc, view, pdu: Vec::new() }
        };
        let input = |number, event| Input::Peer {
            envelope: Envelope { number, answers: false, ..Envelope::new(event) },
            at: Instant(0),
        };
        let mut waiting = VecDeque::from([
            input(5, ngap()),
            input(0, PeerEvent::Up { assoc, peer }),
            input(0, ngap()),
            input(0, PeerEvent::Down { assoc, restarted: false }),
            input(0, PeerEvent::Up { assoc, peer }),
        ]);
        let names = |inputs: &[Input]| -> Vec<(u64, &str)> {
            let name = |input: &Input| match input {
                Input::Peer { envelope, .. } => match envelope.event {
                    PeerEvent::Up { .. } => (envelope.number, "up"),
                    PeerEvent::Down { .. } => (envelope.number, "down"),
                    _ => (envelope.number, "ngap"),
                },
                other => panic!("{other:?}"),
            };
            inputs.iter().map(name).collect()
        };
        let nodes = introductions(&mut waiting);
        assert_eq!(names(&nodes), [(0, "up"), (0, "ngap")]);
        assert_eq!(names(waiting.make_contiguous()), [(5, "ngap"), (0, "down"), (0, "up")]);
    }
}
