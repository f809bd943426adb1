//! Tests of Xn and N2 handovers: the UE moves to another RAN node.

use super::*;
use vireo_core::smf::Stage;
use vireo_sbi::common::{NgRanTargetId, UserLocation};
use vireo_sbi::smf::HoState;
use vireo_types::{GnbId, NrCgi, Tai};

/// Returns the path switch request of the target after an Xn handover.
pub(super) fn path_switch() -> Message {
    let address = TransportLayerAddress([10, 3, 0, 3].into());
    let tunnel = UPTransportLayerInformation::gTPTunnel(GTPTunnel::new(address, GTPTEID([0, 0, 3, 1]), None));
    let flows = QosFlowAcceptedList(vec![QosFlowAcceptedItem::new(QosFlowIdentifier(1), None)]);
    let transfer = PathSwitchRequestTransfer::new(tunnel, None, None, flows, None);
    let data = SmContextUpdateData {
        to_be_switched: Some(true),
        n2_sm_info: Some(part("n2")),
        n2_sm_info_type: Some(N2SmInfoType::PathSwitchReq),
        ..SmContextUpdateData::default()
    };
    Message::new(&data).with("n2", PartContent::Ngap, encode_open_type(&transfer).unwrap().to_vec())
}

/// Returns an update with the state of an N2 handover and the RAN's N2 content.
fn step(state: HoState, said: Option<(N2SmInfoType, Vec<u8>)>) -> Message {
    let plmn: Plmn = "99970".parse().unwrap();
    let tai = Tai { plmn, tac: Tac(1) };
    let target = NgRanTargetId::new(GnbId { plmn, id: 2, bits: 22 }, tai);
    let data = SmContextUpdateData {
        ho_state: Some(state),
        target_id: (state == HoState::Preparing).then_some(target),
        ue_location: (state == HoState::Completed).then(|| UserLocation::new(tai, NrCgi { plmn, cell: 0x20 })),
        n2_sm_info: said.as_ref().map(|_| part("n2")),
        n2_sm_info_type: said.as_ref().map(|(kind, _)| *kind),
        ..SmContextUpdateData::default()
    };
    let message = Message::new(&data);
    match said {
        Some((_, transfer)) => message.with("n2", PartContent::Ngap, transfer),
        None => message,
    }
}

/// The source RAN node requires a handover.
fn preparing() -> Message {
    let transfer = encode_open_type(&HandoverRequiredTransfer::new(None, None)).unwrap();
    step(HoState::Preparing, Some((N2SmInfoType::HandoverRequired, transfer.to_vec())))
}

/// The target accepts the session with this tunnel.
fn prepared(teid: u32) -> Message {
    let address = TransportLayerAddress([10, 3, 0, 4].into());
    let tunnel = UPTransportLayerInformation::gTPTunnel(GTPTunnel::new(address, GTPTEID(teid.to_be_bytes()), None));
    let flow = QosFlowItemWithDataForwarding::new(QosFlowIdentifier(1), None, None);
    let flows = QosFlowListWithDataForwarding(vec![flow]);
    let transfer = HandoverRequestAcknowledgeTransfer::new(tunnel, None, None, flows, None, None, None);
    let transfer = encode_open_type(&transfer).unwrap();
    step(HoState::Prepared, Some((N2SmInfoType::HandoverReqAck, transfer.to_vec())))
}

/// The target rejects the session.
fn not_taken() -> Message {
    let cause = Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell);
    let transfer = encode_open_type(&HandoverResourceAllocationUnsuccessfulTransfer::new(cause, None, None)).unwrap();
    step(HoState::Prepared, Some((N2SmInfoType::HandoverResAllocFail, transfer.to_vec())))
}

fn reply_fields(reply: &Reply) -> (u16, Option<HoState>, Option<N2SmInfoType>) {
    let data: SmContextUpdatedData = reply.message.value().unwrap_or_default();
    (reply.status, data.ho_state, data.n2_sm_info_type)
}

/// Runs a whole N2 handover, with repeated requests.
pub(super) fn by_n2(world: &mut World, modify: &str) {
    let told = world.insist(modify, &preparing());
    assert_eq!(reply_fields(&told), (200, Some(HoState::Preparing), Some(N2SmInfoType::PduResSetupReq)));
    let told = world.insist(modify, &prepared(0x401));
    assert_eq!(reply_fields(&told), (200, Some(HoState::Prepared), Some(N2SmInfoType::HandoverCmd)));
    let told = world.insist(modify, &step(HoState::Completed, None));
    assert_eq!(reply_fields(&told), (200, Some(HoState::Completed), None));
    let sm = world.session().sm;
    assert_eq!((sm.downlink.map(|tunnel| tunnel.teid), sm.handover.target), (Some(Teid(0x401)), None));
}

