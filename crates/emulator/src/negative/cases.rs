//! Negative cases: messages and the answers that the specifications allow.
//!
//! The answers follow TS 38.413 and TS 36.413 clause 10, TS 24.501 and TS 24.301 4.4 and 7. Clause
//! numbers of TS 38.413 and TS 24.501 stand for those of EPS, too.

use super::answer::Answer;
use super::case::{Case, Outcome};
use super::driver::{ANSWER, CaseDriver, Device, SILENCE};
use super::error::CaseError;
use super::words::{Words, unasked_outcomes, uplink};
use crate::dialect::{Node, UeIds, nas_head};
use crate::ran::{ConnectionId, Outbox};
use crate::rat::Rat;
use crate::ue::security::header;
use std::time::Duration;
use vireo_types::{Plmn, Snssai};

/// Runs a case with the node `bad`, whose association is up and which has not set up its interface
/// yet.
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
            Case::Unserved => unserved(wire, bad, outcome),
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
            faults.push(format!("{answer:?} answers octets that are no PDU"));
        }
    }
}

fn random(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut random = Random::new(wire.options().seed);
    for n in 0..200 {
        let octets = random.octets(if n == 0 { 60_000 } else { 300 });
        wire.send_own(bad, (n % 3) as u16, &octets, outcome);
    }
    let answers = wire.answers(bad, outcome);
    only_errors(&answers, &mut outcome.faults);
    Ok(())
}

/// Returns the NG or S1 SETUP REQUEST of a node after `change`.
fn setup_request(wire: &mut CaseDriver<'_>, bad: usize, change: impl FnOnce(&mut Node)) -> Vec<u8> {
    let mut node = wire.node(bad).twin();
    change(&mut node);
    let mut out = Outbox::default();
    // A well-formed configuration encodes; the core treats an empty request like any other bad one.
    let _ = node.set_up(2, &mut out);
    out.pdus().next().map(|(_, pdu)| pdu.to_vec()).unwrap_or_default()
}

/// Returns an INITIAL UE MESSAGE of the node without storing the connection.
fn initial_ue(wire: &mut CaseDriver<'_>, bad: usize, nas: &[u8], ran: u32) -> Vec<u8> {
    crate::mutate::initial_ue(wire.node(bad), ran, nas, None).unwrap_or_default()
}

