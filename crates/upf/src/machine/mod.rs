//! Pure state machine of the UPF's side of N4 (TS 29.244 6).
//!
//! It handles associations, sessions and reports. Time, the tables and the output queue are
//! arguments.
//!
//! [`compile`] turns PFCP rules into one datapath entry for each tunnel and each UE address.
//! [`flows`] adds flow rules for what an entry cannot hold: filters, quotas, forwarding to another
//! UPF, and routes behind the UE.

mod address_checks;
mod addresses;
mod associations;
mod compile;
pub(crate) mod control_planes;
mod dirty;
mod element_serde;
mod entries;
pub(crate) mod exchange;
mod flows;
mod path_monitor;
mod pdi;
mod recovery;
mod reports;
mod rules;
mod seids;
pub(crate) mod session;
pub(crate) mod settings;
mod slices;
mod supervision;
pub(crate) mod tables_access;
mod timer_wheel;
mod unserved;
mod usage;
pub(crate) mod user_migration;

pub(crate) use dirty::DirtyState;
pub(crate) use recovery::{StoredNode, Written};
pub(crate) use slices::SliceLoad;

use crate::config::LeanSlice;
use addresses::Addresses;
use associations::Setup;
use control_planes::ControlPlane;
use exchange::{Outgoing, Requests, Responses};
use path_monitor::PathMonitor;
use rules::{Refused, Rules};
use seids::Seids;
use session::{Session, Sessions};
use settings::{Settings, Timestamps};
use slices::Slices;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use supervision::{Contest, Supervision};
use tables_access::TablesAccess;
use timer_wheel::TimerWheel;
use tracing::{debug, warn};
use vireo_n4::log_limit::LogLimit;
use vireo_types::Instant;
use vireo_wire::pfcp::*;

/// Maximum number of source addresses of a control plane.
const HOSTS: usize = 64;
/// Maximum number of fired session timers, and of wheel entries, per call: some tenths of a
/// millisecond.
const MAX_FIRED_TIMERS: usize = 128;
const ENTRIES: usize = 1024;
/// Maximum number of delayed downlink data reports per call.
const DELAYED: usize = 256;
/// SEID of pending requests that concern no session. No session has it.
const NO_SESSION: u64 = 0;
/// Refusal of a UE address that a session has.
const ADDRESS_IN_USE: Error = Error { cause: Cause::RULE_FAILURE, offending_ie: Some(UeIpAddress::ID) };
/// The unit of the Downlink Data Notification Delay (TS 29.244 8.2.28), in milliseconds.
const DELAY_MS: u64 = 50;

/// Counters of PFCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcpStats {
    pub accepted: u64,
    pub rejected: u64,
    /// Rejected establishments for which the session store had no room.
    pub no_room: u64,
    /// Datagrams that received no response.
    pub discarded: u64,
    /// Datagrams that were dropped because a UE has their source address.
    pub from_ues: u64,
    /// Repeated requests that received the stored response.
    pub repeated: u64,
    /// Reports sent, without retransmissions.
    pub reports: u64,
    /// Reports without response of a control plane.
    pub unanswered: u64,
    /// Datagrams from addresses that the configuration does not permit.
    pub unlisted: u64,
    /// Association Setup Requests refused because of their address or the maximum number of
    /// associations.
    pub refused_associations: u64,
    /// Sessions removed because their control plane was silent for too long.
    pub released: u64,
}

/// Rate-limited log lines, which peers can trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Associated,
    TakenOver,
    Restarted,
    Refused,
    NoRoom,
    Unlisted,
    Silent,
    Back,
    Released,
    Unknown,
    Reports,
    Unanswered,
}

#[derive(Debug)]
struct Association {
    address: SocketAddr,
    /// Source addresses: several hosts of a control plane may share one Node ID.
    hosts: SmallVec<[IpAddr; 1]>,
    recovery: u32,
    /// Host that has taken over sessions of others, and receives their reports.
    holder: Option<SessionHolder>,
    /// True if the control plane has, or had, sessions.
    used: bool,
    supervision: Supervision,
    /// Pending request of another address for the association.
    contest: Option<Box<Contest>>,
}

/// A host that has taken over sessions.
#[derive(Debug)]
struct SessionHolder {
    address: IpAddr,
    /// Previous addresses of the sessions; empty means all.
    from: Vec<CpPfcpEntityIpAddress>,
}

