//! PFCP messages of a session (TS 29.244 7.5).
//!
//! Every session has the same rules: PDR and FAR 1 for uplink, PDR and FAR 2 for downlink, and one
//! QER for both. The QER contains the session AMBR and the QFI of the default flow. A slice of
//! simple devices ([`SliceProfile::Iot`]) omits the rate and the match of the uplink QFI, which
//! cannot apply there. A session of EPS has no QFI: its tunnel has no extension header. A QER
//! cannot lose its QFI (TS 29.244 7.5.4.5), so that the QER of EPS is another one.
//!
//! PDR and FAR 3 relay the downlink packets that the source of a handover forwards, and PDR and FAR
//! 4 the uplink packets ([`super::forwarding`]). QER 3 is for both.

use super::charging;
use super::context::{ForwardingEnds, ForwardingRules, SmContext, Tunnel};
use super::interface::Output;
use super::n2::DEFAULT_QFI;
use crate::config::{CoreConfig, SliceProfile};
use vireo_types::{Dialect, PduSessionType, Seid};
use vireo_wire::nas::GsmCause;
use vireo_wire::pfcp::*;

const UPLINK_PDR: PdrId = PdrId(1);
const DOWNLINK_PDR: PdrId = PdrId(2);
const UPLINK_FAR: FarId = FarId(1);
const DOWNLINK_FAR: FarId = FarId(2);
/// Rules for forwarded packets of the downlink, and of the uplink.
const FORWARDING: [(PdrId, FarId); 2] = [(PdrId(3), FarId(3)), (PdrId(4), FarId(4))];
const FORWARDING_QER: QerId = QerId(3);

/// Returns the QER of the sessions of a dialect.
const fn session_qer(dialect: Dialect) -> QerId {
    match dialect {
        Dialect::Nr => QerId(1),
        Dialect::Eps => QerId(2),
    }
}

/// Precedence of the only PDR of each direction; the value leaves room on both sides.
const PRECEDENCE: Precedence = Precedence(255);

/// Placeholder: the N4 endpoint fills in the sequence number of a request when it sends it.
const TO_BE_FILLED: u32 = 0;

/// Returns the action without a tunnel to the RAN: buffer packets and notify about the first.
fn buffer() -> ApplyAction {
    ApplyAction::BUFF | ApplyAction::NOCP
}

/// Builds a Session Establishment Request: the UPF chooses its tunnel end and buffers downlink
/// packets.
///
/// `kept` octets of the quota remain with the source UPF of a relocation.
pub(super) fn establishment_request(sm: &SmContext, config: &CoreConfig, kept: u64) -> Output {
    let counted = charging::settings(sm, config);
    let grant = charging::quota_remaining(sm, config).map(|left| left.saturating_sub(kept));
    let network = NetworkInstance::from(sm.terms.dnn.as_str());
    let qer = session_qer(sm.dialect);
    let pdn_type = match sm.kind {
        PduSessionType::Ipv4 => PdnType::IPV4,
        PduSessionType::Ipv6 => PdnType::IPV6,
        PduSessionType::Ipv4v6 => PdnType::IPV4V6,
    };
    request(sm, MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, |message| {
        message
            .put(&config.n4_node.id())
            .put(&FSeid::new(sm.pfcp.cp_seid.0, config.n4_address))
            .group(CreatePdr::ID, |rule| {
                rule.put(&UPLINK_PDR)
                    .put(&PRECEDENCE)
                    .group(Pdi::ID, |packets| {
                        uplink_packets(sm, config, &tunnel_choice(sm, config), packets);
                    })
                    .put(&OuterHeaderRemoval::GTPU)
                    .put(&UPLINK_FAR);
                if counted.is_some() {
                    rule.put(&charging::URR);
                }
                rule.put(&qer);
            })
            .group(CreatePdr::ID, |rule| {
                rule.put(&DOWNLINK_PDR)
                    .put(&PRECEDENCE)
                    .group(Pdi::ID, |packets| {
                        packets
                            .put(&SourceInterface::CORE)
                            .put(&network)
                            .put(&UeIpAddress::destination(sm.address.ipv4, sm.address.ipv6_prefix));
                        framed_routes(sm, packets);
                    })
                    .put(&DOWNLINK_FAR);
                if counted.is_some() {
                    rule.put(&charging::URR);
                }
                rule.put(&qer);
            })
            .group(CreateFar::ID, |rule| {
                rule.put(&UPLINK_FAR).put(&ApplyAction::FORW).group(ForwardingParameters::ID, |where_to| {
                    where_to.put(&DestinationInterface::CORE).put(&network);
                });
            })
            .group(CreateFar::ID, |rule| {
                rule.put(&DOWNLINK_FAR).put(&buffer());
            });
        if let Some(charging) = &counted {
            message.group(CreateUrr::ID, |rule| charging::create(rule, charging, grant));
        }
        message.group(CreateQer::ID, |rule| create_qer(sm, config, rule)).put(&pdn_type).put(&SliceId(sm.terms.snssai));
    })
}

