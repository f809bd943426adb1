//! Enforcement of the roles and query parameters that the OpenAPI document states.
//!
//! An unknown query parameter is refused: without a mistyped filter, a list would be longer, and
//! with a mistyped `dry_run`, a file would be imported.

use crate::problem::Problem;
use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::openapi::OpenApi;
use vireo_ops::api::{Identity, Role};

/// Operations, by path and method.
#[derive(Clone, Debug)]
pub(super) struct Roles(Arc<HashMap<String, Operation>>);

/// What the document states about an operation.
#[derive(Clone, Debug)]
struct Operation {
    permit: Permit,
    /// Names of the query parameters.
    parameters: Vec<String>,
}

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
        let read =
            |operation: &Value| Some(Operation { permit: permit(operation)?, parameters: query_parameters(operation) });
        Roles(Arc::new(operations.filter_map(|(key, operation)| Some((key, read(operation)?))).collect()))
    }
}

impl Operation {
    /// Returns the problem of a sender without the role.
    fn check_role(&self, identity: Option<&Identity>) -> Result<(), Problem> {
        let Permit::From(needed) = self.permit else { return Ok(()) };
        match identity {
            Some(identity) if identity.role >= needed => Ok(()),
            Some(identity) => {
                let (name, has) = (&identity.name, identity.role.name());
                let reason = format!("token {name} has the role {has}, and {} is needed", needed.name());
                Err(Problem::new(StatusCode::FORBIDDEN, reason))
            }
            // The access check has refused such a request before.
            None => Err(Problem::new(StatusCode::UNAUTHORIZED, "a token is needed")),
        }
    }

    /// Returns the problem of a query with an unknown parameter. One that does not decode is the
    /// handler's problem.
    fn check_query(&self, uri: &Uri) -> Result<(), Problem> {
        let Ok(Query(given)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else { return Ok(()) };
        let Some((name, _)) = given.iter().find(|(name, _)| !self.parameters.contains(name)) else { return Ok(()) };
        let known = if self.parameters.is_empty() { "none".to_owned() } else { self.parameters.join(", ") };
        Err(Problem::bad_request(format_args!("{name:?} is no query parameter of the operation; it has: {known}")))
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

/// Returns the names of the query parameters of an operation.
fn query_parameters(operation: &Value) -> Vec<String> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let names = all.filter(|parameter| parameter["in"] == "query").map(|parameter| parameter["name"].as_str());
    names.flatten().map(str::to_owned).collect()
}

/// Middleware that refuses a request whose sender lacks the role of the operation, or whose query
/// has a parameter that the operation lacks.
pub(super) async fn authorize(State(roles): State<Roles>, request: Request, next: Next) -> Response {
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    // A method that the path lacks; its answer has nothing confidential.
    let Some(operation) = roles.0.get(&key(method.as_str(), path)) else {
        return next.run(request).await.into_refusal();
    };
    let role = operation.check_role(request.extensions().get::<Identity>());
    let checked = role.and_then(|()| operation.check_query(request.uri()));
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
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
