//! Messages between the parts of the split core.
//!
//! They are PFCP messages, encoded by the codec of this program, and stand for those of GTP-C. A
//! Create Session Request, for example, carries the elements of a Session Establishment Request
//! that matter here: identifiers, the UE's address, tunnels, QoS (TS 29.274 7.2).

use std::net::{IpAddr, Ipv4Addr};
use vireo_config::Failure;
use vireo_datapath::Tunnel;
use vireo_types::Teid;
use vireo_wire::pfcp::*;

const NODE: NodeId = NodeId::Ipv4(Ipv4Addr::LOCALHOST);
const UPLINK: u32 = 1;
const DOWNLINK: u32 = 2;

/// Contents of a Create Session Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Create {
    /// The sender's identifier of the session.
    pub(super) seid: u64,
    pub(super) ue: Ipv4Addr,
    /// The sender's tunnel endpoint for the downlink.
    pub(super) tunnel: Tunnel,
}

/// Contents of a Create Session Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreateSessionResponse {
    /// The sender's identifier of the session.
    pub(super) seid: u64,
    /// The sender's tunnel endpoint for the uplink.
    pub(super) tunnel: Tunnel,
}

fn wrong(error: impl std::fmt::Debug) -> Failure {
    Failure(format!("a message between the parts cannot be used: {error:?}"))
}

/// Writes a Create Session Request.
pub(super) fn create(create: &Create, sequence: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut request = SessionEstablishmentRequest::new(NODE, FSeid::new(create.seid, Ipv4Addr::LOCALHOST.into()));
    let pdr = |id: u32, pdi, outer_header_removal| CreatePdr {
        pdr_id: PdrId(id as u16),
        precedence: Precedence(255),
        pdi,
        outer_header_removal,
        far_id: Some(FarId(id)),
        qer_ids: std::iter::once(QerId(1)).collect(),
        ..CreatePdr::default()
    };
    let uplink = Pdi {
        source_interface: SourceInterface::ACCESS,
        f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, id: None }),
        ..Pdi::default()
    };
    let downlink = Pdi {
        source_interface: SourceInterface::CORE,
        ue_ip_addresses: std::iter::once(UeIpAddress::destination(Some(create.ue), None)).collect(),
        ..Pdi::default()
    };
    request.create_pdrs.push(pdr(UPLINK, uplink, Some(OuterHeaderRemoval::GTPU_IPV4)));
    request.create_pdrs.push(pdr(DOWNLINK, downlink, None));
    let far = |id, destination_interface, outer_header_creation| CreateFar {
        far_id: FarId(id),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            destination_interface,
            outer_header_creation,
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    };
    let header = OuterHeaderCreation::gtpu(create.tunnel.teid, create.tunnel.address);
    request.create_fars.push(far(UPLINK, DestinationInterface::CORE, None));
    request.create_fars.push(far(DOWNLINK, DestinationInterface::ACCESS, Some(header)));
    request.create_qers.push(CreateQer { qer_id: QerId(1), qfi: Some(Qfi(1)), ..CreateQer::default() });
    out.clear();
    request.emit(out, 0, sequence).map_err(wrong)
}

/// Reads a Create Session Request.
pub(super) fn created(message: &Message<'_>) -> Result<Create, Failure> {
    let request = SessionEstablishmentRequest::parse(message).map_err(wrong)?;
    let ue = request.create_pdrs.iter().find_map(|pdr| pdr.pdi.ue_ip_addresses.first()?.ipv4);
    let header = |far: &CreateFar| tunnel(far.forwarding_parameters.as_ref()?.outer_header_creation.as_ref()?);
    let found = request.create_fars.iter().find_map(header);
    let (ue, tunnel) = ue.zip(found).ok_or_else(|| wrong("no address or tunnel"))?;
    Ok(Create { seid: request.cp_f_seid.seid, ue, tunnel })
}

fn tunnel(header: &OuterHeaderCreation) -> Option<Tunnel> {
    Some(Tunnel { teid: header.teid?, address: IpAddr::V4(header.ipv4?) })
}

/// Writes a Create Session Response.
pub(super) fn accept(
    to: u64,
    created: &CreateSessionResponse,
    sequence: u32,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let f_seid = FSeid::new(created.seid, Ipv4Addr::LOCALHOST.into());
    let mut response = SessionEstablishmentResponse::accepted(NODE, f_seid);
    response.created_pdrs.push(CreatedPdr {
        pdr_id: PdrId(UPLINK as u16),
        f_teid: Some(FTeid::new(created.tunnel.teid, created.tunnel.address)),
        ..CreatedPdr::default()
    });
    out.clear();
    response.emit(out, to, sequence).map_err(wrong)
}