/// Returns the request for a tunnel end of the UPF, in the family of its N3.
fn tunnel_choice(sm: &SmContext, config: &CoreConfig) -> FTeid {
    let ipv6 = config.upfs.iter().any(|upf| upf.n4 == sm.pfcp.upf && upf.n3_ipv6);
    FTeid::Choose { ipv4: !ipv6, ipv6, id: None }
}

/// Appends the PDI of the uplink PDR: the tunnel, and the QoS flow if packets name it.
fn uplink_packets(sm: &SmContext, config: &CoreConfig, tunnel: &FTeid, packets: &mut Builder<'_>) {
    packets.put(&SourceInterface::ACCESS).put(tunnel);
    if sm.dialect == Dialect::Nr && !is_simple(sm, config) {
        packets.put(&Qfi(DEFAULT_QFI));
    }
}

/// Appends the networks behind the UE to the PDI of the downlink PDR (TS 29.244 5.16): prefix, any
/// gateway, metric 1. The prefix has its length also if it is one address: the class of the address
/// would apply without (RFC 2865 5.22).
fn framed_routes(sm: &SmContext, packets: &mut Builder<'_>) {
    for network in &sm.terms.framed_routes {
        let (address, length) = network.prefix();
        if network.is_ipv4() {
            packets.put(&FramedRoute::from(format!("{address}/{length} 0.0.0.0 1").as_str()));
        } else {
            packets.put(&FramedIpv6Route::from(format!("{address}/{length} :: 1").as_str()));
        }
    }
}

/// Appends the QER. Downlink packets of 5G are marked with the QoS flow.
fn create_qer(sm: &SmContext, config: &CoreConfig, rule: &mut Builder<'_>) {
    rule.put(&session_qer(sm.dialect)).put(&GateStatus::OPEN);
    if !is_simple(sm, config) {
        rule.put(&session_rate(sm));
    }
    if sm.dialect == Dialect::Nr {
        rule.put(&Qfi(DEFAULT_QFI));
    }
}

/// Returns true for a session of a simple device. It has only one QoS flow, and the RAN enforces
/// its rate.
fn is_simple(sm: &SmContext, config: &CoreConfig) -> bool {
    config.profile(sm.terms.snssai) == SliceProfile::Iot
}

/// Returns true if the QER of the session has a rate.
pub(super) fn has_rate(sm: &SmContext, config: &CoreConfig) -> bool {
    !is_simple(sm, config)
}

/// Builds a Session Modification Request with the rate of the session.
pub(super) fn rate_request(sm: &SmContext) -> Output {
    request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        message.group(UpdateQer::ID, |rule| {
            rule.put(&session_qer(sm.dialect)).put(&session_rate(sm));
        });
    })
}

fn session_rate(sm: &SmContext) -> Mbr {
    let kbps = |bps: u64| bps.div_ceil(1000);
    Mbr { uplink_kbps: kbps(sm.terms.ambr.uplink_bps), downlink_kbps: kbps(sm.terms.ambr.downlink_bps) }
}

/// Builds a Session Modification Request: forward downlink packets to the tunnel in `downlink`, or
/// buffer them.
pub(super) fn modification_request(sm: &SmContext) -> Output {
    request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        message.group(UpdateFar::ID, |rule| update_far(sm, rule));
    })
}

fn update_far(sm: &SmContext, rule: &mut Builder<'_>) {
    rule.put(&DOWNLINK_FAR);
    match sm.downlink {
        None => rule.put(&buffer()),
        Some(tunnel) => rule.put(&ApplyAction::FORW).group(UpdateForwardingParameters::ID, |where_to| {
            // No RAN node can have its packets forwarded to the control plane.
            let to = if sm.is_over_nas() { DestinationInterface::CP_FUNCTION } else { DestinationInterface::ACCESS };
            where_to.put(&to).put(&OuterHeaderCreation::gtpu(tunnel.teid, tunnel.address));
            if sm.end_marker {
                where_to.put(&SmReqFlags::SNDEM);
            }
        }),
    };
}

