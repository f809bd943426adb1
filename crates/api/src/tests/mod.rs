//! The API as clients see it: a server on a loopback address, and every route for each role.

mod alarms;
mod core;
mod http;
mod routes;
mod subscribers;

use self::core::Core;
use self::http::Answer;
use crate::Management;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use vireo_ops::api::{NamedTokens, Role, Server};
use vireo_ops::config::ApiConfig;
use vireo_ops::metrics::Metrics;

/// A running API, with a token of each role.
struct Running {
    server: Server,
    core: Arc<Core>,
    tokens: [String; 3],
    directory: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        Running::with(|_| Management::default())
    }

    fn with(management: impl FnOnce(&Path) -> Management) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = ApiConfig {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            ..ApiConfig::loopback(directory.path().join("api.token"))
        };
        let named = NamedTokens::new(&config.tokens);
        let tokens = Role::ALL.map(|role| named.create(role.name(), role).unwrap());
        let core = Arc::new(Core::default());
        let management =
            Management { state_directory: Some(directory.path().to_owned()), ..management(directory.path()) };
        let server = crate::start(&config, Arc::clone(&core) as _, Arc::new(Metrics::new()), management);
        Running { server: server.unwrap().unwrap(), core, tokens, directory }
    }

    fn address(&self) -> SocketAddr {
        self.server.address().unwrap()
    }

    fn request(&self, role: Option<Role>, method: &str, path: &str, body: Option<&str>) -> Answer {
        self.request_with(role, method, path, body, "")
    }

    /// Sends a request with further header lines.
    fn request_with(&self, role: Option<Role>, method: &str, path: &str, body: Option<&str>, further: &str) -> Answer {
        let token = role.map(|role| format!("Authorization: Bearer {}\r\n", self.tokens[role as usize]));
        http::exchange(self.address(), method, path, &(token.unwrap_or_default() + further), body)
    }

    fn get(&self, role: Role, path: &str) -> Answer {
        self.request(Some(role), "GET", path, None)
    }
}

const SUPI: &str = "imsi-999700000000001";

#[test]
fn document_is_the_committed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let hint = "run `vireo config openapi > docs/reference/openapi.json`, and check that clients still work";
    // The order of keys depends on the features of the build.
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert!(read(&committed) == read(&crate::openapi()), "{hint}");
}

/// Two types of one name would share a schema.
#[test]
fn names_of_schemas_are_unique() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/v1");
    let files =
        std::fs::read_dir(directory).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let mut names: Vec<String> = files.flat_map(|file| schema_names(&file)).collect();
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(names.len() > 20 && twice.is_empty(), "{twice:?}");
}

/// Returns the names of the schemas of a source file.
fn schema_names(file: &str) -> Vec<String> {
    let declarations = file.split("ToSchema)]").skip(1).filter_map(|after| after.split('{').next());
    let name = |declaration: &str| {
        let named = ["as = ", "struct ", "enum "].iter().find_map(|mark| declaration.split(mark).nth(1));
        named.unwrap_or_default().chars().take_while(char::is_ascii_alphanumeric).collect()
    };
    declarations.map(name).collect()
}

#[test]
fn references_of_the_document_exist() {
    fn check(value: &serde_json::Value, document: &serde_json::Value) {
        match value {
            serde_json::Value::Object(object) => {
                if let Some(reference) = object.get("$ref").and_then(|reference| reference.as_str()) {
                    assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
                }
                object.values().for_each(|value| check(value, document));
            }
            serde_json::Value::Array(all) => all.iter().for_each(|value| check(value, document)),
            _ => {}
        }
    }
    let document = serde_json::from_str(&crate::openapi()).unwrap();
    check(&document, &document);
}

