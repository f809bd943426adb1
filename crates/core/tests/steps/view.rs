//! Shallow view of messages of the emulator's gNBs and UE, and of damaged messages.

use crate::lab::{self, Lab};
use vireo_core::amf::engine;
use vireo_core::amf::n2::{self, EstablishmentCause, NasIdentity, Route, UeMessage};
use vireo_core::placement::host::{NamedUe, named_ue};
use vireo_core::schedule::kind::{NfKind, procedure_in_progress};
use vireo_emulator::gnb::Outbox;
use vireo_emulator::ue;
use vireo_types::{AmfUeNgapId, GnbId, RanUeNgapId};
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, RRCEstablishmentCause, *};

/// Returns the message kind and the view's kind of all messages received since `from`.
fn views(lab: &Lab, from: usize) -> Vec<(NgapPduKind, NfKind)> {
    let view = |pdu: &Vec<u8>| {
        let kind = NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind();
        let view = n2::peek(pdu).expect("a view");
        assert_eq!(Some(view.route), n2::route(pdu).ok());
        let initial = kind == NgapPduKind::Initiating_InitialUEMessage;
        assert_eq!(view.establishment.is_some(), initial);
        (kind, view.kind)
    };
    lab.received[from..].iter().map(view).collect()
}

fn initial(nas: &[u8], cause: RRCEstablishmentCause) -> n2::ShallowView {
    let plmn = "99970".parse().expect("a PLMN");
    let config = vireo_emulator::gnb::GnbConfig {
        id: GnbId { plmn, id: 1, bits: 24 }.into(),
        name: "gnb".into(),
        tai: vireo_types::Tai { plmn, tac: vireo_types::Tac(1) },
        slices: vec![lab::SLICE],
        n3: std::net::Ipv4Addr::LOCALHOST.into(),
    };
    let (mut gnb, mut out) = (vireo_emulator::gnb::Gnb::new(config), Outbox::default());
    gnb.initial_ue(1, nas, None, cause, &mut out).expect("a message");
    let (_, pdu) = out.pdus().next().expect("a PDU");
    n2::peek(pdu).expect("a view")
}

/// TS 38.413 10.2: the IEs that are read decode, and the container is cut short after them.
#[test]
fn container_cut_short_is_transfer_syntax_error() {
    let mut lab = Lab::new();
    lab.register();
    let about_ue = |pdu: &&Vec<u8>| n2::ue_message(pdu).is_ok();
    let sound: Vec<Vec<u8>> = lab.received.iter().filter(about_ue).cloned().collect();
    assert!(sound.len() >= 4);
    for mut pdu in sound {
        let head = if pdu[3] & 0x80 == 0 { 4 } else { 5 };
        // The count of IEs is two octets after the preamble.
        pdu[head + 1] = 4;
        let decoded = NGAP_PDU::decode(&pdu).expect("the head decodes");
        assert!(decoded.check_structure().is_err());
        let fault = n2::ue_message(&pdu).expect_err("the container does not decode");
        let answered = decoded.direction() == "InitiatingMessage";
        let cause = Cause::protocol(CauseProtocol::transfer_syntax_error);
        assert_eq!(fault.cause, answered.then_some(cause), "{decoded}");
        assert_eq!(fault.answer().is_some(), answered);
    }
}

/// A host routes such a message by its view. No worker can decode it, and the host answers it.
#[test]
fn view_of_faulty_first_message_names_no_ue() {
    let mut lab = Lab::new();
    lab.register();
    let is_first = |pdu: &&Vec<u8>| matches!(n2::route(pdu), Ok(Route::Initial { .. }));
    let pdu = lab.received.iter().find(is_first).expect("a first message");
    let is_unnamed = |pdu: &[u8]| {
        let named = n2::peek(pdu).map(|view| named_ue(&view, &lab.config));
        matches!(named, Ok(NamedUe::Initial { tmsi: None, .. }))
    };
    assert!(is_unnamed(pdu), "the UE has no 5G-GUTI");
    let mut faulty = 0;
    for at in 0..pdu.len() {
        let mut changed = pdu.clone();
        changed[at] ^= 0x41;
        let routed = is_first(&&changed) && n2::ue_message(&changed).is_err();
        assert!(!routed || is_unnamed(&changed), "octet {at} of {pdu:x?}");
        faulty += usize::from(routed);
    }
    assert!(faulty > 0, "the IEs for routing decode, another one does not");
}