const STARTS: [fn() -> World; 4] =
    [World::stored, World::piggyback, World::here, || World::shared_by_all(Format::Binary)];

/// The path switch is acknowledged after the UPF has the new tunnel.
#[test]
fn path_is_switched_after_upf_response() {
    for start in STARTS {
        let mut world = start();
        let path = world.active();
        let before = world.replies.len();
        world.upf_answers = false;
        world.call(&format!("{path}/modify"), path_switch());
        assert_eq!(world.replies.len(), before, "the UPF is waited for");
        world.upf();
        let reply = world.last();
        let data: SmContextUpdatedData = reply.message.value().unwrap();
        assert_eq!((reply.status, data.n2_sm_info_type), (200, Some(N2SmInfoType::PathSwitchReqAck)));
        let transfer =
            reply.message.part(&data.n2_sm_info.expect("a part"), PartContent::Ngap).expect("the RAN is told");
        let transfer: PathSwitchRequestAcknowledgeTransfer<'_> = decode_open_type(transfer).unwrap();
        assert!(transfer.ul_ngu_up_tnl_information.is_none(), "the UPF's end is the same");
        assert_eq!(world.session().sm.downlink.map(|tunnel| tunnel.teid), Some(Teid(0x301)));
    }
}

/// A session without user plane or rejected by the RAN node is refused to the RAN and released at
/// the UE.
#[test]
fn failed_path_switch_ends_session() {
    for start in STARTS {
        let mut world = start();
        let path = world.active();
        world.state(&path, UpCnxState::Deactivated);
        world.call(&format!("{path}/modify"), path_switch());
        let reply = world.last();
        let error: SmContextError = reply.message.value().unwrap();
        assert_eq!((reply.status, error.error.cause.as_deref()), (403, Some("HANDOVER_RESOURCE_ALLOCATION_FAILURE")));
        assert_eq!(error.n2_sm_info_type, Some(N2SmInfoType::PathSwitchReqFail));
        let n1 = reply.message.part(&error.n1_sm_msg.expect("the UE is told"), PartContent::Nas).unwrap();
        assert_eq!(n1[3], 0xd3, "PDU SESSION RELEASE COMMAND");
        let transfer = reply.message.part(&error.n2_sm_info.unwrap(), PartContent::Ngap).expect("the RAN is told");
        assert!(decode_open_type::<PathSwitchRequestUnsuccessfulTransfer>(transfer).is_ok());

        let mut world = start();
        let path = world.active();
        let failed = SmContextUpdateData {
            failed_to_be_switched: Some(true),
            n2_sm_info: Some(part("n2")),
            n2_sm_info_type: Some(N2SmInfoType::PathSwitchSetupFail),
            ..SmContextUpdateData::default()
        };
        world.call(&format!("{path}/modify"), Message::new(&failed).with("n2", PartContent::Ngap, vec![0]));
        let data: SmContextUpdatedData = world.last().message.value().unwrap();
        assert_eq!((data.n1_sm_msg.is_some(), data.n2_sm_info_type), (true, None));
        assert!(!world.session().rests());
    }
}

/// If another request arrives before the UPF responds, both are answered, each once.
#[test]
fn path_switch_survives_concurrent_events() {
    let mut world = World::stored();
    let path = world.active();
    let before = world.replies.len();
    world.upf_answers = false;
    world.call(&format!("{path}/modify"), path_switch());
    world.state(&path, UpCnxState::Deactivated);
    // Both answers follow, one after the other.
    (0..2).for_each(|_| world.upf());
    let kinds = world.replies[before..].iter().map(|reply| {
        let data: SmContextUpdatedData = reply.message.value().unwrap();
        (data.n2_sm_info_type, data.up_cnx_state)
    });
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(kinds, [(Some(N2SmInfoType::PathSwitchReqAck), None), (None, Some(UpCnxState::Deactivated))]);
}

