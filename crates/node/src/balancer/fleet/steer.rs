//! Selection of the host for each input.

use super::setup::is_setup;
use super::{Fleet, KnownRanNode, SAID, UNSENT, pools};
use crate::host::Input;
use std::collections::VecDeque;
use std::time::Duration;
use vireo_core::amf::engine;
use vireo_core::amf::n2::{self, Route, ShallowView};
use vireo_core::config::CoreConfig;
use vireo_core::ids::tmsi::TmsiCipher;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::load_table::{LoadTable, PoolReport};
use vireo_core::placement::balance::steer::{self, HostSet as Hosts, Policy, Request};
use vireo_core::placement::message::{PoolLoad, ToHost};
use vireo_core::placement::replica::LoadShare;
use vireo_core::schedule::estimate::ServiceTime;
use vireo_ops::clock::clock;
use vireo_ops::config::{NF_KINDS, SliceRuntime};
use vireo_types::{Bucket, Tmsi};

/// Assumed service time of a procedure in nanoseconds, until a host reports a measured one.
const FIRST_GUESS: u64 = 100_000;
/// Number of missed reports after which a host's load counts as unknown.
const STALE: u32 = 3;

/// NGAP procedure codes (TS 38.413 9.4.7) of initiating messages whose content hosts store.
pub(super) const NG_SETUP: [u8; 2] = [0, 21];
const RAN_CONFIGURATION_UPDATE: [u8; 2] = [0, 35];

/// State of the host selection.
#[derive(Debug)]
pub(super) struct Steering {
    policy: Policy,
    core: CoreConfig,
    slices: Vec<SliceRuntime>,
    cipher: TmsiCipher,
    board: LoadTable,
    hosts: Hosts,
    times: Vec<ServiceTime>,
    turn: u64,
}

impl Steering {
    pub(super) fn new(
        policy: Policy,
        core: CoreConfig,
        slices: &[SliceRuntime],
        tmsi_key: &[u8; 16],
        report: Duration,
    ) -> Self {
        let pools = pools(slices.len());
        Steering {
            policy,
            core,
            slices: slices.to_vec(),
            cipher: TmsiCipher::new(tmsi_key),
            board: LoadTable::new(pools, (report * STALE).into()),
            hosts: Hosts::default(),
            times: vec![ServiceTime::new(FIRST_GUESS); pools],
            turn: 0,
        }
    }

    /// Replaces the set of serving hosts.
    pub(super) fn hosts(&mut self, hosts: Vec<HostId>) {
        self.hosts = Hosts::new(hosts);
    }

    /// Removes the load of a host.
    pub(super) fn forget(&mut self, host: HostId) {
        self.board.forget(host);
    }

    /// Subtracts inputs that the host has finished from its load.
    pub(super) fn ended(&mut self, host: HostId, of: impl Iterator<Item = LoadShare>) {
        of.for_each(|(pool, time)| self.board.ended(host, pool, time));
    }

    /// Stores a load report of a host.
    pub(super) fn report(&mut self, host: HostId, cpu: f32, loads: &[PoolLoad]) {
        let reports: Vec<PoolReport> =
            loads.iter().map(|load| PoolReport { backlog: load.backlog.into(), share: load.share.into() }).collect();
        self.board.report(host, cpu.into(), &reports, clock());
        for (time, load) in self.times.iter_mut().zip(loads).filter(|(_, load)| load.time_us > 0.0) {
            *time = ServiceTime::new((load.time_us * 1000.0) as u64);
        }
    }

    /// Returns the 5G-TMSI of an initial message, if this AMF assigned it.
    fn named(&self, s_tmsi: Option<(u16, u8, Tmsi)>, pdu: &[u8]) -> Option<Tmsi> {
        let ours = (self.core.amf_set, self.core.amf_pointer);
        match s_tmsi {
            Some((set, pointer, tmsi)) if (set, pointer) == ours => Some(tmsi),
            // A registration request may name its UE only in the NAS message.
            _ => match n2::ue_message(pdu) {
                Ok((_, n2::UeMessage::Initial(message))) => engine::named_tmsi(&message.nas, &self.core),
                _ => None,
            },
        }
    }
}

impl Fleet {
    /// Returns true if no input can be sent: there is no map, no connected host, or redelivery is
    /// pending.
    fn is_held(&self) -> bool {
        self.map.is_none() || self.serving.is_empty() || !self.again.is_empty()
    }

    /// Sends an input to the host that must handle it, or to all hosts.
    ///
    /// # Errors
    ///
    /// Returns the input if it must wait.
    pub(crate) fn route_input(&mut self, input: Input) -> Result<(), Input> {
        if self.is_held() {
            return Err(input);
        }
        let own = self.number + 1;
        self.dispatch(self.seat.balancer.input(own), input)?;
        self.number = own;
        Ok(())
    }