fn truncated(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let whole =
        [setup_request(wire, bad, |_| {}), initial_ue(wire, bad, Words::by_rat(wire.rat()).registration, 0x00f0_0000)];
    for pdu in whole {
        for end in 1..pdu.len() {
            wire.send_own(bad, 0, &pdu[..end], outcome);
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

fn ppid(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let pdu = setup_request(wire, bad, |_| {});
    for ppid in Words::by_rat(wire.rat()).foreign_ppids {
        wire.send(bad, 0, ppid, &pdu, outcome);
    }
    let answers = wire.answers(bad, outcome);
    // TS 38.412 7, TS 36.412 7: NGAP has PPID 60, S1AP 18.
    if answers.contains(&Answer::SetupResponse) {
        outcome.faults.push("a SETUP REQUEST with another PPID was taken".into());
    }
    Ok(())
}

fn stream(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let pdu = setup_request(wire, bad, |_| {});
    wire.send_own(bad, 1, &pdu, outcome);
    let answer = wire.answer(bad, ANSWER, outcome);
    match answer {
        // TS 38.412 7 restricts the sender's choice of stream; a receiver may be lenient.
        Some(Answer::SetupResponse | Answer::SetupFailure(_) | Answer::ErrorIndication(..)) => {}
        other => outcome.faults.push(format!("SETUP REQUEST on stream 1 was answered by {other:?}")),
    }
    wire.set_up(bad)?;
    let pdu = initial_ue(wire, bad, Words::by_rat(wire.rat()).registration, index << 8 | 0xff);
    wire.send_own(bad, 0, &pdu, outcome);
    wire.answers(bad, outcome);
    Ok(())
}

fn procedure(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    for (criticality, octet) in [("reject", 0x00), ("ignore", 0x40), ("notify", 0x80)] {
        // Initiating message, procedure code 200, criticality, an open type with an empty IE
        // container.
        wire.send_own(bad, 0, &[0x00, 200, octet, 3, 0, 0, 0], outcome);
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

fn missing_ie(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let request = setup_request(wire, bad, |_| {});
    let (protocol, words) = (wire.nodes.protocol(), Words::by_rat(wire.rat()));
    for id in words.setup_elements {
        wire.send_own(bad, 0, &protocol.without(&request, id), outcome);
        // TS 38.413 10.3.5: the procedure's own failure message rejects it.
        let answer = wire.answer(bad, ANSWER, outcome);
        if !matches!(answer, Some(Answer::SetupFailure(_))) {
            outcome.faults.push(format!("SETUP REQUEST without IE {id} gave {answer:?}"));
        }
    }
    let initial = initial_ue(wire, bad, Words::by_rat(wire.rat()).registration, 0x00f1_0000);
    for id in words.initial_elements {
        wire.send_own(bad, 1, &protocol.without(&initial, id), outcome);
        // A procedure without a failure message requires ERROR INDICATION.
        let answer = wire.answer(bad, ANSWER, outcome);
        if !matches!(answer, Some(Answer::ErrorIndication(..))) {
            outcome.faults.push(format!("INITIAL UE MESSAGE without IE {id} gave {answer:?}"));
        }
    }
    Ok(())
}

fn ue_ids(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut device = Device::new(wire.options(), 2 * index)?;
    wire.register(bad, &mut device)?;
    let ran = device.ran.ok_or(CaseError::NoConnection)?;
    let core = wire.node(bad).core_id(ran).ok_or(CaseError::NoCoreId)?;
    let strange = [
        ("of nobody", UeIds { core: 0xff_ffff_fff0, ran: 0x00f2_0000 }),
        ("that do not belong together", UeIds { core, ran: ran.0 ^ 0x4000 }),
    ];
    for (what, ids) in strange {
        let pdu = uplink(wire.node(bad), ids);
        wire.send_own(bad, 1, &pdu, outcome);
        // TS 38.413 10.6
        let answer = wire.answer(bad, ANSWER, outcome);
        let right = matches!(&answer, Some(Answer::ErrorIndication(Some(cause), _)) if cause.is_unknown_ue());
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
    ran: ConnectionId,
    nas: &[u8],
    outcome: &mut Outcome,
) -> Result<(), CaseError> {
    let mut out = Outbox::default();
    wire.node(bad).uplink_nas(ran, nas, &mut out)?;
    for (stream, pdu) in out.pdus() {
        wire.send_own(bad, stream, pdu, outcome);
    }
    Ok(())
}

fn nas_mac(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut device = Device::new(wire.options(), 2 * index)?;
    wire.register(bad, &mut device)?;
    let ran = device.ran.ok_or(CaseError::NoConnection)?;
    let words = Words::by_rat(wire.rat());
    let genuine = device.sent.last().cloned().ok_or(CaseError::NoNas)?;
    for n in 0..4u8 {
        let mut forged = genuine.clone();
        forged[words.mac] ^= 0x80 >> n;
        forged[words.sequence] = forged[words.sequence].wrapping_add(1 + n);
        send_nas(wire, bad, ran, &forged, outcome)?;
    }
    check_silence(wire, bad, "NAS with a wrong MAC", outcome);
    // TS 24.501 4.4.4.3: the core discards the message and serves the UE as usual.
    wire.check_served(bad, &mut device).map_err(|error| CaseError::AfterForgery(Box::new(error)))
}

fn replay(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut device = Device::new(wire.options(), 2 * index)?;
    wire.register(bad, &mut device)?;
    wire.establish(bad, &mut device)?;
    let ran = device.ran.ok_or(CaseError::NoConnection)?;
    let rat = wire.rat();
    let is_protected = |nas: &&Vec<u8>| nas_head(rat, nas).is_some_and(|head| head.0 != header::PLAIN);
    for nas in device.sent.clone().iter().filter(is_protected) {
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

fn order(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let words = Words::by_rat(wire.rat());
    for (ran, nas) in (0x00f3_0000u32..).zip(words.unasked) {
        let pdu = initial_ue(wire, bad, nas, ran);
        wire.send_own(bad, 1, &pdu, outcome);
    }
    for pdu in unasked_outcomes(wire.rat())? {
        wire.send_own(bad, 1, &pdu, outcome);
    }
    let answers = wire.answers(bad, outcome);
    for answer in answers {
        let refuses = matches!(answer, Answer::Nas(Some(kind)) if words.refusals.contains(&kind));
        if !refuses && !matches!(answer, Answer::ErrorIndication(..) | Answer::Release) {
            outcome.faults.push(format!("{answer:?} answers a message that nobody waited for"));
        }
    }
    Ok(())
}

fn nas_garbage(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let mut random = Random::new(wire.options().seed ^ 0x6e61_7300);
    let words = Words::by_rat(wire.rat());
    for ran in 0x00f4_0000u32..0x00f4_0064 {
        let mut nas = random.octets(200);
        // Half of the messages begin like one of mobility management.
        if ran % 2 == 0 {
            let kind = 0x41 + (random.next() % 0x28) as u8;
            nas.splice(0..0, words.plain.iter().copied().chain([kind]));
        }
        let pdu = initial_ue(wire, bad, &nas, ran);
        wire.send_own(bad, 1, &pdu, outcome);
    }
    let answers = wire.answers(bad, outcome);
    for answer in answers {
        let refuses = matches!(answer, Answer::Nas(Some(kind)) if words.garbage_refusals.contains(&kind));
        if !refuses && !matches!(answer, Answer::ErrorIndication(..) | Answer::Release) {
            outcome.faults.push(format!("{answer:?} answers random NAS"));
        }
    }
    Ok(())
}

/// Each request is rejected by the message that its procedure has for that.
fn unserved(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let words = Words::by_rat(wire.rat());
    for (ran, (nas, reject)) in (0x00f6_0000u32..).zip(words.unserved) {
        let pdu = initial_ue(wire, bad, nas, ran);
        wire.send_own(bad, 1, &pdu, outcome);
        let answer = wire.answer(bad, ANSWER, outcome);
        if answer != Some(Answer::Nas(Some(*reject))) {
            outcome.faults.push(format!("{nas:02x?} was answered by {answer:?}"));
        }
        wire.answers(bad, outcome);
    }
    Ok(())
}

fn setup(wire: &mut CaseDriver<'_>, bad: usize, outcome: &mut Outcome) -> Result<(), CaseError> {
    let early = initial_ue(wire, bad, Words::by_rat(wire.rat()).registration, 0x00f5_0000);
    wire.send_own(bad, 1, &early, outcome);
    let answers = wire.answers(bad, outcome);
    // TS 38.413 8.7.1: Setup is the first procedure.
    if answers.iter().any(|answer| !matches!(answer, Answer::ErrorIndication(..))) {
        outcome.faults.push(format!("signalling before SETUP was answered by {answers:?}"));
    }
    let stranger: Plmn = "00199".parse()?;
    let foreign = setup_request(wire, bad, |node| node.change_network(stranger));
    let mut requests = vec![("of another network", foreign)];
    if wire.rat() == Rat::Nr {
        let none = Snssai { sst: 250, sd: Some(0xfffffe) };
        requests.push(("without a common slice", setup_request(wire, bad, |node| node.change_slices(vec![none]))));
    }
    for (what, pdu) in requests {
        wire.send_own(bad, 0, &pdu, outcome);
        let answer = wire.answer(bad, ANSWER, outcome);
        if !matches!(answer, Some(Answer::SetupFailure(Some(_)))) {
            outcome.faults.push(format!("SETUP REQUEST {what} gave {answer:?}"));
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
        let pdu = initial_ue(wire, bad, &nas, 0x0080_0000 + n);
        wire.send_own(bad, 1 + (n % 8) as u16, &pdu, outcome);
        // Keeps the receive buffer empty while sending.
        answers.extend(wire.answer(bad, Duration::ZERO, outcome));
    }
    answers.extend(wire.answers(bad, outcome));
    let words = Words::by_rat(wire.rat());
    // Only AUTHENTICATION REQUEST, or a refusal under overload.
    for answer in answers {
        let expected = matches!(answer, Answer::Nas(Some(kind)) if words.half_open.contains(&kind));
        if !expected && answer != Answer::Release {
            outcome.faults.push(format!("{answer:?} answers a registration"));
        }
    }
    Ok(())
}

/// Runs the node's own procedures. The core must acknowledge each. A UE whose connection was reset
/// must be idle at the core, too.
fn node(wire: &mut CaseDriver<'_>, bad: usize, index: u32, outcome: &mut Outcome) -> Result<(), CaseError> {
    wire.start(bad, |node, out| node.update_configuration(out))?;
    expect(wire, bad, wire.nodes.protocol().update, outcome);
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
        wire.start(bad, |node, out| node.reset((!whole).then_some(&some[..]), out).map(|_| ()))?;
        expect(wire, bad, Words::by_rat(wire.rat()).reset, outcome);
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