/// Reads a Create Session Response.
pub(super) fn accepted(message: &Message<'_>) -> Result<CreateSessionResponse, Failure> {
    let response = SessionEstablishmentResponse::parse(message).map_err(wrong)?;
    let f_teid = response.created_pdrs.iter().find_map(|created| created.f_teid);
    let end = f_teid.and_then(|f_teid| Some(Tunnel { teid: f_teid.teid()?, address: f_teid.address()? }));
    let (seid, tunnel) = response.up_f_seid.zip(end).ok_or_else(|| wrong(response.cause))?;
    Ok(CreateSessionResponse { seid: seid.seid, tunnel })
}

/// Writes a Modify Bearer Request, which sends the downlink to another tunnel.
pub(super) fn modify(to: u64, tunnel: Tunnel, sequence: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut request = SessionModificationRequest::default();
    request.update_fars.push(UpdateFar {
        far_id: FarId(DOWNLINK),
        apply_action: None,
        update_forwarding_parameters: Some(UpdateForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(tunnel.teid, tunnel.address)),
            flags: Some(SmReqFlags::SNDEM),
            ..UpdateForwardingParameters::default()
        }),
        bar_id: None,
    });
    out.clear();
    request.emit(out, to, sequence).map_err(wrong)
}

/// Reads a Modify Bearer Request.
pub(super) fn modified(message: &Message<'_>) -> Result<Tunnel, Failure> {
    let request = SessionModificationRequest::parse(message).map_err(wrong)?;
    let header = |far: &UpdateFar| tunnel(far.update_forwarding_parameters.as_ref()?.outer_header_creation.as_ref()?);
    request.update_fars.iter().find_map(header).ok_or_else(|| wrong("no tunnel"))
}

/// Writes a Modify Bearer Response.
pub(super) fn confirm(to: u64, sequence: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
    out.clear();
    SessionModificationResponse::new(Cause::REQUEST_ACCEPTED).emit(out, to, sequence).map_err(wrong)
}

/// Writes a Delete Session Request.
pub(super) fn delete(to: u64, sequence: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
    out.clear();
    SessionDeletionRequest {}.emit(out, to, sequence).map_err(wrong)
}

/// Writes a Delete Session Response.
pub(super) fn session_deleted(to: u64, sequence: u32, out: &mut Vec<u8>) -> Result<(), Failure> {
    out.clear();
    SessionDeletionResponse::new(Cause::REQUEST_ACCEPTED).emit(out, to, sequence).map_err(wrong)
}

/// Reads the response to a modification or a deletion.
pub(super) fn granted(message: &Message<'_>) -> Result<(), Failure> {
    let cause = match message.message_type() {
        MessageType::SESSION_MODIFICATION_RESPONSE => SessionModificationResponse::parse(message).map(|r| r.cause),
        _ => SessionDeletionResponse::parse(message).map(|r| r.cause),
    };
    if cause.as_ref().is_ok_and(|cause| cause.is_accepted()) { Ok(()) } else { Err(wrong(cause)) }
}

/// Parses a message.
pub(super) fn view(octets: &[u8]) -> Result<Message<'_>, Failure> {
    Message::new(octets).map_err(wrong)
}

/// Returns a tunnel endpoint at an IPv4 address.
pub(super) fn end(teid: u32, address: Ipv4Addr) -> Tunnel {
    Tunnel { teid: Teid(teid), address: address.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_core_messages_roundtrip() {
        let mut out = vec![];
        let session =
            Create { seid: 7, ue: Ipv4Addr::new(10, 64, 0, 9), tunnel: end(0x107, Ipv4Addr::new(192, 0, 2, 1)) };
        create(&session, 3, &mut out).unwrap();
        let message = view(&out).unwrap();
        assert_eq!((created(&message).unwrap(), message.sequence()), (session, 3));
        assert!(out.len() < 400, "{}", out.len());
        let answer = CreateSessionResponse { seid: 9, tunnel: end(0x901, Ipv4Addr::new(192, 0, 2, 2)) };
        accept(7, &answer, 3, &mut out).unwrap();
        let message = view(&out).unwrap();
        assert_eq!((accepted(&message).unwrap(), message.seid()), (answer, 7));
        let moved = end(0x1000_0107, Ipv4Addr::new(192, 0, 2, 1));
        modify(9, moved, 4, &mut out).unwrap();
        assert_eq!(modified(&view(&out).unwrap()).unwrap(), moved);
        confirm(7, 4, &mut out).unwrap();
        granted(&view(&out).unwrap()).unwrap();
        session_deleted(7, 5, &mut out).unwrap();
        granted(&view(&out).unwrap()).unwrap();
        assert!(accepted(&view(&out).unwrap()).is_err());
    }
}
