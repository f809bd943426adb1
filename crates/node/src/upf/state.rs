//! The UPF's end of N4 (TS 29.244 6) as a pure state machine: associations, sessions, reports. Time, the tables and the
//! place for what is sent are arguments.

use super::addresses::Addresses;
use super::config::Pool;
use super::exchange::{Outgoing, Requests, Responses};
use super::looks::{Look, Looks};
use super::paths::Paths;
use super::rules::{Refused, Rules};
use super::session::Session;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tracing::{debug, info, warn};
use vireo_datapath::{Editor, Event, Memory, Released, Tables};
use vireo_types::{Duration, Instant};
use vireo_wire::gtpu;
use vireo_wire::pfcp::{self, *};

/// What the state machine may know of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// The datapath's clock.
    pub(super) instant: Instant,
    /// Seconds since 1900-01-01, as PFCP writes times.
    pub(super) ntp: u32,
}

/// Whoever holds the tables.
pub(super) trait Plane {
    /// Changes the tables; what the change lets go leaves before any later packet.
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R;

    /// Looks at the tables.
    fn look<R>(&mut self, look: impl FnOnce(&Tables) -> R) -> R;
}

impl Plane for &Editor {
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        Editor::change(self, change)
    }

    fn look<R>(&mut self, look: impl FnOnce(&Tables) -> R) -> R {
        Editor::look(self, look)
    }
}

impl Plane for Memory {
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        Memory::change(self, change)
    }

    fn look<R>(&mut self, look: impl FnOnce(&Tables) -> R) -> R {
        look(&self.tables)
    }
}

/// What the state machine is told at start.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Our address on N4: Node ID and F-SEID.
    pub(super) address: IpAddr,
    /// Our IPv4 address on N3.
    pub(super) n3_ipv4: Option<Ipv4Addr>,
    /// Our IPv6 address on N3.
    pub(super) n3_ipv6: Option<Ipv6Addr>,
    pub(super) max_sessions: usize,
    /// The data networks.
    pub(super) pools: Vec<Pool>,
    pub(super) response_time: Duration,
    pub(super) attempts: u8,
    pub(super) path_check: Option<Duration>,
    /// When we started, in seconds since 1900.
    pub(super) started: u32,
}

/// Control planes that may be associated at a time.
const ASSOCIATIONS: usize = 256;
/// Addresses that each may send from.
const HOSTS: usize = 64;
/// Sessions that are looked at in one go.
const LOOKS: usize = 1024;
/// Requests that are of no session are kept under this SEID, which none has.
const NO_SESSION: u64 = 0;
/// The unit of the Downlink Data Notification Delay (TS 29.244 8.2.28).
const DELAY_MS: u64 = 50;

/// Counts of PFCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcpStats {
    /// Requests that were done.
    pub accepted: u64,
    /// Requests that were refused.
    pub rejected: u64,
    /// Datagrams that got no answer because they deserve none.
    pub discarded: u64,
    /// Requests that came again and got the answer they had got.
    pub repeated: u64,
    /// Reports sent, without repetitions.
    pub reports: u64,
    /// Reports that no control plane answered.
    pub unanswered: u64,
}

