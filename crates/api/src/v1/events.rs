//! Server-sent events.

use crate::context::Api;
use crate::events::Reading;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use std::convert::Infallible;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{Identity, LongResponse, Role};

/// Maximum of simultaneous streams.
const STREAMS: usize = 32;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Stream of events
///
/// Server-sent events (`text/event-stream`); `data` is JSON.
///
/// | event | data |
/// |---|---|
/// | `overview` | the overview, once a second |
/// | `ran_node` | `{"id", "state"}`, `up` or `lost` |
/// | `host` | `{"id", "state"}`, `up` or `gone`, and `{"id", "buckets"}` when its buckets change |
/// | `alarm` | an alarm that is raised, changed or cleared |
/// | `ue` | a UE that has registered or deregistered, as in `/v1/ues`; or `{"omitted": n}` |
/// | `session` | `{"at", "supi", "sessions"}`: sessions of a UE whose number has changed |
///
/// `ue` and `session` show the state of the UE once a second, after any number of changes and not
/// in the middle of one, for at most 100 UEs of this process. `omitted` counts the changes of
/// further UEs, and of UEs whose context is removed. SUPIs are masked for the role read.
///
/// A stream ends if its reader is 1,024 events late, and after an hour. With `Last-Event-ID` it
/// continues after that event, if it is among the last 1,024.
#[utoipa::path(get, path = "/v1/events", tag = "events", security(("bearer" = ["read"])),
    params(("Last-Event-ID" = Option<u64>, Header, description = "Event after which the stream begins")),
    responses((status = 200, body = String, content_type = "text/event-stream"),
        (status = 429, description = "There are 32 streams", body = Problem, content_type = "application/problem+json")))]
async fn events(
    State(api): State<Api>,
    Extension(long): Extension<LongResponse>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    if api.events().readers() >= STREAMS {
        let reason = format!("there are {STREAMS} streams of events: close some");
        return Err(Problem::new(axum::http::StatusCode::TOO_MANY_REQUESTS, reason));
    }
    let last = headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse().ok()));
    let after = match last {
        None => None,
        Some(Some(id)) => Some(id),
        Some(None) => return Err(Problem::bad_request("Last-Event-ID: it is no number")),
    };
    long.begin();
    let reveals_supi = identity.role >= Role::Operate;
    let stream = unfold(api.events().read(after), move |mut reading: Reading| async move {
        let event = reading.next().await?;
        let sent = Event::default().event(event.kind).id(event.id.to_string()).data(event.data_for(reveals_supi));
        Some((Ok(sent), reading))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}
