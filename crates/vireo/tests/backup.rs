//! `vireo backup` and `vireo restore`, and `vireo subscriber` on PostgreSQL.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use vireo_subscribers::testing::{PASSWORD, PostgresServer, URL_PASSWORD, USER};
use vireo_subscribers::{Store, key_source};

const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
const OPC: &str = "e8ed289deba952e4283b54e88e6183ca";
const ADD: [&str; 9] = ["subscriber", "add", "--imsi", "999700000000001", "--k", K, "--opc", OPC, "--count=30"];

struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        Lab(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vireo"));
        command.args(args).current_dir(self.path()).env_remove("PGPASSWORD").env("HOME", self.path());
        command
    }

    /// Returns standard output and standard error of a command that must succeed.
    fn run_ok(&self, args: &[&str]) -> (String, String) {
        ok(&mut self.command(args))
    }

    /// Returns the error of a command that must fail.
    fn refused(&self, args: &[&str]) -> String {
        failure(&self.command(args).output().unwrap())
    }

    /// Runs a program of the system in the directory.
    fn witness(&self, program: &str, args: &[&str]) -> String {
        ok(Command::new(program).args(args).current_dir(self.path())).0
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn ok(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn failure(output: &Output) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("vireo: ") && error.trim_end().lines().count() == 1, "{error}");
    assert!(!error.contains(PASSWORD) && !error.contains(URL_PASSWORD), "{error}");
    error
}

/// Returns a URL of a new database without its password.
fn without_password(url: &str) -> String {
    url.replace(&format!(":{URL_PASSWORD}@"), "@")
}

