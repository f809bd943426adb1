//! Enforcement of the roles that the OpenAPI document states.

use crate::problem::Problem;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::openapi::OpenApi;
use vireo_ops::api::{Identity, Role};

/// Roles of the operations, by path and method.
#[derive(Clone, Debug)]
pub(super) struct Roles(Arc<HashMap<String, Permit>>);

/// Permission of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permit {
    /// Everybody, with or without token.
    Open,
    From(Role),
}

impl Roles {
    /// Reads the roles of a document.
    pub(super) fn from_document(openapi: &OpenApi) -> Self {
        let document = serde_json::to_value(openapi).unwrap_or_default();
        let paths = document["paths"].as_object().into_iter().flatten();
        let operations = paths.flat_map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten();
            operations.map(move |(method, operation)| (key(&method.to_uppercase(), path), operation))
        });
        Roles(Arc::new(operations.filter_map(|(key, operation)| Some((key, permit(operation)?))).collect()))
    }
}

fn key(method: &str, path: &str) -> String {
    format!("{method} {path}")
}

/// Returns the permission that an operation states.
fn permit(operation: &Value) -> Option<Permit> {
    let security = operation["security"].as_array()?;
    let Some(bearer) = security.iter().find_map(|requirement| requirement["bearer"].as_array()) else {
        return Some(Permit::Open);
    };
    let name = bearer.first()?.as_str()?;
    Role::ALL.into_iter().find(|role| role.name() == name).map(Permit::From)
}

/// Middleware that refuses a request whose sender lacks the role of the operation.
pub(super) async fn authorize(State(roles): State<Roles>, request: Request, next: Next) -> Response {
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let needed = match roles.0.get(&key(method.as_str(), path)) {
        // A method that the path lacks; its answer has nothing confidential.
        None => return next.run(request).await.into_refusal(),
        Some(Permit::Open) => return next.run(request).await,
        Some(Permit::From(role)) => *role,
    };
    match request.extensions().get::<Identity>() {
        Some(identity) if identity.role >= needed => next.run(request).await,
        Some(identity) => {
            let (name, has) = (&identity.name, identity.role.name());
            let reason = format!("token {name} has the role {has}, and {} is needed", needed.name());
            Problem::new(StatusCode::FORBIDDEN, reason).into_response()
        }
        // The access check has refused such a request before.
        None => Problem::new(StatusCode::UNAUTHORIZED, "a token is needed").into_response(),
    }
}

/// Guards against a route that the document lacks: only its refusals pass.
trait IntoRefusal {
    fn into_refusal(self) -> Response;
}

impl IntoRefusal for Response {
    fn into_refusal(self) -> Response {
        match self.status().is_success() {
            true => Problem::new(StatusCode::FORBIDDEN, "the operation is not documented").into_response(),
            false => self,
        }
    }
}
