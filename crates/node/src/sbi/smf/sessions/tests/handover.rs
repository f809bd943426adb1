//! The UE is at another RAN node, and the RAN's end of N3 another one.

use super::*;

/// The RAN node that the UE has come to by Xn wants the session switched to its tunnel.
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
    Message::of(&data).with("n2", Content::Ngap, encode_open_type(&transfer).unwrap().to_vec())
}

const STARTS: [fn() -> World; 4] =
    [World::stored, World::piggyback, World::here, || World::shared_by_all(Format::Binary)];

/// The path is switched, and the RAN told so, when the UPF has the new tunnel.
#[test]
fn a_path_is_switched_when_the_upf_has_it() {
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
        let transfer = reply.message.part(&data.n2_sm_info.expect("a part"), Content::Ngap).expect("the RAN is told");
        let transfer: PathSwitchRequestAcknowledgeTransfer<'_> = decode_open_type(transfer).unwrap();
        assert!(transfer.ul_ngu_up_tnl_information.is_none(), "the UPF's end is the same");
        assert_eq!(world.session().sm.downlink.map(|tunnel| tunnel.teid), Some(Teid(0x301)));
    }
}

/// Of a session that has no user plane, and of one that the RAN node has not taken, the RAN hears that, and the UE that it ends.
#[test]
fn a_path_that_is_not_switched_is_refused_and_the_session_ends() {
    for start in STARTS {
        let mut world = start();
        let path = world.active();
        world.state(&path, UpCnxState::Deactivated);
        world.call(&format!("{path}/modify"), path_switch());
        let reply = world.last();
        let error: SmContextError = reply.message.value().unwrap();
        assert_eq!((reply.status, error.error.cause.as_deref()), (403, Some("HANDOVER_RESOURCE_ALLOCATION_FAILURE")));
        assert_eq!(error.n2_sm_info_type, Some(N2SmInfoType::PathSwitchReqFail));
        let n1 = reply.message.part(&error.n1_sm_msg.expect("the UE is told"), Content::Nas).unwrap();
        assert_eq!(n1[3], 0xd3, "PDU SESSION RELEASE COMMAND");
        let transfer = reply.message.part(&error.n2_sm_info.unwrap(), Content::Ngap).expect("the RAN is told");
        assert!(decode_open_type::<PathSwitchRequestUnsuccessfulTransfer>(transfer).is_ok());

        let mut world = start();
        let path = world.active();
        let failed = SmContextUpdateData {
            failed_to_be_switched: Some(true),
            n2_sm_info: Some(part("n2")),
            n2_sm_info_type: Some(N2SmInfoType::PathSwitchSetupFail),
            ..SmContextUpdateData::default()
        };
        world.call(&format!("{path}/modify"), Message::of(&failed).with("n2", Content::Ngap, vec![0]));
        let data: SmContextUpdatedData = world.last().message.value().unwrap();
        assert_eq!((data.n1_sm_msg.is_some(), data.n2_sm_info_type), (true, None));
        assert!(!world.session().rests());
    }
}

/// Another request comes before the UPF has answered: the RAN is told all the same, each once.
#[test]
fn what_comes_while_a_path_is_switched_takes_nothing_away() {
    let mut world = World::stored();
    let path = world.active();
    let before = world.replies.len();
    world.upf_answers = false;
    world.call(&format!("{path}/modify"), path_switch());
    world.state(&path, UpCnxState::Deactivated);
    // It is told of both, one after the other.
    (0..2).for_each(|_| world.upf());
    let kinds = world.replies[before..].iter().map(|reply| {
        let data: SmContextUpdatedData = reply.message.value().unwrap();
        (data.n2_sm_info_type, data.up_cnx_state)
    });
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(kinds, [(Some(N2SmInfoType::PathSwitchReqAck), None), (None, Some(UpCnxState::Deactivated))]);
}
