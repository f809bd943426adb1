use super::*;
use vireo_wire::pfcp::{Cause, MessageType as Kind};

const THERE: &str = "127.0.0.6:8805";
/// SEID of the target, and its TEID at 10.3.0.9.
const THERE_SEID: u64 = 0x77;
const THERE_TEID: u32 = 0x909;

fn there() -> SocketAddr {
    THERE.parse().expect("an address")
}

/// Returns the SEID at the SMF for the session at the target.
fn our_seid() -> Seid {
    seid(Ltmsi::new(Bucket::new(7), 1234), 3, 0x222)
}

/// Handles a message of the other UPF.
fn on_target_pfcp(bench: &mut Bench, kind: Kind, cause: Cause) -> Vec<Output> {
    use pfcp::Element;
    let seid = bench.sm().relocation.as_ref().expect("a relocation").pfcp.cp_seid;
    let mut octets = Vec::new();
    let mut message = pfcp::Builder::new(&mut octets, kind, Some(seid.0), 78);
    message.put(&cause);
    if kind == Kind::SESSION_ESTABLISHMENT_RESPONSE && cause.is_accepted() {
        message.put(&pfcp::FSeid::new(THERE_SEID, Ipv4Addr::new(127, 0, 0, 6).into()));
        message.group(pfcp::CreatedPdr::ID, |pdr| {
            pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(Teid(THERE_TEID), Ipv4Addr::new(10, 3, 0, 9).into()));
        });
    }
    message.finish().expect("a short message");
    bench.step(Input::PfcpFromTarget(&octets))
}

fn done(bench: &mut Bench, kind: Kind) -> Vec<Output> {
    on_target_pfcp(bench, kind, Cause::REQUEST_ACCEPTED)
}

/// Returns receiver, SEID and downlink tunnel (0 = buffer) of the PFCP messages.
fn pfcp(out: &[Output]) -> Vec<(SocketAddr, u64, Option<u32>)> {
    let read = |upf: &SocketAddr, octets: &[u8]| {
        let message = pfcp::Message::new(octets).expect("a PFCP message");
        let far: Option<pfcp::UpdateFar> = message.need().ok();
        let to = far.map(|far| {
            let parameters = far.update_forwarding_parameters;
            parameters.and_then(|to| to.outer_header_creation).and_then(|header| header.teid).map_or(0, |teid| teid.0)
        });
        (*upf, message.seid(), to)
    };
    out.iter()
        .filter_map(|o| if let Output::Pfcp { upf, message } = o { Some(read(upf, message)) } else { None })
        .collect()
}

/// Returns the pair of tunnel ends that the RAN receives.
fn ran_tunnels(out: &[Output]) -> (Tunnel, Tunnel) {
    let transfer = |o: &Output| match o {
        Output::N2(N2Sm::ModifyRequest, octets) => Some(octets.clone()),
        _ => None,
    };
    let octets = out.iter().find_map(transfer).expect("a request");
    let transfer: PDUSessionResourceModifyRequestTransfer<'_> = decode_open_type(&octets).expect("it decodes");
    let list = transfer.ie::<ie::UL_NGU_UP_TNLModifyList>().expect("a list").expect("it decodes");
    let [pair] = &list.0[..] else { panic!("one pair") };
    let end = |end: &UPTransportLayerInformation<'_>| {
        let UPTransportLayerInformation::gTPTunnel(tunnel) = end else { panic!("a tunnel") };
        let octets: [u8; 4] = tunnel.transport_layer_address.0.as_octets().try_into().expect("IPv4");
        Tunnel { address: octets.into(), teid: Teid(u32::from_be_bytes(tunnel.gtp_teid.0)) }
    };
    (end(&pair.ul_ngu_up_tnl_information), end(&pair.dl_ngu_up_tnl_information))
}

fn on_the_way() -> Duration {
    Duration::from_millis(200)
}

