//! Steps in the owner's place, and proposals of other hosts.

use super::*;
use crate::placement::replica::{ProposalAnswer, ProposalResult, ServedStep};
use vireo_types::Duration;

/// Returns the numbers of the inputs that have returned to the balancer since the last call.
fn returned(io: &mut Io) -> Vec<u64> {
    let number = |output: ClusterOutput| match output {
        ClusterOutput::Notice(HostNotice::ReturnServedInput { number }) => Some(number),
        _ => None,
    };
    std::mem::take(&mut io.sent).into_iter().filter_map(number).collect()
}

/// Returns UEs of the other host, of which this host has copies.
fn served_ues(io: &mut Io, map: &BucketMap) -> [Ltmsi; 2] {
    let ues = [1, 2].map(|number| Ltmsi::new(bucket_of(map, OTHER), number));
    io.servable.extend(ues);
    ues
}

fn serve(machine: &mut Machine, ltmsi: Ltmsi, number: u64, io: &mut Io) {
    machine.serve(Some(ltmsi), (number, number), io);
}

fn next_numbers(machine: &mut Machine) -> Vec<u64> {
    std::iter::from_fn(|| machine.next_served()).map(|served| served.number).collect()
}

/// Returns the stored contexts of a UE before and after a step.
fn states(ltmsi: Ltmsi) -> (Vec<u8>, Vec<u8>) {
    let before = context::encode(&ue(ltmsi, None), Vec::new()).unwrap();
    let mut after = Vec::new();
    context::encode_after(&ue(ltmsi, Some(AssocId(5))), &before, &mut after).unwrap();
    (before, after)
}

fn proposal(ltmsi: Ltmsi, input: u64, epoch: u64, effects: Vec<Effect>) -> Proposal {
    let (before, after) = states(ltmsi);
    let outbox = postcard::to_allocvec(&Outbox { at: NOW, connecting_input: None, effects }).unwrap();
    Proposal::new(ServedStep {
        epoch,
        ltmsi,
        input,
        before: context::EncodedContext::new(&before).unwrap().versions,
        after: &after,
        outbox,
        associations: EffectAssociations::default(),
        deadline: None,
        is_in_progress: true,
    })
    .unwrap()
}

#[test]
fn refused_proposal_returns_all_inputs_of_ue() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let [ltmsi, other] = served_ues(&mut io, &first);
    serve(&mut machine, ltmsi, 11, &mut io);
    assert!(!machine.awaits_answers());
    (12..=13).for_each(|number| serve(&mut machine, ltmsi, number, &mut io));
    assert_eq!(next_numbers(&mut machine), [11], "a UE has one unanswered proposal");
    assert!(machine.awaits_answers());
    let step = proposal(ltmsi, 11, 1, Vec::new());
    (0..2).for_each(|_| machine.propose(step.clone(), &mut io));
    assert_eq!(io.proposals, [step]);
    let answer = |input, result| vec![ProposalAnswer { ltmsi, input, result }];
    machine.on_proposal_answers(answer(11, ProposalResult::Committed), &mut io);
    assert_eq!(next_numbers(&mut machine), [12]);
    machine.propose(proposal(ltmsi, 12, 1, Vec::new()), &mut io);
    machine.on_proposal_answers(answer(11, ProposalResult::Refused), &mut io);
    assert_eq!(returned(&mut io), []);
    machine.on_proposal_answers(answer(12, ProposalResult::Refused), &mut io);
    assert_eq!((returned(&mut io), machine.awaits_answers()), (vec![12, 13], false));
    // The balancer has sent the next input before it knew.
    serve(&mut machine, ltmsi, 14, &mut io);
    serve(&mut machine, other, 15, &mut io);
    assert_eq!((returned(&mut io), next_numbers(&mut machine)), (vec![14], vec![15]));
    for (after_ms, is_served) in [(0, false), (49, false), (50, true)] {
        machine.on(Input::Poll, NOW + Duration::from_millis(after_ms), &mut io);
        serve(&mut machine, ltmsi, 16, &mut io);
        assert_eq!(next_numbers(&mut machine).len(), usize::from(is_served), "{after_ms} ms");
    }
}

#[test]
fn unknown_or_own_ue_is_not_served() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let [ltmsi, stale] = served_ues(&mut io, &first);
    io.servable.retain(|of| *of != stale);
    machine.serve(None, (11, 11), &mut io);
    serve(&mut machine, Ltmsi::new(bucket_of(&first, OWN), 1), 12, &mut io);
    serve(&mut machine, stale, 13, &mut io);
    assert_eq!((returned(&mut io), next_numbers(&mut machine)), (vec![11, 12, 13], vec![]));
    // One UE has a limited number of inputs.
    (20..40).for_each(|number| serve(&mut machine, ltmsi, number, &mut io));
    assert_eq!(returned(&mut io), [37, 38, 39]);
}