#[test]
fn messages_of_ue_life_have_kinds() {
    use NfKind::*;
    use NgapPduKind::*;
    let mut lab = Lab::new();
    assert!(views(&lab, 0).iter().all(|v| *v == (Initiating_NGSetup, StateManagement)));
    let mut from = lab.received.len();
    let mut since = |lab: &Lab| {
        let messages = views(lab, from);
        from = lab.received.len();
        messages
    };
    lab.register();
    let expected = [
        (Initiating_InitialUEMessage, Registration),
        // Authentication Response is in cleartext, Security Mode Complete under the new context.
        (Initiating_UplinkNASTransport, Registration),
        (Initiating_UplinkNASTransport, Registration),
        (Successful_InitialContextSetup, ServiceRequest),
        (Initiating_UplinkNASTransport, Session),
    ];
    assert_eq!(since(&lab), expected);
    lab.session(1);
    assert_eq!(since(&lab), [(Initiating_UplinkNASTransport, Session), (Successful_PDUSessionResourceSetup, Session)]);
    lab.idle();
    let released =
        [(Initiating_UEContextReleaseRequest, StateManagement), (Successful_UEContextRelease, StateManagement)];
    assert_eq!(since(&lab), released);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert_eq!(
        since(&lab)[..2],
        [(Initiating_InitialUEMessage, ServiceRequest), (Successful_InitialContextSetup, ServiceRequest)]
    );
    lab.idle();
    since(&lab);
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    assert_eq!(since(&lab)[0], (Initiating_InitialUEMessage, Mobility));
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert_eq!(since(&lab)[0].0, Initiating_InitialUEMessage);
}

#[test]
fn context_reports_running_procedure() {
    let mut lab = Lab::new();
    lab.reachable = false;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Initial, out).expect("a request"));
    assert_eq!(lab.context().as_ref().and_then(procedure_in_progress), Some(NfKind::Registration));
    assert_eq!(lab.context().as_ref().and_then(engine::slice_of), None);
    let mut lab = Lab::new();
    lab.register();
    assert_eq!(lab.context().as_ref().and_then(procedure_in_progress), None);
    assert_eq!(lab.context().as_ref().and_then(engine::slice_of), Some(lab::SLICE));
    lab.session(1);
    assert_eq!(lab.context().as_ref().and_then(procedure_in_progress), None);
    lab.upf_answers = false;
    lab.ue_does(|ue, _, out| ue.release(1, out).expect("a request"));
    assert_eq!(
        lab.context().as_ref().and_then(procedure_in_progress),
        Some(NfKind::Session),
        "the UPF has not answered"
    );
}

#[test]
fn why_a_ue_comes_is_told_by_rrc_and_by_nas() {
    let data = RRCEstablishmentCause::mo_Data;
    let registration = [0x7e, 0, 0x41, 0x79, 0, 1, 1];
    let cases = [
        (&registration[..], data, NfKind::Registration, EstablishmentCause::Originating),
        (&registration, RRCEstablishmentCause::emergency, NfKind::Registration, EstablishmentCause::Emergency),
        (&registration, RRCEstablishmentCause::mcs_PriorityAccess, NfKind::Registration, EstablishmentCause::Priority),
        (&[0x7e, 0, 0x41, 0x7c, 0, 1, 1], data, NfKind::Registration, EstablishmentCause::Emergency),
        (
            &[0x7e, 0, 0x4c, 0x10],
            RRCEstablishmentCause::mt_Access,
            NfKind::ServiceRequest,
            EstablishmentCause::Terminating,
        ),
        (&[0x7e, 0, 0x4c, 0x20], data, NfKind::ServiceRequest, EstablishmentCause::Terminating),
        (&[0x7e, 0, 0x4c, 0x30], data, NfKind::ServiceRequest, EstablishmentCause::Emergency),
        (&[0x7e, 0, 0x64, 0x16], data, NfKind::Registration, EstablishmentCause::Originating),
        (&[0x7e], data, NfKind::Registration, EstablishmentCause::Originating),
    ];
    for (nas, cause, kind, establishment) in cases {
        let view = initial(nas, cause);
        assert_eq!((view.kind, view.establishment), (kind, Some(establishment)), "{nas:x?} {cause:?}");
    }
}

#[test]
fn handover_messages_of_ran_have_handover_kind() {
    let (amf, ran) = (AmfUeNgapId::from_raw(42).expect("40 bits"), RanUeNgapId(7));
    let cancel = build_ngap!(
        InitiatingMessage,
        HandoverCancel,
        HandoverCancel,
        AMF_UE_NGAP_ID(amf.get()),
        RAN_UE_NGAP_ID(ran.0),
        Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
    );
    let octets = cancel.and_then(|pdu| pdu.encode()).expect("it encodes");
    let view = n2::peek(&octets).expect("a view");
    assert_eq!((view.route, view.kind), (Route::Ue(amf), NfKind::Handover));
}