/// Builds a Session Modification Request that replaces the rules of the other dialect by those of
/// the session's. `None` if the UPF has allocated no tunnel end.
pub(super) fn conversion_request(sm: &SmContext, config: &CoreConfig) -> Option<Output> {
    let Tunnel { address, teid } = sm.uplink?;
    let (old, new) = match sm.dialect {
        Dialect::Nr => (Dialect::Eps, Dialect::Nr),
        Dialect::Eps => (Dialect::Nr, Dialect::Eps),
    };
    Some(request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        message
            .group(RemoveQer::ID, |rule| {
                rule.put(&session_qer(old));
            })
            .group(CreateQer::ID, |rule| create_qer(sm, config, rule))
            .group(UpdatePdr::ID, |rule| {
                rule.put(&UPLINK_PDR)
                    .group(Pdi::ID, |packets| uplink_packets(sm, config, &FTeid::new(teid, address), packets))
                    .put(&session_qer(new));
            })
            .group(UpdatePdr::ID, |rule| {
                rule.put(&DOWNLINK_PDR).put(&session_qer(new));
            })
            .group(UpdateFar::ID, |rule| update_far(sm, rule));
    }))
}

/// Builds a Session Modification Request that queries the volume since the last report and, with
/// `grant`, sets a new quota.
pub(super) fn charging_request(sm: &SmContext, grant: Option<u64>) -> Output {
    request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        if let Some(octets) = grant {
            message.group(UpdateUrr::ID, |rule| {
                rule.put(&charging::URR).put(&charging::quota(octets));
            });
        }
        message.put(&SmReqFlags::QAURR);
    })
}

/// Builds a Session Modification Request that drops buffered packets.
pub(super) fn drop_buffered(sm: &SmContext) -> Output {
    request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        message.put(&SmReqFlags::DROBU);
    })
}

/// Builds a Session Modification Request for tunnels whose packets are relayed to the ends `to` at
/// a target of this dialect. They get or lose the PDU Session Container of 5GS where source and
/// target differ. `before` has the rules of an earlier handover that the UPF has.
pub(super) fn forwarding_request(
    sm: &SmContext,
    (to, target): (ForwardingEnds, Dialect),
    before: Option<ForwardingRules>,
    config: &CoreConfig,
) -> Output {
    let extension_deletion = match (sm.dialect, target) {
        (Dialect::Nr, Dialect::Eps) => Some(OuterHeaderRemoval::PDU_SESSION_CONTAINER),
        _ => None,
    };
    request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        if let Some(before) = before {
            remove_forwarding(before, message);
        }
        accept_uplink(sm, (before.map(|before| before.target), Some(target)), config, message);
        for ((pdr, far), end) in FORWARDING.iter().zip([to.downlink, to.uplink]) {
            let Some(end) = end else { continue };
            message
                .group(CreatePdr::ID, |rule| {
                    rule.put(pdr)
                        .put(&PRECEDENCE)
                        .group(Pdi::ID, |packets| {
                            packets.put(&SourceInterface::ACCESS).put(&tunnel_choice(sm, config));
                        })
                        .put(&OuterHeaderRemoval { extension_deletion, ..OuterHeaderRemoval::GTPU })
                        .put(far)
                        .put(&FORWARDING_QER);
                })
                .group(CreateFar::ID, |rule| {
                    rule.put(far).put(&ApplyAction::FORW).group(ForwardingParameters::ID, |where_to| {
                        let header = OuterHeaderCreation::gtpu(end.teid, end.address);
                        where_to.put(&DestinationInterface::ACCESS).put(&header);
                    });
                });
        }
        message.group(CreateQer::ID, |rule| {
            rule.put(&FORWARDING_QER).put(&GateStatus::OPEN);
            if (sm.dialect, target) == (Dialect::Eps, Dialect::Nr) {
                rule.put(&Qfi(DEFAULT_QFI));
            }
        });
    })
}

