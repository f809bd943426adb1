//! Events of UEs and their sessions.

use super::ues::{Session, Ue};
use crate::context::Api;
use crate::time::{now, rfc3339};
use serde_json::{Value, json};
use std::time::Duration;
use vireo_ops::api::{UePage, UeQuery, UeSelector, UeStatus};
use vireo_types::Supi;

/// Poll interval of the core.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// UEs with events in one poll; changes of further UEs are counted in one event.
const UES: usize = 100;

/// Publishes events while there are readers, until the API ends.
pub(crate) async fn run(api: Api) {
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if api.events().readers() > 0 {
            publish(&api).await;
        }
    }
}

/// Publishes events of the UEs that have changed since the last call.
async fn publish(api: &Api) {
    let query = UeQuery { select: UeSelector::Changed, after: None, limit: UES, reveal_supi: true };
    // Nothing is known while the core does not answer.
    let Ok(Some(page)) = api.core(move |source| source.ues(&query)).await else { return };
    let at = rfc3339(now());
    for (kind, mut revealed) in events_in(&page) {
        revealed["at"] = at.clone().into();
        let masked = masked(revealed.clone()).to_string();
        api.events().publish_by_role(kind, masked, Some(revealed.to_string()));
    }
}

/// Returns the events of a page, with SUPIs.
fn events_in(page: &UePage) -> Vec<(&'static str, Value)> {
    let mut events = Vec::new();
    let shown = page.ues.iter().zip(&page.changes).take(UES);
    for (ue, change) in shown.clone() {
        if change.registration {
            // Plain data with string keys always has a JSON form.
            events.push(("ue", serde_json::to_value(Ue::from(ue)).unwrap_or_default()));
        }
        if change.sessions {
            events.push(("session", sessions(ue)));
        }
    }
    let omitted = page.total.unwrap_or_default().saturating_sub(shown.len());
    if omitted > 0 {
        events.push(("ue", json!({ "omitted": omitted })));
    }
    events
}

fn sessions(ue: &UeStatus) -> Value {
    let sessions: Vec<Session> = ue.sessions.iter().map(Session::from).collect();
    json!({ "supi": ue.supi, "sessions": sessions })
}

/// Masks the SUPI of an event.
fn masked(mut event: Value) -> Value {
    if let Some(supi) = event.get_mut("supi") {
        let parsed = supi.as_str().and_then(|text| text.parse::<Supi>().ok());
        *supi = parsed.map_or_else(String::new, |supi| supi.to_string()).into();
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::{SessionStatus, UeChange};

    fn page(ues: usize, total: usize) -> UePage {
        let session = SessionStatus { psi: 5, dnn: "ims".into(), ..SessionStatus::default() };
        let ue = |n: usize| UeStatus {
            supi: format!("imsi-9997000000{n:05}"),
            rm: "REGISTERED".into(),
            sessions: vec![session.clone()],
            ..UeStatus::default()
        };
        let changes = vec![UeChange { registration: true, sessions: true }; ues];
        UePage { ues: (0..ues).map(ue).collect(), changes, total: Some(total), next: None }
    }

    #[test]
    fn change_becomes_events_of_ue_and_sessions() {
        let mut one = page(1, 1);
        let events = events_in(&one);
        assert_eq!(events.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["ue", "session"]);
        let (ue, session) = (&events[0].1, &events[1].1);
        assert_eq!(
            (&ue["supi"], &ue["state"], &ue["sessions"]),
            (&"imsi-999700000000000".into(), &"registered".into(), &1.into())
        );
        assert_eq!((&session["supi"], &session["sessions"][0]["id"]), (&ue["supi"], &5.into()));
        assert_eq!(masked(ue.clone())["supi"], "imsi-99970**********");
        assert_eq!(masked(session.clone())["supi"], "imsi-99970**********");
        one.changes[0].registration = false;
        assert_eq!(events_in(&one).len(), 1);
        one.ues[0].supi = String::new();
        assert_eq!(masked(events_in(&one).remove(0).1)["supi"], "", "it is not known yet");
    }

    #[test]
    fn flood_of_changes_is_bounded() {
        assert!(events_in(&page(0, 0)).is_empty());
        for (ues, total, omitted) in [(UES, UES, 0), (UES, 60_000, 60_000 - UES), (800, 900, 900 - UES), (0, 3, 3)] {
            let events = events_in(&page(ues, total));
            assert_eq!(events.len(), 2 * ues.min(UES) + usize::from(omitted > 0));
            let last = events.last().map(|(_, data)| data["omitted"].as_u64().unwrap_or(0));
            assert_eq!(last, Some(omitted as u64));
        }
    }
}