#[derive(Debug)]
struct Association {
    address: SocketAddr,
    /// Where it sends from: several hosts of a control plane may have one Node ID.
    hosts: SmallVec<[IpAddr; 1]>,
    recovery: u32,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Upf {
    pub(super) settings: Settings,
    associations: HashMap<NodeId, Association>,
    sessions: HashMap<u64, Box<Session>>,
    /// When sessions of which something happens by time are looked at.
    looks: Looks,
    addresses: Addresses,
    paths: Paths,
    /// Downlink data that is not reported yet: when, of which session and PDR.
    delayed: BTreeMap<(Instant, u64), u16>,
    next_seid: u64,
    requests: Requests,
    responses: Responses,
    pub(super) stats: PfcpStats,
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
    pub(super) fn new(settings: Settings) -> Self {
        Upf {
            associations: HashMap::new(),
            // room for all, so that a million sessions are never moved at once
            sessions: HashMap::with_capacity(settings.max_sessions),
            looks: Looks::new(),
            addresses: Addresses::new(&settings.pools),
            paths: Paths::new(settings.path_check, settings.response_time, settings.attempts),
            delayed: BTreeMap::new(),
            // a SEID of an earlier run must not name a session of this one
            next_seid: u64::from(settings.started) << 32 | 1,
            requests: Requests::new(settings.response_time, settings.attempts),
            responses: Responses::default(),
            stats: PfcpStats::default(),
            settings,
        }
    }

    pub(super) fn associations(&self) -> usize {
        self.associations.len()
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// When [`Upf::tick`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        self.requests.deadline().into_iter().chain(delayed).min()
    }

    /// What the UPF can.
    fn features(&self) -> UpFunctionFeatures {
        if self.addresses.is_empty() { FEATURES } else { FEATURES | UpFunctionFeatures::UEIP }
    }

    /// Whether the control plane of this Node ID sends from there.
    fn is_peer(&self, from: SocketAddr, node: &NodeId) -> bool {
        self.associations.get(node).is_some_and(|association| association.hosts.contains(&from.ip()))
    }

    /// A datagram came on N4.
    pub(super) fn receive(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Now,
        plane: &mut impl Plane,
        out: &mut Outgoing,
    ) {
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
        let kind = message.message_type();
        if kind.is_response() {
            return self.response(from, &message, plane);
        }
        let sequence = message.sequence();
        if let Some(answer) = self.responses.find(from, sequence, datagram) {
            out.push((from, answer.to_vec()));
            self.stats.repeated += 1;
            return;
        }
        let mut answer = vec![];
        let cause = match self.request(from, &message, now, plane, &mut answer) {
            Some(cause) if !answer.is_empty() => cause,
            // unknown types and such that only a control plane answers are discarded (TS 29.244 7.6.4)
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
        if kind != MessageType::HEARTBEAT_REQUEST {
            self.responses.keep(from, sequence, datagram, answer.clone(), now.instant);
        }
        out.push((from, answer));
    }

    /// Does what a request asks and writes the answer. `None` if it is none that a UPF answers.
    fn request(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let sequence = message.sequence();
        let node_id = NodeId::from(self.settings.address);
        let written = match message.message_type() {
            MessageType::HEARTBEAT_REQUEST => {
                self.heartbeat(from, message, plane);
                let recovery_time_stamp = RecoveryTimeStamp(self.settings.started);
                let written = HeartbeatResponse { recovery_time_stamp }.emit(answer, sequence);
                written.map(|()| Cause::REQUEST_ACCEPTED)
            }
            MessageType::ASSOCIATION_SETUP_REQUEST => {
                let cause = self.associate(from, message, plane);
                let response = AssociationSetupResponse {
                    node_id,
                    cause,
                    recovery_time_stamp: RecoveryTimeStamp(self.settings.started),
                    up_function_features: Some(self.features()),
                    cp_function_features: None,
                };
                response.emit(answer, sequence).map(|()| cause)
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
            // neither was announced in the UP Function Features (PFDM, SSET)
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

    /// A heartbeat with another Recovery Time Stamp than the association's says that the control plane has restarted
    /// and knows nothing of its sessions (TS 29.244 6.2.2, TS 23.527 4.3).
    fn heartbeat(&mut self, from: SocketAddr, message: &Message<'_>, plane: &mut impl Plane) {
        let Ok(request) = HeartbeatRequest::parse(message) else { return };
        let restarted = self.associations.iter().find(|(_, association)| {
            association.address.ip() == from.ip() && association.recovery < request.recovery_time_stamp.0
        });
        if let Some(node_id) = restarted.map(|(node_id, _)| node_id.clone()) {
            warn!("the control plane at {from} has restarted: its sessions are removed");
            self.dissociate(&node_id, plane);
        }
    }

    fn associate(&mut self, from: SocketAddr, message: &Message<'_>, plane: &mut impl Plane) -> Cause {
        let request = match AssociationSetupRequest::parse(message) {
            Ok(request) => request,
            Err(error) => return error.cause,
        };
        let recovery = request.recovery_time_stamp.0;
        // A control plane that sets up again with the same time stamp has lost nothing: several of its hosts may do so
        // for the one Node ID they share. With another it has restarted (TS 29.244 6.2.6.2.2).
        let known = self.associations.get(&request.node_id).map(|association| association.recovery);
        match known {
            Some(before) if before != recovery => {
                info!("the control plane at {from} has restarted: its sessions are removed");
                self.dissociate(&request.node_id, plane);
            }
            Some(_) => {}
            None if self.associations.len() >= ASSOCIATIONS => return Cause::NO_RESOURCES,
            None => info!("PFCP association with {from}"),
        }
        let new = || Association { address: from, hosts: SmallVec::new(), recovery };
        let association = self.associations.entry(request.node_id).or_insert_with(new);
        if !association.hosts.contains(&from.ip()) {
            if association.hosts.len() >= HOSTS {
                return Cause::NO_RESOURCES;
            }
            association.hosts.push(from.ip());
        }
        association.address = from;
        Cause::REQUEST_ACCEPTED
    }

    /// Ends an association and its sessions.
    fn dissociate(&mut self, node_id: &NodeId, plane: &mut impl Plane) -> Cause {
        if self.associations.remove(node_id).is_none() {
            return Cause::NO_ESTABLISHED_ASSOCIATION;
        }
        self.remove_all(|session| session.node == *node_id, plane);
        Cause::REQUEST_ACCEPTED
    }

    /// Removes these sessions without a report.
    fn remove_all(&mut self, which: impl Fn(&Session) -> bool, plane: &mut impl Plane) {
        let gone: Vec<(u64, Box<Session>)> = self.sessions.extract_if(|_, session| which(session)).collect();
        // not all in one change: packets of others must not wait for a million removals
        for sessions in gone.chunks(64) {
            plane.change(|tables, released| {
                for (seid, session) in sessions {
                    session.records.clone().remove(tables, *seid, released);
                }
            });
        }
        for (_, session) in &gone {
            session.chosen.into_iter().for_each(|chosen| self.addresses.give_back(chosen));
            // when does not matter to peers that are left
            self.paths.change(&session.peers(), &[], Instant(0));
        }
    }

    /// Ends the sessions of sets that a part of the control plane has lost (TS 29.244 7.4.6, TS 23.527 4.4).
    fn delete_sets(&mut self, from: SocketAddr, message: &Message<'_>, plane: &mut impl Plane) -> Result<(), Error> {
        let request = SessionSetDeletionRequest::parse(message)?;
        if !self.is_peer(from, &request.node_id) {
            return Err(Error { cause: Cause::NO_ESTABLISHED_ASSOCIATION, offending_ie: None });
        }
        if request.fq_csids.is_empty() {
            return Err(Error::conditional_missing(FqCsid::ID));
        }
        if !request.fq_csids.iter().all(FqCsid::is_sound) {
            return Err(Error::incorrect(FqCsid::ID));
        }
        let named = |session: &Session| {
            let mut sets = session.sets.iter();
            session.node == request.node_id && sets.any(|set| request.fq_csids.iter().any(|named| named.names(set)))
        };
        self.remove_all(named, plane);
        Ok(())
    }

    /// The answer to a request of a kind that is not served.
    fn unserved(&self, from: SocketAddr) -> Cause {
        if self.is_known(from) { Cause::SERVICE_NOT_SUPPORTED } else { Cause::NO_ESTABLISHED_ASSOCIATION }
    }

    /// Whether an associated control plane sends from there.
    fn is_known(&self, from: SocketAddr) -> bool {
        self.associations.values().any(|association| association.hosts.contains(&from.ip()))
    }

    fn establish(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        // the answer goes to the session as its owner numbers it, if that can be read
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
        now: Now,
        plane: &mut impl Plane,
    ) -> Result<SessionEstablishmentResponse, Refused> {
        let request = SessionEstablishmentRequest::parse(message)?;
        if !self.is_peer(from, &request.node_id) {
            return Err(Refused::cause(Cause::NO_ESTABLISHED_ASSOCIATION));
        }
        if self.sessions.len() >= self.settings.max_sessions {
            return Err(Refused::cause(Cause::NO_RESOURCES));
        }
        let mut session = Session::new(&request, now.ntp)?;
        let seid = self.next_seid;
        session.install(seid, &self.settings, &mut self.addresses, plane)?;
        self.next_seid += 1;
        let mut response = SessionEstablishmentResponse::accepted(
            self.settings.address.into(),
            FSeid::new(seid, self.settings.address),
        );
        response.created_pdrs = session.created(&Rules::default(), &self.settings).collect();
        self.arm(seid, &mut session, now);
        self.paths.change(&[], &session.peers(), now.instant);
        self.sessions.insert(seid, Box::new(session));
        Ok(response)
    }

    /// Notes when a session is to be looked at again.
    fn arm(&mut self, seid: u64, session: &mut Session, now: Now) {
        if let Some(after) = session.due_in(now.ntp) {
            self.looks.arm(seid, &mut session.look, seconds(now), after);
        }
    }

    /// The session that a peer names, which must be its own.
    fn take(&mut self, from: SocketAddr, seid: u64) -> Result<Box<Session>, Cause> {
        if self.sessions.get(&seid).is_some_and(|session| self.is_peer(from, &session.node)) {
            return self.sessions.remove(&seid).ok_or(Cause::SESSION_CONTEXT_NOT_FOUND);
        }
        Err(if self.is_known(from) { Cause::SESSION_CONTEXT_NOT_FOUND } else { Cause::NO_ESTABLISHED_ASSOCIATION })
    }

    fn modify(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let seid = message.seid();
        let (cp_seid, response) = match self.take(from, seid) {
            Err(cause) => (0, SessionModificationResponse::new(cause)),
            Ok(mut session) => {
                let before = session.peers();
                let result = SessionModificationRequest::parse(message).map_err(Refused::from).and_then(|request| {
                    // another control plane takes it over (SMF set): it must be associated too
                    if request.node_id.as_ref().is_some_and(|node| !self.associations.contains_key(node)) {
                        return Err(Refused::cause(Cause::NO_ESTABLISHED_ASSOCIATION));
                    }
                    let Upf { settings, addresses, .. } = &mut *self;
                    session.modify(seid, &request, now.ntp, settings, addresses, plane)
                });
                let cp_seid = session.cp.seid;
                self.arm(seid, &mut session, now);
                self.paths.change(&before, &session.peers(), now.instant);
                self.sessions.insert(seid, session);
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
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let seid = message.seid();
        let (cp_seid, response) = match self.take(from, seid) {
            Err(cause) => (0, SessionDeletionResponse::new(cause)),
            Ok(session) => {
                self.paths.change(&session.peers(), &[], now.instant);
                session.chosen.into_iter().for_each(|chosen| self.addresses.give_back(chosen));
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

    /// Tells every control plane of paths that failed or are there again (TS 29.244 5.9).
    fn node_report(&mut self, lost: &[IpAddr], found: &[IpAddr], now: Now, out: &mut Outgoing) {
        let peers = |peers: &[IpAddr]| peers.iter().map(|peer| RemoteGtpuPeer(*peer)).collect();
        let failure = (!lost.is_empty()).then(|| UserPlanePathFailureReport { remote_peers: peers(lost) });
        let recovery = (!found.is_empty()).then(|| UserPlanePathRecoveryReport { remote_peers: peers(found) });
        let kind = |set: bool, kind: NodeReportType| if set { kind } else { NodeReportType::default() };
        let report = NodeReportRequest {
            node_id: NodeId::from(self.settings.address),
            report_type: kind(failure.is_some(), NodeReportType::UPFR) | kind(recovery.is_some(), NodeReportType::UPRR),
            path_failure: failure,
            path_recovery: recovery,
        };
        for association in self.associations.values() {
            let to = SocketAddr::new(association.address.ip(), pfcp::PORT);
            let build = |sequence| {
                let mut message = vec![];
                report.emit(&mut message, sequence).ok().map(|()| message)
            };
            match self.requests.send(NO_SESSION, to, now.instant, out, build) {
                true => self.stats.reports += 1,
                false => warn!("a node report to {to} is left out: too many are unanswered"),
            }
        }
    }

    /// Asks GTP-U peers whether they are there. To be called about once a second.
    pub(super) fn check_paths(&mut self, now: Now, plane: &mut impl Plane, out: &mut Outgoing) {
        let due = self.paths.due(now.instant);
        if !due.ask.is_empty() {
            plane.change(|_, released| {
                for (peer, sequence) in &due.ask {
                    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
                    if let Ok(request) = gtpu::echo_request(&mut buffer, *sequence) {
                        released.datagrams.push((SocketAddr::new(*peer, gtpu::PORT), request.to_vec()));
                    }
                }
            });
        }
        if !due.lost.is_empty() {
            warn!("GTP-U peers do not answer: {:?}", due.lost);
            self.node_report(&due.lost, &[], now, out);
        }
    }

    /// The datapath has seen something that a control plane must know.
    pub(super) fn event(&mut self, event: Event, now: Now, plane: &mut impl Plane, out: &mut Outgoing) {
        let (seid, report) = match event {
            Event::Volume { session } => return self.look_at(session, now, plane, out),
            Event::DownlinkData { session, pdr } => {
                let delay = self.sessions.get(&session).map_or(0, |session| session.report_delay(pdr));
                if delay > 0 {
                    let at = now.instant + Duration::from_millis(u64::from(delay) * DELAY_MS);
                    self.delayed.insert((at, session), pdr);
                    return;
                }
                (session, downlink_data(pdr))
            }
            Event::Alive { peer } => {
                if self.paths.answered(peer, now.instant) {
                    info!("the GTP-U peer {peer} answers again");
                    self.node_report(&[], &[peer], now, out);
                }
                return;
            }
            Event::TunnelError { session, tunnel } => {
                let remote = FTeid::new(tunnel.teid, tunnel.address);
                let report = SessionReportRequest {
                    report_type: ReportType::ERIR,
                    error_indication: Some(ErrorIndicationReport { remote_f_teids: std::iter::once(remote).collect() }),
                    ..SessionReportRequest::default()
                };
                (session, report)
            }
        };
        self.report(seid, &report, now, out);
    }

    fn report(&mut self, seid: u64, report: &SessionReportRequest, now: Now, out: &mut Outgoing) {
        let Some(session) = self.sessions.get(&seid) else { return };
        let to = SocketAddr::new(session.cp_address(), pfcp::PORT);
        let build = |sequence| {
            let mut message = vec![];
            report.emit(&mut message, session.cp.seid, sequence).ok().map(|()| message)
        };
        match self.requests.send(seid, to, now.instant, out, build) {
            true => self.stats.reports += 1,
            false => warn!("a report to {to} is left out: too many are unanswered"),
        }
    }

    /// A control plane answered a report.
    fn response(&mut self, from: SocketAddr, message: &Message<'_>, plane: &mut impl Plane) {
        let Some(seid) = self.requests.answered(from, message.sequence()) else {
            self.stats.discarded += 1;
            return;
        };
        let Ok(response) = SessionReportResponse::parse(message) else { return };
        if response.cause == Cause::SESSION_CONTEXT_NOT_FOUND {
            // nobody would ever end it (TS 29.244 6.3.2.4)
            info!("the control plane at {from} does not know a session that it had made: it is removed");
            if let Some(session) = self.sessions.remove(&seid) {
                self.paths.change(&session.peers(), &[], Instant(0));
                session.chosen.into_iter().for_each(|chosen| self.addresses.give_back(chosen));
                plane.change(|tables, released| session.records.clone().remove(tables, seid, released));
            }
            return;
        }
        let Some(session) = self.sessions.get_mut(&seid) else { return };
        if let Some(f_seid) = response.cp_f_seid {
            session.cp = f_seid;
        }
        if response.flags.is_some_and(|flags| flags.contains(SrRspFlags::DROBU)) {
            session.drop_buffered(plane);
        }
        if let Some(Err(refused)) = response.update_bar.map(|ie| session.update_bar(&ie, plane)) {
            debug!("PFCP from {from}: a BAR is not changed: {:?}", refused.error);
        }
    }

    /// Sends again what is unanswered. To be called when [`Upf::deadline`] has passed.
    pub(super) fn tick(&mut self, now: Now, out: &mut Outgoing) {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now.instant) {
            let ((_, seid), pdr) = entry.remove_entry();
            // the UE may be back by itself
            if self.sessions.get(&seid).is_some_and(|session| session.waits(pdr)) {
                self.report(seid, &downlink_data(pdr), now, out);
            }
        }
        let given_up = self.requests.tick(now.instant, out);
        if !given_up.is_empty() {
            warn!("{} reports were not answered by their control plane", given_up.len());
            self.stats.unanswered += given_up.len() as u64;
        }
    }

    /// Makes a request to nobody, if there may be one more.
    #[cfg(test)]
    pub(super) fn fill_requests(&mut self, now: Now, out: &mut Outgoing) -> bool {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9));
        self.requests.send(NO_SESSION, nobody, now.instant, out, |_| Some(vec![]))
    }

    /// Whether [`Upf::report_usage`] has more to do.
    pub(super) fn is_behind(&self) -> bool {
        self.looks.is_behind()
    }

    /// Reports the usage that is due by time, of so many sessions as nobody notices. To be called about once a second,
    /// and as long as [`Upf::is_behind`].
    pub(super) fn report_usage(&mut self, now: Now, plane: &mut impl Plane, out: &mut Outgoing) {
        let sessions = &self.sessions;
        let look = |seid: u64| sessions.get(&seid).map(|session| session.look);
        let mut due = vec![];
        while due.len() < LOOKS
            && let Some(seid) = self.looks.take(seconds(now), look)
        {
            due.push(seid);
        }
        for seid in due {
            if let Some(session) = self.sessions.get_mut(&seid) {
                session.look = Look::default();
            }
            self.look_at(seid, now, plane, out);
        }
    }

    /// Reports what there is to report of a session, and notes when it is to be looked at again.
    fn look_at(&mut self, seid: u64, now: Now, plane: &mut impl Plane, out: &mut Outgoing) {
        let Some(session) = self.sessions.get_mut(&seid) else { return };
        if !self.requests.has_room() {
            // what it has counted stays with it until there is
            return self.looks.arm(seid, &mut session.look, seconds(now), 1);
        }
        let inactive = session.is_inactive(now.ntp, plane);
        let usage_reports = session.due_reports(seid, now.ntp, plane);
        if let Some(after) = session.due_in(now.ntp) {
            self.looks.arm(seid, &mut session.look, seconds(now), after);
        }
        if inactive {
            let report = SessionReportRequest { report_type: ReportType::UPIR, ..SessionReportRequest::default() };
            self.report(seid, &report, now, out);
        }
        if !usage_reports.is_empty() {
            let report = SessionReportRequest {
                report_type: ReportType::USAR,
                usage_reports,
                ..SessionReportRequest::default()
            };
            self.report(seid, &report, now, out);
        }
    }
}

/// The datapath's clock in seconds.
fn seconds(now: Now) -> u64 {
    now.instant.0 / 1_000_000
}

/// The report that packets wait by this PDR.
fn downlink_data(pdr: u16) -> SessionReportRequest {
    SessionReportRequest {
        report_type: ReportType::DLDR,
        downlink_data: Some(DownlinkDataReport {
            pdr_ids: std::iter::once(PdrId(pdr)).collect(),
            ..DownlinkDataReport::default()
        }),
        ..SessionReportRequest::default()
    }
}
