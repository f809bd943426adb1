//! The UPF's end of N4 (TS 29.244 6) as a pure state machine: associations, sessions, reports. Time, the tables and the
//! place for what is sent are arguments.

use super::exchange::{Outgoing, Requests, Responses};
use super::rules::{Refused, Rules};
use super::session::Session;
use super::usage;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tracing::{debug, info, warn};
use vireo_datapath::{Event, Memory, Released, Sockets, Tables};
use vireo_types::{Duration, Instant};
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
}

impl Plane for &Sockets {
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        Sockets::change(self, change)
    }
}

impl Plane for Memory {
    fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        Memory::change(self, change)
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
    pub(super) response_time: Duration,
    pub(super) attempts: u8,
    /// When we started, in seconds since 1900.
    pub(super) started: u32,
}

/// Control planes that may be associated at a time.
const ASSOCIATIONS: usize = 256;

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
    recovery: u32,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Upf {
    pub(super) settings: Settings,
    associations: HashMap<NodeId, Association>,
    sessions: HashMap<u64, Box<Session>>,
    /// Sessions with URRs that report by themselves.
    reporting: HashSet<u64>,
    next_seid: u64,
    requests: Requests,
    responses: Responses,
    pub(super) stats: PfcpStats,
}

const FEATURES: UpFunctionFeatures =
    UpFunctionFeatures(UpFunctionFeatures::FTUP.0 | UpFunctionFeatures::EMPU.0 | UpFunctionFeatures::MNOP.0);

