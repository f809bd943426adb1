//! Negative cases: messages and the answers that the specifications allow.
//!
//! The answers follow TS 38.413 clause 10 and TS 24.501 4.4 and 7.

use super::case::{Case, Outcome};
use super::driver::{ANSWER, Answer, CaseDriver, Device, SILENCE};
use super::error::CaseError;
use crate::gnb::{Gnb, Outbox, PPID};
use std::time::Duration;
use vireo_types::{Plmn, RanUeNgapId, Snssai};
use vireo_wire::ngap::*;

/// Runs a case with the gNB `bad`, whose association is up and which has not set up NG yet.
pub(super) fn play(case: Case, wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) {
    let result = match case {
        Case::Setup => setup(wire, bad, outcome),
        Case::Stream => stream(wire, bad, index, outcome),
        _ => wire.set_up(bad).map_err(CaseError::from).and_then(|()| match case {
            Case::Random => random(wire, bad, outcome),
            Case::Truncated => truncated(wire, bad, outcome),
            Case::Ppid => ppid(wire, bad, outcome),
            Case::Procedure => procedure(wire, bad, outcome),
            Case::MissingIe => missing_ie(wire, bad, outcome),
            Case::UeIds => ue_ids(wire, bad, index, outcome),
            Case::NasMac => nas_mac(wire, bad, index, outcome),
            Case::Replay => replay(wire, bad, index, outcome),
            Case::Order => order(wire, bad, outcome),
            Case::NasGarbage => nas_garbage(wire, bad, outcome),
            Case::Node => node(wire, bad, index, outcome),
            _ => half_open(wire, bad, outcome),
        }),
    };
    if let Err(error) = result {
        outcome.faults.push(error.to_string());
    }
}

/// Random generator (xorshift*, 64 bits): the same seed yields the same octets.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn octets(&mut self, most: usize) -> Vec<u8> {
        let length = 1 + self.next() as usize % most;
        (0..length).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// Records a fault for every answer other than ERROR INDICATION or, if the procedure is
/// recognisable, its failure.
fn only_errors(answers: &[Answer], faults: &mut Vec<String>) {
    for answer in answers {
        if !matches!(answer, Answer::ErrorIndication(..) | Answer::SetupFailure(_)) {
            faults.push(format!("{answer:?} answers what is no NGAP"));
        }
    }
}

fn random(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut random = Random::new(wire.options().seed);
    for n in 0..200 {
        let octets = random.octets(if n == 0 { 60_000 } else { 300 });
        wire.send(bad, (n % 3) as u16, PPID, &octets, outcome);
    }
    let answers = wire.answers(bad, outcome);
    only_errors(&answers, &mut outcome.faults);
    Ok(())
}

/// Returns the NG SETUP REQUEST of a gNB after `change`.
fn setup_request(wire: &mut CaseDriver<'_>, bad: usize, change: impl FnOnce(&mut crate::gnb::GnbConfig)) -> Vec<u8> {
    let mut config = wire.gnb(bad).config().clone();
    change(&mut config);
    let mut out = Outbox::default();
    // A well-formed configuration encodes; the core treats an empty request like any other bad one.
    let _ = Gnb::new(config).set_up(2, &mut out);
    out.pdus().next().map(|(_, pdu)| pdu.to_vec()).unwrap_or_default()
}

/// Returns an INITIAL UE MESSAGE of the gNB without storing the connection.
fn initial_ue(wire: &mut CaseDriver<'_>, bad: usize, nas: &[u8], ran: u32) -> Vec<u8> {
    let mut out = Outbox::default();
    let mut gnb = Gnb::new(wire.gnb(bad).config().clone());
    let _ = gnb.initial_ue(0, nas, None, RRCEstablishmentCause::mo_Signalling, &mut out);
    let octets = out.pdus().next().map(|(_, pdu)| pdu.to_vec()).unwrap_or_default();
    let Ok(mut pdu) = NGAP_PDU::decode(&octets) else { return octets };
    let Ok(ies) = pdu.protocol_ies() else { return octets };
    let mut ies = ies.into_owned();
    for ie in ies.0.iter_mut().filter(|ie| ie.id == ID_RAN_UE_NGAP_ID) {
        ie.value = encode_open_type(&RANUENGAPID(ran)).unwrap_or_default();
    }
    let _ = pdu.set_protocol_ies(ies);
    pdu.encode().unwrap_or(octets)
}

