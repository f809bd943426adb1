//! Every operation of the document, for each role and without token.

use super::{Running, SUPI};
use std::collections::BTreeSet;
use vireo_ops::api::Role;

/// An operation with a request that succeeds for its role.
struct Row {
    method: &'static str,
    /// Path as in the document.
    path: &'static str,
    /// `None` = open to everybody.
    role: Option<Role>,
    /// Value of the parameter in the path.
    value: &'static str,
    body: Option<&'static str>,
    /// Header lines besides the usual.
    further: &'static str,
    /// Status for a sufficient role.
    status: u16,
}

const fn read(path: &'static str, role: Role) -> Row {
    Row { method: "GET", path, role: Some(role), value: "", body: None, further: "", status: 200 }
}

const ROWS: &[Row] = &[
    Row { role: None, ..read("/v1/openapi.json", Role::Read) },
    Row { role: None, ..read("/v1/docs", Role::Read) },
    read("/v1/session", Role::Read),
    read("/v1/overview", Role::Read),
    read("/v1/ues", Role::Read),
    Row { value: SUPI, ..read("/v1/ues/{supi}", Role::Read) },
    Row {
        method: "POST",
        value: SUPI,
        body: Some("{}"),
        status: 202,
        ..read("/v1/ues/{supi}/deregister", Role::Operate)
    },
    Row {
        method: "POST",
        value: SUPI,
        body: Some(r#"{"upf": "local"}"#),
        status: 202,
        ..read("/v1/ues/{supi}/relocate", Role::Operate)
    },
    Row { method: "POST", value: SUPI, status: 202, ..read("/v1/ues/{supi}/locate", Role::Operate) },
    read("/v1/sessions", Role::Read),
    read("/v1/ran-nodes", Role::Read),
    read("/v1/hosts", Role::Read),
    read("/v1/balancers", Role::Read),
    Row { method: "POST", value: "7", status: 202, ..read("/v1/hosts/{id}/drain", Role::Operate) },
    Row { method: "POST", value: "7", status: 202, ..read("/v1/hosts/{id}/cordon", Role::Operate) },
    Row { method: "POST", value: "7", status: 202, ..read("/v1/hosts/{id}/uncordon", Role::Operate) },
    read("/v1/upfs", Role::Read),
    read("/v1/user-plane", Role::Read),
    read("/v1/slices", Role::Read),
    read("/v1/data-networks", Role::Read),
    read("/v1/subscribers", Role::Read),
    Row {
        method: "POST",
        body: Some(concat!(
            r#"{"imsi": "999700000000099", "k": "465b5ce8b199b49faa5f0a2ee238a6bc","#,
            r#" "opc": "e8ed289deba952e4283b54e88e6183ca"}"#
        )),
        // The first role that may adds it.
        status: 201,
        ..read("/v1/subscribers", Role::Admin)
    },
    Row { value: super::SUPI, ..read("/v1/subscribers/{supi}", Role::Read) },
    Row {
        method: "PUT",
        value: super::SUPI,
        body: Some(r#"{"imsi": "999700000000001"}"#),
        status: 428,
        ..read("/v1/subscribers/{supi}", Role::Admin)
    },
    Row { method: "DELETE", value: super::SUPI, status: 428, ..read("/v1/subscribers/{supi}", Role::Admin) },
    Row { method: "POST", body: Some("[]"), status: 202, ..read("/v1/subscribers/import", Role::Admin) },
    Row { value: "1", ..read("/v1/imports/{id}", Role::Admin) },
    Row { status: 404, ..read("/v1/configuration", Role::Admin) },
    Row { method: "PUT", body: Some("{}"), status: 404, ..read("/v1/configuration", Role::Admin) },
    Row { method: "POST", body: Some("{}"), status: 404, ..read("/v1/configuration/validate", Role::Admin) },
    read("/v1/alarms", Role::Read),
    Row { method: "POST", value: "77", status: 404, ..read("/v1/alarms/{id}/acknowledge", Role::Operate) },
    // A stream has no end: the wrong event ID ends the request.
    Row { further: "Last-Event-ID: x\r\n", status: 400, ..read("/v1/events", Role::Read) },
    read("/v1/audit", Role::Admin),
];

impl Row {
    fn target(&self) -> String {
        match (self.path.find('{'), self.path.find('}')) {
            (Some(from), Some(to)) => format!("{}{}{}", &self.path[..from], self.value, &self.path[to + 1..]),
            _ => self.path.to_owned(),
        }
    }
}

#[test]
fn each_operation_has_a_row() {
    let document: serde_json::Value = serde_json::from_str(&crate::openapi()).unwrap();
    let mut operations = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let role = operation["security"][0]["bearer"][0].as_str().unwrap_or("none").to_owned();
            operations.insert((method.to_uppercase(), path.clone(), role));
        }
    }
    let rows = ROWS
        .iter()
        .map(|row| (row.method.to_owned(), row.path.to_owned(), row.role.map_or("none", Role::name).to_owned()));
    assert_eq!(operations, rows.collect());
}

