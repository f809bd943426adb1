//! API of a running core as a black box: its socket and its token.
//!
//! The tests also cover how the command line finds both.

mod ports;

use ports::{free_address, free_port};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

/// Core without RAN, UPF or subscribers, started like an operator's service.
struct Core {
    process: Child,
    directory: tempfile::TempDir,
    api: SocketAddr,
}

fn configure(directory: &Path, api: SocketAddr) -> PathBuf {
    let (udp, n4, upf) = (free_port(), free_port(), free_port());
    let file = directory.join("vireo.toml");
    let text = format!(
        "[n2]\ndriver = \"userspace-udp\"\naddresses = [\"127.0.0.1\"]\nudp-port = {udp}\n[n4]\nlisten = \"127.0.0.1:{n4}\"\n\
         [upf]\nenabled = false\n[[external-upf]]\nn4 = \"127.0.0.1:{upf}\"\n[api]\nlisten = \"{api}\"\n"
    );
    fs::write(&file, text).unwrap();
    file
}

/// Returns the program with the directories of a service and no other environment of this machine.
fn vireo(directory: &Path) -> Command {
    let mut command = Command::new(VIREO);
    command.current_dir(directory).env_clear().stdin(Stdio::null());
    command.env("RUNTIME_DIRECTORY", directory.join("run")).env("STATE_DIRECTORY", directory.join("state"));
    command
}

impl Core {
    fn start() -> Self {
        Core::start_in(tempfile::tempdir().unwrap(), "")
    }