fn truncated(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let whole = [setup_request(wire, bad, |_| {}), initial_ue(wire, bad, &REGISTRATION, 0x00f0_0000)];
    for pdu in whole {
        for end in 1..pdu.len() {
            wire.send(bad, 0, PPID, &pdu[..end], outcome);
        }
    }
    let answers = wire.answers(bad, outcome);
    only_errors(&answers, &mut outcome.faults);
    if answers.is_empty() {
        // TS 38.413 10.2: ERROR INDICATION shall answer a transfer syntax error.
        outcome.faults.push("no ERROR INDICATION for any cut message".into());
    }
    Ok(())
}

/// REGISTRATION REQUEST with an unknown SUCI: IMSI 999 70 9999999999.
const REGISTRATION: [u8; 23] = [
    0x7e, 0, 0x41, 0x79, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0x99, 0x99, 0x99, 0x99, 0x99, 0x2e, 2, 0xf0,
    0x70,
];

fn ppid(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let pdu = setup_request(wire, bad, |_| {});
    for ppid in [0, 18, 46, u32::MAX] {
        wire.send(bad, 0, ppid, &pdu, outcome);
    }
    let answers = wire.answers(bad, outcome);
    // TS 38.412 7: NGAP has PPID 60; any other PPID is not NGAP.
    if answers.contains(&Answer::SetupResponse) {
        outcome.faults.push("an NG SETUP REQUEST with another PPID was taken".into());
    }
    Ok(())
}

fn stream(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let pdu = setup_request(wire, bad, |_| {});
    wire.send(bad, 1, PPID, &pdu, outcome);
    let answer = wire.answer(bad, ANSWER, outcome);
    match answer {
        // TS 38.412 7 restricts the sender's choice of stream; a receiver may be lenient.
        Some(Answer::SetupResponse | Answer::SetupFailure(_) | Answer::ErrorIndication(..)) => {}
        other => outcome.faults.push(format!("NG SETUP REQUEST on stream 1 was answered by {other:?}")),
    }
    wire.set_up(bad)?;
    let pdu = initial_ue(wire, bad, &REGISTRATION, index << 8 | 0xff);
    wire.send(bad, 0, PPID, &pdu, outcome);
    wire.answers(bad, outcome);
    Ok(())
}

fn procedure(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    for (criticality, octet) in [("reject", 0x00), ("ignore", 0x40), ("notify", 0x80)] {
        // Initiating message, procedure code 200, criticality, an open type with an empty IE
        // container.
        wire.send(bad, 0, PPID, &[0x00, 200, octet, 3, 0, 0, 0], outcome);
        let wait = if criticality == "ignore" { SILENCE } else { ANSWER };
        let answer = wire.answer(bad, wait, outcome);
        // TS 38.413 10.3.4.1
        let right = match criticality {
            "ignore" => answer.is_none(),
            _ => matches!(answer, Some(Answer::ErrorIndication(..))),
        };
        if !right {
            outcome.faults.push(format!("an unknown procedure of criticality {criticality} gave {answer:?}"));
        }
    }
    Ok(())
}

/// Returns the PDU without the IEs of this identifier.
fn without(pdu: &[u8], id: ProtocolIEID) -> Vec<u8> {
    let Ok(mut decoded) = NGAP_PDU::decode(pdu) else { return pdu.to_vec() };
    let Ok(ies) = decoded.protocol_ies() else { return pdu.to_vec() };
    let mut ies = ies.into_owned();
    ies.0.retain(|ie| ie.id != id);
    let _ = decoded.set_protocol_ies(ies);
    decoded.encode().unwrap_or_default()
}