/// Returns an active session that has been switched to the other UPF, with no answers yet.
fn switched() -> (Bench, Vec<Output>) {
    let mut bench = Bench::active();
    assert_eq!(brief(&bench.step(Input::Relocate(there(), our_seid()))), "establishment-request");
    let out = done(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE);
    assert_eq!(brief(&out), "ModifyRequest modification-request");
    (bench, out)
}

#[test]
fn relocated_active_session_keeps_addresses() {
    let mut bench = Bench::active();
    let (before, address) = (bench.sm().pfcp.upf, bench.sm().address);
    let out = bench.step(Input::Relocate(there(), our_seid()));
    assert_eq!(pfcp(&out), [(there(), 0, None)]);
    assert_eq!(bench.sm().pfcp.upf, before, "it is not there yet");
    let out = done(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE);
    // The source sends the end marker to the RAN and continues; the target still buffers packets.
    assert_eq!(pfcp(&out), [(before, UP_SEID, Some(0x201))]);
    let (uplink, own) = ran_tunnels(&out);
    assert_eq!((uplink.address, uplink.teid), (Ipv4Addr::new(10, 3, 0, 9).into(), Teid(THERE_TEID)));
    assert_eq!((own.address, own.teid), (Ipv4Addr::new(10, 3, 0, 2).into(), Teid(0x201)));
    let sm = bench.sm();
    assert_eq!((sm.pfcp.upf, sm.pfcp.cp_seid, sm.pfcp.up_seid, sm.address), (there(), our_seid(), THERE_SEID, address));
    let old = sm.relocation.as_ref().expect("a relocation").pfcp.cp_seid;
    assert_eq!(sm.seid_at(before), old);
    let other_upf = SocketAddr::from(([203, 0, 113, 1], 8805));
    assert!(sm.is_at(there(), our_seid()) && sm.is_at(before, old));
    assert!(!sm.is_at(before, our_seid()) && !sm.is_at(there(), old) && !sm.is_at(other_upf, our_seid()));
    assert_eq!(sm.summary().state, SessionState::Active);
    // From here on the target may send.
    assert_eq!(pfcp(&done(&mut bench, Kind::SESSION_MODIFICATION_RESPONSE)), [(there(), THERE_SEID, Some(0x201))]);
    bench.modified();
    assert_eq!(bench.step(Input::N2(N2Sm::ModifyResponse, &[])), []);
    assert_eq!(deadline(bench.sm()), Some(bench.now + on_the_way()));
    bench.wait(on_the_way());
    let out = bench.step(Input::Deadline);
    assert_eq!((brief(&out), pfcp(&out)), ("deletion-request".into(), vec![(before, UP_SEID, None)]));
    let out = done(&mut bench, Kind::SESSION_DELETION_RESPONSE);
    assert_eq!(out, [Output::Relocated(Instant(1_000_000))]);
    assert_eq!((&bench.sm().relocation, deadline(bench.sm())), (&None, None));
    // Relocation back works like any other.
    assert_eq!(
        brief(&bench.step(Input::Relocate(before, seid(Ltmsi::new(Bucket::new(7), 1234), 3, 9)))),
        "establishment-request"
    );
}

#[test]
fn relocated_idle_session_delivers_buffered_data() {
    let mut bench = Bench::inactive();
    let before = bench.sm().pfcp.upf;
    bench.step(Input::Relocate(there(), our_seid()));
    assert_eq!(done(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE), [], "nobody else hears of it");
    let mut report = Vec::new();
    {
        let seid = bench.sm().relocation.as_ref().expect("a relocation").pfcp.cp_seid;
        let mut message = pfcp::Builder::new(&mut report, Kind::SESSION_REPORT_REQUEST, Some(seid.0), 5);
        message.put(&pfcp::ReportType::DLDR);
        message.finish().expect("a short message");
    }
    let out = bench.step(Input::PfcpFromTarget(&report));
    assert_eq!((brief(&out), pfcp(&out)[0].0), ("report-response downlinkdata".into(), before));
    bench.wait(on_the_way());
    assert_eq!(bench.step(Input::Deadline), [], "it is not let go with a packet");
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    let out = bench.ran_up(0x300);
    assert_eq!(pfcp(&out), [(there(), THERE_SEID, Some(0x300)), (before, UP_SEID, Some(0x300))]);
    bench.modified();
    done(&mut bench, Kind::SESSION_MODIFICATION_RESPONSE);
    bench.wait(on_the_way());
    assert_eq!(brief(&bench.step(Input::Deadline)), "deletion-request");
    assert_eq!(brief(&done(&mut bench, Kind::SESSION_DELETION_RESPONSE)), "relocated(instant(1000000))");
}

