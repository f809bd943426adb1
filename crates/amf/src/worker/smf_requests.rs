//! Requests of steps to the SMF, and transfers of the SMF, in SBA mode.

use super::contexts::{CommitPath, LoadedContext};
use super::event_message::RepeatKey;
use super::outbox::Outbox;
use super::references;
use vireo_core::amf::engine::Event;
use vireo_core::sba::N1N2TransferResult;
use vireo_core::step::{Effect, StepOutput, ltmsi_of_key};
use vireo_ops::ue_record::PendingSmfRequest;

/// Returns the key of the SMF request that a transfer answers. The answer is valid only for an open
/// request of this UE.
pub(super) fn implied_create_key(event: &mut Event<'_>, loaded: &LoadedContext, are_shared: bool) -> Option<u64> {
    let Event::Transfer(transfer) = event else { return None };
    let created = transfer.created.as_mut()?;
    let (requester, ue) = (ltmsi_of_key(created.key), &loaded.ue);
    let is_ours = || requester == ue.ltmsi || references(ue).contains(&requester);
    created.open &= if are_shared { loaded.has_request(created.key) } else { is_ours() };
    Some(created.key)
}

pub(super) fn is_refusal(effect: &Effect) -> bool {
    matches!(effect, Effect::N1N2TransferReply { result: N1N2TransferResult::Unknown, .. })
}

/// Returns the stored result of a repeated transfer, which is not executed again.
pub(super) fn stored_transfer_result(loaded: &LoadedContext, repeat_key: RepeatKey) -> Option<StepOutput> {
    let RepeatKey::Transfer(key, token) = repeat_key else { return None };
    let result = loaded.result_of(key)?;
    Some(StepOutput { effects: vec![Effect::N1N2TransferReply { token, result, sm_context: None }], notes: Vec::new() })
}

/// Selects the path of a commit. The SMF commits a step whose only effect is a request to it. A
/// step without effects after a positive response needs no commit of its own.
pub(super) fn commit_path(effects: &[Effect], answered: bool) -> CommitPath {
    match effects {
        [Effect::SmfRequest { .. }] => CommitPath::BySmf,
        [] if answered => CommitPath::Deferred,
        _ => CommitPath::Committed,
    }
}

/// Records the requests and results of a step in the UE's record, for a takeover.
pub(super) fn record_for_takeover(loaded: &mut LoadedContext, outbox: &Outbox, repeat_key: RepeatKey) {
    for (n, effect) in outbox.effects.iter().enumerate() {
        match (effect, repeat_key) {
            (Effect::SmfRequest { number, request, sm_context }, _) => {
                let (request, sm_context) = (request.clone(), sm_context.clone());
                loaded.add_request(PendingSmfRequest { key: outbox.key_of(n), number: *number, request, sm_context });
            }
            // A result with an SM context is stored by the SMF, which repeats the transfer.
            (Effect::N1N2TransferReply { token, result, sm_context: None }, RepeatKey::Transfer(key, of))
                if *token == of && *result != N1N2TransferResult::Unknown && loaded.result_of(key).is_none() =>
            {
                loaded.add_transfer_result(key, *result);
            }
            _ => {}
        }
    }
}
