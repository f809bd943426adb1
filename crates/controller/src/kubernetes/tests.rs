use super::api_server::{Answer, ApiServer};
use super::*;

impl ApiServer {
    /// Returns the configuration of a controller in a pod of this cluster.
    pub(crate) fn config(&self) -> StatefulSetConfig {
        StatefulSetConfig {
            name: "vireo-host".into(),
            namespace: None,
            server: HttpUrl::parse(&self.url()),
            token_file: self.file("token"),
            authorities: self.file("ca.crt"),
        }
    }
}

fn client(server: &ApiServer) -> ScaleClient {
    ScaleClient::new(&server.config()).unwrap()
}

#[test]
fn scale_is_read_and_changed_over_tls() {
    let server = ApiServer::start(3);
    let client = client(&server);
    let scale = client.scale().unwrap();
    assert_eq!((scale.replicas, scale.pods, client.object()), (3, 3, "core/vireo-host"));
    assert_eq!(client.set_replicas(&scale, 5).unwrap().replicas, 5);
    let error = client.set_replicas(&scale, 6).unwrap_err();
    assert!(matches!(error, KubernetesError::Conflict { .. }), "an older version: {error}");
    server.cluster().replicas = 0;
    let scale = client.scale().unwrap();
    assert_eq!((scale.replicas, scale.pods), (0, 0));
    let patches: Vec<_> = server.cluster().requests.iter().filter(|(method, _)| method == "PATCH").cloned().collect();
    assert_eq!(patches[0].1, r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":5}}"#);
}

#[test]
fn replaced_token_is_read_again() {
    let server = ApiServer::start(1);
    let client = client(&server);
    assert!(client.scale().is_ok());
    server.cluster().token = "second".into();
    let refused = client.scale().unwrap_err().to_string();
    assert_eq!(refused, "API server: token refused (401 Unauthorized); check scaling.kubernetes.token-file");
    server.write_token("second");
    assert!(client.scale().is_ok());
    for text in [" \n", "line\nbreak"] {
        server.write_token(text);
        let error = client.scale().unwrap_err().to_string();
        assert!(error.starts_with("scaling.kubernetes.token-file: ") && error.contains("needed"), "{error}");
    }
}

#[test]
fn refusals_name_cause_and_remedy() {
    let server = ApiServer::start(1);
    let client = client(&server);
    let status = |message: &str| format!(r#"{{"kind":"Status","message":"{message}"}}"#);
    for (code, body, expected) in [
        (403, status("no"), "API server: permission denied (403 no); bind the account of controllers to a role"),
        (404, status("no"), "StatefulSet core/vireo-host: not found (404 no); check scaling.kubernetes.stateful-set"),
        (409, status("no"), "StatefulSet core/vireo-host: changed by another client meanwhile (409 no); it is read"),
        (500, status(r"a\nb"), r"API server: request refused (500 a\nb); see the log"),
        (503, "no JSON".into(), "API server: request refused (503 ); see the log"),
        (301, String::new(), "API server: request refused (301 ); see the log"),
        (200, "no JSON".into(), "API server 127.0.0.1:"),
        (200, "{}".into(), "API server 127.0.0.1:"),
        (200, "x".repeat(ANSWER_BYTES + 1), "API server 127.0.0.1:"),
    ] {
        server.cluster().answer = Some(Answer::Fixed(code, body));
        let error = client.scale().unwrap_err().to_string();
        assert!(error.starts_with(expected) && !error.contains('\n'), "{code}: {error}");
        assert_eq!(code == 200, error.contains("unexpected answer"), "{error}");
    }
    server.cluster().answer = Some(Answer::Fixed(500, status(&"x".repeat(1000))));
    assert!(client.scale().unwrap_err().to_string().len() < 400);
}

#[test]
fn token_goes_to_the_known_server_only() {
    let [server, other] = [ApiServer::start(1), ApiServer::start(1)];
    let config = StatefulSetConfig { authorities: other.file("ca.crt"), ..server.config() };
    let error = ScaleClient::new(&config).unwrap().scale().unwrap_err();
    assert!(matches!(error, KubernetesError::Insecure { .. }), "{error}");
    assert!(error.to_string().ends_with("check that scaling.kubernetes.authorities has its authority"), "{error}");
    assert!(server.cluster().requests.is_empty());
    let config = StatefulSetConfig { authorities: server.file("none"), ..server.config() };
    let error = ScaleClient::new(&config).unwrap().check_files().unwrap_err().to_string();
    assert!(error.starts_with("scaling.kubernetes.authorities: ") && error.contains("needed"), "{error}");
}

#[test]
fn silent_server_is_reported_in_time() {
    let server = ApiServer::start(1);
    server.cluster().answer = Some(Answer::Nothing);
    let mut client = client(&server);
    client.timeout = Duration::from_millis(300);
    let error = client.scale().unwrap_err();
    assert!(matches!(&error, KubernetesError::Silent { reason, .. } if reason == "nothing within 300ms"), "{error}");
    server.cluster().answer = None;
    assert!(client.scale().is_ok());
    // A port that no process listens at.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = StatefulSetConfig { server: HttpUrl::parse(&format!("https://{free}")), ..server.config() };
    let error = ScaleClient::new(&config).unwrap().scale().unwrap_err();
    assert!(matches!(error, KubernetesError::Silent { .. }), "{error}");
}

#[test]
fn pod_names_server_and_namespace() {
    let server = |host: &str, port: Option<&str>| {
        let url = pod_server(|name| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            "KUBERNETES_SERVICE_PORT" => port.map(str::to_owned),
            _ => None,
        });
        url.map(|url| (url.authority().to_owned(), url.port()))
    };
    assert_eq!(server("10.96.0.1", Some("6443")), Some(("10.96.0.1:6443".into(), 6443)));
    assert_eq!(server("fd00::1", None), Some(("[fd00::1]:443".into(), 443)));
    assert_eq!(server("", Some("443")), None);
    let running = ApiServer::start(1);
    std::fs::remove_file(running.file("namespace")).unwrap();
    let error = ScaleClient::new(&running.config()).unwrap_err().to_string();
    assert!(error.starts_with("scaling.kubernetes.namespace: ") && error.contains("outside of a pod"), "{error}");
    let config = StatefulSetConfig { namespace: Some("other".into()), ..running.config() };
    let error = ScaleClient::new(&config).unwrap().scale().unwrap_err();
    assert!(matches!(&error, KubernetesError::NotFound { object, .. } if object == "other/vireo-host"), "{error}");
}
