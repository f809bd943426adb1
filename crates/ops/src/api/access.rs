//! Access control of the API: Host and Origin headers, tokens, unix-socket users.
//!
//! | connection | reads | SUPIs, changes |
//! |---|---|---|
//! | unix socket, same user or root | yes | yes |
//! | unix socket, another user | yes | token |
//! | TCP, listening on a loopback address | yes | token |
//! | TCP, listening on any other address | token, but `/metrics` and `/healthz` | token |
//!
//! Requests that a browser makes for a web page are refused, except those of a page of this API to
//! `/v1` and `/metrics`. `/v1` needs a token on every connection but the unix socket of the same
//! user or root; its routes ask for a [`Role`].

use super::roles::{Identity, NamedTokens, Role};
use super::serve::Identified;
use super::token::{Token, bearer};
use crate::metrics::{ApiRefusal, Metrics};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Paths without confidential content, for scrapers and supervisors.
const OPEN: [&str; 2] = [METRICS, "/healthz"];
const METRICS: &str = "/metrics";
/// Paths below which roles decide.
const VERSIONED: &str = "/v1/";
/// Versioned paths without confidential content: the description of the API.
const OPEN_VERSIONED: [&str; 2] = ["/v1/openapi.json", "/v1/docs"];
/// Minimum interval between two log lines of the same kind of refusal. Refusals in between are
/// counted.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// `trusted` = the peer's user is root or the user of this process.
    Unix { trusted: bool },
    /// `loopback` = the API listens on a loopback address.
    Tcp { loopback: bool },
}

/// Rights of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// If true, the request may change state and read SUPIs.
    pub(super) full: bool,
    /// Sender of the request; `None` if the connection alone permits it.
    identity: Option<Identity>,
}

/// Access rules and the log of refusals.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    token: Option<Arc<Token>>,
    tokens: Arc<NamedTokens>,
    host_names: Arc<[String]>,
    metrics: Arc<Metrics>,
    /// Indexed by kind of refusal.
    logged: Arc<Mutex<[LogState; ApiRefusal::ALL.len()]>>,
}

/// Time of the last log line of a kind, and the number of unlogged refusals since.
type LogState = (Option<Instant>, u64);

impl Guard {
    pub(super) fn new(token: Option<Token>, tokens: NamedTokens, host_names: &[String], metrics: Arc<Metrics>) -> Self {
        let (token, tokens) = (token.map(Arc::new), Arc::new(tokens));
        Guard { token, tokens, host_names: host_names.into(), metrics, logged: Arc::default() }
    }

    /// Returns the holder of the token in the value of an `Authorization` header.
    fn holder(&self, header: &[u8]) -> Option<Identity> {
        if self.token.as_ref().is_some_and(|token| token.is_shown_by(header)) {
            return Some(Identity { name: "api.token".into(), role: Role::Admin });
        }
        self.tokens.holder(bearer(header)?)
    }

    /// Returns the rights of a request.
    ///
    /// # Errors
    ///
    /// Returns the reason if the request is refused.
    fn access(&self, client: Client, method: &Method, path: &str, headers: &HeaderMap) -> Result<Access, ApiRefusal> {
        let is_versioned = path.starts_with(VERSIONED);
        let is_for_page = is_versioned || path == METRICS;
        if is_from_web_page(headers) && !(is_for_page && is_from_own_page(headers)) {
            return Err(ApiRefusal::Origin);
        }
        let shown = headers.get(header::AUTHORIZATION).map(|shown| shown.as_bytes());
        // A wrong token is refused even where none is needed, so that its owner notices the
        // mistake.
        let identity = match (shown, client) {
            (Some(shown), _) => Some(self.holder(shown).ok_or(ApiRefusal::Token)?),
            (None, Client::Unix { trusted: true }) => Some(Identity { name: "local".into(), role: Role::Admin }),
            (None, _) => None,
        };
        let full = identity.as_ref().is_some_and(|identity| identity.role >= Role::Operate);
        let reads = match client {
            Client::Unix { .. } => true,
            Client::Tcp { loopback } => {
                if !self.is_known(headers) {
                    return Err(ApiRefusal::Host);
                }
                loopback || identity.is_some() || OPEN.contains(&path)
            }
        };
        let safe = [Method::GET, Method::HEAD].contains(method);
        let permitted = match is_versioned {
            true => identity.is_some() || OPEN_VERSIONED.contains(&path),
            false => full || reads && safe,
        };
        if permitted { Ok(Access { full, identity }) } else { Err(ApiRefusal::Token) }
    }