fn missing_ie(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let request = setup_request(wire, bad, |_| {});
    for id in [ID_GLOBAL_RANNODE_ID, ID_SUPPORTED_TALIST] {
        wire.send(bad, 0, PPID, &without(&request, id), outcome);
        // TS 38.413 10.3.5: the procedure's own failure message rejects it.
        let answer = wire.answer(bad, ANSWER, outcome);
        if !matches!(answer, Some(Answer::SetupFailure(_))) {
            outcome.faults.push(format!("NG SETUP REQUEST without IE {} gave {answer:?}", id.0));
        }
    }
    let initial = initial_ue(wire, bad, &REGISTRATION, 0x00f1_0000);
    for id in [ID_RAN_UE_NGAP_ID, ID_NAS_PDU, ID_USER_LOCATION_INFORMATION] {
        wire.send(bad, 1, PPID, &without(&initial, id), outcome);
        // A procedure without a failure message requires ERROR INDICATION.
        let answer = wire.answer(bad, ANSWER, outcome);
        if !matches!(answer, Some(Answer::ErrorIndication(..))) {
            outcome.faults.push(format!("INITIAL UE MESSAGE without IE {} gave {answer:?}", id.0));
        }
    }
    Ok(())
}

fn uplink(amf: u64, ran: u32) -> Vec<u8> {
    let plmn = PLMNIdentity([0x99, 0xf9, 0x07]);
    let location = helpers::nr_cgi(plmn, 1, 24, 1).map(|cell| {
        let location = UserLocationInformationNR::new(cell, helpers::tai(plmn, [0, 0, 1]), None, None);
        UserLocationInformation::userLocationInformationNR(location)
    });
    let Ok(location) = location else { return Vec::new() };
    let message = build_ngap!(
        InitiatingMessage,
        UplinkNASTransport,
        UplinkNASTransport,
        AMF_UE_NGAP_ID(amf),
        RAN_UE_NGAP_ID(ran),
        NAS_PDU(vec![0x7e, 0, 0x64, 0x6f]),
        UserLocationInformation(location),
    );
    message.and_then(|message| message.encode()).unwrap_or_default()
}

fn ue_ids(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut device = Device::new(wire.options(), 2 * index)?;
    wire.register(bad, &mut device)?;
    let ran = device.ran.ok_or(CaseError::NoConnection)?;
    let amf = wire.gnb(bad).amf_id(ran).ok_or(CaseError::NoAmfId)?;
    let strange = [
        ("of nobody", uplink(0xff_ffff_fff0, 0x00f2_0000)),
        ("that do not belong together", uplink(amf, ran.0 ^ 0x4000)),
    ];
    for (what, pdu) in strange {
        wire.send(bad, 1, PPID, &pdu, outcome);
        // TS 38.413 10.6
        let answer = wire.answer(bad, ANSWER, outcome);
        let right = match &answer {
            Some(Answer::ErrorIndication(Some(Cause::radioNetwork(cause)), _)) => matches!(
                cause,
                CauseRadioNetwork::unknown_local_UE_NGAP_ID | CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID
            ),
            _ => false,
        };
        if !right {
            outcome.faults.push(format!("UE NGAP IDs {what} gave {answer:?}"));
        }
    }
    Ok(())
}

/// Sends a NAS message unchanged on the device's connection.
fn send_nas(
    wire: &mut CaseDriver<'_>,
    bad: usize,
    ran: RanUeNgapId,
    nas: &[u8],
    outcome: &mut Outcome,
) -> Result<(), CaseError> {
    let mut out = Outbox::default();
    wire.gnb(bad).uplink_nas(ran, nas, &mut out)?;
    for (stream, pdu) in out.pdus() {
        wire.send(bad, stream, PPID, pdu, outcome);
    }
    Ok(())
}

fn nas_mac(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut device = Device::new(wire.options(), 2 * index)?;
    wire.register(bad, &mut device)?;
    let ran = device.ran.ok_or(CaseError::NoConnection)?;
    let genuine = device.sent.last().cloned().ok_or(CaseError::NoNas)?;
    for n in 0..4u8 {
        let mut forged = genuine.clone();
        forged[2] ^= 0x80 >> n;
        forged[6] = forged[6].wrapping_add(1 + n);
        send_nas(wire, bad, ran, &forged, outcome)?;
    }
    check_silence(wire, bad, "NAS with a wrong MAC", outcome);
    // TS 24.501 4.4.4.3: the core discards the message and serves the UE as usual.
    wire.establish(bad, &mut device).map_err(|error| CaseError::AfterForgery(Box::new(error)))
}