    /// Redelivers inputs of dead hosts, as far as their new owners have room.
    pub(super) fn replay_inputs(&mut self) {
        if self.map.is_none() || self.serving.is_empty() {
            return;
        }
        while let Some((number, input)) = self.again.pop_front() {
            if let Err(input) = self.dispatch(number, input) {
                return self.again.push_front((number, input));
            }
        }
    }

    fn dispatch(&mut self, number: u64, mut input: Input) -> Result<(), Input> {
        let to = match &mut input {
            // Redelivery: send to the present owner of the bucket that was chosen first.
            Input::Ngap { bucket: Some(bucket), .. } => self.owner(*bucket),
            Input::Ngap { view, pdu, bucket, .. } => self.host_of(view.as_ref().ok(), pdu, bucket),
            Input::Pfcp { seid, .. } | Input::PfcpTimeout { seid, .. } => self.owner(seid.ltmsi().bucket()),
            Input::Unsent(message) => self.owner(message.ue.bucket()),
            _ => None,
        };
        match to {
            Some(host) => {
                let counted = self.counts(&input);
                self.send_to_one(host, number, input, counted)
            }
            None if is_setup(&input) => self.give_setup(number, input),
            None => self.send_to_all(number, input),
        }
    }

    /// Returns the host of a message; `None` = all hosts.
    fn host_of(&mut self, view: Option<&ShallowView>, pdu: &[u8], by: &mut Option<Bucket>) -> Option<HostId> {
        match view {
            // An invalid message needs only one host, which sends the error indication.
            None => self.responder_host(),
            Some(ShallowView { route: Route::Node, .. }) => None,
            Some(ShallowView { route: Route::Ue(id), .. }) => self.owner(id.ltmsi().bucket()),
            Some(view @ ShallowView { route: Route::Initial { s_tmsi, .. }, .. }) => {
                match self.steering.named(*s_tmsi, pdu) {
                    Some(tmsi) => {
                        let bucket = self.steering.cipher.bucket(tmsi);
                        *by = Some(bucket);
                        self.owner(bucket)
                    }
                    None => {
                        let (host, bucket) = self.place_new_ue(view)?;
                        *by = Some(bucket);
                        Some(host)
                    }
                }
            }
        }
    }

    fn owner(&self, bucket: Bucket) -> Option<HostId> {
        self.map.as_ref()?.buckets.owners(bucket).owner()
    }

    /// Returns the host that answers messages sent to all hosts.
    pub(super) fn responder_host(&self) -> Option<HostId> {
        self.serving.keys().min().copied()
    }

    fn pool(&self, bucket: Bucket, view: &ShallowView) -> usize {
        // The same mapping from buckets to slices as in hosts.
        usize::from(bucket.get()) % (self.slices + 1) * NF_KINDS + view.kind.index()
    }

    /// Returns the load share of an input at its host.
    fn counts(&self, input: &Input) -> Option<LoadShare> {
        let (view, bucket) = match input {
            Input::Ngap { view: Ok(view @ ShallowView { route: Route::Ue(id), .. }), .. } => {
                (view, id.ltmsi().bucket())
            }
            Input::Ngap { view: Ok(view), bucket, .. } => (view, (*bucket)?),
            _ => return None,
        };
        let pool = self.pool(bucket, view);
        Some((pool, *self.steering.times.get(pool)?))
    }

    /// Selects a host by the policy for an unknown UE, and a bucket that this host owns. The
    /// candidates are the hosts of a bucket for UEs of unknown slice.
    fn place_new_ue(&mut self, view: &ShallowView) -> Option<(HostId, Bucket)> {
        let map = &self.map.as_ref()?.buckets;
        let steering = &mut self.steering;
        steering.turn += 1;
        // Round robin over the buckets of slice 0, whose columns have all slices. The UE later gets
        // an LTMSI of its home slice in the same column.
        let slices = self.slices as u64 + 1;
        let columns = u64::from(Bucket::COUNT) / slices;
        let bucket = Bucket::new((steering.turn % columns * slices) as u16);
        let pool = view.kind.index();
        let slo = steering.slices.iter().map(|slice| slice.slo[pool]).min().unwrap_or(SliceRuntime::SLO);
        let owners = map.owners(bucket);
        let time = steering.times[pool];
        let request = Request { bucket, owners, pool, time, slo, turn: steering.turn };
        let choice = steer::select_host(steering.policy, &request, &steering.hosts, &steering.board, clock())?;
        let next = (0..columns).map(|n| Bucket::new(((steering.turn + n) % columns * slices) as u16));
        let own = next.into_iter().find(|bucket| map.owners(*bucket).owner() == Some(choice.host));
        // A host without buckets has just joined.
        own.map(|bucket| (choice.host, bucket)).or_else(|| Some((owners.owner()?, bucket)))
    }

