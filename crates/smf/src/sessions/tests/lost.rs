//! Tests of a tunnel that the RAN has lost (TS 23.527 5.3.2).
//!
//! They include the AMF's reply to the release.

use super::*;
use vireo_core::smf::RanState;
use vireo_ops::sbi::translate::transfer_reply;

impl World {
    /// Reports an Error Indication for the tunnel in use, by the UPF.
    fn tunnel_lost(&mut self, path: &str) {
        let seid = wire::seid_of(path.rsplit('/').next().unwrap()).unwrap();
        let mut octets = Vec::new();
        let mut report = pfcp::Builder::new(&mut octets, pfcp::MessageType::SESSION_REPORT_REQUEST, Some(seid.0), 7);
        report.put(&pfcp::ReportType::ERIR).group(pfcp::ErrorIndicationReport::ID, |error| {
            error.put(&pfcp::FTeid::new(Teid(0x201), Ipv4Addr::new(10, 3, 0, 2).into()));
        });
        report.finish().unwrap();
        assert!(self.smf.pfcp((UPF, seid), &octets, self.now));
        self.act();
    }

    fn released(&self) -> bool {
        let n2 = self.transfers.iter().filter(|transfer| transfer.n1_message_container.is_none());
        let kinds = n2.filter_map(|transfer| transfer.n2_info_container.as_ref()?.sm_info.as_ref());
        kinds
            .filter_map(|info| info.n2_info_content.as_ref())
            .any(|n2| n2.ngap_ie_type == Some(N2SmInfoType::PduResRelCmd))
    }
}

#[test]
fn lost_tunnel_of_connected_ue_is_released() {
    for start in PLACES {
        let mut world = start();
        let path = world.active();
        world.transfers.clear();
        world.tunnel_lost(&path);
        assert!(world.released() && world.session().sm.downlink.is_none(), "{:?}", world.transfers);
        let data = SmContextUpdateData {
            n2_sm_info: Some(part("n2")),
            n2_sm_info_type: Some(N2SmInfoType::PduResRelRsp),
            ..SmContextUpdateData::default()
        };
        let n2 = N1N2Content { n1: None, n2: Some((N2Sm::ReleaseResponse, vec![0])) };
        world.update(&path, &data, &n2);
        world.transfers.clear();
        world.downlink_packet(&path);
        assert_eq!((world.transfers.len(), world.session().sm.ran), (1, RanState::SettingUp), "it is set up again");
    }
}

/// The UE has become idle meanwhile: there is nothing to wait for, and a packet pages it at once.
#[test]
fn lost_tunnel_of_idle_ue_pages_on_data() {
    for start in PLACES {
        for packet in [false, true] {
            let mut world = start();
            let path = world.active();
            world.tunnel_lost(&path);
            world.transfers.clear();
            if packet {
                world.downlink_packet(&path);
                assert_eq!(world.transfers.len(), 0, "the RAN is to let go first");
            }
            world.transferred(&path, N1N2TransferResult::Idle);
            let expected = if packet { (1, RanState::SettingUp) } else { (0, RanState::Idle) };
            assert_eq!((world.transfers.len(), world.session().sm.ran), expected);
            // A late reply, for the previous release.
            world.transferred(&path, N1N2TransferResult::Idle);
            assert_eq!(world.session().sm.ran, expected.1);
        }
    }
}

/// Holds for JSON and for gRPC.
#[test]
fn idle_answer_of_amf_is_read_by_smf() {
    let supi: Supi = "999700000000001".parse().unwrap();
    for result in [
        N1N2TransferResult::Idle,
        N1N2TransferResult::Initiated,
        N1N2TransferResult::Unreachable,
        N1N2TransferResult::Unknown,
    ] {
        let reply = transfer_reply("http://amf", (supi, 7), result);
        let json = Message::from_json(reply.message.encode("application/json").1);
        let read = wire::transfer_result(Ok(Reply { message: json, ..reply.clone() }));
        assert_eq!((read, wire::transfer_result(Ok(reply))), (result, result));
    }
    let cause = |cause: &str| vireo_sbi::common::ProblemDetails::new(409, cause, "");
    let read = |problem| wire::transfer_result(Ok(Reply { status: 409, ..Reply::problem(&problem) }));
    assert_eq!(read(cause("UE_IN_CM_IDLE_STATE")), N1N2TransferResult::Idle);
    assert_eq!(read(cause("TEMPORARY_REJECT_HANDOVER_ONGOING")), N1N2TransferResult::Unreachable);
}
