//! Hosts chosen for the procedures in progress.

use crate::placement::balance::HostId;
use crate::placement::message::SERVING_TIMEOUT;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use vireo_types::{AssocId, Bucket, Duration, Instant, RanUeNgapId, Seid};

/// Time for which an input without an answer counts as in progress: not every input has a result.
const UNANSWERED_INPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which a choice holds after the last input of the connection is done.
const CHOICE_HOLD_TIME: Duration = Duration::from_millis(50);

/// What the inputs of a procedure have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum InputSource {
    /// NG connection of a UE.
    NgConnection(AssocId, RanUeNgapId),
    /// PDU session, with a request to its UPF.
    Session(Seid),
}

/// UEs of a bucket at one RAN node.
pub(super) type UeGroup = (AssocId, Bucket);

/// Host that executes inputs, and its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostRole {
    pub(super) host: HostId,
    /// True if the host was not the owner of the UE when the balancer chose it.
    pub(super) is_serving: bool,
}

/// Choice for a procedure.
#[derive(Debug)]
struct Hint {
    role: HostRole,
    /// Inputs at the host that are not done, in order, with the times at which they were sent, if
    /// it is a serving host.
    inputs: VecDeque<(u64, Instant)>,
    /// Number of inputs in progress at the host, in either role.
    in_progress: u32,
    /// Time of the last input or of its end.
    used: Instant,
}

impl Hint {
    fn new(role: HostRole, now: Instant) -> Self {
        Hint { role, inputs: VecDeque::new(), in_progress: 0, used: now }
    }
}

/// Input in progress.
#[derive(Debug)]
pub(super) struct InputInProgress {
    pub(super) role: HostRole,
    pub(super) source: InputSource,
    /// Only of messages of RAN nodes.
    pub(super) group: Option<UeGroup>,
}

/// Inputs of a group that are in progress at a host in one role.
#[derive(Clone, Copy, Debug)]
struct GroupInputs {
    role: HostRole,
    count: u32,
}

/// Choices for the procedures in progress.
#[derive(Debug, Default)]
pub(in crate::placement::balancer) struct Serving {
    hints: FxHashMap<InputSource, Hint>,
    pub(super) inputs: FxHashMap<u64, InputInProgress>,
    /// Inputs in progress by group, host and role.
    groups: FxHashMap<UeGroup, SmallVec<[GroupInputs; 2]>>,
    /// Times at which choices were used, oldest first.
    order: VecDeque<(Instant, InputSource)>,
    /// Times at which inputs were sent, oldest first.
    sent: VecDeque<(Instant, u64)>,
}

impl Serving {
    /// Returns the host that must serve a first message. The UE may have changed its 5G-TMSI and
    /// has another connection at the RAN node, whose inputs this message must not overtake. `None`
    /// if no input of the group is in progress.
    ///
    /// A host whose role a map has changed returns the inputs that it had in the earlier role. Then
    /// the owner gets the message, after these ([`Serving::overtaken`]).
    pub(super) fn host_of_group(&self, group: UeGroup, owner: HostId) -> Option<HostId> {
        match self.groups.get(&group).map(|hosts| &hosts[..]) {
            None | Some([]) => None,
            Some([at]) if at.role.is_serving == (at.role.host != owner) => Some(at.role.host),
            Some(_) => Some(owner),
        }
    }