    /// Sends an input to one host.
    fn send_to_one(
        &mut self,
        host: HostId,
        number: u64,
        input: Input,
        counted: Option<LoadShare>,
    ) -> Result<(), Input> {
        if let Some((flying, _)) = self.lost.get_mut(&host) {
            // The host is lost: the input waits with those in flight until a map names the new
            // owner.
            flying.add(number, input, counted, clock());
            return Ok(());
        }
        let Some(member) = self.serving.get(&host).and_then(|token| self.members.get_mut(token)) else {
            return Err(input);
        };
        if member.stream.unsent() > UNSENT {
            return Err(input);
        }
        put(member, number, &input, true);
        member.flying.add(number, input, counted, clock());
        self.steering.ended(host, member.flying.ended());
        if let Some((pool, time)) = counted {
            self.steering.board.sent(host, pool, time);
        }
        Ok(())
    }

    /// Sends an input to all hosts, one of which answers.
    fn send_to_all(&mut self, number: u64, input: Input) -> Result<(), Input> {
        let full = |token| self.members.get(token).is_some_and(|member| member.stream.unsent() > UNSENT);
        if self.serving.values().any(full) {
            return Err(input);
        }
        self.remember(&input);
        let speaker = self.responder_host();
        for (host, token) in &self.serving {
            if let Some(member) = self.members.get_mut(token) {
                put(member, number, &input, Some(*host) == speaker);
            }
        }
        // A message that needs an answer is redelivered to the then responder if this one dies.
        let token = speaker.and_then(|speaker| self.serving.get(&speaker));
        if let (Input::Ngap { .. }, Some(member)) = (&input, token.and_then(|token| self.members.get_mut(token))) {
            member.flying.add(number, input, None, clock());
        }
        Ok(())
    }

    /// Stores the state that hosts need when they join later.
    fn remember(&mut self, input: &Input) {
        match input {
            Input::Up { assoc, peer } => {
                drop(self.nodes.insert(*assoc, KnownRanNode { peer: *peer, said: VecDeque::new(), of: None }))
            }
            Input::Down { assoc, restarted: true } => {
                self.setups.remove(assoc);
                if let Some(node) = self.nodes.get_mut(assoc) {
                    node.said.clear();
                    node.of = None;
                }
            }
            Input::Down { assoc, .. } => self.ends(*assoc),
            Input::Upf { upf, up } => {
                self.upfs.insert(*upf, *up);
                self.show_upfs();
            }
            Input::Ngap { assoc, pdu, .. } => {
                let update = pdu.starts_with(&RAN_CONFIGURATION_UPDATE);
                let Some(node) = self.nodes.get_mut(assoc).filter(|_| update) else { return };
                if node.said.len() == SAID {
                    // Each update replaces the values it contains; the NG Setup at index 0 stays.
                    node.said.remove(1);
                }
                node.said.push_back(pdu.clone());
            }
            _ => {}
        }
    }
}

/// Queues an input on the connection of a host.
pub(super) fn put(member: &mut super::HostConnection, number: u64, input: &Input, answers: bool) {
    if let Some(message) = message(number, input, answers) {
        member.stream.put(&message);
    }
}

/// Converts an input to a message for a host.
pub(crate) fn message(number: u64, input: &Input, answers: bool) -> Option<ToHost<'_>> {
    Some(match input {
        Input::Up { assoc, peer } => ToHost::Up { assoc: *assoc, peer: *peer },
        Input::Down { assoc, restarted } => ToHost::Down { assoc: *assoc, restarted: *restarted },
        Input::Alive { assoc } => ToHost::Alive { assoc: *assoc },
        Input::Ngap { assoc, view, pdu, bucket, .. } => {
            let view = view.as_ref().ok().copied();
            ToHost::Ngap { number, assoc: *assoc, answers, bucket: *bucket, view, pdu }
        }
        Input::Pfcp { upf, seid, request, message, .. } => {
            ToHost::Pfcp { number, upf: *upf, seid: *seid, request: *request, message }
        }
        Input::PfcpTimeout { seid, .. } => ToHost::PfcpTimeout { number, seid: *seid },
        Input::Upf { upf, up } => ToHost::Upf { upf: *upf, up: *up },
        Input::UpfLost { upf } => ToHost::UpfLost { upf: *upf },
        Input::Unsent(message) => ToHost::Undelivered { assoc: message.assoc, ue: message.ue, pdu: &message.pdu },
        // Other inputs do not come from RAN or UPFs.
        _ => return None,
    })
}