#[test]
fn failing_target_upf_leaves_session_at_source() {
    for silent in [false, true] {
        let mut bench = Bench::active();
        let before = bench.sm().clone();
        bench.step(Input::Relocate(there(), our_seid()));
        let out = match silent {
            true => bench.step(Input::TargetPfcpTimeout),
            false => on_target_pfcp(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE, Cause::NO_RESOURCES),
        };
        assert_eq!(out, [Output::NotRelocated]);
        assert_eq!(*bench.sm(), before);
    }
}

#[test]
fn unrelated_message_is_refused() {
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    assert_eq!(bench.step(Input::Relocate(there(), our_seid())), [Output::NotRelocated], "the UPF is being told");
    bench.modified();
    bench.step(Input::Activate);
    assert_eq!(bench.step(Input::Relocate(there(), our_seid())), [Output::NotRelocated], "the RAN is being asked");
    let mut bench = Bench::active();
    let here = bench.sm().pfcp.upf;
    assert_eq!(bench.step(Input::Relocate(here, our_seid())), [Output::NotRelocated], "it is there");
    bench.step(Input::Relocate(there(), our_seid()));
    assert_eq!(bench.step(Input::Relocate(there(), our_seid())), [Output::NotRelocated], "it is on its way");
}

#[test]
fn idle_ue_in_relocation_is_paged_from_target() {
    // Before the target has answered: the switch waits for the source.
    let mut bench = Bench::active();
    let before = bench.sm().pfcp.upf;
    bench.step(Input::Relocate(there(), our_seid()));
    assert_eq!(pfcp(&bench.step(Input::Deactivate)), [(before, UP_SEID, Some(0))]);
    assert_eq!(done(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE), []);
    assert_eq!(bench.sm().pfcp.upf, before);
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.sm().pfcp.upf, there());
    // After it: the target has reported a packet when no UE had to be paged for it.
    let (mut bench, _) = switched();
    let mut report = Vec::new();
    {
        let mut message =
            pfcp::Builder::new(&mut report, Kind::SESSION_REPORT_REQUEST, Some(bench.sm().pfcp.cp_seid.0), 5);
        message.put(&pfcp::ReportType::DLDR);
        message.finish().expect("a short message");
    }
    assert_eq!(brief(&bench.step(Input::Pfcp(&report))), "report-response");
    assert_eq!(bench.step(Input::Deactivate), []);
    assert_eq!(done(&mut bench, Kind::SESSION_MODIFICATION_RESPONSE), [Output::DownlinkData]);
    bench.wait(on_the_way());
    assert_eq!(brief(&bench.step(Input::Deadline)), "deletion-request", "a RAN node that is left is not waited for");
}

#[test]
fn ue_back_during_relocation_gets_target_later() {
    let mut bench = Bench::inactive();
    let before = bench.sm().pfcp.upf;
    bench.step(Input::Relocate(there(), our_seid()));
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest", "with the source's tunnel end");
    assert_eq!(done(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE), []);
    assert_eq!(pfcp(&bench.ran_up(0x300)), [(before, UP_SEID, Some(0x300))]);
    let out = bench.modified();
    assert_eq!(brief(&out), "activated ModifyRequest modification-request");
    assert_eq!((bench.sm().pfcp.upf, ran_tunnels(&out).0.teid), (there(), Teid(THERE_TEID)));
}