/// Builds a Session Modification Request that removes these rules of [`forwarding_request`].
pub(super) fn forwarding_removal(sm: &SmContext, before: Option<ForwardingRules>, config: &CoreConfig) -> Output {
    request(sm, MessageType::SESSION_MODIFICATION_REQUEST, sm.pfcp.up_seid, |message| {
        if let Some(before) = before {
            remove_forwarding(before, message);
        }
        accept_uplink(sm, (before.map(|before| before.target), None), config, message);
    })
}

/// Has a session of 5GS accept uplink packets without QoS flow while a target of EPS is prepared,
/// and no longer afterwards.
fn accept_uplink(
    sm: &SmContext,
    (before, after): (Option<Dialect>, Option<Dialect>),
    config: &CoreConfig,
    message: &mut Builder<'_>,
) {
    let is_open = |target| target == Some(Dialect::Eps);
    let (Dialect::Nr, true, Some(Tunnel { address, teid })) =
        (sm.dialect, is_open(before) != is_open(after), sm.uplink)
    else {
        return;
    };
    message.group(UpdatePdr::ID, |rule| {
        rule.put(&UPLINK_PDR).group(Pdi::ID, |packets| match is_open(after) {
            true => _ = packets.put(&SourceInterface::ACCESS).put(&FTeid::new(teid, address)),
            false => uplink_packets(sm, config, &FTeid::new(teid, address), packets),
        });
    });
}

fn remove_forwarding(rules: ForwardingRules, message: &mut Builder<'_>) {
    for ((pdr, far), is_there) in FORWARDING.iter().zip([rules.downlink, rules.uplink]) {
        if is_there {
            message
                .group(RemovePdr::ID, |rule| {
                    rule.put(pdr);
                })
                .group(RemoveFar::ID, |rule| {
                    rule.put(far);
                });
        }
    }
    message.group(RemoveQer::ID, |rule| {
        rule.put(&FORWARDING_QER);
    });
}

/// Builds a Session Deletion Request.
pub(super) fn deletion_request(sm: &SmContext) -> Output {
    request(sm, MessageType::SESSION_DELETION_REQUEST, sm.pfcp.up_seid, |_| {})
}

/// Builds a Session Report Response to the request with this sequence number.
pub(super) fn report_response(sm: &SmContext, sequence: u32) -> Output {
    message(sm, MessageType::SESSION_REPORT_RESPONSE, sm.pfcp.up_seid, sequence, |message| {
        message.put(&Cause::REQUEST_ACCEPTED);
    })
}

