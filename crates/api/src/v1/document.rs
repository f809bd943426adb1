//! The OpenAPI document, and a page that shows it.

use crate::context::Api;
use crate::problem::{FieldError, Problem};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Info, License, OpenApi as Document};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(modifiers(&Frame), components(schemas(Problem, FieldError)))]
struct Base;

/// Adds what is common to all operations.
struct Frame;

impl Modify for Frame {
    fn modify(&self, openapi: &mut Document) {
        let mut info = Info::new("Vireo", "1");
        info.description = Some(DESCRIPTION.into());
        let mut license = License::new("Apache-2.0");
        license.identifier = Some("Apache-2.0".into());
        info.license = Some(license);
        openapi.info = info;
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(TOKENS)).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    }
}

const DESCRIPTION: &str = "Management API of a Vireo process. Lists come in pages: `limit` and `after` in, `next` and \
     `total` out. Errors are problem details (RFC 9457). Times are RFC 3339 in UTC. An item that may be changed has an \
     ETag; a change needs it in If-Match. Every change is in the audit log.";
const TOKENS: &str = "Token of `vireo token create NAME --role ROLE`, or of api.token-file (admin). The scope is the \
     weakest role that may call the operation: read, operate, admin. On the unix socket, root and the user of the \
     process need no token and are admin.";

/// Returns the document without operations.
pub(super) fn base() -> Document {
    Base::openapi()
}

/// Returns the OpenAPI document as JSON.
pub(crate) fn document() -> String {
    let mut document = super::documented().into_openapi();
    document.paths.paths.values_mut().for_each(add_refusals);
    // Plain data with string keys always has a JSON form.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// Adds the errors that every operation may answer.
fn add_refusals(item: &mut utoipa::openapi::PathItem) {
    use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
    let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    for operation in all.into_iter().flatten() {
        let content = || ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let problem = ResponseBuilder::new().description("Problem").content("application/problem+json", content());
        operation.responses.responses.insert("default".into(), RefOr::T(problem.build()));
    }
}

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(openapi)).routes(routes!(docs))
}

/// This document
#[utoipa::path(get, path = "/v1/openapi.json", tag = "description", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
async fn openapi(State(api): State<Api>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], api.document().to_owned()).into_response()
}

/// This document as a page
#[utoipa::path(get, path = "/v1/docs", tag = "description", security(()),
    responses((status = 200, description = "A page without external requests", body = String, content_type = "text/html")))]
async fn docs(State(api): State<Api>) -> Response {
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(page(api.document()))).into_response()
}

/// Returns the document as HTML.
fn page(document: &str) -> String {
    let document: serde_json::Value = serde_json::from_str(document).unwrap_or_default();
    let text = |value: &serde_json::Value| escape(value.as_str().unwrap_or_default());
    let mut page = format!("{HEAD}<h1>Vireo API</h1><p>{}</p>", text(&document["info"]["description"]));
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let role = operation["security"][0]["bearer"][0].as_str().unwrap_or("none");
            let (summary, detail) = (text(&operation["summary"]), text(&operation["description"]));
            page += &format!(
                "<details><summary><code><b>{}</b> {}</code> {summary} <small>{role}</small></summary><p>{detail}</p>",
                method.to_uppercase(),
                escape(path)
            );
            for part in ["parameters", "requestBody", "responses"] {
                if let Some(value) = operation.get(part) {
                    let json = serde_json::to_string_pretty(value).unwrap_or_default();
                    page += &format!("<h3>{part}</h3><pre>{}</pre>", escape(&json));
                }
            }
            page += "</details>";
        }
    }
    page += "<h2>Schemas</h2>";
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let json = serde_json::to_string_pretty(schema).unwrap_or_default();
        page +=
            &format!("<details><summary><code>{}</code></summary><pre>{}</pre></details>", escape(name), escape(&json));
    }
    page
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
    content=\"width=device-width\"><title>Vireo API</title><style>:root{color-scheme:light dark}body{font-family:\
    system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}pre{overflow:auto}</style>";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