fn replay(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut device = Device::new(wire.options(), 2 * index)?;
    wire.register(bad, &mut device)?;
    wire.establish(bad, &mut device)?;
    let ran = device.ran.ok_or(CaseError::NoConnection)?;
    for nas in device.sent.clone().iter().filter(|nas| nas.get(1).is_some_and(|kind| *kind != 0)) {
        send_nas(wire, bad, ran, nas, outcome)?;
    }
    check_silence(wire, bad, "NAS with a COUNT used before", outcome);
    Ok(())
}

fn check_silence(wire: &mut CaseDriver<'_>, bad: usize, what: &str, outcome: &mut Outcome) {
    let answers = wire.answers(bad, outcome);
    if !answers.is_empty() {
        outcome.faults.push(format!("{what} was answered by {answers:?}"));
    }
}

/// Plain NAS messages that no procedure expects. They are AUTHENTICATION RESPONSE, SECURITY MODE
/// COMPLETE, REGISTRATION COMPLETE, IDENTITY RESPONSE, UL NAS TRANSPORT, CONFIGURATION UPDATE
/// COMPLETE and 5GMM STATUS.
const UNASKED: [&[u8]; 7] = [
    &[0x7e, 0, 0x57, 0x2d, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[0x7e, 0, 0x5e],
    &[0x7e, 0, 0x43],
    &[0x7e, 0, 0x5c, 0, 1, 0],
    &[0x7e, 0, 0x67, 1, 0, 4, 0x2e, 1, 1, 0xc1],
    &[0x7e, 0, 0x55],
    &[0x7e, 0, 0x64, 0x6f],
];

fn order(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    for (ran, nas) in (0x00f3_0000u32..).zip(UNASKED) {
        let pdu = initial_ue(wire, bad, nas, ran);
        wire.send(bad, 1, PPID, &pdu, outcome);
    }
    // Answers to requests that the core never sent.
    let complete = build_ngap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        AMF_UE_NGAP_ID(0xff_ffff_fff1u64),
        RAN_UE_NGAP_ID(1u32),
    );
    let response = build_ngap!(
        SuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupResponse,
        AMF_UE_NGAP_ID(0xff_ffff_fff2u64),
        RAN_UE_NGAP_ID(2u32),
    );
    for pdu in [complete, response] {
        let octets = pdu.and_then(|pdu| pdu.encode())?;
        wire.send(bad, 1, PPID, &octets, outcome);
    }
    let answers = wire.answers(bad, outcome);
    for answer in answers {
        // 5GMM STATUS, REGISTRATION REJECT, SERVICE REJECT, DEREGISTRATION, AUTHENTICATION REJECT
        let refuses = matches!(answer, Answer::Nas(Some(0x64 | 0x44 | 0x4d | 0x47 | 0x58)));
        if !refuses && !matches!(answer, Answer::ErrorIndication(..) | Answer::Release) {
            outcome.faults.push(format!("{answer:?} answers a message that nobody waited for"));
        }
    }
    Ok(())
}

fn nas_garbage(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut random = Random::new(wire.options().seed ^ 0x6e61_7300);
    for ran in 0x00f4_0000u32..0x00f4_0064 {
        let mut nas = random.octets(200);
        // Half of the messages begin like 5GMM.
        if ran % 2 == 0 {
            nas.splice(0..0, [0x7e, 0, 0x41 + (random.next() % 0x28) as u8]);
        }
        let pdu = initial_ue(wire, bad, &nas, ran);
        wire.send(bad, 1, PPID, &pdu, outcome);
    }
    let answers = wire.answers(bad, outcome);
    for answer in answers {
        // IDENTITY REQUEST may answer an apparent registration with an unreadable identity.
        let refuses = matches!(answer, Answer::Nas(Some(0x64 | 0x44 | 0x4d | 0x46 | 0x58 | 0x5b)));
        if !refuses && !matches!(answer, Answer::ErrorIndication(..) | Answer::Release) {
            outcome.faults.push(format!("{answer:?} answers random NAS"));
        }
    }
    Ok(())
}

