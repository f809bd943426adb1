//! Tests of reports from UPFs.

use super::*;

#[test]
fn report_of_another_upf_changes_nothing() {
    let other = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 10), 8805));
    for start in PLACES {
        let mut world = start();
        let path = world.active();
        world.state(&path, UpCnxState::Deactivated);
        world.transfers.clear();
        assert!(!world.reported_by(other, &path), "it is refused");
        assert!(world.transfers.is_empty() && world.pfcp.is_empty());
        world.downlink_packet(&path);
        assert_eq!(world.transfers.len(), 1);
    }
}

#[test]
fn packet_for_idle_ue_pages_and_resumes() {
    for start in PLACES {
        for result in [N1N2TransferResult::Attempting, N1N2TransferResult::Initiated, N1N2TransferResult::Unreachable] {
            let mut world = start();
            let path = world.active();
            world.state(&path, UpCnxState::Deactivated);
            world.transfers.clear();
            world.downlink_packet(&path);
            assert_eq!(world.transfers.len(), 1);
            world.transferred(&path, result);
            match result {
                // The transfer has reached the RAN, which responds.
                N1N2TransferResult::Initiated => assert_eq!(world.ran_up(&path), SmContextUpdatedData::default()),
                _ => {
                    let back = world.state(&path, UpCnxState::Activating);
                    assert_eq!(back.n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq), "{result:?}");
                    world.ran_up(&path);
                }
            }
            let session = world.session();
            assert!(session.sm.downlink.is_some() && session.sm.n4 == N4State::Synced, "{result:?}");
        }
        // The UE's own service request arrives before the AMF's reply that it pages the UE.
        let mut world = start();
        let path = world.active();
        world.state(&path, UpCnxState::Deactivated);
        world.downlink_packet(&path);
        assert!(world.state(&path, UpCnxState::Activating).n2_sm_info_type.is_some());
        world.transferred(&path, N1N2TransferResult::Attempting);
        world.ran_up(&path);
        assert!(world.session().sm.downlink.is_some());
    }
}
