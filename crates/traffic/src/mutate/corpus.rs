//! Valid messages of a control plane, from which mutated ones are made.

use super::world::World;
use rand::Rng;
use rand::rngs::SmallRng;
use std::net::Ipv4Addr;
use vireo_types::Teid;
use vireo_wire::pfcp::*;

/// Subject of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The nodes themselves, without a session.
    Node,
    /// A session to be established.
    New,
    /// An existing session with this SEID of the UPF.
    Session(u64),
}

fn emitted(emit: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>) -> Vec<u8> {
    let mut octets = Vec::new();
    // Requests with few rules fit.
    let _ = emit(&mut octets);
    octets
}

/// Returns an Association Setup Request.
pub(super) fn setup(node_id: NodeId, recovery: u32, retention: bool) -> Vec<u8> {
    let request = AssociationSetupRequest {
        node_id,
        recovery_time_stamp: RecoveryTimeStamp(recovery),
        up_function_features: None,
        cp_function_features: None,
        session_retention: retention.then(SessionRetentionInformation::default),
    };
    emitted(|out| request.emit(out, 0))
}

pub(super) fn heartbeat(recovery: u32) -> Vec<u8> {
    emitted(|out| HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(recovery) }.emit(out, 0))
}

pub(super) fn release(node_id: NodeId) -> Vec<u8> {
    emitted(|out| AssociationReleaseRequest { node_id }.emit(out, 0))
}

pub(super) fn deletion(seid: u64) -> Vec<u8> {
    emitted(|out| SessionDeletionRequest::default().emit(out, seid, 0))
}

/// Returns a request or response between nodes with this Node ID.
pub(super) fn node_message(node_id: NodeId, recovery: u32, rng: &mut SmallRng) -> Vec<u8> {
    let sets = || vec![FqCsid(vec![0x01, 192, 0, 2, 5, 0, 7].as_slice().into())];
    match rng.random_range(0..8) {
        0 => heartbeat(recovery),
        1 => emitted(|out| SessionSetDeletionRequest { node_id, fq_csids: sets() }.emit(out, 0)),
        2 => {
            let mut out = Vec::new();
            let mut builder = Builder::new(&mut out, MessageType::PFD_MANAGEMENT_REQUEST, None, 0);
            builder.put_raw(58, &[0, 24, 0, 1, b'a']);
            let _ = builder.finish();
            out
        }
        3 => {
            let mut out = Vec::new();
            let mut builder = Builder::new(&mut out, MessageType::SESSION_SET_MODIFICATION_REQUEST, None, 0);
            builder.put(&node_id);
            let _ = builder.finish();
            out
        }
        4 => emitted(|out| HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(recovery) }.emit(out, 0)),
        5 => emitted(|out| {
            NodeReportResponse { node_id, cause: Cause::REQUEST_ACCEPTED, offending_ie: None }.emit(out, 0)
        }),
        _ => {
            let mut out = Vec::new();
            let mut builder = Builder::new(&mut out, MessageType::ASSOCIATION_UPDATE_REQUEST, None, 0);
            builder.put(&node_id);
            let _ = builder.finish();
            out
        }
    }
}

/// Returns a Session Establishment Request for a UE, which may request uncommon features.
fn establishment(world: &World, node_id: NodeId, ue: Ipv4Addr, rng: &mut SmallRng) -> Vec<u8> {
    let mut request = SessionEstablishmentRequest::new(node_id, FSeid::new(rng.random(), world.attacker.into()));
    let (measured, buffers) = (rng.random_bool(0.3), rng.random_bool(0.3));
    let further = rng.random_range(0..8);
    let urrs = || measured.then_some(UrrId(1)).into_iter().collect();
    let pdr = |id: u16, precedence, pdi: Pdi| CreatePdr {
        pdr_id: PdrId(id),
        precedence: Precedence(precedence),
        outer_header_removal: pdi.f_teid.map(|_| OuterHeaderRemoval::GTPU_IPV4),
        far_id: Some(FarId(if pdi.f_teid.is_some() { 1 } else { 2 })),
        qer_ids: std::iter::once(QerId(1)).collect(),
        urr_ids: urrs(),
        pdi,
        ..CreatePdr::default()
    };
    let choose = FTeid::Choose { ipv4: true, ipv6: false, id: Some(1) };
    let mut up = Pdi { source_interface: SourceInterface::ACCESS, f_teid: Some(choose), ..Pdi::default() };
    up.ue_ip_addresses.push(UeIpAddress::source(Some(ue), None));
    let mut down = Pdi { source_interface: SourceInterface::CORE, ..Pdi::default() };
    down.ue_ip_addresses.push(match further {
        0 => UeIpAddress { choose_ipv4: true, ..UeIpAddress::default() },
        _ => UeIpAddress::destination(Some(ue), None),
    });
    down.network_instance = (further <= 1).then(|| NetworkInstance::from("internet"));
    match further {
        2 => down.framed_routes.push(FramedRoute::from("10.45.200.0/24")),
        3 => up.qfis.push(Qfi(9)),
        _ => {}
    }
    if further == 4 {
        for n in 0..rng.random_range(1..20_u16) {
            let mut pdi = if n & 1 == 0 { up.clone() } else { down.clone() };
            pdi.sdf_filters = vec![SdfFilter::new(&format!("permit out 17 from 203.0.113.7 {} to assigned", 1000 + n))];
            request.create_pdrs.push(pdr(10 + n, 100 + u32::from(n), pdi));
        }
    }
    request.create_pdrs.push(pdr(1, 255, up));
    request.create_pdrs.push(pdr(2, 255, down));
    let tunnel = OuterHeaderCreation::gtpu(Teid(rng.random()), world.gnb.into());
    let forward = |id, destination_interface, outer_header_creation| CreateFar {
        far_id: FarId(id),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            destination_interface,
            outer_header_creation,
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    };
    request.create_fars.push(forward(1, DestinationInterface::CORE, None));
    request.create_fars.push(match buffers {
        true => CreateFar {
            far_id: FarId(2),
            apply_action: ApplyAction::BUFF | ApplyAction::NOCP,
            bar_id: Some(BarId(1)),
            ..CreateFar::default()
        },
        false => forward(2, DestinationInterface::ACCESS, Some(tunnel)),
    });
    request.create_bars.extend(buffers.then(|| CreateBar { bar_id: BarId(1), ..CreateBar::default() }));
    request.create_qers.push(CreateQer {
        qer_id: QerId(1),
        qfi: Some(Qfi(9)),
        mbr: rng.random_bool(0.5).then_some(Mbr { uplink_kbps: 1_000_000, downlink_kbps: 1_000_000 }),
        ..CreateQer::default()
    });
    if measured {
        request.create_urrs.push(urr(rng));
    }
    request.user_plane_inactivity_timer = (further == 5).then_some(UserPlaneInactivityTimer(1));
    emitted(|out| request.emit(out, 0, 0))
}