impl Upf {
    pub(super) fn new(settings: Settings) -> Self {
        Upf {
            associations: HashMap::new(),
            sessions: HashMap::new(),
            reporting: HashSet::new(),
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
        self.requests.deadline()
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
                    up_function_features: Some(FEATURES),
                    cp_function_features: None,
                };
                response.emit(answer, sequence).map(|()| cause)
            }
            MessageType::ASSOCIATION_UPDATE_REQUEST => {
                let cause = match AssociationUpdateRequest::parse(message) {
                    Ok(request) if self.associations.contains_key(&request.node_id) => Cause::REQUEST_ACCEPTED,
                    Ok(_) => Cause::NO_ESTABLISHED_ASSOCIATION,
                    Err(error) => error.cause,
                };
                let up_function_features = Some(FEATURES);
                let response =
                    AssociationUpdateResponse { node_id, cause, up_function_features, cp_function_features: None };
                response.emit(answer, sequence).map(|()| cause)
            }
            MessageType::ASSOCIATION_RELEASE_REQUEST => {
                let cause = match AssociationReleaseRequest::parse(message) {
                    Ok(request) => self.dissociate(&request.node_id, plane),
                    Err(error) => error.cause,
                };
                AssociationReleaseResponse { node_id, cause }.emit(answer, sequence).map(|()| cause)
            }
            MessageType::SESSION_SET_DELETION_REQUEST => {
                let cause = Cause::SERVICE_NOT_SUPPORTED;
                let response = SessionSetDeletionResponse { node_id, cause, offending_ie: None };
                response.emit(answer, sequence).map(|()| cause)
            }
            MessageType::SESSION_ESTABLISHMENT_REQUEST => return self.establish(message, now, plane, answer),
            MessageType::SESSION_MODIFICATION_REQUEST => return self.modify(message, now, plane, answer),
            MessageType::SESSION_DELETION_REQUEST => return self.delete(message, now, plane, answer),
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
        self.associations.insert(request.node_id, Association { address: from, recovery });
        Cause::REQUEST_ACCEPTED
    }

    /// Ends an association and its sessions.
    fn dissociate(&mut self, node_id: &NodeId, plane: &mut impl Plane) -> Cause {
        if self.associations.remove(node_id).is_none() {
            return Cause::NO_ESTABLISHED_ASSOCIATION;
        }
        let gone: Vec<Box<Session>> =
            self.sessions.extract_if(|_, session| session.node == *node_id).map(|(_, session)| session).collect();
        // not all in one change: packets of others must not wait for a million removals
        for sessions in gone.chunks(64) {
            plane.change(|tables, released| {
                for session in sessions {
                    session.records.clone().remove(tables, released);
                }
            });
        }
        let sessions = &self.sessions;
        self.reporting.retain(|seid| sessions.contains_key(seid));
        Cause::REQUEST_ACCEPTED
    }

    fn establish(
        &mut self,
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        // the answer goes to the session as its owner numbers it, if that can be read
        let cp_seid = message.get::<FSeid>().ok().flatten().map_or(0, |f_seid| f_seid.seid);
        let response = match self.try_establish(message, now, plane) {
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
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
    ) -> Result<SessionEstablishmentResponse, Refused> {
        let request = SessionEstablishmentRequest::parse(message)?;
        if !self.associations.contains_key(&request.node_id) {
            return Err(Refused::cause(Cause::NO_ESTABLISHED_ASSOCIATION));
        }
        if self.sessions.len() >= self.settings.max_sessions {
            return Err(Refused::cause(Cause::NO_RESOURCES));
        }
        let mut session = Session::new(&request, now.ntp)?;
        let seid = self.next_seid;
        session.install(seid, &self.settings, plane)?;
        self.next_seid += 1;
        let mut response = SessionEstablishmentResponse::accepted(
            self.settings.address.into(),
            FSeid::new(seid, self.settings.address),
        );
        response.created_pdrs = session.created(&Rules::default(), &self.settings).collect();
        self.note_reporting(seid, &session);
        self.sessions.insert(seid, Box::new(session));
        Ok(response)
    }

    fn note_reporting(&mut self, seid: u64, session: &Session) {
        match session.rules.urrs.iter().any(usage::reports_by_itself) {
            true => drop(self.reporting.insert(seid)),
            false => drop(self.reporting.remove(&seid)),
        }
    }

    fn modify(
        &mut self,
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let seid = message.seid();
        let (cp_seid, response) = match self.sessions.remove(&seid) {
            None => (0, SessionModificationResponse::new(Cause::SESSION_CONTEXT_NOT_FOUND)),
            Some(mut session) => {
                let result = SessionModificationRequest::parse(message)
                    .map_err(Refused::from)
                    .and_then(|request| session.modify(seid, &request, now.ntp, &self.settings, plane));
                let cp_seid = session.cp.seid;
                self.note_reporting(seid, &session);
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
        message: &Message<'_>,
        now: Now,
        plane: &mut impl Plane,
        answer: &mut Vec<u8>,
    ) -> Option<Cause> {
        let seid = message.seid();
        let mut response = SessionDeletionResponse::new(Cause::SESSION_CONTEXT_NOT_FOUND);
        let mut cp_seid = 0;
        if let Some(session) = self.sessions.remove(&seid) {
            self.reporting.remove(&seid);
            cp_seid = session.cp.seid;
            response.cause = Cause::REQUEST_ACCEPTED;
            response.usage_reports = session.end(now.ntp, plane).into_iter().map(UsageReportInDeletion).collect();
        }
        response.emit(answer, cp_seid, message.sequence()).ok()?;
        Some(response.cause)
    }

    /// The datapath has seen something that a control plane must know.
    pub(super) fn event(&mut self, event: Event, now: Now, out: &mut Outgoing) {
        let (seid, report) = match event {
            Event::DownlinkData { session, pdr } => {
                let report = SessionReportRequest {
                    report_type: ReportType::DLDR,
                    downlink_data: Some(DownlinkDataReport {
                        pdr_ids: std::iter::once(PdrId(pdr)).collect(),
                        ..DownlinkDataReport::default()
                    }),
                    ..SessionReportRequest::default()
                };
                (session, report)
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
            self.reporting.remove(&seid);
            if let Some(session) = self.sessions.remove(&seid) {
                plane.change(|tables, released| session.records.clone().remove(tables, released));
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
    }

    /// Sends again what is unanswered. To be called when [`Upf::deadline`] has passed.
    pub(super) fn tick(&mut self, now: Now, out: &mut Outgoing) {
        let given_up = self.requests.tick(now.instant, out);
        if !given_up.is_empty() {
            warn!("{} reports were not answered by their control plane", given_up.len());
            self.stats.unanswered += given_up.len() as u64;
        }
    }

    /// Reports the usage that is due. To be called about once a second.
    pub(super) fn report_usage(&mut self, now: Now, plane: &mut impl Plane, out: &mut Outgoing) {
        let reporting: Vec<u64> = self.reporting.iter().copied().collect();
        for seid in reporting {
            let Some(session) = self.sessions.get_mut(&seid) else { continue };
            let usage_reports = session.due_reports(now.ntp, plane);
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
}