#[test]
fn next_epoch_ends_steps_without_proposal() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let [one, two] = served_ues(&mut io, &first);
    serve(&mut machine, one, 11, &mut io);
    serve(&mut machine, two, 12, &mut io);
    machine.propose(proposal(one, 11, 1, Vec::new()), &mut io);
    adopt(&mut machine, &mut io, map(first.next(&slices(&[(OTHER, 1.0), (OWN, 1.0)])), &[OTHER, OWN]));
    assert_eq!((returned(&mut io), next_numbers(&mut machine)), (vec![12], vec![]));
    machine.propose(proposal(two, 12, 1, Vec::new()), &mut io);
    assert_eq!(io.proposals.len(), 1);
    // A step that has begun under an earlier map is not proposed.
    machine.on_proposal_answers(
        vec![ProposalAnswer { ltmsi: one, input: 11, result: ProposalResult::Committed }],
        &mut io,
    );
    serve(&mut machine, one, 13, &mut io);
    machine.propose(proposal(one, 13, 1, Vec::new()), &mut io);
    assert_eq!((returned(&mut io), io.proposals.len()), (vec![13], 1));
}

#[test]
fn host_serves_nothing_after_change_of_role() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let [ltmsi, other] = served_ues(&mut io, &first);
    (11..=13).for_each(|number| serve(&mut machine, ltmsi, number, &mut io));
    machine.propose(proposal(ltmsi, 11, 1, Vec::new()), &mut io);
    // This host is the owner of all UEs, no replica.
    let second = first.next(&slices(&[(OWN, 1.0)]));
    adopt(&mut machine, &mut io, map(second, &[OWN]));
    assert_eq!(returned(&mut io), []);
    let answer = ProposalAnswer { ltmsi, input: 11, result: ProposalResult::Committed };
    machine.on_proposal_answers(vec![answer], &mut io);
    serve(&mut machine, other, 14, &mut io);
    assert_eq!((returned(&mut io), next_numbers(&mut machine)), (vec![12, 13, 14], vec![]));
}

#[test]
fn owner_commits_proposal_on_its_base_only() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let ltmsi = Ltmsi::new(bucket_of(&first, OWN), 3);
    let (before, after) = states(ltmsi);
    let slot = io.insert(ltmsi, &ue(ltmsi, None), &before).unwrap();
    let commit = ProposalDecision::Commit { slot, before: before.clone() };
    let step = proposal(ltmsi, 11, 1, Vec::new());
    let judge = |from, step: &Proposal, io: &Io, machine: &Machine| machine.check_proposal(from, step, io);
    assert_eq!(judge(OTHER, &step, &io, &machine), commit);
    assert_eq!(judge(HostId(7), &step, &io, &machine), ProposalDecision::Refuse, "no replica");
    assert_eq!(judge(OTHER, &Proposal { epoch: 2, ..step.clone() }, &io, &machine), ProposalDecision::Refuse);
    let request = proposal(ltmsi, 11, 1, vec![Effect::DeleteContext]);
    assert_eq!(judge(OTHER, &request, &io, &machine), ProposalDecision::Refuse, "for owners only");
    io.is_busy = true;
    assert_eq!(judge(OTHER, &step, &io, &machine), ProposalDecision::Refuse, "an event is in progress");
    io.is_busy = false;
    let by_unknown = Proposal { associations: [Some((AssocId(1), AssocId(900))), None], ..step.clone() };
    assert_eq!(judge(OTHER, &by_unknown, &io, &machine), ProposalDecision::Refuse, "not reported yet");
    io.nodes.extend([AssocId(1), AssocId(900)]);
    assert_eq!(judge(OTHER, &by_unknown, &io, &machine), commit);
    io.ues.insert(slot, (ltmsi, after));
    assert_eq!(judge(OTHER, &step, &io, &machine), ProposalDecision::Refuse, "another step was committed");
    io.ues.insert(slot, (ltmsi, before));
    // The owner executes the input itself.
    machine.note_recalled(11, NOW);
    assert_eq!(judge(OTHER, &step, &io, &machine), ProposalDecision::Refuse);
}

#[test]
fn answered_proposal_is_not_judged_again() {
    let mut io = Io::new();
    let (mut machine, first) = member(&mut io);
    let ltmsi = Ltmsi::new(bucket_of(&first, OWN), 3);
    io.insert(ltmsi, &ue(ltmsi, None), &states(ltmsi).0).unwrap();
    let target = |number| (number, InputTarget::Bucket(ltmsi.bucket()));
    for (input, is_committed) in [(11, true), (12, false)] {
        let step = proposal(ltmsi, input, 1, Vec::new());
        io.copies.take();
        machine.answer_proposal(OTHER, &step, is_committed, NOW, &io);
        let answers = io.copies.take();
        let Ok(ToReplica::ProposalAnswer { is_committed: answer, .. }) = postcard::from_bytes(&answers[0].1) else {
            panic!("an answer")
        };
        assert_eq!((answers[0].0, answer), (OTHER, is_committed));
        // The proposer repeats the proposal on its next connection.
        assert_eq!(machine.check_proposal(OTHER, &step, &io), ProposalDecision::Repeat);
        // The balancer recalls the input.
        assert_eq!(machine.admit(input, target(input), &mut io), (!is_committed).then_some(input));
        assert_eq!(io.sent.contains(&HostNotice::Done { number: input }.into()), is_committed);
    }
}