    /// Returns true if the Host header is an address, `localhost` or a configured name. A web page
    /// that uses DNS rebinding sends its own name.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Ok(host) = host.to_str() else { return false };
        let name = match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.host_names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Counts a refusal. Logs at most one of a kind per [`LOGGED_EVERY`].
    pub(super) fn refuse(&self, refusal: ApiRefusal) {
        self.metrics.api_refused(refusal);
        // The lock is never poisoned: no code under it panics.
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, suppressed) = &mut logged[refusal as usize];
        if last.is_some_and(|last| last.elapsed() < LOGGED_EVERY) {
            *suppressed += 1;
            return;
        }
        tracing::warn!(reason = refusal.label(), suppressed, "refused a request to the API");
        (*last, *suppressed) = (Some(Instant::now()), 0);
    }

    fn answer(&self, refusal: ApiRefusal, is_versioned: bool) -> Response {
        let token = match self.token {
            Some(_) => {
                "a token is needed: send the one of api.token-file as `Authorization: Bearer`, or use the unix socket\n"
            }
            None => "this process has no token (see its log): use the unix socket\n",
        };
        if is_versioned {
            return problem(refusal, token.trim_end());
        }
        match refusal {
            ApiRefusal::Token => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"vireo\"")];
                (StatusCode::UNAUTHORIZED, challenge, token).into_response()
            }
            ApiRefusal::Host => {
                let text = "unknown host name: use an address, or add the name to api.host-names\n";
                (StatusCode::MISDIRECTED_REQUEST, text).into_response()
            }
            ApiRefusal::Origin | ApiRefusal::Connections => (StatusCode::FORBIDDEN, NOT_FOR_PAGES).into_response(),
        }
    }

    /// Returns the 401 response if the request lacks the rights for SUPIs and changes.
    pub(super) fn refusal(&self, access: &Access) -> Option<Response> {
        (!access.full).then(|| {
            self.refuse(ApiRefusal::Token);
            self.answer(ApiRefusal::Token, false)
        })
    }
}

const NOT_FOR_PAGES: &str = "not for web pages\n";

/// Returns true if a browser made the request for a web page. Browsers send the page's origin or
/// Fetch Metadata headers (W3C Fetch Metadata).
fn is_from_web_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    headers.contains_key(header::ORIGIN) || site.is_some_and(|site| site != b"none")
}

/// Returns true if the page is one of this API: its origin has the host of the request. The caller
/// has checked the host, and a page of another host cannot send the token.
fn is_from_own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text(header::HeaderName::from_static("sec-fetch-site"));
    let origin = headers.get(header::ORIGIN).is_none_or(|_| {
        let authority = text(header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        authority.zip(text(header::HOST)).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
    });
    origin && site.is_none_or(|site| ["same-origin", "none"].contains(&site))
}

/// Returns the answer of a versioned path, as problem details (RFC 9457).
fn problem(refusal: ApiRefusal, token: &'static str) -> Response {
    let (status, title, detail) = match refusal {
        ApiRefusal::Token => (StatusCode::UNAUTHORIZED, "Unauthorized", token),
        ApiRefusal::Host => (
            StatusCode::MISDIRECTED_REQUEST,
            "Misdirected Request",
            "unknown host name: use an address, or add the name to api.host-names",
        ),
        ApiRefusal::Origin | ApiRefusal::Connections => (StatusCode::FORBIDDEN, "Forbidden", NOT_FOR_PAGES.trim_end()),
    };
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    let mut response = (status, body.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if refusal == ApiRefusal::Token {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"vireo\""));
    }
    response
}