    /// Returns the procedures of a group whose inputs a first message to a host in a role would
    /// overtake, because other serving hosts have them.
    pub(super) fn overtaken(&self, group: UeGroup, chosen: HostRole) -> Vec<InputSource> {
        let is_elsewhere = |at: &GroupInputs| at.role.is_serving && at.role != chosen;
        if !self.groups.get(&group).is_some_and(|hosts| hosts.iter().any(is_elsewhere)) {
            return Vec::new();
        }
        let is_overtaken =
            |input: &InputInProgress| input.group == Some(group) && input.role.is_serving && input.role != chosen;
        let mut inputs: Vec<(u64, InputSource)> =
            self.inputs.iter().filter(|(_, input)| is_overtaken(input)).map(|(n, input)| (*n, input.source)).collect();
        inputs.sort_unstable_by_key(|(number, _)| *number);
        let mut sources = Vec::new();
        for (_, source) in inputs {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }

    /// Records that an input was sent to a host.
    pub(super) fn on_sent(&mut self, number: u64, input: InputInProgress, now: Instant) {
        let role = input.role;
        let hint = self.hints.entry(input.source).or_insert_with(|| Hint::new(role, now));
        hint.used = now;
        hint.in_progress += 1;
        if role.is_serving {
            hint.inputs.push_back((number, now));
        }
        self.order.push_back((now, input.source));
        self.sent.push_back((now, number));
        if let Some(group) = input.group {
            let hosts = self.groups.entry(group).or_default();
            match hosts.iter_mut().find(|at| at.role == role) {
                Some(at) => at.count += 1,
                None => hosts.push(GroupInputs { role, count: 1 }),
            }
        }
        self.inputs.insert(number, input);
    }

    /// Chooses a serving host for the inputs of a procedure, none of which is in progress at
    /// another host.
    pub(super) fn choose(&mut self, source: InputSource, host: HostId, now: Instant) {
        let role = HostRole { host, is_serving: true };
        self.hints.entry(source).or_insert_with(|| Hint::new(role, now)).used = now;
        self.order.push_back((now, source));
    }

    /// Returns true if another host, or the host in another role, was chosen for the inputs of a
    /// procedure.
    pub(super) fn is_at_other_host(&self, source: InputSource, role: HostRole) -> bool {
        self.hints.get(&source).is_some_and(|hint| hint.role != role)
    }

    /// Returns the host that was chosen for the inputs of a procedure. If that host has become the
    /// owner, or was it, it must not get an input before the earlier ones: then that is the owner.
    pub(super) fn host_of(&self, source: InputSource, owner: HostId) -> Option<HostId> {
        self.hints.get(&source).map(|hint| match hint.role.is_serving == (hint.role.host != owner) {
            true => hint.role.host,
            false => owner,
        })
    }

    /// Removes an input.
    fn end(&mut self, number: u64) -> Option<InputInProgress> {
        let input = self.inputs.remove(&number)?;
        if let Some(hint) = self.hints.get_mut(&input.source).filter(|hint| hint.role.host == input.role.host) {
            hint.in_progress = hint.in_progress.saturating_sub(1);
        }
        if let Some(group) = input.group
            && let Some(hosts) = self.groups.get_mut(&group)
        {
            hosts.iter_mut().filter(|at| at.role == input.role).for_each(|at| at.count -= 1);
            hosts.retain(|at| at.count > 0);
            if hosts.is_empty() {
                self.groups.remove(&group);
            }
        }
        Some(input)
    }

    /// Handles the end of an input. Returns the host that had it.
    pub(in crate::placement::balancer) fn on_done(&mut self, number: u64, now: Instant) -> Option<HostId> {
        let InputInProgress { role, source, .. } = self.end(number)?;
        if let Some(hint) = self.hints.get_mut(&source) {
            hint.inputs.retain(|(input, _)| *input != number);
            hint.used = now;
            self.order.push_back((now, source));
        }
        Some(role.host)
    }

    /// Removes a choice. Returns the host and the inputs that it has not done.
    pub(super) fn remove(&mut self, source: InputSource) -> Option<(HostId, Vec<u64>)> {
        let Hint { role, inputs, .. } = self.hints.remove(&source)?;
        let inputs: Vec<u64> = inputs.into_iter().map(|(number, _)| number).collect();
        inputs.iter().for_each(|number| _ = self.end(*number));
        Some((role.host, inputs))
    }

    /// Removes choices that are not used any more, and inputs that need no answer. Returns the
    /// procedures whose inputs are late at serving hosts.
    pub(super) fn late(&mut self, now: Instant) -> Vec<InputSource> {
        while let Some((_, number)) = self.sent.pop_front_if(|(at, _)| now.since(*at) >= UNANSWERED_INPUT_TIMEOUT) {
            if let Some(input) = self.end(number) {
                self.order.push_back((now, input.source));
            }
        }
        let mut late = Vec::new();
        while let Some((_, source)) = self.order.pop_front_if(|(at, _)| now.since(*at) >= SERVING_TIMEOUT) {
            match self.hints.get(&source) {
                Some(hint) if hint.in_progress == 0 && now.since(hint.used) >= CHOICE_HOLD_TIME => {
                    self.hints.remove(&source);
                }
                Some(hint)
                    if hint.inputs.front().is_some_and(|(_, sent)| now.since(*sent) >= SERVING_TIMEOUT)
                        && !late.contains(&source) =>
                {
                    late.push(source);
                }
                _ => {}
            }
        }
        late
    }

    /// Removes the choices of a host.
    pub(in crate::placement::balancer) fn forget(&mut self, host: HostId) {
        self.hints.retain(|_, hint| hint.role.host != host);
        let ended: Vec<u64> =
            self.inputs.iter().filter(|(_, input)| input.role.host == host).map(|(number, _)| *number).collect();
        ended.into_iter().for_each(|number| _ = self.end(number));
    }

    /// Returns the time at which inputs at serving hosts may be late.
    pub(in crate::placement::balancer) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(at, _)| *at + SERVING_TIMEOUT)
    }
}