#[test]
fn document_is_openapi_3_1_and_served() {
    let running = Running::start();
    let answer = running.request(None, "GET", "/v1/openapi.json", None);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert!(answer.json()["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(answer.body, crate::openapi());
    let page = running.request(None, "GET", "/v1/docs", None);
    assert!(page.body.contains("/v1/ues/{supi}") && !page.body.contains("http://") && !page.body.contains("https://"));
}

#[test]
fn supi_is_masked_for_the_role_read() {
    let running = Running::start();
    let supi = |role, path: &str| running.get(role, path).json()["items"][0]["supi"].as_str().unwrap().to_owned();
    for path in ["/v1/ues", "/v1/sessions"] {
        assert_eq!(supi(Role::Read, path), "imsi-99970**********", "{path}");
        assert_eq!(supi(Role::Operate, path), SUPI, "{path}");
    }
    assert_eq!(running.get(Role::Read, &format!("/v1/ues/{SUPI}")).json()["supi"], "imsi-99970**********");
}

#[test]
fn ue_is_found_by_each_identity() {
    let running = Running::start();
    for query in ["supi=999700000000001", "address=10.45.0.2", "guti=99970-020040-0000c001", "guti=0000c001"] {
        let found = running.get(Role::Operate, &format!("/v1/ues?{query}")).json();
        assert_eq!(found["items"][0]["supi"], SUPI, "{query}");
        assert_eq!((&found["total"], &found["next"]), (&1.into(), &serde_json::Value::Null));
    }
    assert_eq!(running.get(Role::Operate, "/v1/ues?address=10.45.0.77").json()["items"].as_array().unwrap().len(), 0);
    for bad in
        ["supi=x", "address=10.45", "guti=c1", "guti=+000c001", "state=happy", "supi=999700000000001&guti=0000c001"]
    {
        let answer = running.get(Role::Operate, &format!("/v1/ues?{bad}"));
        assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/problem+json")), "{bad}");
    }
}

#[test]
fn silent_core_is_no_missing_ue() {
    let running = Running::start();
    *running.core.is_silent.lock().unwrap() = true;
    let ue = format!("/v1/ues/{SUPI}");
    let lists = ["/v1/ues", "/v1/ues?address=10.45.0.2", &ue, "/v1/sessions"];
    let status = ["/v1/overview", "/v1/hosts", "/v1/balancers", "/v1/ran-nodes", "/v1/upfs"];
    for path in lists.into_iter().chain(status) {
        assert_eq!(running.get(Role::Operate, path).status, 503, "{path}");
    }
}

#[test]
fn pages_of_ues_follow_the_cursor() {
    let running = Running::start();
    let (mut path, mut seen) = ("/v1/ues?limit=7".to_owned(), 0);
    loop {
        let page = running.get(Role::Read, &path).json();
        seen += page["items"].as_array().unwrap().len();
        assert_eq!(page["total"], Core::UES);
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/ues?limit=7&after={next}");
    }
    assert_eq!(seen, Core::UES);
}

#[test]
fn failed_changes_are_audited_too() {
    let running = Running::start();
    let order = |role, supi: &str| {
        running
            .request(Some(role), "POST", &format!("/v1/ues/{supi}/deregister"), Some(r#"{"reregister": true}"#))
            .status
    };
    assert_eq!(order(Role::Operate, SUPI), 202);
    assert_eq!(order(Role::Admin, "imsi-999700000009999"), 404);
    assert_eq!(order(Role::Read, SUPI), 403);
    assert_eq!(*running.core.deregistered.lock().unwrap(), [(SUPI.parse().unwrap(), true, 0)]);
    let log = running.get(Role::Admin, "/v1/audit").json();
    let line = |n: usize| {
        ["who", "action", "object", "result"].map(|key| log["items"][n][key].as_str().unwrap().to_owned()).join(" ")
    };
    assert_eq!(line(0), "admin ue.deregister imsi-999700000009999 failed");
    assert_eq!(line(1), "operate ue.deregister imsi-999700000000001 ok");
    assert_eq!(log["items"].as_array().unwrap().len(), 2);
    assert!(running.directory.path().join("audit.jsonl").exists());
}

#[test]
fn cell_is_requested_and_shown_by_role() {
    let running = Running::start();
    let ue = format!("/v1/ues/{SUPI}");
    let locate = |role, supi: &str| running.request(Some(role), "POST", &format!("/v1/ues/{supi}/locate"), None).status;
    assert_eq!((locate(Role::Operate, SUPI), locate(Role::Admin, "imsi-999700100000001")), (202, 404));
    assert_eq!(*running.core.located.lock().unwrap(), [SUPI.parse::<vireo_types::Supi>().unwrap()]);
    assert_eq!(running.get(Role::Admin, "/v1/audit").json()["items"][1]["action"], "ue.locate");
    assert_eq!(running.get(Role::Operate, &ue).json()["cell"], "99970-000000001");
    assert!(running.get(Role::Read, &ue).json()["cell"].is_null());
    *running.core.is_silent.lock().unwrap() = true;
    assert_eq!(locate(Role::Operate, SUPI), 503);
}

#[test]
fn deregistration_accepts_permitted_causes() {
    let running = Running::start();
    let path = format!("/v1/ues/{SUPI}/deregister");
    let status = |body: &str| running.request(Some(Role::Operate), "POST", &path, Some(body)).status;
    for (cause, expected) in [(3, 202), (14, 202), (27, 202), (0, 400), (9, 400), (62, 400), (256, 422)] {
        assert_eq!(status(&format!("{{\"cause\": {cause}}}")), expected, "{cause}");
    }
    assert_eq!(status(r#"{"cause": 7, "reregister": true}"#), 400);
    let causes: Vec<u8> = running.core.deregistered.lock().unwrap().iter().map(|(_, _, cause)| *cause).collect();
    assert_eq!(causes, [3, 14, 27]);
}

#[test]
fn malformed_bodies_are_problems() {
    let running = Running::start();
    let path = format!("/v1/ues/{SUPI}/deregister");
    let send =
        |body: &str, header: &str| running.request_with(Some(Role::Admin), "POST", &path, Some(body), header).status;
    assert_eq!(send(r#"{"reregister": "yes"}"#, ""), 422);
    let named = running.request(Some(Role::Admin), "POST", &path, Some(r#"{"cause": 256}"#)).json();
    let detail = named["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("cause") && detail.contains("256"), "{detail}");
    assert_eq!(send(r#"{"again": true}"#, ""), 422);
    assert_eq!(send("{", ""), 422);
    assert_eq!(send(&"[".repeat(100_000), ""), 422, "deep nesting does not exhaust the stack");
    assert_eq!(send(&format!("\"{}\"", "x".repeat((256 << 10) + 10)), ""), 413);
    let none = http::exchange(
        running.address(),
        "POST",
        &path,
        &format!("Authorization: Bearer {}\r\nContent-Type: text/plain\r\n", running.tokens[2]),
        None,
    );
    assert_eq!(none.status, 415);
}