#[test]
fn backup_is_checked_and_sealed() {
    let lab = Lab::new();
    lab.write("vireo.toml", "# ours\n[subscribers]\ndatabase = \"s.db\"\n");
    lab.run_ok(&ADD);
    let (out, notes) = lab.run_ok(&["backup", "saved"]);
    assert_eq!(out, "backed up 30 subscribers of s.db to saved\n");
    assert!(notes.contains("not in the backup: the sealing key") && notes.contains("s.db.key"), "{notes}");
    assert_eq!(lab.witness("ls", &["saved"]), "manifest.json\nsubscribers.jsonl\nvireo.toml\n");
    assert_eq!(lab.witness("stat", &["-c", "%a", "saved", "saved/subscribers.jsonl"]), "700\n600\n");
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(lab.path().join("saved/manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["subscribers"], &manifest["key"]["included"]), (&30.into(), &false.into()));
    for file in manifest["files"].as_array().unwrap() {
        let name = format!("saved/{}", file["name"].as_str().unwrap());
        assert!(lab.witness("sha256sum", &[&name]).starts_with(file["sha256"].as_str().unwrap()), "{name}");
        let content = fs::read_to_string(lab.path().join(&name)).unwrap().to_lowercase();
        assert!(!content.contains(K) && !content.contains(OPC), "{name}");
    }
    assert!(lab.refused(&["backup", "saved"]).contains("there is a file already"));
    assert!(lab.refused(&["restore", "saved"]).contains("has 30 subscribers already: give --replace"));

    let lines = lab.path().join("saved/subscribers.jsonl");
    let good = fs::read_to_string(&lines).unwrap();
    fs::write(&lines, good.replacen("\"amf\":\"8000\"", "\"amf\":\"8001\"", 1)).unwrap();
    assert!(lab.refused(&["restore", "saved", "--replace"]).contains("has not the size and the SHA-256"));
    fs::write(&lines, &good).unwrap();
    lab.write("saved/manifest.json", "{\"format\":1,\"schema\":99,\"vireo\":\"9.0.0\",\"more\":{}}");
    let newer = lab.refused(&["restore", "saved", "--replace"]);
    assert!(newer.contains("written by Vireo 9.0.0 (format 1, schema 99), which is newer"), "{newer}");
    assert!(lab.refused(&["restore", "no-such"]).contains("cannot be read"));
    assert_eq!(lab.run_ok(&["subscriber", "list", "--count"]).0, "30\n");
}

#[test]
fn backup_moves_to_postgres_and_back() {
    let (lab, server) = (Lab::new(), PostgresServer::shared());
    let url = server.database();
    lab.write("vireo.toml", "[subscribers]\ndatabase = \"s.db\"\n");
    lab.run_ok(&ADD);
    lab.run_ok(&["backup", "saved.tar"]);
    assert_eq!(lab.witness("tar", &["-tf", "saved.tar"]), "manifest.json\nsubscribers.jsonl\nvireo.toml\n");
    lab.write("pg.toml", &format!("[subscribers]\ndatabase = \"{url}\"\nkey-file = \"s.db.key\"\n"));
    let (out, notes) = lab.run_ok(&["restore", "saved.tar", "--config", "pg.toml"]);
    assert_eq!(out, format!("restored 30 subscribers to {}\n", without_password(&url)));
    assert!(notes.contains("pg.toml stays as it is"), "{notes}");
    let amf = "SELECT count(*), min(imsi), min(encode(amf, 'hex')) FROM subscribers";
    assert_eq!(server.psql(&url, amf), "30|999700000000001|8000");

    // From PostgreSQL, with the key, to a machine that has nothing.
    let (_, notes) = lab.run_ok(&["backup", "moved", "--config", "pg.toml", "--with-key"]);
    assert!(notes.contains("the backup has the sealing key"), "{notes}");
    let moved = text(&fs::read(lab.path().join("moved/manifest.json")).unwrap());
    assert!(!moved.contains(URL_PASSWORD) && moved.contains(&without_password(&url)), "{moved}");
    let other = Lab::new();
    let from = lab.path().join("moved").to_string_lossy().into_owned();
    let (out, _) = other.run_ok(&["restore", &from, "--database", "new.db"]);
    assert_eq!(out, "restored new.db.key\nrestored 30 subscribers to new.db\n");
    let (exported, _) =
        other.run_ok(&["subscriber", "--database", "new.db", "export", "--with-keys", "--format", "csv", "-"]);
    assert_eq!(exported.to_lowercase().matches(K).count(), 30);
}

#[test]
fn missing_configuration_is_restored() {
    let (lab, other) = (Lab::new(), Lab::new());
    lab.write("vireo.toml", "# ours\n[subscribers]\ndatabase = \"s.db\"\n");
    lab.run_ok(&ADD);
    lab.run_ok(&["backup", "saved.tar", "--with-key"]);
    let from = lab.path().join("saved.tar").to_string_lossy().into_owned();
    other.run_ok(&["restore", &from]);
    assert!(fs::read_to_string(other.path().join("vireo.toml")).unwrap().starts_with("# ours\n"));
    assert_eq!(other.run_ok(&["subscriber", "list", "--count"]).0, "30\n");
    // Without the key the restore changes nothing.
    let third = Lab::new();
    lab.run_ok(&["backup", "sealed.tar"]);
    let from = lab.path().join("sealed.tar").to_string_lossy().into_owned();
    let error = third.refused(&["restore", &from]);
    assert!(error.contains("s.db.key is missing"), "{error}");
    assert!(!third.path().join("vireo.toml").exists() && !third.path().join("s.db.key").exists());
}

#[test]
fn restore_refuses_database_of_running_core() {
    let lab = Lab::new();
    lab.write("vireo.toml", "[subscribers]\ndatabase = \"s.db\"\n");
    lab.run_ok(&ADD);
    lab.run_ok(&["backup", "saved"]);
    let database = lab.path().join("s.db").to_string_lossy().into_owned();
    let mut core = Store::open(&database, key_source(&database, None)).unwrap();
    core.mark_in_use().unwrap();
    lab.run_ok(&["backup", "while-it-runs"]);
    let error = lab.refused(&["restore", "saved", "--replace"]);
    assert!(error.contains("is used by a running core: stop all cores"), "{error}");
    drop(core);
    lab.run_ok(&["restore", "saved", "--replace"]);
}

#[test]
fn subscriber_commands_work_on_postgres() {
    let (lab, server) = (Lab::new(), PostgresServer::shared());
    let with_password = server.database();
    let url = without_password(&with_password);
    lab.write("vireo.toml", &format!("[subscribers]\ndatabase = \"{url}\"\n"));
    let run = |args: &[&str]| ok(lab.command(args).env("PGPASSWORD", PASSWORD)).0;
    assert_eq!(run(&ADD), "added 30\n");
    assert!(lab.path().join("subscribers.key").exists());
    assert_eq!(run(&["subscriber", "rekey"]), "sealed the keys of 30 subscribers anew\n");
    assert_eq!(run(&["subscriber", "remove", "999700000000030"]), "removed 1\n");
    run(&["subscriber", "export", "all.json", "--with-keys"]);
    assert_eq!(run(&["subscriber", "import", "all.json", "--replace"]), "imported 29\n");
    assert_eq!(run(&["subscriber", "list", "--count"]), "29\n");
    assert_eq!(server.psql(&url, "SELECT count(*), max(imsi) FROM subscribers"), "29|999700000000029");
    // The password file of PostgreSQL, and the URL.
    let port = server.port();
    lab.write("pgpass", &format!("127.0.0.1:{port}:*:{USER}:{PASSWORD}\n"));
    lab.witness("chmod", &["600", "pgpass"]);
    let listed = ok(lab.command(&["subscriber", "list", "--count"]).env("PGPASSFILE", lab.path().join("pgpass"))).0;
    assert_eq!(listed, "29\n");
    let direct = ["subscriber", "--database", &with_password, "--key-file", "subscribers.key", "list", "--count"];
    assert_eq!(lab.run_ok(&direct).0, "29\n");
    assert!(lab.refused(&["subscriber", "list"]).contains("refuses this user"));
    lab.write("vireo.toml", &format!("[subscribers]\ndatabase = \"{with_password}\"\n"));
    let (shown, _) = lab.run_ok(&["config", "show"]);
    assert!(shown.contains(&url) && !shown.contains(URL_PASSWORD), "{shown}");
}

#[test]
fn core_without_its_postgres_does_not_start() {
    let lab = Lab::new();
    let url = format!("postgres://{USER}:{URL_PASSWORD}@127.0.0.1:1/core");
    lab.write("vireo.toml", &format!("[subscribers]\ndatabase = \"{url}\"\n[state]\nkeep = false\n"));
    let began = Instant::now();
    let output = lab.command(&["run"]).stdin(Stdio::null()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("does not answer") && error.contains("start PostgreSQL there"), "{error}");
    assert!(!error.contains(URL_PASSWORD), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn config_check_reads_files_of_one_role() {
    let lab = Lab::new();
    let missing = "[[subscribers.home-network-key]]\nid = 1\nprofile = \"A\"\nfile = \"no-such.key\"\n\
                   [cluster]\ncontroller = \"localhost:7770\"\netcd = [\"etcd.core.svc:2379\"]\n\
                   etcd-tls = { authorities = \"no-such.pem\" }\n";
    lab.write("vireo.toml", missing);
    for role in ["balancer", "smf", "upf"] {
        lab.run_ok(&["config", "check", "--role", role]);
    }
    for role in ["run", "host", "amf"] {
        let error = lab.refused(&["config", "check", "--role", role]);
        assert!(error.contains("subscribers.home-network-key.0: file: no-such.key cannot be read"), "{error}");
    }
    assert!(lab.refused(&["config", "check", "--role", "controller"]).contains("cluster.etcd-tls.authorities"));
    assert!(lab.refused(&["config", "check"]).contains("cluster.etcd-tls.authorities"));
}