impl SessionHolder {
    /// Returns true if the sessions of that address were taken over.
    fn has(&self, address: IpAddr) -> bool {
        let is = |of: &CpPfcpEntityIpAddress| match address {
            IpAddr::V4(address) => of.ipv4 == Some(address),
            IpAddr::V6(address) => of.ipv6 == Some(address),
        };
        self.from.is_empty() || self.from.iter().any(is)
    }
}

/// State of one UPF.
#[derive(Debug)]
pub(crate) struct Upf {
    pub(crate) settings: Settings,
    associations: HashMap<NodeId, Association>,
    /// Number of associations with a pending contest.
    contests: usize,
    lines: LogLimit<Line>,
    pub(crate) sessions: Sessions,
    pub(crate) slices: Slices,
    /// Timers of sessions with time-based actions.
    timers: TimerWheel,
    /// True if further Echo Requests are due at once.
    has_due_echoes: bool,
    addresses: Addresses,
    paths: PathMonitor,
    /// Delayed downlink data reports: time, session and PDR.
    delayed: BTreeMap<(Instant, u64), u16>,
    seids: Seids,
    /// SEID of the next session, if it was reserved.
    reserved: Option<u64>,
    /// Changes since they were last stored; `None` without a store.
    changed: Option<DirtyState>,
    /// Number of this incarnation of the UPF, if it is stored.
    life: u32,
    requests: Requests,
    responses: Responses,
    pub(crate) stats: PfcpStats,
}

const FEATURES: UpFunctionFeatures = UpFunctionFeatures(
    UpFunctionFeatures::FTUP.0
        | UpFunctionFeatures::EMPU.0
        | UpFunctionFeatures::MNOP.0
        | UpFunctionFeatures::DDND.0
        | UpFunctionFeatures::UDBC.0
        | UpFunctionFeatures::QUOAC.0
        | UpFunctionFeatures::VTIME.0
        | UpFunctionFeatures::FRRT.0,
);