#[test]
fn truncated_or_mutated_message_never_panics() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    for pdu in &lab.received {
        for end in 0..pdu.len() {
            let _ = n2::peek(&pdu[..end]);
        }
        for at in 0..pdu.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut changed = pdu.clone();
                changed[at] = value;
                let _ = n2::peek(&changed);
            }
        }
    }
}

/// Returns the identity that the codec decodes from the same message.
fn named_by_the_codec(nas: &[u8]) -> Option<(u16, u32)> {
    use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage};
    let plain = if nas.get(1) == Some(&1) { nas.get(7..)? } else { nas };
    let Ok(Nas5gsMessage::Gmm(_, message)) = Nas5gsMessage::decode(plain) else { return None };
    let identity = match &message {
        Nas5gmmMessage::RegistrationRequest(m) => &m.fgs_mobile_identity,
        Nas5gmmMessage::ServiceRequest(m) => &m.fg_s_tmsi,
        Nas5gmmMessage::DeregistrationRequestUeOriginating(m) => &m.fgs_mobile_identity,
        _ => return None,
    };
    let value = &identity.value;
    let tail = match (identity.as_guti().is_some(), identity.as_s_tmsi().is_some()) {
        (true, _) => &value[5..11],
        (_, true) => &value[1..7],
        _ => return None,
    };
    let [a, b, c, d, e, f] = tail else { return None };
    Some((u16::from_be_bytes([*a, *b]), u32::from_be_bytes([*c, *d, *e, *f])))
}

#[test]
fn shallow_ue_identity_equals_full_decode() {
    let mut lab = Lab::new();
    lab.register();
    lab.idle();
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    lab.idle();
    lab.ue_does(|ue, p, out| ue.deregister(p, true, out).expect("a request"));
    let first = |(_, happened): &(_, lab::RecordedEvent)| match happened {
        lab::RecordedEvent::Initial { message, .. } => Some(message.nas.clone()),
        _ => None,
    };
    let messages: Vec<_> = lab.history.iter().filter_map(first).collect();
    let amf = lab.config.amf_set << 6 | u16::from(lab.config.amf_pointer);
    let named_tmsi = |nas: &[u8]| NasIdentity::peek(nas)?.tmsi_of(&lab.config);
    let mut named = 0;
    for nas in &messages {
        let identity = named_tmsi(nas).map(|tmsi| (amf, tmsi.0));
        assert_eq!(identity, named_by_the_codec(nas), "{nas:x?}");
        named += usize::from(identity.is_some());
        for at in 0..nas.len() {
            assert!(named_tmsi(&nas[..at]).is_none() || at > 10);
            let mut changed = nas.clone();
            changed[at] ^= 0x41;
            // No identity is read from another AMF's or damaged message; a read identity equals the
            // codec's.
            if let Some(tmsi) = named_tmsi(&changed) {
                let codec = named_by_the_codec(&changed);
                assert!(codec.is_none_or(|name| name == (amf, tmsi.0)), "octet {at} of {nas:x?}");
            }
        }
    }
    assert!(messages.len() >= 4 && named >= 3, "{named} of {}", messages.len());
}

/// The view of a golden message has the identifiers that the full decode finds.
#[test]
fn golden_view_equals_full_decode() {
    let golden = include_str!("../../../../tests/reference/golden.txt");
    let lines = golden.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != "#");
    let (mut first, mut about_ue) = (0, 0);
    for (name, octets) in lines {
        let pdu = hex::decode(octets).expect("octets");
        let Ok(view) = n2::peek(&pdu) else { continue };
        match (view.route, n2::ue_message(&pdu)) {
            (Route::Initial { ran_id, nas_identity, .. }, Ok((Some(id), UeMessage::Initial(message)))) => {
                assert_eq!((ran_id, nas_identity), (id, NasIdentity::peek(&message.nas)), "{name}");
                first += 1;
            }
            // The view has the ID of the old connection.
            (Route::Ue(_), Ok((_, UeMessage::PathSwitch(_)))) => {}
            (Route::Ue(id), _) => {
                assert_eq!(n2::ue_ids(&pdu).0, Some(id.get()), "{name}");
                about_ue += 1;
            }
            (Route::Node, message) => assert!(!matches!(message, Ok((_, UeMessage::UplinkNas { .. }))), "{name}"),
            (Route::Initial { .. }, message) => panic!("{name}: {message:?}"),
        }
    }
    assert!(first > 0 && about_ue > 10, "{first} first messages, {about_ue} about UEs");
}
