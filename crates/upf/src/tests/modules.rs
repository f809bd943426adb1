//! Modules: N3 addresses that sessions use in turn, each with a range of TEIDs.

use super::*;

const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

fn two_modules() -> Bench {
    let mut b = bench();
    let n3 = [UPF, SECOND].map(|address| N3 { ipv4: Some(address), ipv6: None });
    b.upf = Upf::new(Settings { n3: n3.to_vec(), ..b.upf.settings.clone() });
    let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() };
    let limits = Limits { records: 64, modules: 2, ..Limits::default() };
    b.plane = plane(pool, limits);
    b.associate();
    b
}

/// Creates a session of this UE. Returns its SEID and its tunnel end.
fn session_of(b: &mut Bench, ue: Ipv4Addr) -> (u64, Teid, Option<IpAddr>) {
    let mut request = request();
    request.create_pdrs[1] = downlink_pdr(2, Some(ue), None);
    let response = b.establish(&request);
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let f_teid = response.created_pdrs[0].f_teid.expect("chosen");
    (response.up_f_seid.expect("accepted").seid, f_teid.teid().expect("chosen"), f_teid.address())
}

#[test]
fn sessions_take_turns_and_stay_where_they_are() {
    let mut b = two_modules();
    let ues = [2, 3, 4, 5].map(|host| Ipv4Addr::new(10, 45, 0, host));
    let sessions = ues.map(|ue| session_of(&mut b, ue));
    let addresses = sessions.map(|(_, _, address)| address);
    assert_eq!(addresses, [UPF, SECOND, UPF, SECOND].map(|address| Some(address.into())));
    // the index is in the upper 24 bits
    assert_eq!(sessions.map(|(_, teid, _)| teid.0 >> 8), [0, 32, 1, 33]);
    for ((_, teid, _), ue) in sessions.into_iter().zip(ues) {
        b.uplink(teid, &ipv4(ue, SERVER, 100));
        assert_eq!(std::mem::take(&mut b.plane.n6).len(), 1, "there is one set of tables");
    }

    let (seid, before, _) = sessions[1];
    let mut modification = SessionModificationRequest::default();
    modification.remove_pdrs.push(RemovePdr { pdr_id: PdrId(1) });
    modification.create_pdrs.push(uplink_pdr(3, FTeid::Choose { ipv4: true, ipv6: false, id: None }));
    let response = b.modify(seid, &modification);
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let f_teid = response.created_pdrs[0].f_teid.expect("chosen");
    assert_eq!(f_teid.address(), Some(SECOND.into()));
    let teid = f_teid.teid().expect("chosen");
    assert!(teid != before && (32..64).contains(&(teid.0 >> 8)), "{teid:?}");
}

#[test]
fn address_family_without_module_is_refused() {
    let mut b = two_modules();
    let mut request = request();
    request.create_pdrs[0] = uplink_pdr(1, FTeid::Choose { ipv4: false, ipv6: true, id: None });
    assert_eq!(b.establish(&request).cause, Cause::INVALID_F_TEID_ALLOCATION);
}