fn urr(rng: &mut SmallRng) -> CreateUrr {
    let volume = VolumeThreshold { total: Some(1 << rng.random_range(10..40)), ..VolumeThreshold::default() };
    match rng.random_range(0..3) {
        0 => CreateUrr {
            urr_id: UrrId(1),
            measurement_method: MeasurementMethod::DURAT,
            reporting_triggers: ReportingTriggers::PERIO,
            measurement_period: Some(MeasurementPeriod(rng.random_range(1..100))),
            ..CreateUrr::default()
        },
        _ => CreateUrr {
            urr_id: UrrId(1),
            measurement_method: MeasurementMethod::VOLUM,
            reporting_triggers: ReportingTriggers::VOLTH,
            volume_threshold: Some(volume),
            ..CreateUrr::default()
        },
    }
}

/// Returns a Session Modification Request.
fn modification(world: &World, seid: u64, rng: &mut SmallRng) -> Vec<u8> {
    let mut request = SessionModificationRequest::default();
    let tunnel = OuterHeaderCreation::gtpu(Teid(rng.random()), world.gnb.into());
    match rng.random_range(0..9) {
        0 => request.update_fars.push(UpdateFar {
            far_id: FarId(2),
            apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP),
            ..UpdateFar::default()
        }),
        1 => request.query_urrs.push(QueryUrr { urr_id: UrrId(1) }),
        2 => request.remove_pdrs.push(RemovePdr { pdr_id: PdrId(rng.random_range(1..4)) }),
        3 => request.flags = Some(SmReqFlags::DROBU | SmReqFlags::QAURR),
        4 => request.node_id = Some(NodeId::Ipv4(world.target.address)),
        5 => request.cp_f_seid = Some(FSeid::new(rng.random(), world.target.address.into())),
        6 => request.create_urrs.push(urr(rng)),
        7 => request.user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(rng.random_range(0..3))),
        _ => request.update_fars.push(UpdateFar {
            far_id: FarId(2),
            apply_action: Some(ApplyAction::FORW),
            update_forwarding_parameters: Some(UpdateForwardingParameters {
                outer_header_creation: Some(tunnel),
                flags: rng.random_bool(0.5).then_some(SmReqFlags::SNDEM),
                ..UpdateForwardingParameters::default()
            }),
            bar_id: None,
        }),
    }
    emitted(|out| request.emit(out, seid, 0))
}

/// Calls [`establishment`] with the random numbers of the world.
pub(super) fn establishment_of(world: &mut World, node_id: NodeId, ue: Ipv4Addr) -> Vec<u8> {
    let mut rng = world.rng.clone();
    let octets = establishment(world, node_id, ue, &mut rng);
    world.rng = rng;
    octets
}

/// Calls [`modification`] with the random numbers of the world.
pub(super) fn modification_of(world: &mut World, seid: u64) -> Vec<u8> {
    let mut rng = world.rng.clone();
    let octets = modification(world, seid, &mut rng);
    world.rng = rng;
    octets
}

/// Returns an unsolicited Session Report Response.
pub(super) fn report_response(seid: u64, rng: &mut SmallRng) -> Vec<u8> {
    let cause = if rng.random_bool(0.5) { Cause::SESSION_CONTEXT_NOT_FOUND } else { Cause::REQUEST_ACCEPTED };
    emitted(|out| SessionReportResponse::new(cause).emit(out, seid, 0))
}
