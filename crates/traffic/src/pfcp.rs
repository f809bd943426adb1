//! Control plane for load tests: one PFCP association and a window of parallel session requests.

mod query;
mod tunnel_updates;

pub use query::SessionVolume;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
pub use tunnel_updates::TunnelUpdates;
use vireo_types::Teid;
use vireo_wire::pfcp::*;

/// Reason why sessions cannot be set up. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum PfcpError {
    /// The socket cannot be opened.
    #[error("cannot open UDP port {} of {} for PFCP: {source}; is another control plane running?", .address.port(), .address.ip())]
    Socket {
        /// Local address of the socket.
        address: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The UPF does not answer.
    #[error("the UPF at {0} does not answer PFCP: is it running, and is this its N4 address?")]
    Silent(SocketAddr),
    /// The UPF refuses the association.
    #[error("the UPF refuses the association: {0:?}")]
    Association(Cause),
    /// The UPF refuses a session.
    #[error(
        "the UPF refuses session {session} of {of}: {cause:?} (offending IE {offending:?}); see its log, its \
         `max-sessions`, and whether {ue} is in one of its pools and free"
    )]
    Session {
        /// Number of the session.
        session: u32,
        /// Number of requested sessions.
        of: u32,
        /// Cause in the response.
        cause: Cause,
        /// Type of the offending information element.
        offending: Option<u16>,
        ue: Ipv4Addr,
    },
    /// A response lacks required information.
    #[error("the UPF's answer to session {session} cannot be used: {problem}")]
    Answer {
        /// Number of the session.
        session: u32,
        /// Description of the defect.
        problem: String,
    },
    /// Any other failure of the socket.
    #[error("PFCP: {0}")]
    Io(#[from] io::Error),
}

/// Parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub ue: Ipv4Addr,
    /// N3 address of the RAN node.
    pub gnb: Ipv4Addr,
    /// Downlink TEID of the RAN node.
    pub teid: Teid,
    /// Local F-TEID of the uplink tunnel. `None` = the UPF chooses it.
    pub f_teid: Option<(Teid, Ipv4Addr)>,
    /// QFI of the session's QoS flow.
    pub qfi: u8,
    /// Rate limit for both directions, in kbit/s.
    pub mbr_kbps: Option<u64>,
    /// If true, a URR measures the volume, with a threshold that is not reached.
    pub measured: bool,
    /// Number of rules before those for all packets, in each direction. Their SDF filters match no
    /// packet.
    pub filters: u16,
}

/// An established session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    pub session: u32,
    /// SEID that the UPF assigned.
    pub seid: u64,
    /// Uplink TEID that the UPF assigned.
    pub teid: Teid,
    /// N3 address of the UPF.
    pub upf: IpAddr,
}

/// Time without a response after which a request is retransmitted.
const RESPONSE_TIME: Duration = Duration::from_secs(1);
/// Maximum transmissions of a request.
const ATTEMPTS: u8 = 5;
/// Size of a buffer that holds any response, in octets.
const DATAGRAM: usize = 2048;
/// Seconds from 1900-01-01 to 1970-01-01.
const NTP_EPOCH: u64 = 2_208_988_800;

/// A control plane with an association.
#[derive(Debug)]
pub struct ControlPlane {
    socket: UdpSocket,
    upf: SocketAddr,
    address: Ipv4Addr,
    started: RecoveryTimeStamp,
    sequence: u32,
    /// Network instance of PDRs and FARs, if the UPF requires one.
    network: Option<NetworkInstance>,
}

#[derive(Debug)]
struct Pending {
    session: u32,
    request: Vec<u8>,
    sent: Instant,
    attempts: u8,
}

