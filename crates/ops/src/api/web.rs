//! Web page of the API: its files, embedded in the program, and their headers.
//!
//! The files are public. They contain no data of the core: the page gets that from `/v1` with the
//! token of its user. `web/` has their sources; `make web` builds them.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Content Security Policy of the page: scripts and styles of this server only, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of each file.
const HEADERS: [(HeaderName, HeaderValue); 7] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=()"),
    ),
];

/// A file of the page.
#[derive(Clone, Copy, Debug)]
struct File {
    path: &'static str,
    content_type: &'static str,
    content: &'static [u8],
}

macro_rules! file {
    ($path:literal, $name:literal, $content_type:literal) => {
        File { path: $path, content_type: $content_type, content: include_bytes!(concat!("../../assets/", $name)) }
    };
}

const FILES: [File; 5] = [
    file!("/", "index.html", "text/html; charset=utf-8"),
    file!("/app.js", "app.js", "text/javascript; charset=utf-8"),
    file!("/app.css", "app.css", "text/css; charset=utf-8"),
    file!("/icon.svg", "icon.svg", "image/svg+xml"),
    file!("/licences.txt", "licences.txt", "text/plain; charset=utf-8"),
];

/// Returns the routes of the files.
pub(super) fn routes() -> Router {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(move |headers: HeaderMap| async move { file.answer(&headers) }))
    })
}

impl File {
    fn answer(&self, request: &HeaderMap) -> Response {
        let etag = self.etag();
        let known = request.get_all(header::IF_NONE_MATCH).iter().any(|known| *known == etag);
        let own = [(header::ETAG, etag.as_str()), (header::CONTENT_TYPE, self.content_type)];
        match known {
            true => (StatusCode::NOT_MODIFIED, HEADERS, own).into_response(),
            false => (HEADERS, own, self.content).into_response(),
        }
    }

    fn etag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.content.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> &'static str {
        let file = FILES.iter().find(|file| file.path == path).unwrap();
        std::str::from_utf8(file.content).unwrap()
    }

    #[test]
    fn page_uses_embedded_files_only() {
        let page = text("/");
        let used: Vec<&str> = page.split('"').filter(|part| part.starts_with('/')).collect();
        assert_eq!(used.len(), 3, "{page}");
        for path in used {
            assert!(FILES.iter().any(|file| file.path == path), "{path}");
        }
        // The policy allows neither inline scripts nor inline styles.
        for inline in ["<script>", "<style", " style=", " onload="] {
            assert!(!page.contains(inline), "{inline}");
        }
        for path in ["/", "/app.js", "/app.css"] {
            let urls = text(path).match_indices("://").map(|(at, _)| &text(path)[at..]);
            let foreign: Vec<&str> = urls.filter(|url| !url.starts_with("://www.w3.org/")).collect();
            assert!(foreign.is_empty(), "{path} has addresses of other servers");
        }
    }

    #[test]
    fn known_file_is_not_sent_again() {
        let answer = FILES[0].answer(&HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::OK);
        let etag = answer.headers()[header::ETAG].clone();
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let again = FILES[0].answer(&HeaderMap::from_iter([(header::IF_NONE_MATCH, etag.clone())]));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(again.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        let other = FILES[1].answer(&HeaderMap::from_iter([(header::IF_NONE_MATCH, etag)]));
        assert_eq!(other.status(), StatusCode::OK);
    }
}