/// Source and target get their content at once, and the UPF gets the target's tunnel when the UE
/// has arrived. Between the steps, an SMF that may die holds no state.
#[test]
fn session_is_handed_over_by_n2() {
    for start in PLACES {
        let mut world = start();
        let modify = format!("{}/modify", world.active());
        world.upf_answers = false;
        let before = world.replies.len();
        world.call(&modify, preparing());
        world.call(&modify, prepared(0x401));
        assert_eq!((world.replies.len() - before, world.pfcp.len()), (2, 0), "the UPF is asked for nothing");
        assert_eq!(
            reply_fields(&world.replies[before]),
            (200, Some(HoState::Preparing), Some(N2SmInfoType::PduResSetupReq))
        );
        let told = world.last().clone();
        assert_eq!(reply_fields(&told), (200, Some(HoState::Prepared), Some(N2SmInfoType::HandoverCmd)));
        let data: SmContextUpdatedData = told.message.value().unwrap();
        let transfer = told.message.part(&data.n2_sm_info.unwrap(), PartContent::Ngap).expect("the source is told");
        assert!(decode_open_type::<HandoverCommandTransfer<'_>>(transfer).is_ok());
        let sm = world.session().sm;
        assert_eq!(
            (sm.downlink.map(|t| t.teid), sm.handover.target.map(|t| t.teid)),
            (Some(Teid(0x201)), Some(Teid(0x401)))
        );
        if world.storage_kind.is_persistent() {
            world.restart();
        }
        world.call(&modify, step(HoState::Completed, None));
        assert_eq!(world.replies.len(), before + 2, "the UPF is waited for");
        world.upf();
        assert_eq!(reply_fields(world.last()), (200, Some(HoState::Completed), None));
        assert_eq!(world.session().sm.downlink.map(|tunnel| tunnel.teid), Some(Teid(0x401)));
        // Handover back to the source.
        world.upf_answers = true;
        by_n2(&mut world, &modify);
    }
}

/// A repeated request gets the same response, even after other requests. The session does not count
/// as not handed over.
#[test]
fn repeated_handover_step_has_same_answer() {
    for start in PLACES {
        for between in [false, true] {
            let mut world = start();
            let path = world.active();
            let modify = format!("{path}/modify");
            let steps = [("1", preparing()), ("2", prepared(0x401)), ("3", step(HoState::Completed, None))];
            for (key, message) in steps {
                // A repeat contains the SM context of the first request.
                let message = world.with_left(&modify, message);
                world.call_as(&modify, message.clone(), key);
                let first = world.last().clone();
                if between && key == "3" {
                    world.ran_up(&path);
                    assert_eq!(world.last().status, 204);
                }
                if world.storage_kind.is_persistent() {
                    world.restart();
                }
                world.call_as(&modify, message, key);
                assert_eq!(reply_fields(world.last()), reply_fields(&first), "{key}");
            }
            let sm = world.session().sm;
            assert_eq!((sm.stage, sm.downlink.map(|t| t.teid)), (Stage::Established, Some(Teid(0x401))));
        }
    }
}

/// A session without user plane is not prepared. One that the target rejects or never prepared is
/// released.
#[test]
fn failed_n2_handover_ends_session() {
    for start in PLACES {
        let mut world = start();
        let path = world.active();
        let modify = format!("{path}/modify");
        world.state(&path, UpCnxState::Deactivated);
        world.call(&modify, preparing());
        let reply = world.last();
        let error: SmContextError = reply.message.value().unwrap();
        assert_eq!((reply.status, error.error.cause.as_deref()), (403, Some("HANDOVER_RESOURCE_ALLOCATION_FAILURE")));
        assert_eq!(error.n2_sm_info_type, Some(N2SmInfoType::HandoverPrepFail));
        let transfer = reply.message.part(&error.n2_sm_info.unwrap(), PartContent::Ngap).expect("the RAN is told");
        assert!(decode_open_type::<HandoverPreparationUnsuccessfulTransfer>(transfer).is_ok());
        // The UE's service request finds the session unchanged.
        assert!(world.state(&path, UpCnxState::Activating).n2_sm_info_type.is_some());

        for taken in [Some(not_taken()), Some(step(HoState::Cancelled, None)), None] {
            let mut world = start();
            let modify = format!("{}/modify", world.active());
            world.call(&modify, preparing());
            if let Some(taken) = taken {
                let cancelled = taken.value::<SmContextUpdateData>().unwrap().ho_state == Some(HoState::Cancelled);
                world.call(&modify, prepared(0x401));
                world.call(&modify, taken);
                let expected = match cancelled {
                    true => (200, Some(HoState::Cancelled), None),
                    false => (200, Some(HoState::None), Some(N2SmInfoType::HandoverPrepFail)),
                };
                assert_eq!(reply_fields(world.last()), expected);
            }
            assert_eq!(world.session().sm.handover.target, None);
            world.call(&modify, step(HoState::Completed, None));
            let data: SmContextUpdatedData = world.last().message.value().unwrap();
            assert_eq!((data.ho_state, data.n2_sm_info_type), (Some(HoState::Completed), None));
            let n1 = world.last().message.part(&data.n1_sm_msg.expect("the UE is told"), PartContent::Nas).unwrap();
            assert_eq!(n1[3], 0xd3, "PDU SESSION RELEASE COMMAND");
        }
    }
}