impl ControlPlane {
    /// Sets up an association from the address (port 0: any) to the UPF.
    ///
    /// # Errors
    ///
    /// Returns an error if the UPF does not answer or refuses, or the socket cannot be opened.
    pub fn associate(address: Ipv4Addr, port: u16, upf: SocketAddr) -> Result<Self, PfcpError> {
        let local = SocketAddr::from((address, port));
        let socket = UdpSocket::bind(local).map_err(|source| PfcpError::Socket { address: local, source })?;
        socket.connect(upf)?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = RecoveryTimeStamp((unix.as_secs() + NTP_EPOCH) as u32);
        // The requests of a predecessor that ended a moment ago may be equal. They must not get its
        // cached responses.
        let sequence = unix.as_micros() as u32 & 0xff_ffff;
        let mut plane = ControlPlane { socket, upf, address, started, sequence, network: None };
        let request = AssociationSetupRequest {
            node_id: NodeId::Ipv4(address),
            recovery_time_stamp: started,
            up_function_features: None,
            cp_function_features: None,
            session_retention: None,
        };
        let sequence = plane.next();
        let mut octets = vec![];
        request.emit(&mut octets, sequence).map_err(too_long)?;
        let response: AssociationSetupResponse = plane.exchange(&octets, sequence)?;
        if response.cause.is_accepted() { Ok(plane) } else { Err(PfcpError::Association(response.cause)) }
    }

    /// Places all further sessions in this data network.
    pub fn in_network(&mut self, name: &str) {
        self.network = Some(NetworkInstance::from(name));
    }

    /// Answers requests of the UPF until `stop` is set.
    pub fn serve_requests(&self, stop: &AtomicBool) -> Result<(), PfcpError> {
        let mut buffer = [0; DATAGRAM];
        self.socket.set_read_timeout(Some(RESPONSE_TIME / 10))?;
        while !stop.load(Ordering::Relaxed) {
            if let Some(message) = self.receive(&mut buffer)? {
                self.answer(&message)?;
            }
        }
        Ok(())
    }

    /// Sets up the sessions with these numbers, with up to `window` outstanding requests. Calls
    /// back for each established session.
    pub fn establish(
        &mut self,
        sessions: Range<u32>,
        window: usize,
        build: impl Fn(u32) -> Session,
        mut each: impl FnMut(Established),
    ) -> Result<(), PfcpError> {
        let (of, mut next) = (sessions.len() as u32, sessions.start);
        let mut pending: HashMap<u32, Pending> = HashMap::with_capacity(window);
        let mut spare: Vec<Vec<u8>> = vec![];
        let mut buffer = [0; DATAGRAM];
        self.socket.set_read_timeout(Some(RESPONSE_TIME / 4))?;
        while next < sessions.end || !pending.is_empty() {
            while next < sessions.end && pending.len() < window.max(1) {
                let sequence = self.next();
                let mut request = spare.pop().unwrap_or_default();
                request.clear();
                self.request(next, &build(next)).emit(&mut request, 0, sequence).map_err(too_long)?;
                self.send(&request)?;
                pending.insert(sequence, Pending { session: next, request, sent: Instant::now(), attempts: 1 });
                next += 1;
            }
            let Some(message) = self.receive(&mut buffer)? else {
                self.repeat(&mut pending)?;
                continue;
            };
            if message.message_type() != MessageType::SESSION_ESTABLISHMENT_RESPONSE {
                self.answer(&message)?;
                continue;
            }
            let Some(answered) = pending.remove(&message.sequence()) else { continue };
            each(established(&message, answered.session, of, &build(answered.session))?);
            spare.push(answered.request);
        }
        Ok(())
    }

    /// Releases the association, and with it all sessions.
    pub fn release(mut self) -> Result<(), PfcpError> {
        let sequence = self.next();
        let mut octets = vec![];
        let request = AssociationReleaseRequest { node_id: NodeId::Ipv4(self.address) };
        request.emit(&mut octets, sequence).map_err(too_long)?;
        let _: AssociationReleaseResponse = self.exchange(&octets, sequence)?;
        Ok(())
    }