impl Upf {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut seids = Seids::new(settings.seed);
        let mut requests = Requests::new(settings.response_time, settings.attempts);
        requests.begin_at(seids.random());
        Upf {
            associations: HashMap::new(),
            contests: 0,
            lines: LogLimit::default(),
            sessions: Sessions::with_capacity(settings.max_sessions),
            slices: Slices::new(&settings.slices),
            timers: TimerWheel::new(),
            has_due_echoes: false,
            addresses: Addresses::new(&settings.pools),
            paths: PathMonitor::new(settings.path_check, settings.response_time, settings.attempts),
            delayed: BTreeMap::new(),
            seids,
            reserved: None,
            changed: None,
            life: 0,
            requests,
            responses: Responses::default(),
            stats: PfcpStats::default(),
            settings,
        }
    }

    pub(crate) fn associations(&self) -> usize {
        self.associations.len()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns when [`Upf::tick`] must be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        self.requests.deadline().into_iter().chain(delayed).chain(self.contest_deadline()).min()
    }

    /// Returns the UP Function Features.
    fn features(&self) -> UpFunctionFeatures {
        if self.addresses.is_empty() { FEATURES } else { FEATURES | UpFunctionFeatures::UEIP }
    }

    /// Returns true if the control plane of this Node ID uses this source address.
    fn is_peer(&self, from: SocketAddr, node: &NodeId) -> bool {
        self.associations.get(node).is_some_and(|association| association.hosts.contains(&from.ip()))
    }

    /// Returns the key of stored responses. All hosts of a control plane share one, because a host
    /// may repeat the request of another.
    fn response_key(&self, from: SocketAddr) -> SocketAddr {
        let same = self.associations.values().find(|association| association.hosts.contains(&from.ip()));
        let first = same.and_then(|association| association.hosts.first());
        SocketAddr::new(first.copied().unwrap_or(from.ip()), from.port())
    }

    /// Processes a datagram from N4. A repeat of a request gets the stored response.
    pub(crate) fn receive(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Timestamps,
        plane: &mut impl TablesAccess,
        out: &mut Outgoing,
    ) {
        self.process(from, datagram, true, now, plane, out);
    }

    /// Processes a datagram. A control plane that loses no response does not repeat requests about
    /// sessions (`may_repeat` is false). Responses to these are not stored then: there are three
    /// for each UE, for 12 s.
    pub(crate) fn process(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        may_repeat: bool,
        now: Timestamps,
        plane: &mut impl TablesAccess,
        out: &mut Outgoing,
    ) {
        if !self.admits(from.ip()) {
            return self.refuse_association(from, datagram, now, out);
        }
        let message = match Message::new(datagram) {
            Ok(message) => message,
            Err(HeaderError::Version { kind, sequence, .. }) if !MessageType(kind).is_response() => {
                let mut answer = vec![];
                if (VersionNotSupportedResponse {}).emit(&mut answer, sequence).is_ok() {
                    out.push((from, answer));
                }
                self.stats.rejected += 1;
                return;
            }
            Err(error) => {
                debug!("PFCP from {from}: {error}");
                self.stats.discarded += 1;
                return;
            }
        };
        self.on_message_from(from, now.instant);
        let kind = message.message_type();
        if kind.is_response() {
            return self.response(from, &message, now, plane);
        }
        let known = self.is_known(from);
        let sequence = message.sequence();
        let stores = may_repeat || !is_about_session(kind);
        let response_key = stores.then(|| self.response_key(from));
        if let Some(key) = response_key
            && let Some(answer) = self.responses.find(key, sequence, datagram, now.instant)
        {
            out.push((from, answer.to_vec()));
            self.stats.repeated += 1;
            return;
        }
        let mut answer = vec![];
        let cause = match self.request(from, &message, now, plane, &mut answer) {
            Some(cause) if !answer.is_empty() => cause,
            None if kind == MessageType::ASSOCIATION_SETUP_REQUEST => return,
            // unknown types, and those that only a control plane answers, are discarded (TS 29.244
            // 7.6.4)
            _ => {
                debug!("PFCP from {from}: {kind:?} is not served");
                self.stats.discarded += 1;
                return;
            }
        };
        match cause.is_accepted() {
            true => self.stats.accepted += 1,
            false => {
                debug!("PFCP from {from}: {kind:?} refused: {cause:?}");
                self.stats.rejected += 1;
            }
        }
        // Responses to unknown senders are not stored: their requests change nothing, and would
        // displace other responses.
        if let Some(key) = response_key
            && kind != MessageType::HEARTBEAT_REQUEST
            && (known || self.is_known(from))
        {
            self.responses.store(key, sequence, datagram, answer.clone(), now.instant);
        }
        out.push((from, answer));
    }

    /// Returns true if the UPF accepts messages of this address.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        self.settings.associations.admits(address)
    }

    /// Replaces the permitted control planes.
    pub(crate) fn set_control_planes(&mut self, control_planes: Vec<ControlPlane>) {
        self.settings.associations.control_planes = control_planes;
    }

    /// Refuses an association to an address that is not permitted, without storing state. Other
    /// messages are dropped.
    fn refuse_association(&mut self, from: SocketAddr, datagram: &[u8], now: Timestamps, out: &mut Outgoing) {
        self.stats.unlisted += 1;
        if let Some(suppressed) = self.lines.admit(Line::Unlisted, from.ip(), now.instant) {
            warn!(control_plane = %from, suppressed, "PFCP from an address that is not in upf.control-planes");
        }
        let is_setup = |message: &Message<'_>| message.message_type() == MessageType::ASSOCIATION_SETUP_REQUEST;
        let Some(message) = Message::new(datagram).ok().filter(is_setup) else { return };
        let mut answer = vec![];
        if self.setup_response(Setup::refused(Cause::REQUEST_REJECTED), message.sequence(), &mut answer).is_some() {
            out.push((from, answer));
        }
    }

    /// Executes a request and encodes the response. Returns `None` for a type that a UPF does not
    /// answer.
    fn request(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let sequence = message.sequence();
        let node_id = NodeId::from(self.settings.address);
        let written = match message.message_type() {
            MessageType::HEARTBEAT_REQUEST => {
                if let Ok(request) = HeartbeatRequest::parse(message) {
                    self.heartbeat(from, request.recovery_time_stamp.0, now, plane);
                }
                let recovery_time_stamp = RecoveryTimeStamp(self.settings.started);
                let written = HeartbeatResponse { recovery_time_stamp }.emit(answer, sequence);
                written.map(|()| Cause::REQUEST_ACCEPTED)
            }
            MessageType::ASSOCIATION_SETUP_REQUEST => {
                let setup = self.associate(from, message, now, plane);
                return self.setup_response(setup, sequence, answer);
            }
            MessageType::ASSOCIATION_UPDATE_REQUEST => {
                let cause = match AssociationUpdateRequest::parse(message) {
                    Ok(request) if self.is_peer(from, &request.node_id) => Cause::REQUEST_ACCEPTED,
                    Ok(_) => Cause::NO_ESTABLISHED_ASSOCIATION,
                    Err(error) => error.cause,
                };
                let up_function_features = Some(self.features());
                let response =
                    AssociationUpdateResponse { node_id, cause, up_function_features, cp_function_features: None };
                response.emit(answer, sequence).map(|()| cause)
            }
            MessageType::ASSOCIATION_RELEASE_REQUEST => {
                let cause = match AssociationReleaseRequest::parse(message) {
                    Ok(request) if self.is_peer(from, &request.node_id) => self.dissociate(&request.node_id, plane),
                    Ok(_) => Cause::NO_ESTABLISHED_ASSOCIATION,
                    Err(error) => error.cause,
                };
                AssociationReleaseResponse { node_id, cause }.emit(answer, sequence).map(|()| cause)
            }
            MessageType::SESSION_SET_DELETION_REQUEST => {
                let done = self.delete_sets(from, message, plane);
                let cause = done.map_or_else(|error| error.cause, |()| Cause::REQUEST_ACCEPTED);
                let offending_ie = done.err().and_then(|error| error.offending_ie).map(OffendingIe);
                let response = SessionSetDeletionResponse { node_id, cause, offending_ie };
                response.emit(answer, sequence).map(|()| cause)
            }
            // the UP Function Features announce neither (PFDM, SSET)
            MessageType::PFD_MANAGEMENT_REQUEST => {
                let cause = self.unserved(from);
                PfdManagementResponse { cause, offending_ie: None }.emit(answer, sequence).map(|()| cause)
            }
            MessageType::SESSION_SET_MODIFICATION_REQUEST => {
                let cause = self.unserved(from);
                let response = SessionSetModificationResponse { node_id, cause, offending_ie: None };
                response.emit(answer, sequence).map(|()| cause)
            }
            MessageType::SESSION_ESTABLISHMENT_REQUEST => return self.establish(from, message, now, plane, answer),
            MessageType::SESSION_MODIFICATION_REQUEST => return self.modify(from, message, now, plane, answer),
            MessageType::SESSION_DELETION_REQUEST => return self.delete(from, message, now, plane, answer),
            _ => return None,
        };
        written.ok()
    }

    fn establish(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        // the response carries the SEID of the control plane, if the request contains one
        let cp_seid = message.get::<FSeid>().ok().flatten().map_or(0, |f_seid| f_seid.seid);
        let response = match self.try_establish(from, message, now, plane) {
            Ok(response) => response,
            Err(Refused { error, rule }) => SessionEstablishmentResponse {
                failed_rule_id: rule,
                ..SessionEstablishmentResponse::rejected(self.settings.address.into(), error)
            },
        };
        response.emit(answer, cp_seid, message.sequence()).ok()?;
        Some(response.cause)
    }

    fn try_establish(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> Result<SessionEstablishmentResponse, Refused> {
        let reserved = self.reserved.take();
        let request = SessionEstablishmentRequest::parse(message)?;
        if !self.is_peer(from, &request.node_id) {
            return Err(Refused::cause(Cause::NO_ESTABLISHED_ASSOCIATION));
        }
        unserved::check(message)?;
        if self.sessions.len() >= self.settings.max_sessions {
            return Err(Refused::cause(Cause::NO_RESOURCES));
        }
        let seid = reserved.unwrap_or_else(|| self.seids.draw(|seid| self.sessions.contains_key(&seid)));
        let session = match self.install(seid, &request, now, plane) {
            // A repeat that is not recognised, because another host of the control plane sent it.
            Err(refused) if refused.error == ADDRESS_IN_USE => match self.same(&request, plane) {
                Some(before) => {
                    debug!("PFCP from {from}: a session is set up anew");
                    self.remove(before, plane);
                    self.install(seid, &request, now, plane)
                }
                None => Err(refused),
            },
            installed => installed,
        };
        let session = session?;
        let mut response = SessionEstablishmentResponse::accepted(
            self.settings.address.into(),
            FSeid::new(seid, self.settings.address),
        );
        response.created_pdrs = session.created(seid, &Rules::default(), &self.settings).collect();
        self.add_session(seid, Box::new(session), now);
        self.mark_changed(seid);
        Ok(response)
    }

    /// Adds a session whose entries exist.
    fn add_session(&mut self, seid: u64, mut session: Box<Session>, now: Timestamps) {
        self.arm(seid, &mut session, now);
        self.mark_used(&session.node);
        self.paths.change(&[], &session.peers(), now.instant);
        self.slices.add_user(session.worker, seid);
        self.sessions.insert(seid, session);
    }

    /// Marks the association of a node as used.
    fn mark_used(&mut self, node: &NodeId) {
        if let Some(association) = self.associations.get_mut(node) {
            association.used = true;
        }
    }

    /// Creates the session of a request, with its entries.
    fn install(
        &mut self,
        seid: u64,
        request: &SessionEstablishmentRequest,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) -> Result<Session, Refused> {
        let pdis = request.create_pdrs.iter().map(|ie| (ie.pdr_id, &ie.pdi));
        address_checks::check_tunnel_ends(pdis, &self.settings)?;
        let mut session = Session::new(request, now.ntp)?;
        session.check_record_size(&session.rules, &self.settings)?;
        session.worker = self.slices.choose(request);
        session.simple = LeanSlice::any_has(&self.settings.lean, request);
        session.install(seid, &self.settings, &mut self.addresses, plane)?;
        Ok(session)
    }

    /// Arms the timer of a session.
    fn arm(&mut self, seid: u64, session: &mut Session, now: Timestamps) {
        if let Some(after) = session.due_in(now.ntp) {
            self.timers.arm(seid, &mut session.timer, seconds(now), after);
        }
    }

    /// Removes and returns the session that a peer names. The session must belong to the peer.
    fn take(&mut self, from: SocketAddr, seid: u64) -> Result<Box<Session>, Cause> {
        if self.sessions.owner(seid).is_some_and(|(node, _)| self.is_peer(from, node)) {
            return self.sessions.remove(&seid).ok_or(Cause::SESSION_CONTEXT_NOT_FOUND);
        }
        Err(if self.is_known(from) { Cause::SESSION_CONTEXT_NOT_FOUND } else { Cause::NO_ESTABLISHED_ASSOCIATION })
    }

    fn modify(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let seid = message.seid();
        let (cp_seid, response) = match self.take(from, seid) {
            Err(cause) => (0, SessionModificationResponse::new(cause)),
            Ok(mut session) => {
                let before = session.peers();
                let result = SessionModificationRequest::parse(message).map_err(Refused::from).and_then(|request| {
                    // Another control plane of the same address takes over the session: it may only
                    // name a Node ID of its own.
                    if request.node_id.as_ref().is_some_and(|node| !self.is_peer(from, node)) {
                        return Err(Refused::cause(Cause::NO_ESTABLISHED_ASSOCIATION));
                    }
                    unserved::check(message)?;
                    let Upf { settings, addresses, .. } = &mut *self;
                    session.modify(seid, &request, now.ntp, settings, addresses, plane)
                });
                let cp_seid = session.cp.seid;
                self.mark_used(&session.node);
                self.arm(seid, &mut session, now);
                self.paths.change(&before, &session.peers(), now.instant);
                self.sessions.insert(seid, session);
                if result.is_ok() {
                    self.mark_changed(seid);
                }
                let response = result.unwrap_or_else(|Refused { error, rule }| SessionModificationResponse {
                    failed_rule_id: rule,
                    ..SessionModificationResponse::from(error)
                });
                (cp_seid, response)
            }
        };
        response.emit(answer, cp_seid, message.sequence()).ok()?;
        Some(response.cause)
    }

    fn delete(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let seid = message.seid();
        let (cp_seid, response) = match self.take(from, seid) {
            Err(cause) => (0, SessionDeletionResponse::new(cause)),
            Ok(session) => {
                self.paths.change(&session.peers(), &[], now.instant);
                session.chosen.into_iter().for_each(|chosen| self.addresses.release(chosen));
                self.slices.remove_user(session.worker, seid);
                self.mark_changed(seid);
                let cp_seid = session.cp.seid;
                let mut response = SessionDeletionResponse::new(Cause::REQUEST_ACCEPTED);
                let reports = session.end(seid, now.ntp, plane);
                response.usage_reports = reports.into_iter().map(UsageReportInDeletion).collect();
                (cp_seid, response)
            }
        };
        response.emit(answer, cp_seid, message.sequence()).ok()?;
        Some(response.cause)
    }
}

/// Returns true for a request about one session.
fn is_about_session(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::SESSION_ESTABLISHMENT_REQUEST
            | MessageType::SESSION_MODIFICATION_REQUEST
            | MessageType::SESSION_DELETION_REQUEST
    )
}

/// Returns the datapath's clock in seconds.
fn seconds(now: Timestamps) -> u64 {
    now.instant.0 / 1_000_000
}