#[test]
fn each_operation_needs_its_role() {
    let running = Running::with(super::subscribers::with_one);
    for row in ROWS {
        let target = row.target();
        let send = |role| running.request_with(role, row.method, &target, row.body, row.further);
        let without = send(None);
        match row.role {
            None => assert_eq!(without.status, row.status, "{target}"),
            Some(_) => {
                assert_eq!(without.status, 401, "{} {target}", row.method);
                assert_eq!(without.header("content-type"), Some("application/problem+json"));
            }
        }
        for role in Role::ALL {
            let answer = send(Some(role));
            let permitted = row.role.is_none_or(|needed| role >= needed);
            let expected = if permitted { row.status } else { 403 };
            assert_eq!(answer.status, expected, "{} {target} by {role:?}: {}", row.method, answer.body);
        }
        let wrong = super::http::exchange(
            running.address(),
            row.method,
            &target,
            "Authorization: Bearer 0123456789abcdef\r\n",
            row.body,
        );
        assert_eq!(wrong.status, 401, "{target}: a wrong token is refused everywhere");
    }
}

#[test]
fn unknown_paths_and_methods_are_problems() {
    let running = Running::start();
    for (method, path, status) in [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/ues/imsi-999700000000001/nothing", 404),
        ("PATCH", "/v1/ues", 405),
        ("POST", "/v1/overview", 405),
        ("GET", "/v1/hosts/x/drain", 405),
        ("POST", "/v1/hosts/x/drain", 400),
        ("POST", "/v1/hosts/9/drain", 404),
        ("POST", "/v1/hosts/9/cordon", 404),
        ("POST", "/v1/hosts/99999/drain", 400),
        ("GET", "/v1/ues/%ff", 400),
        ("GET", "/v1/ues/imsi-999700000009999", 404),
    ] {
        let answer = running.request(Some(Role::Admin), method, path, None);
        let kind = answer.header("content-type");
        assert_eq!((answer.status, kind), (status, Some("application/problem+json")), "{method} {path}");
        assert_eq!(answer.json()["status"], status);
        assert_eq!(answer.header("allow").is_some(), status == 405, "{method} {path}");
    }
    assert_eq!(running.request(None, "GET", "/v1/nothing", None).status, 401);
    let head = running.request(Some(Role::Admin), "HEAD", "/v1/ues", None);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

/// A mistyped filter would make a list longer, and a mistyped dry run would import a file.
#[test]
fn unknown_query_parameters_are_refused() {
    let running = Running::with(super::subscribers::with_one);
    for (path, status) in [
        ("/v1/ues?", 200),
        ("/v1/ues?limit=1&state=connected", 200),
        ("/v1/ues?limits=1", 400),
        ("/v1/ues?limit=1&x", 400),
        ("/v1/session?%20=", 400),
        ("/v1/docs?x=1", 400),
    ] {
        let answer = running.get(Role::Admin, path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    let import = |query: &str| {
        let path = format!("/v1/subscribers/import?{query}");
        running.request(Some(Role::Admin), "POST", &path, Some("[]"))
    };
    let refused = import("dry-run=true");
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("it has: dry_run, conflict"), "{}", refused.body);
    assert_eq!(import("dry_run=true").status, 200);
    assert_eq!(running.get(Role::Read, "/v1/audit?x=1").status, 403, "the role is checked first");
}