/// Middleware that passes permitted requests on and answers the others.
pub(super) async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    // A connection of unknown origin has no rights.
    let client = request.extensions().get().copied().unwrap_or(Client::Tcp { loopback: false });
    match guard.access(client, request.method(), request.uri().path(), request.headers()) {
        Ok(access) => {
            if let Some(identity) = access.identity.clone() {
                if let Some(connection) = request.extensions().get::<Identified>() {
                    connection.set();
                }
                request.extensions_mut().insert(identity);
            }
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(refusal) => {
            guard.refuse(refusal);
            guard.answer(refusal, request.uri().path().starts_with(VERSIONED))
        }
    }
}

/// Middleware for files that everyone may read: refuses unknown host names.
pub(super) async fn check_host(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let is_unix = matches!(request.extensions().get(), Some(Client::Unix { .. }));
    if is_unix || guard.is_known(request.headers()) {
        return next.run(request).await;
    }
    guard.refuse(ApiRefusal::Host);
    guard.answer(ApiRefusal::Host, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const LOCAL: Client = Client::Tcp { loopback: true };
    const REMOTE: Client = Client::Tcp { loopback: false };
    const OWN: Client = Client::Unix { trusted: true };
    const OTHER: Client = Client::Unix { trusted: false };

    fn guard() -> Guard {
        let tokens = NamedTokens::new(std::path::Path::new("/nonexistent/api.tokens"));
        Guard::new(Token::parse(TOKEN), tokens, &["core.example".to_owned()], Arc::new(Metrics::new()))
    }

    /// Returns whether a request has full rights, or why it is refused.
    fn rights(result: Result<Access, ApiRefusal>) -> Result<bool, ApiRefusal> {
        result.map(|access| access.full)
    }

    fn request_access(
        client: Client,
        method: &Method,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Access, ApiRefusal> {
        let mut map = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1:9090"))]);
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        guard().access(client, method, path, &map)
    }

    #[test]
    fn each_client_has_its_rights() {
        let good = ("authorization", "Bearer 0123456789abcdef");
        let (full, some) = (Ok(true), Ok(false));
        let no = Err(ApiRefusal::Token);
        for (client, metrics, status, change) in
            [(OWN, full, full, full), (OTHER, some, some, no), (LOCAL, some, some, no), (REMOTE, some, no, no)]
        {
            assert_eq!(rights(request_access(client, &Method::GET, "/metrics", &[])), metrics, "{client:?}");
            assert_eq!(rights(request_access(client, &Method::GET, "/status", &[])), status, "{client:?}");
            for method in [Method::POST, Method::DELETE, Method::PUT, Method::OPTIONS] {
                assert_eq!(rights(request_access(client, &method, "/deregister", &[])), change, "{client:?}");
                assert_eq!(rights(request_access(client, &method, "/deregister", &[good])), full, "{client:?}");
            }
            for path in ["/metrics", "/status"] {
                assert_eq!(rights(request_access(client, &Method::GET, path, &[good])), full, "{client:?}");
                assert_eq!(
                    rights(request_access(client, &Method::GET, path, &[("authorization", "Bearer x")])),
                    no,
                    "{client:?}"
                );
            }
        }
    }

    #[test]
    fn rebound_names_and_pages_are_refused() {
        for host in
            ["127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "[::1]", "localhost:9090", "10.0.0.1", "Core.Example:1"]
        {
            assert!(request_access(LOCAL, &Method::GET, "/status", &[("host", host)]).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "evil.example:9090", "127.0.0.1.evil.example", "localhost.evil.example", "", "[", ":1"]
        {
            for path in ["/metrics", "/status", "/healthz"] {
                let access = request_access(LOCAL, &Method::GET, path, &[("host", host)]);
                assert_eq!(access, Err(ApiRefusal::Host), "{host}");
            }
            // No browser uses the unix socket.
            assert!(request_access(OWN, &Method::GET, "/status", &[("host", host)]).is_ok(), "{host}");
        }
        let token = ("authorization", "Bearer 0123456789abcdef");
        for page in [("origin", "http://127.0.0.1:9090"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            for client in [OWN, LOCAL, REMOTE] {
                let access = request_access(client, &Method::POST, "/deregister", &[page, token]);
                assert_eq!(access, Err(ApiRefusal::Origin), "{page:?}");
                // The page of this API shows metrics.
                let is_own = page.1 == "http://127.0.0.1:9090";
                let access = request_access(client, &Method::GET, "/metrics", &[page]);
                assert_eq!(access == Err(ApiRefusal::Origin), !is_own, "{page:?}");
            }
        }
        assert!(
            request_access(LOCAL, &Method::GET, "/status", &[("sec-fetch-site", "none")]).is_ok(),
            "an address that is typed in"
        );
        let mut two = HeaderMap::new();
        for host in ["127.0.0.1", "evil.example"] {
            two.append(header::HOST, HeaderValue::from_str(host).unwrap());
        }
        assert_eq!(guard().access(LOCAL, &Method::GET, "/status", &two), Err(ApiRefusal::Host));
        assert_eq!(guard().access(LOCAL, &Method::GET, "/status", &HeaderMap::new()), Err(ApiRefusal::Host));
    }

    #[test]
    fn versioned_paths_need_an_identity() {
        let good = ("authorization", "Bearer 0123456789abcdef");
        let role = |client, path: &str, headers: &[(&'static str, &str)]| {
            request_access(client, &Method::GET, path, headers).map(|access| access.identity.map(|i| i.role))
        };
        for client in [OTHER, LOCAL, REMOTE] {
            assert_eq!(role(client, "/v1/ues", &[]), Err(ApiRefusal::Token), "{client:?}");
            assert_eq!(role(client, "/v1/ues", &[good]), Ok(Some(Role::Admin)), "{client:?}");
            assert_eq!(role(client, "/v1/openapi.json", &[]), Ok(None), "{client:?}");
        }
        assert_eq!(role(OWN, "/v1/ues", &[]), Ok(Some(Role::Admin)));
        // A page of the same host and port sends the token; one of another host is refused.
        let own = [("origin", "http://127.0.0.1:9090"), ("sec-fetch-site", "same-origin"), good];
        assert_eq!(role(LOCAL, "/v1/ues", &own), Ok(Some(Role::Admin)));
        for page in [("origin", "http://127.0.0.1:9091"), ("origin", "null"), ("sec-fetch-site", "same-site")] {
            assert_eq!(role(LOCAL, "/v1/ues", &[page, good]), Err(ApiRefusal::Origin), "{page:?}");
        }
    }

    #[test]
    fn role_limits_the_rights() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = NamedTokens::new(&directory.path().join("api.tokens"));
        let secrets = Role::ALL.map(|role| (role, tokens.create(role.name(), role).unwrap()));
        let guard = Guard::new(Token::parse(TOKEN), tokens, &[], Arc::new(Metrics::new()));
        for (role, secret) in secrets {
            let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1"))]);
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {secret}")).unwrap());
            let access = |method, path| guard.access(REMOTE, method, path, &headers);
            let identity = Identity { name: role.name().into(), role };
            assert_eq!(access(&Method::POST, "/v1/x").map(|access| access.identity), Ok(Some(identity)));
            assert_eq!(rights(access(&Method::GET, "/status")), Ok(role > Role::Read));
            let change = if role > Role::Read { Ok(true) } else { Err(ApiRefusal::Token) };
            assert_eq!(rights(access(&Method::POST, "/deregister")), change);
        }
    }

    #[test]
    fn missing_token_grants_none() {
        let tokens = NamedTokens::new(std::path::Path::new("/nonexistent/api.tokens"));
        let guard = Guard::new(None, tokens, &[], Arc::new(Metrics::new()));
        let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1"))]);
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer "));
        assert_eq!(guard.access(LOCAL, &Method::POST, "/deregister", &headers), Err(ApiRefusal::Token));
        assert_eq!(rights(guard.access(OWN, &Method::POST, "/deregister", &HeaderMap::new())), Ok(true));
    }
}
