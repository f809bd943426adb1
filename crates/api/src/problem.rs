//! Problem details (RFC 9457): the form of every error.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// Maximum of errors in one answer.
const ERRORS: usize = 32;

/// Error of a request (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({"type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no such UE"}))]
pub(crate) struct Problem {
    /// Always `about:blank`: the status tells the kind.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Text of the status.
    title: String,
    /// Status code of HTTP.
    status: u16,
    /// What happened, and the remedy.
    detail: String,
    /// Errors in the body of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
}

/// Error in the body of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// JSON Pointer (RFC 6901) of the value; empty = the whole body.
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl ToString) -> Self {
        let title = status.canonical_reason().unwrap_or("Error").to_owned();
        Problem { kind: "about:blank", title, status: status.as_u16(), detail: detail.to_string(), errors: Vec::new() }
    }

    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn conflict(detail: impl ToString) -> Self {
        Problem::new(StatusCode::CONFLICT, detail)
    }

    pub(crate) fn unavailable(detail: impl ToString) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The core does not answer the API.
    pub(crate) fn no_answer() -> Self {
        Problem::unavailable("the core does not answer in time: try again")
    }

    /// The body of the request is not valid.
    pub(crate) fn unprocessable(detail: impl ToString, mut errors: Vec<FieldError>) -> Self {
        errors.truncate(ERRORS);
        Problem { errors, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }

    /// Returns the status.
    #[cfg(test)]
    pub(crate) fn into_status(self) -> u16 {
        self.status
    }

    /// Returns true if the cause is not in the request.
    pub(crate) fn is_server_error(&self) -> bool {
        self.status >= 500
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Plain data with string keys always has a JSON form.
        let body = serde_json::to_string(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        (status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}
