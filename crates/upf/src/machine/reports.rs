//! Reports of sessions and paths, and the handling of their responses.

use super::{DELAY_MS, DELAYED, ENTRIES, Line, LogLimit, MAX_FIRED_TIMERS, NO_SESSION, Outgoing, Upf, seconds};
use crate::machine::settings::Timestamps;
use crate::machine::tables_access::TablesAccess;
use crate::machine::timer_wheel::TimerDue;
#[cfg(test)]
use std::net::Ipv4Addr;
use std::net::{IpAddr, SocketAddr};
use tracing::{debug, info, warn};
use vireo_datapath::Event;
use vireo_types::Duration;
use vireo_wire::gtpu;
use vireo_wire::pfcp::{self, *};

impl Upf {
    /// Reports failed and recovered paths to every control plane (TS 29.244 5.9).
    fn node_report(&mut self, lost: &[IpAddr], found: &[IpAddr], now: Timestamps, out: &mut Outgoing) {
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
                false => not_sent(&mut self.lines, to, now),
            }
        }
    }

    /// Sends due Echo Requests to GTP-U peers, a bounded number per call. Must be called about once
    /// a second, and while [`Upf::is_behind`] returns true.
    pub(crate) fn check_paths(&mut self, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        let due = self.paths.due(now.instant);
        self.has_due_echoes = due.more;
        if !due.echo_requests.is_empty() {
            plane.change(|_, released| {
                for (peer, sequence) in &due.echo_requests {
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

    /// Handles an event of the datapath.
    pub(crate) fn event(&mut self, event: Event, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        let (seid, report) = match event {
            Event::Volume { session } => return self.report_due(session, now, plane, out),
            Event::DownlinkData { session, pdr } => {
                let known = self.sessions.get(&session);
                // If the control plane has set the action since, the packet is on its way or
                // dropped. A report would page a UE that has become idle meanwhile.
                let Some(known) = known.filter(|known| known.has_data_to_report(pdr, plane)) else { return };
                let delay = known.report_delay(pdr);
                if delay > 0 {
                    let at = now.instant + Duration::from_millis(u64::from(delay) * DELAY_MS);
                    self.delayed.insert((at, session), pdr);
                    return;
                }
                (session, self.downlink_data(session, pdr))
            }
            Event::Alive { peer } => {
                if self.paths.on_echo_response(peer, now.instant) {
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

    /// Returns a downlink data report for this PDR, with the QoS flow of its packets (TS 29.244
    /// 8.2.27).
    fn downlink_data(&self, seid: u64, pdr: u16) -> SessionReportRequest {
        let qfi = self.sessions.get(&seid).and_then(|session| session.flow(pdr));
        let flow = qfi.map(|qfi| DownlinkDataServiceInformation { qfi: Some(qfi), paging_policy: None });
        SessionReportRequest {
            report_type: ReportType::DLDR,
            downlink_data: Some(DownlinkDataReport {
                pdr_ids: std::iter::once(PdrId(pdr)).collect(),
                service_information: flow.into_iter().collect(),
            }),
            ..SessionReportRequest::default()
        }
    }

    fn report(&mut self, seid: u64, report: &SessionReportRequest, now: Timestamps, out: &mut Outgoing) {
        let Some(session) = self.sessions.get(&seid) else { return };
        let to = self.reported_to(&session);
        let build = |sequence| {
            let mut message = vec![];
            report.emit(&mut message, session.cp.seid, sequence).ok().map(|()| message)
        };
        match self.requests.send(seid, to, now.instant, out, build) {
            true => self.stats.reports += 1,
            false => not_sent(&mut self.lines, to, now),
        }
    }

    /// Handles the response to a report.
    pub(crate) fn response(
        &mut self,
        from: SocketAddr,
        message: &Message<'_>,
        now: Timestamps,
        plane: &mut impl TablesAccess,
    ) {
        let answers = match message.message_type() {
            MessageType::HEARTBEAT_RESPONSE => return self.heartbeat_answered(from, message, now, plane),
            MessageType::SESSION_REPORT_RESPONSE | MessageType::NODE_REPORT_RESPONSE => true,
            _ => false,
        };
        let Some(seid) = answers.then(|| self.requests.take_answered_session(from, message.sequence())).flatten()
        else {
            self.stats.discarded += 1;
            return;
        };
        let Ok(response) = SessionReportResponse::parse(message) else { return };
        if response.cause == Cause::SESSION_CONTEXT_NOT_FOUND {
            // otherwise no control plane would ever delete the session (TS 29.244 6.3.2.4)
            if let Some(suppressed) = self.lines.admit(Line::Unknown, from.ip(), now.instant) {
                info!(control_plane = %from, suppressed, "session unknown to its control plane, removed");
            }
            self.remove(seid, plane);
            return;
        }
        let drops = response.flags.is_some_and(|flags| flags.contains(SrRspFlags::DROBU));
        if response.cp_f_seid.is_none() && response.update_bar.is_none() && !drops {
            return;
        }
        self.mark_changed(seid);
        self.sessions.change(&seid, |session| {
            if let Some(f_seid) = response.cp_f_seid {
                session.cp = f_seid;
            }
            if drops {
                session.drop_buffered(plane);
            }
            if let Some(Err(refused)) = response.update_bar.map(|ie| session.update_bar(&ie, plane)) {
                debug!("PFCP from {from}: a BAR is not changed: {:?}", refused.error);
            }
        });
    }

    /// Retransmits unanswered requests and sends delayed reports, a bounded number per call. Must
    /// be called when [`Upf::deadline`] has passed.
    pub(crate) fn tick(&mut self, now: Timestamps, out: &mut Outgoing) {
        for _ in 0..DELAYED {
            let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now.instant) else { break };
            let ((_, seid), pdr) = entry.remove_entry();
            // the UE may have become reachable meanwhile
            if self.sessions.get(&seid).is_some_and(|session| session.buffers_packets(pdr)) {
                let report = self.downlink_data(seid, pdr);
                self.report(seid, &report, now, out);
            }
        }
        let given_up = self.requests.tick(now.instant, out);
        if !given_up.is_empty() {
            let nobody = std::net::IpAddr::from(std::net::Ipv4Addr::UNSPECIFIED);
            if let Some(suppressed) = self.lines.admit(Line::Unanswered, nobody, now.instant) {
                warn!(reports = given_up.len(), suppressed, "reports not answered by their control plane");
            }
            self.stats.unanswered += given_up.len() as u64;
        }
    }

    /// Sends a request to an unreachable address. Returns false if too many requests are
    /// unanswered.
    #[cfg(test)]
    pub(crate) fn fill_requests(&mut self, now: Timestamps, out: &mut Outgoing) -> bool {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9));
        self.requests.send(NO_SESSION, nobody, now.instant, out, |_| Some(vec![]))
    }

    /// Returns true if [`Upf::upkeep`] must be called again at once.
    pub(crate) fn is_behind(&self) -> bool {
        self.timers.is_behind() || self.has_due_echoes
    }

    /// Runs the work that is due each `second`, or the rest of it. Each call does a bounded part,
    /// so that no control plane waits for long.
    pub(crate) fn upkeep(&mut self, second: bool, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        if second || self.contests > 0 {
            self.supervise(now, plane, out);
        }
        if second || self.has_due_echoes {
            self.check_paths(now, plane, out);
        }
        if second || self.timers.is_behind() {
            self.report_usage(now, plane, out);
        }
    }

    /// Reports due usage of a bounded number of sessions. Must be called about once a second, and
    /// while [`Upf::is_behind`] returns true.
    pub(crate) fn report_usage(&mut self, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        let sessions = &self.sessions;
        let timer = |seid: u64| sessions.timer(seid);
        let (mut due, mut entries) = (vec![], ENTRIES);
        while due.len() < MAX_FIRED_TIMERS
            && let Some(seid) = self.timers.take(seconds(now), &mut entries, timer)
        {
            due.push(seid);
        }
        for seid in due {
            self.sessions.change(&seid, |session| session.timer = TimerDue::default());
            self.report_due(seid, now, plane, out);
        }
    }

    /// Sends the due reports of a session and arms its timer.
    fn report_due(&mut self, seid: u64, now: Timestamps, plane: &mut impl TablesAccess, out: &mut Outgoing) {
        let (room, timers, settings) = (self.requests.has_room(), &mut self.timers, &self.settings);
        let looked = self.sessions.change(&seid, |session| {
            if !room {
                // the URRs keep their measurement until a report can be sent
                timers.arm(seid, &mut session.timer, seconds(now), 1);
                return None;
            }
            let inactive = session.take_inactivity(now.ntp, plane);
            let (usage_reports, spent) = session.due_reports(seid, now.ntp, settings, plane);
            if let Some(after) = session.due_in(now.ntp) {
                timers.arm(seid, &mut session.timer, seconds(now), after);
            }
            Some((inactive, usage_reports, spent))
        });
        let Some((inactive, usage_reports, spent)) = looked.flatten() else { return };
        if spent || !usage_reports.is_empty() {
            self.mark_changed(seid);
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

/// Logs that a report was not sent, because too many are unanswered.
fn not_sent(lines: &mut LogLimit<Line>, to: SocketAddr, now: Timestamps) {
    if let Some(suppressed) = lines.admit(Line::Reports, to.ip(), now.instant) {
        warn!(control_plane = %to, suppressed, "report left out, too many are unanswered");
    }
}