    fn next(&mut self) -> u32 {
        self.sequence = if self.sequence >= 0xff_ffff { 1 } else { self.sequence + 1 };
        self.sequence
    }

    /// Sends a request, with retransmissions, until it is answered.
    fn exchange<T: Body>(&mut self, request: &[u8], sequence: u32) -> Result<T, PfcpError> {
        let mut buffer = [0; DATAGRAM];
        self.socket.set_read_timeout(Some(RESPONSE_TIME))?;
        for _ in 0..ATTEMPTS {
            self.send(request)?;
            let until = Instant::now() + RESPONSE_TIME;
            while Instant::now() < until {
                match self.receive(&mut buffer)? {
                    Some(message) if message.sequence() == sequence && message.message_type() == T::KIND => {
                        return T::parse(&message)
                            .map_err(|error| PfcpError::Answer { session: 0, problem: format!("{error:?}") });
                    }
                    Some(message) => self.answer(&message)?,
                    None => {}
                }
            }
        }
        Err(PfcpError::Silent(self.upf))
    }

    fn send(&self, datagram: &[u8]) -> Result<(), PfcpError> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            // Error of an earlier datagram. This request is retransmitted if it was not sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<Message<'b>>, PfcpError> {
        match self.socket.recv(buffer) {
            Ok(length) => Ok(Message::new(&buffer[..length]).ok()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                io::ErrorKind::ConnectionRefused => {
                    std::thread::sleep(RESPONSE_TIME / 10);
                    Ok(None)
                }
                _ => Err(error.into()),
            },
        }
    }

    /// Retransmits the requests whose response time has expired.
    fn repeat(&self, pending: &mut HashMap<u32, Pending>) -> Result<(), PfcpError> {
        let now = Instant::now();
        for waiting in pending.values_mut().filter(|waiting| now > waiting.sent + RESPONSE_TIME) {
            if waiting.attempts >= ATTEMPTS {
                return Err(PfcpError::Silent(self.upf));
            }
            waiting.attempts += 1;
            waiting.sent = now;
            self.send(&waiting.request)?;
        }
        Ok(())
    }

    /// Answers heartbeats and reports of the UPF.
    fn answer(&self, message: &Message<'_>) -> Result<(), PfcpError> {
        let mut octets = vec![];
        match message.message_type() {
            MessageType::HEARTBEAT_REQUEST => {
                let response = HeartbeatResponse { recovery_time_stamp: self.started };
                response.emit(&mut octets, message.sequence()).map_err(too_long)?;
            }
            MessageType::SESSION_REPORT_REQUEST => {
                let response = SessionReportResponse::new(Cause::REQUEST_ACCEPTED);
                response.emit(&mut octets, message.seid(), message.sequence()).map_err(too_long)?;
            }
            _ => return Ok(()),
        }
        self.send(&octets)
    }

    fn request(&self, number: u32, session: &Session) -> SessionEstablishmentRequest {
        // SEID 0 is reserved.
        let seid = u64::from(number) + 1;
        let mut request =
            SessionEstablishmentRequest::new(NodeId::Ipv4(self.address), FSeid::new(seid, self.address.into()));
        let qers = || std::iter::once(QerId(1)).collect();
        let urrs = || session.measured.then_some(UrrId(1)).into_iter().collect();
        request.create_pdrs.push(CreatePdr {
            pdr_id: PdrId(1),
            precedence: Precedence(255),
            pdi: Pdi {
                source_interface: SourceInterface::ACCESS,
                f_teid: Some(match session.f_teid {
                    Some((teid, address)) => FTeid::new(teid, address.into()),
                    // One tunnel for all rules.
                    None => FTeid::Choose { ipv4: true, ipv6: false, id: (session.filters > 0).then_some(1) },
                }),
                network_instance: self.network.clone(),
                ue_ip_addresses: std::iter::once(UeIpAddress::source(Some(session.ue), None)).collect(),
                ..Pdi::default()
            },
            outer_header_removal: Some(OuterHeaderRemoval::GTPU_IPV4),
            far_id: Some(FarId(1)),
            qer_ids: qers(),
            urr_ids: urrs(),
            ..CreatePdr::default()
        });
        request.create_pdrs.push(CreatePdr {
            pdr_id: PdrId(2),
            precedence: Precedence(255),
            pdi: Pdi {
                source_interface: SourceInterface::CORE,
                network_instance: self.network.clone(),
                ue_ip_addresses: std::iter::once(UeIpAddress::destination(Some(session.ue), None)).collect(),
                ..Pdi::default()
            },
            far_id: Some(FarId(2)),
            qer_ids: qers(),
            urr_ids: urrs(),
            ..CreatePdr::default()
        });
        let for_all = request.create_pdrs.clone();
        for n in 0..session.filters {
            for (id, pdr) in (10 + 2 * n..).zip(&for_all) {
                let mut pdr = pdr.clone();
                (pdr.pdr_id, pdr.precedence) = (PdrId(id), Precedence(100 + u32::from(n)));
                let filter = format!("permit out 17 from 203.0.113.7 {} to assigned", 1000 + n);
                pdr.pdi.sdf_filters = vec![SdfFilter::new(&filter)];
                request.create_pdrs.push(pdr);
            }
        }
        let forward = |id, destination_interface, outer_header_creation| CreateFar {
            far_id: FarId(id),
            apply_action: ApplyAction::FORW,
            forwarding_parameters: Some(ForwardingParameters {
                destination_interface,
                network_instance: self.network.clone(),
                outer_header_creation,
                ..ForwardingParameters::default()
            }),
            bar_id: None,
        };
        let tunnel = OuterHeaderCreation::gtpu(session.teid, session.gnb.into());
        request.create_fars.push(forward(1, DestinationInterface::CORE, None));
        request.create_fars.push(forward(2, DestinationInterface::ACCESS, Some(tunnel)));
        request.create_qers.push(CreateQer {
            qer_id: QerId(1),
            qfi: Some(Qfi(session.qfi)),
            mbr: session.mbr_kbps.map(|kbps| Mbr { uplink_kbps: kbps, downlink_kbps: kbps }),
            ..CreateQer::default()
        });
        if session.measured {
            request.create_urrs.push(CreateUrr {
                urr_id: UrrId(1),
                measurement_method: MeasurementMethod::VOLUM,
                reporting_triggers: ReportingTriggers::VOLTH,
                volume_threshold: Some(VolumeThreshold { total: Some(1 << 50), ..VolumeThreshold::default() }),
                ..CreateUrr::default()
            });
        }
        request
    }
}

fn too_long(error: TooLong) -> PfcpError {
    PfcpError::Io(io::Error::other(format!("{error:?}")))
}

fn established(message: &Message<'_>, session: u32, of: u32, asked: &Session) -> Result<Established, PfcpError> {
    let wrong = |problem: &str| PfcpError::Answer { session, problem: problem.to_owned() };
    let response = SessionEstablishmentResponse::parse(message).map_err(|error| wrong(&format!("{error:?}")))?;
    if !response.cause.is_accepted() {
        let offending = response.offending_ie.map(|ie| ie.0);
        return Err(PfcpError::Session { session, of, cause: response.cause, offending, ue: asked.ue });
    }
    let f_teid = response.created_pdrs.iter().find_map(|created| created.f_teid);
    let (teid, upf) = match (f_teid, asked.f_teid) {
        (Some(f_teid), _) => f_teid.teid().zip(f_teid.address()).ok_or_else(|| wrong("its F-TEID is not whole"))?,
        (None, Some((teid, address))) => (teid, address.into()),
        (None, None) => return Err(wrong("it names no F-TEID for the uplink")),
    };
    let seid = response.up_f_seid.ok_or_else(|| wrong("it has no F-SEID"))?.seid;
    Ok(Established { session, seid, teid, upf })
}