    /// Starts a core whose `[api]` has further lines.
    fn start_in(directory: tempfile::TempDir, lines: &str) -> Self {
        let api = free_address();
        let file = configure(directory.path(), api);
        fs::write(&file, fs::read_to_string(&file).unwrap() + lines).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = vireo(directory.path());
        command.args(["run", "--config"]).arg(file).stdout(log.try_clone().unwrap()).stderr(log);
        let mut core = Core { process: command.spawn().unwrap(), directory, api };
        let deadline = Instant::now() + Duration::from_secs(30);
        // The socket listens before the token exists.
        while TcpStream::connect(core.api).is_err() || !core.token().exists() {
            assert_eq!(core.process.try_wait().unwrap(), None, "the core has ended:\n{}", core.log());
            assert!(Instant::now() < deadline, "the core is not up:\n{}", core.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        core
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join(format!("run/api-{}.sock", self.api.port()))
    }

    fn token(&self) -> PathBuf {
        self.directory.path().join("state/api.token")
    }

    /// Returns the status code of a request with further headers.
    fn request(&self, method: &str, path: &str, headers: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.api).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n", self.api).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    /// Runs `vireo WORDS` with only these environment variables for the directories.
    fn command(&self, words: &[&str], variables: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(VIREO);
        command.args(words).env_clear().envs(variables.iter().copied()).stdin(Stdio::null());
        command.output().unwrap()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Status of an authorised change: the core has no such UE.
const NOT_FOUND: u16 = 404;
const DEREGISTER: &str = "/deregister?supi=imsi-999700000000001";

#[test]
fn only_token_and_socket_change_anything() {
    let core = Core::start();
    assert_eq!(core.request("POST", DEREGISTER, "").0, 401);
    assert_eq!(core.request("GET", "/status?reveal_supi=true", "").0, 401);
    assert_eq!(core.request("POST", DEREGISTER, "Authorization: Bearer 0000000000000000\r\n").0, 401);
    assert_eq!(mode(&core.token()), 0o600, "made at the first start");
    let token = format!("Authorization: Bearer {}\r\n", fs::read_to_string(core.token()).unwrap().trim());
    assert_eq!(core.request("POST", DEREGISTER, &token).0, NOT_FOUND);
    assert_eq!(core.request("GET", "/status?reveal_supi=true", &token).0, 200);
    assert_eq!(core.request("POST", DEREGISTER, &format!("{token}Origin: http://evil.example\r\n")).0, 403);
    for path in ["/metrics", "/healthz", "/status"] {
        let (status, answer) = core.request("GET", path, "");
        assert_eq!(status, 200);
        assert!(!answer.contains(token.trim().rsplit(' ').next().unwrap()), "{path}");
    }
    let kind = fs::symlink_metadata(core.socket()).unwrap().file_type();
    assert!(kind.is_socket() && mode(&core.socket()) & 0o007 == 0, "others do not connect");

    // The command line uses the socket without a token. By TCP it reads the token only from the
    // configured place.
    let socket = core.socket();
    let url = format!("http://{}", core.api);
    let drain = |api: &str, variables: &[(&str, &Path)]| {
        let output = core.command(&["cluster", "drain", "3", "--api", api], variables);
        String::from_utf8(output.stderr).unwrap()
    };
    let let_through = "the controller";
    assert!(drain(socket.to_str().unwrap(), &[]).contains(let_through));
    assert!(drain(&format!("unix:{}", socket.display()), &[]).contains(let_through));
    let refused = drain(&url, &[("HOME", core.directory.path())]);
    assert!(refused.contains("401") && refused.contains("api.token-file"), "{refused}");
    assert!(drain(&url, &[("VIREO_API_TOKEN_FILE", &core.token())]).contains(let_through));
    let state = core.directory.path().join("home");
    fs::create_dir_all(state.join("vireo")).unwrap();
    fs::copy(core.token(), state.join("vireo/api.token")).unwrap();
    assert!(drain(&url, &[("XDG_STATE_HOME", &state)]).contains(let_through), "the file of this user");
    let status = core.command(&["status", "--reveal-supi", "--api", &url], &[("VIREO_API_TOKEN_FILE", &core.token())]);
    assert!(status.status.success(), "{status:?}");
}

#[test]
fn command_line_uses_api_with_tls() {
    let directory = tempfile::tempdir().unwrap();
    let authority = vireo_pki::Authority::new().unwrap();
    let signed = authority.sign("api", &["127.0.0.1", "localhost"], 1).unwrap();
    let [certificate, key, authorities, other] =
        ["api.pem", "api.key", "ca.pem", "other.pem"].map(|name| directory.path().join(name));
    fs::write(&certificate, signed.certificate).unwrap();
    fs::write(&key, signed.key).unwrap();
    fs::write(&authorities, authority.certificate()).unwrap();
    fs::write(&other, vireo_pki::Authority::new().unwrap().certificate()).unwrap();
    let core = Core::start_in(directory, &format!("tls-certificate = {certificate:?}\ntls-key = {key:?}\n"));
    let url = format!("https://{}", core.api);
    let status = |authorities: &Path, variables: &[(&str, &Path)]| {
        core.command(
            &["status", "--reveal-supi", "--api", &url, "--authorities", authorities.to_str().unwrap()],
            variables,
        )
    };
    let token = core.token();
    let answered = status(&authorities, &[("VIREO_API_TOKEN_FILE", &token)]);
    assert!(answered.status.success() && answered.stdout.starts_with(b"vireo "), "{answered:?}");
    let by_name = format!("https://localhost:{}", core.api.port());
    let variables: [(&str, &Path); 2] = [("VIREO_API_TOKEN_FILE", &token), ("VIREO_API_AUTHORITIES", &authorities)];
    let answered = core.command(&["status", "--api", &by_name], &variables);
    assert!(answered.status.success(), "{answered:?}");
    let refused = status(&other, &[("VIREO_API_TOKEN_FILE", &token)]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("invalid peer certificate"), "{error}");
}

#[test]
fn open_address_without_token_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = configure(directory.path(), (Ipv4Addr::UNSPECIFIED, 0).into());
    // The state directory is a file, so the core cannot create a token.
    fs::write(directory.path().join("state"), "").unwrap();
    let output = vireo(directory.path()).args(["run", "--config"]).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let last = error.lines().last().unwrap();
    assert!(last.starts_with("vireo: api.token-file: ") && last.contains("set api.token-file to a file"), "{error}");
}

/// Returns the token that a command has printed.
fn created(core: &Core, role: &str) -> String {
    let file = core.directory.path().join("vireo.toml");
    let mut command = vireo(core.directory.path());
    let output = command.args(["token", "create", role, "--role", role, "--config"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the value of a header.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().starts_with(name).then(|| line.split_once(": "))?)
        .map(|l| l.1)
}

#[test]
fn named_tokens_have_their_roles() {
    let core = Core::start();
    let path = core.directory.path().join("state/api.tokens");
    assert!(!path.exists());
    let tokens = ["read", "operate", "admin"].map(|role| format!("Authorization: Bearer {}\r\n", created(&core, role)));
    assert_eq!(mode(&path), 0o600);
    let status = |method, path, token: &str| core.request(method, path, token).0;
    assert_eq!(tokens.each_ref().map(|token| status("GET", "/v1/ues", token)), [200, 200, 200]);
    assert_eq!(tokens.each_ref().map(|token| status("GET", "/v1/audit", token)), [403, 403, 200]);
    assert_eq!(tokens.each_ref().map(|token| status("POST", DEREGISTER, token)), [401, NOT_FOUND, NOT_FOUND]);
    assert_eq!(status("GET", "/v1/ues", ""), 401);
    assert!(core.request("GET", "/v1/session", &tokens[1]).1.contains(r#""role":"operate""#));
    let mut command = vireo(core.directory.path());
    let file = core.directory.path().join("vireo.toml");
    assert!(command.args(["token", "revoke", "admin", "--config"]).arg(file).output().unwrap().status.success());
    assert_eq!(status("GET", "/v1/ues", &tokens[2]), 401, "at once");
}

#[test]
fn configuration_is_changed_live_or_not_at_all() {
    let core = Core::start();
    let token = format!("Authorization: Bearer {}\r\n", fs::read_to_string(core.token()).unwrap().trim());
    let file = core.directory.path().join("vireo.toml");
    let before = fs::read_to_string(&file).unwrap();
    let (status, answer) = core.request("GET", "/v1/configuration", &token);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.ends_with(&before), "{answer}");
    let tag = header(&answer, "etag").unwrap().to_owned();
    let put = |text: &str| {
        let length = text.len();
        let headers =
            format!("{token}If-Match: {tag}\r\nContent-Type: application/toml\r\nContent-Length: {length}\r\n");
        let mut stream = TcpStream::connect(core.api).unwrap();
        write!(
            stream,
            "PUT /v1/configuration HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n{text}",
            core.api
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), answer)
    };
    let (status, answer) = put(&format!("{before}[log]\nlevle = 1\n"));
    assert!(status == 422 && answer.contains("levle"), "{answer}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let next = format!(
        "{before}[slice.phones]\nsnssai = {{ sst = 1 }}\nslo = {{ paging = \"7ms\" }}\n[log]\nlevel = \"debug\"\n"
    );
    let (status, answer) = put(&next);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(r#""key":"log.level","old":"\"info\"","new":"\"debug\"","applies":"now""#), "{answer}");
    assert!(answer.contains(r#""key":"slice.phones"#) && answer.contains(r#""applies":"restart""#), "{answer}");
    assert_eq!(fs::read_to_string(&file).unwrap(), next);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !core.log().contains("the configuration was read again") {
        assert!(Instant::now() < deadline, "{}", core.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(put(&before).0, 412, "the file has changed");
    let audit = core.request("GET", "/v1/audit", &token).1;
    assert!(audit.contains("configuration.replace") && audit.contains("failed"), "{audit}");
}
