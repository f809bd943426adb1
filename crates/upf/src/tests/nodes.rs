//! Node-related messages: permitted senders, and the cause in the response.

use super::*;

/// Returns the cause and the offending element of the response to a request with these elements.
fn answer(b: &mut Bench, kind: MessageType, elements: &[(u16, &[u8])]) -> (Cause, Option<u16>) {
    b.sequence += 1;
    let mut octets = vec![];
    let mut builder = Builder::new(&mut octets, kind, None, b.sequence);
    for (id, octets) in elements {
        builder.put_raw(*id, octets);
    }
    builder.finish().expect("short");
    let out = b.deliver(&octets);
    assert_eq!(out.len(), 1, "{kind:?} is answered");
    let message = Message::new(&out[0].1).expect("sound");
    assert_eq!((message.sequence(), message.message_type().0), (b.sequence, kind.0 + 1));
    let offending: Option<OffendingIe> = message.get().expect("sound");
    (message.need().expect("a cause"), offending.map(|ie| ie.0))
}

#[test]
fn each_request_between_nodes_gets_its_cause() {
    use MessageType as T;
    const NODE: (u16, &[u8]) = (60, &[0, 192, 0, 2, 5]);
    const OTHER: (u16, &[u8]) = (60, &[0, 192, 0, 2, 6]);
    const BROKEN: (u16, &[u8]) = (60, &[0, 192, 0]);
    const SET: (u16, &[u8]) = (65, &[0x01, 192, 0, 2, 5, 0, 7]);
    const STARTED: (u16, &[u8]) = (96, &[0, 0, 3, 232]);
    let (missing, length) = (Cause::MANDATORY_IE_MISSING, Cause::INVALID_LENGTH);
    let (none, unserved) = (Cause::NO_ESTABLISHED_ASSOCIATION, Cause::SERVICE_NOT_SUPPORTED);
    let accepted = Cause::REQUEST_ACCEPTED;
    let set_deletion = T::SESSION_SET_DELETION_REQUEST;
    // request, elements, response without and with an association
    type Answer = (Cause, Option<u16>);
    type Row<'a> = (MessageType, &'a [(u16, &'a [u8])], Answer, Answer);
    let table: [Row<'_>; 17] = [
        (T::ASSOCIATION_UPDATE_REQUEST, &[NODE], (none, None), (accepted, None)),
        (T::ASSOCIATION_UPDATE_REQUEST, &[OTHER], (none, None), (none, None)),
        (T::ASSOCIATION_UPDATE_REQUEST, &[], (missing, None), (missing, None)),
        (T::ASSOCIATION_UPDATE_REQUEST, &[BROKEN], (length, None), (length, None)),
        (T::ASSOCIATION_RELEASE_REQUEST, &[OTHER], (none, None), (none, None)),
        (T::ASSOCIATION_RELEASE_REQUEST, &[], (missing, None), (missing, None)),
        (T::ASSOCIATION_SETUP_REQUEST, &[NODE], (missing, None), (missing, None)),
        (T::ASSOCIATION_SETUP_REQUEST, &[STARTED], (missing, None), (missing, None)),
        (T::ASSOCIATION_SETUP_REQUEST, &[BROKEN, STARTED], (length, None), (length, None)),
        (T::PFD_MANAGEMENT_REQUEST, &[], (none, None), (unserved, None)),
        (T::PFD_MANAGEMENT_REQUEST, &[(58, &[0, 24, 0, 1, b'a'])], (none, None), (unserved, None)),
        (T::SESSION_SET_MODIFICATION_REQUEST, &[NODE], (none, None), (unserved, None)),
        (set_deletion, &[NODE, SET], (none, None), (accepted, None)),
        (set_deletion, &[OTHER, SET], (none, None), (none, None)),
        (set_deletion, &[SET], (missing, Some(NODE.0)), (missing, Some(NODE.0))),
        (set_deletion, &[NODE], (none, None), (Cause::CONDITIONAL_IE_MISSING, Some(SET.0))),
        (
            set_deletion,
            &[NODE, (65, &[0x02, 1, 2, 3, 4, 0, 7])],
            (none, None),
            (Cause::MANDATORY_IE_INCORRECT, Some(65)),
        ),
    ];
    for associated in [false, true] {
        let mut b = bench();
        if associated {
            b.associate();
        }
        for (kind, elements, without, with) in &table {
            let expected = if associated { with } else { without };
            let mut unknown = elements.to_vec();
            // unknown elements have no effect
            unknown.push((999, &[1]));
            for elements in [elements, &unknown[..]] {
                assert_eq!(answer(&mut b, *kind, elements), *expected, "{kind:?} {elements:?}, {associated}");
            }
        }
    }
}

#[test]
fn session_set_deletion_keeps_others() {
    let mut b = bench();
    b.associate();
    let csid = |set: u8| FqCsid(vec![0x01, 192, 0, 2, 5, 0, set].as_slice().into());
    let mut nth = |n: u8, sets: &[u8]| {
        let mut request = request();
        request.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, n)), None);
        request.fq_csids = sets.iter().map(|set| csid(*set)).collect();
        established(&b.establish(&request)).0
    };
    let seids = [nth(3, &[7]), nth(4, &[8, 7]), nth(5, &[8]), nth(6, &[])];
    let request = SessionSetDeletionRequest { node_id: node(), fq_csids: vec![csid(7)] };
    let response: SessionSetDeletionResponse = b.request(|out, sequence| request.emit(out, sequence)).1;
    assert_eq!((response.cause, b.upf.sessions(), b.plane.tables.len()), (Cause::REQUEST_ACCEPTED, 2, (2, 2)));
    let (gone, there) = (Cause::SESSION_CONTEXT_NOT_FOUND, Cause::REQUEST_ACCEPTED);
    assert_eq!(seids.map(|seid| b.delete(seid).cause), [gone, gone, there, there]);
}

#[test]
fn restarted_upf_announces_it_without_sessions() {
    let mut b = bench();
    let (seid, _) = b.session();
    let before = b.associate();
    // the same UPF, started later
    b.upf = Upf::new(Settings { started: STARTED + 5, seed: seed(), ..b.upf.settings.clone() });
    b.plane = bench().plane;
    let beat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1_000) };
    let told: HeartbeatResponse = b.request(|out, sequence| beat.emit(out, sequence)).1;
    assert!(told.recovery_time_stamp.0 > before.recovery_time_stamp.0);
    assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::NO_ESTABLISHED_ASSOCIATION);
    let (new, _) = b.session();
    assert_ne!(new, seid, "a SEID of an earlier run names no session of this one");
    assert_eq!(b.delete(seid).cause, Cause::SESSION_CONTEXT_NOT_FOUND);
}