fn setup(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let early = initial_ue(wire, bad, &REGISTRATION, 0x00f5_0000);
    wire.send(bad, 1, PPID, &early, outcome);
    let answers = wire.answers(bad, outcome);
    // TS 38.413 8.7.1: NG Setup is the first procedure.
    if answers.iter().any(|answer| !matches!(answer, Answer::ErrorIndication(..))) {
        outcome.faults.push(format!("signalling before NG SETUP was answered by {answers:?}"));
    }
    let stranger: Plmn = "00199".parse()?;
    let foreign = setup_request(wire, bad, |config| config.tai.plmn = stranger);
    let sliceless = setup_request(wire, bad, |config| config.slices = vec![Snssai { sst: 250, sd: Some(0xfffffe) }]);
    for (what, pdu) in [("of another network", foreign), ("without a common slice", sliceless)] {
        wire.send(bad, 0, PPID, &pdu, outcome);
        let answer = wire.answer(bad, ANSWER, outcome);
        if !matches!(answer, Some(Answer::SetupFailure(Some(_)))) {
            outcome.faults.push(format!("NG SETUP REQUEST {what} gave {answer:?}"));
        }
    }
    wire.set_up(bad).map_err(CaseError::AfterRefusal)
}

/// First subscriber of this case; the other cases use those before it.
const HALF_OPEN_FIRST: u32 = 64;

fn half_open(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut answers = Vec::new();
    for n in 0..wire.options().ues {
        let mut device = Device::new(wire.options(), HALF_OPEN_FIRST + n)?;
        let nas = device.registration_request(wire.options())?;
        let pdu = initial_ue(wire, bad, &nas, 0x0100_0000 + n);
        wire.send(bad, 1 + (n % 8) as u16, PPID, &pdu, outcome);
        // Keeps the receive buffer empty while sending.
        answers.extend(wire.answer(bad, Duration::ZERO, outcome));
    }
    answers.extend(wire.answers(bad, outcome));
    // Only AUTHENTICATION REQUEST, or a refusal under overload.
    for answer in answers {
        if !matches!(answer, Answer::Nas(Some(0x56 | 0x44)) | Answer::Release) {
            outcome.faults.push(format!("{answer:?} answers a registration"));
        }
    }
    Ok(())
}

/// Runs the gNB's own procedures. The core must acknowledge each. A UE whose connection was reset
/// must be idle at the core, too.
fn node(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    wire.start(bad, |gnb, out| gnb.update_configuration(out))?;
    expect(wire, bad, "RANConfigurationUpdate", outcome);
    let mut first = Device::new(wire.options(), 2 * index)?;
    let mut second = Device::new(wire.options(), HALF_OPEN_FIRST)?;
    for whole in [false, true] {
        for device in [&mut first, &mut second] {
            match whole {
                false => wire.register(bad, device)?,
                true if device.ran.is_none() => wire.update(bad, device)?,
                true => {}
            }
        }
        let gone = first.ran.ok_or(CaseError::NoConnection)?;
        let some = [gone];
        wire.start(bad, |gnb, out| gnb.reset((!whole).then_some(&some[..]), out).map(|_| ()))?;
        expect(wire, bad, "NGReset", outcome);
        first.disconnected();
        if whole {
            second.disconnected();
        }
    }
    wire.update(bad, &mut second)
}

fn expect(wire: &mut CaseDriver<'_>, bad: usize, procedure: &str, outcome: &mut Outcome) {
    outcome.sent += 1;
    let answer = wire.answer(bad, ANSWER, outcome);
    if answer != Some(Answer::Acknowledge(procedure.into())) {
        outcome.faults.push(format!("{procedure} was answered by {answer:?}"));
    }
}