fn request(sm: &SmContext, kind: MessageType, seid: u64, fill: impl FnOnce(&mut Builder<'_>)) -> Output {
    message(sm, kind, seid, TO_BE_FILLED, fill)
}

fn message(sm: &SmContext, kind: MessageType, seid: u64, sequence: u32, fill: impl FnOnce(&mut Builder<'_>)) -> Output {
    let mut message = Vec::with_capacity(320);
    let mut builder = Builder::new(&mut message, kind, Some(seid), sequence);
    fill(&mut builder);
    builder.finish().expect("a session's few rules are far below 65,539 octets");
    Output::Pfcp { upf: sm.pfcp.upf, message }
}

/// Message of the UPF for a session.
#[derive(Debug)]
pub(super) enum Answer {
    /// Session Establishment Response: values chosen by the UPF, or the cause of a refusal.
    Established(Result<UpfAllocation, RejectionCause>),
    /// Session Modification Response: the UPF ends of tunnels for forwarded packets that it
    /// allocated, or the cause of a refusal.
    Modified(Result<ForwardingEnds, RejectionCause>),
    /// Session Deletion Response with any cause: the session does not exist.
    Deleted,
    /// Session Report Request of the UPF.
    Report(Report),
}

/// Values chosen by the UPF.
#[derive(Debug)]
pub(super) struct UpfAllocation {
    /// SEID at the UPF.
    pub(super) seid: u64,
    /// UPF end of N3.
    pub(super) tunnel: Option<Tunnel>,
}

/// Report of the UPF.
#[derive(Debug)]
pub(super) struct Report {
    /// Sequence number of the request, for its response.
    pub(super) sequence: u32,
    /// True if the UPF buffers a downlink packet.
    pub(super) downlink_data: bool,
    /// RAN tunnel end of a received Error Indication.
    pub(super) error_indication: Option<Tunnel>,
}

/// Cause of a rejected request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RejectionCause(Cause);

impl RejectionCause {
    /// Returns the 5GSM cause for the reject of an establishment.
    pub(super) fn gsm_cause(self) -> GsmCause {
        match self.0 {
            Cause::NO_RESOURCES | Cause::CONGESTION | Cause::ALL_ADDRESSES_OCCUPIED => GsmCause::InsufficientResources,
            _ => GsmCause::NetworkFailure,
        }
    }

    /// Returns true if the UPF does not know the session (it has restarted).
    pub(super) fn is_session_lost(self) -> bool {
        self.0 == Cause::SESSION_CONTEXT_NOT_FOUND
    }
}

/// Decodes a message for the session with this SEID; `None` for other sessions and for messages
/// that concern no session. A response may have SEID 0, if the UPF does not know the session (TS
/// 29.244 7.2.2.4.2).
pub(super) fn decode_for(octets: &[u8], cp_seid: Seid) -> Option<Answer> {
    let message = Message::new(octets).ok()?;
    let (kind, seid) = (message.message_type(), message.seid());
    if seid != cp_seid.0 && !(seid == 0 && kind.is_response()) {
        return None;
    }
    match kind {
        MessageType::SESSION_ESTABLISHMENT_RESPONSE => Some(Answer::Established(read_allocation(&message))),
        MessageType::SESSION_MODIFICATION_RESPONSE => Some(Answer::Modified(read_forwarding_ends(&message))),
        MessageType::SESSION_DELETION_RESPONSE => Some(Answer::Deleted),
        MessageType::SESSION_REPORT_REQUEST => Some(Answer::Report(report(&message))),
        _ => None,
    }
}

/// Returns true if a response rejects the establishment because of the UE address.
pub(super) fn address_is_taken(octets: &[u8], cp_seid: Seid) -> bool {
    let Some(Answer::Established(Err(_))) = decode_for(octets, cp_seid) else { return false };
    let offending = Message::new(octets).ok().and_then(|message| message.get::<OffendingIe>().ok().flatten());
    offending.is_some_and(|offending| offending.0 == UeIpAddress::ID)
}

/// An IE that cannot be decoded results in the cause of that error.
fn check_accepted(message: &Message<'_>) -> Result<(), RejectionCause> {
    let cause: Cause = message.need().map_err(|e| RejectionCause(e.cause))?;
    if cause.is_accepted() { Ok(()) } else { Err(RejectionCause(cause)) }
}

fn read_allocation(message: &Message<'_>) -> Result<UpfAllocation, RejectionCause> {
    check_accepted(message)?;
    let seid = message.need::<FSeid>().map_err(|e| RejectionCause(e.cause))?.seid;
    Ok(UpfAllocation { seid, tunnel: allocated_tunnel(message, UPLINK_PDR) })
}

fn read_forwarding_ends(message: &Message<'_>) -> Result<ForwardingEnds, RejectionCause> {
    check_accepted(message)?;
    let [downlink, uplink] = FORWARDING.map(|(pdr, _)| allocated_tunnel(message, pdr));
    Ok(ForwardingEnds { downlink, uplink })
}

/// Returns the tunnel end that the UPF has allocated for a PDR.
fn allocated_tunnel(message: &Message<'_>, pdr: PdrId) -> Option<Tunnel> {
    let all = message.ies().map_while(Result::ok).filter(|ie| ie.id == CreatedPdr::ID);
    let created = all.filter_map(|ie| ie.read::<CreatedPdr>().ok()).find(|created| created.pdr_id == pdr);
    created.and_then(|created| created.f_teid).and_then(|f_teid| tunnel(&f_teid))
}

fn tunnel(f_teid: &FTeid) -> Option<Tunnel> {
    Some(Tunnel { address: f_teid.address()?, teid: f_teid.teid()? })
}

fn report(message: &Message<'_>) -> Report {
    let kind = message.get::<ReportType>().ok().flatten().unwrap_or_default();
    let error = message.ies().map_while(Result::ok).find(|ie| ie.id == ErrorIndicationReport::ID);
    let remote = error.and_then(|ie| ie.ies().map_while(Result::ok).find(|ie| ie.id == FTeid::ID));
    Report {
        sequence: message.sequence(),
        downlink_data: kind.contains(ReportType::DLDR),
        error_indication: remote.and_then(|ie| ie.read().ok()).and_then(|f_teid| tunnel(&f_teid)),
    }
}
