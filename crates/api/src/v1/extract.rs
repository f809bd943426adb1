//! Parameters and bodies of requests, with problem details for those that are wrong.

use crate::problem::{FieldError, Problem};
use axum::Json;
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use vireo_types::Supi;

/// Maximum size of a JSON body in bytes.
const BODY: usize = 256 << 10;

/// Query parameters.
#[derive(Debug)]
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Parameters(query)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

/// The SUPI in the path, `imsi-` and digits, or digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct SupiPath(pub(super) Supi);

impl<S: Send + Sync> FromRequestParts<S> for SupiPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = text.map_err(|error| Problem::bad_request(error.body_text()))?;
        text.parse().map(SupiPath).map_err(|error| Problem::bad_request(format_args!("supi: {error}")))
    }
}

/// Number or name in the path.
#[derive(Clone, Debug)]
pub(super) struct PathItem<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathItem<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let item = Path::<T>::from_request_parts(parts, state).await;
        item.map(|Path(item)| PathItem(item)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

/// A JSON body.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind = media_type(&request);
        if kind != "application/json" {
            let reason = "the body is not application/json; set Content-Type";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
        let octets = body(request, BODY).await?;
        // Names the field, too.
        Json::from_bytes(&octets).map(|Json(content)| Body(content)).map_err(|error| {
            let errors = vec![FieldError { pointer: String::new(), detail: error.body_text() }];
            Problem::unprocessable("the body is not what the operation takes", errors)
        })
    }
}

/// Returns the media type of the body, without parameters.
pub(super) fn media_type(request: &Request) -> String {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body of at most so many bytes.
pub(super) async fn body(request: Request, most: usize) -> Result<axum::body::Bytes, Problem> {
    to_bytes(request.into_body(), most).await.map_err(|_| {
        let reason = format!("the body is larger than {most} bytes, or the connection has ended");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    })
}