#[test]
fn ran_refusing_target_makes_ue_request_again() {
    for silent in [false, true] {
        let (mut bench, _) = switched();
        done(&mut bench, Kind::SESSION_MODIFICATION_RESPONSE);
        bench.modified();
        let out = match silent {
            false => bench.step(Input::N2(N2Sm::ModifyUnsuccessful, &[])),
            true => {
                bench.wait(on_the_way());
                assert_eq!(bench.step(Input::Deadline), [], "it has more time than packets");
                bench.wait(bench.config.timers.ran_response);
                bench.step(Input::Deadline)
            }
        };
        assert_eq!(brief(&out), "release/0#39 ReleaseCommand deletion-request deletion-request");
        bench.deleted();
        done(&mut bench, Kind::SESSION_DELETION_RESPONSE);
        assert_eq!(brief(&bench.n1("2e0500d4")), "free released");
    }
}

#[test]
fn session_released_in_relocation_ends_at_both() {
    // While the target has not answered.
    let mut bench = Bench::active();
    bench.step(Input::Relocate(there(), our_seid()));
    assert_eq!(brief(&bench.step(Input::ReleaseLocally)), "deletion-request");
    assert_eq!(bench.deleted(), [], "the other may have it");
    let out = done(&mut bench, Kind::SESSION_ESTABLISHMENT_RESPONSE);
    assert_eq!((brief(&out), pfcp(&out)), ("deletion-request".into(), vec![(there(), THERE_SEID, None)]));
    assert_eq!(brief(&done(&mut bench, Kind::SESSION_DELETION_RESPONSE)), "notrelocated free released");
    // After the switch.
    let (mut bench, _) = switched();
    assert_eq!(brief(&bench.step(Input::ReleaseLocally)), "deletion-request deletion-request");
    assert_eq!(brief(&done(&mut bench, Kind::SESSION_DELETION_RESPONSE)), "relocated(instant(1000000))");
    assert_eq!(brief(&bench.deleted()), "free released");
}

#[test]
fn upf_restart_in_relocation_is_not_awaited() {
    let (mut bench, _) = switched();
    assert_eq!(pfcp(&bench.step(Input::TargetUpfLost)), [(there(), THERE_SEID, Some(0x201))], "the source is released");
    bench.modified();
    bench.step(Input::N2(N2Sm::ModifyResponse, &[]));
    bench.wait(on_the_way());
    assert_eq!(brief(&bench.step(Input::Deadline)), "relocated(instant(1000000))");
    let (mut bench, _) = switched();
    let source = bench.sm().relocation.as_ref().expect("a relocation").pfcp.upf;
    let out = bench.step(Input::UpfLost);
    assert_eq!(pfcp(&out).iter().filter(|(upf, seid, _)| (*upf, *seid) == (source, UP_SEID)).count(), 1, "{out:?}");
    assert_eq!(brief(&done(&mut bench, Kind::SESSION_DELETION_RESPONSE)), "notrelocated");
}

/// TS 38.413 9.3.4.1: the source UPF would relay packets for a session that is leaving it.
#[test]
fn handover_in_relocation_forwards_nothing() {
    let required = encode_open_type(&HandoverRequiredTransfer::new(None, None)).expect("it encodes").to_vec();
    for relocates in [false, true] {
        let mut bench = Bench::active();
        if relocates {
            assert_eq!(brief(&bench.step(Input::Relocate(there(), our_seid()))), "establishment-request");
        }
        let out = bench.step(Input::MoveRequired(Dialect::Nr, &required));
        let [Output::N2(N2Sm::SetupRequest, octets)] = &out[..] else { panic!("{out:?}") };
        let transfer: PDUSessionResourceSetupRequestTransfer<'_> = decode_open_type(octets).expect("it decodes");
        assert_eq!(transfer.ie::<ie::DataForwardingNotPossible>().is_some(), relocates);
    }
}
