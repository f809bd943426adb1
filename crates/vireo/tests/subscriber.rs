//! `vireo subscriber` in a shell or a script: output, exit codes and hidden values.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";

struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        Lab(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn vireo(&self, args: &[&str]) -> Output {
        let program =
            Command::new(env!("CARGO_BIN_EXE_vireo")).arg("subscriber").args(args).current_dir(self.path()).output();
        program.expect("vireo runs")
    }

    /// Returns the standard output of a command that must succeed.
    fn run_ok(&self, args: &[&str]) -> String {
        let output = self.vireo(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the standard error of a command that must fail with this code.
    fn run_failing(&self, code: i32, args: &[&str]) -> String {
        let output = self.vireo(args);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(output.stdout.is_empty());
        error
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("written");
    }
}

fn assert_no_key(text: &str) {
    let text = text.to_uppercase();
    assert!(!text.contains(&K[..8]) && !text.contains(&OPC[..8]), "{text}");
}

#[test]
fn suspension_keeps_record_and_is_all_or_none() {
    let lab = Lab::new();
    lab.run_ok(&["add", "--imsi", "999700000000001", "--count", "2", "--k", K, "--opc", OPC]);
    let suspended = |imsi: &str| {
        let list: serde_json::Value = serde_json::from_str(&lab.run_ok(&["list", "--json"])).expect("JSON");
        let all = list["subscribers"].as_array().expect("a list").clone();
        let one = all.into_iter().find(|s| s["imsi"] == imsi).expect("the subscriber");
        one["subscription"]["suspended"].as_bool().unwrap_or(false)
    };
    assert_eq!(lab.run_ok(&["suspend", "999700000000002"]), "suspended 1\n");
    assert_eq!((suspended("999700000000001"), suspended("999700000000002")), (false, true));
    let error = lab.run_failing(1, &["suspend", "999700000000001", "999700000000009"]);
    assert!(error.contains("999700000000009 is not in"), "{error}");
    assert!(!suspended("999700000000001"), "all or none");
    // CSV has no such column.
    lab.run_failing(1, &["export", "--format", "csv", "/dev/null"]);
    assert_eq!(lab.run_ok(&["resume", "999700000000002"]), "resumed 1\n");
    assert!(!suspended("999700000000002"));
}

#[test]
fn bit_rates_are_added_for_ue_and_sessions() {
    let lab = Lab::new();
    let add = ["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC];
    let rates = ["--dnn", "internet,ims", "--uplink-bps", "50000000", "--downlink-bps", "200000000"];
    lab.run_ok(&[&add[..], &rates].concat());
    let list: serde_json::Value = serde_json::from_str(&lab.run_ok(&["list", "--json"])).expect("JSON");
    let subscription = &list["subscribers"][0]["subscription"];
    let expected = serde_json::json!({"uplink_bps": 50_000_000, "downlink_bps": 200_000_000});
    assert_eq!(subscription["ambr"], expected, "UE-AMBR");
    for dnn in 0..2 {
        assert_eq!(subscription["slices"][0]["dnns"][dnn]["ambr"], expected, "Session-AMBR");
    }
    for wrong in ["0", "4000000000001", "fast"] {
        let error = lab.run_failing(2, &[&add[..], &["--uplink-bps", wrong]].concat());
        assert!(error.contains("--uplink-bps") && error.contains(wrong), "{error}");
    }
}

#[test]
fn static_ipv6_prefix_has_length_64_or_none() {
    let lab = Lab::new();
    let add = ["add", "--replace", "--imsi", "999700000000001", "--k", K, "--opc", OPC, "--static-ipv6"];
    for prefix in ["fd45:45:0:8001::/64", "fd45:45:0:8002::"] {
        lab.run_ok(&[&add[..], &[prefix]].concat());
        let list: serde_json::Value = serde_json::from_str(&lab.run_ok(&["list", "--json"])).expect("JSON");
        let dnn = &list["subscribers"][0]["subscription"]["slices"][0]["dnns"][0];
        assert_eq!(dnn["static_ipv6_prefix"].as_str(), prefix.split('/').next(), "{dnn}");
    }
    let error = lab.run_failing(2, &[&add[..], &["fd45:45:0:8000::/49"]].concat());
    assert!(error.contains("\"fd45:45:0:8000::/49\" is no IPv6 prefix of 64 bits"), "{error}");
    let error = lab.run_failing(1, &[&add[..], &["fd45:45:0:8001::1/64"]].concat());
    assert!(error.contains("static_ipv6_prefix has bits behind its first 64"), "{error}");
}

#[test]
fn authentication_method_is_added_and_listed() {
    let lab = Lab::new();
    let add = ["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC];
    lab.run_ok(&[&add[..], &["--authentication-method", "eap-aka-prime"]].concat());
    let method = || {
        let list: serde_json::Value = serde_json::from_str(&lab.run_ok(&["list", "--json"])).expect("JSON");
        list["subscribers"][0]["authentication_method"].as_str().map(str::to_owned)
    };
    assert_eq!(method().as_deref(), Some("eap-aka-prime"));
    lab.run_ok(&["suspend", "999700000000001"]);
    assert_eq!(method().as_deref(), Some("eap-aka-prime"), "other changes keep it");
    lab.run_ok(&["resume", "999700000000001"]);
    let exported = lab.run_ok(&["export", "--format", "csv", "-"]);
    assert!(exported.contains("eap-aka-prime"), "{exported}");
    lab.run_ok(&[&add[..], &["--replace"]].concat());
    assert_eq!(method(), None, "that of the configuration");
    let error = lab.run_failing(2, &[&add[..], &["--authentication-method", "eap-tls"]].concat());
    assert!(error.contains("an authentication method is 5g-aka or eap-aka-prime"), "{error}");
}

#[test]
fn rekey_changes_the_key_and_keeps_subscribers() {
    let lab = Lab::new();
    lab.run_ok(&["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC]);
    let key = || std::fs::read_to_string(lab.path().join("vireo.db.key")).expect("the key file");
    let before = key();
    assert_eq!(lab.run_ok(&["rekey"]), "sealed the keys of 1 subscribers anew\n");
    assert_ne!(key(), before);
    let exported = lab.run_ok(&["export", "--with-keys", "--format", "csv", "-"]).to_uppercase();
    assert!(exported.contains(K) && exported.contains(OPC), "K and OPc are what they were");
    std::fs::rename(lab.path().join("vireo.db.key"), lab.path().join("elsewhere")).expect("renamed");
    let error = lab.run_failing(1, &["list"]);
    assert!(error.contains("vireo.db.key is missing") && error.contains("VIREO_SUBSCRIBERS_KEY"), "{error}");
    lab.run_ok(&["list", "--database", "vireo.db", "--key-file", "elsewhere"]);
}

#[test]
fn subscriber_range_is_added_listed_and_removed() {
    let lab = Lab::new();
    let add = ["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC];
    assert_eq!(lab.run_ok(&[&add[..], &["--count", "30"]].concat()), "added 30\n");
    assert!(lab.path().join("vireo.db").exists(), "the default database");
    let error = lab.run_failing(1, &add);
    assert_eq!(error, "vireo: 999700000000001 is there already: remove it first, or import with --replace\n");
    assert_eq!(
        lab.run_ok(&[&add[..], &["--replace", "--slice", "1,2-0000ab", "--dnn", "ims,internet"]].concat()),
        "added 1\n"
    );

    let list = lab.run_ok(&["list", "--limit", "2"]);
    assert!(list.contains("999700000000001  1,2-0000ab            ims,internet"), "{list}");
    assert!(list.ends_with("2 of 30; more with --limit or --after\n"), "{list}");
    assert_eq!(lab.run_ok(&["list", "--count", "--prefix", "99970000000001"]), "10\n");
    let json: serde_json::Value =
        serde_json::from_str(&lab.run_ok(&["list", "--json", "--after", "999700000000029"])).expect("JSON");
    assert_eq!(json["total"], 30);
    assert_eq!(json["subscribers"][0]["imsi"], "999700000000030");
    assert_eq!(json["subscribers"].as_array().map(Vec::len), Some(1));
    assert_no_key(&(list + &json.to_string()));

    assert_eq!(lab.run_ok(&["remove", "999700000000001", "imsi-999700000000002"]), "removed 2\n");
    let error = lab.run_failing(1, &["remove", "999700000000001"]);
    assert!(error.contains("removed 0 of 1"), "{error}");
    assert_eq!(lab.run_ok(&["list", "--count"]), "28\n");
}

#[test]
fn export_has_keys_only_on_request() {
    let lab = Lab::new();
    lab.write("in.csv", &format!("imsi,k,opc,sst\n999700000000001,{K},{OPC},1\n999700000000002,{K},{OPC},3\n"));
    assert_eq!(lab.run_ok(&["import", "in.csv", "--database", "a.db"]), "imported 2\n");
    for format in ["csv", "json"] {
        assert_no_key(&lab.run_ok(&["export", "--format", format, "--database", "a.db"]));
        let file = format!("out.{format}");
        assert_eq!(lab.run_ok(&["export", &file, "--with-keys", "--database", "a.db"]), "");
        let copy = format!("{format}.db");
        assert_eq!(lab.run_ok(&["import", &file, "--database", &copy]), "imported 2\n");
        let written = std::fs::read_to_string(lab.path().join(&file)).expect("exported");
        assert!(written.to_uppercase().contains(K));
        let again = lab.run_ok(&["export", "-", "--format", format, "--with-keys", "--database", &copy]);
        assert_eq!(again, written);
    }
    assert_eq!(mode(&lab.path().join("out.csv")), 0o600);
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).expect("there").permissions()) & 0o777
}

#[test]
fn keys_are_exported_to_private_files() {
    let lab = Lab::new();
    lab.run_ok(&["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC]);
    // A file that other users may read and have open.
    lab.write("out.csv", "old");
    std::fs::set_permissions(lab.path().join("out.csv"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let mut opened = std::fs::File::open(lab.path().join("out.csv")).unwrap();
    lab.run_ok(&["export", "out.csv", "--with-keys"]);
    assert_eq!(mode(&lab.path().join("out.csv")), 0o600);
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut opened, &mut seen).unwrap();
    assert_no_key(&seen);
    assert!(std::fs::read_to_string(lab.path().join("out.csv")).unwrap().to_uppercase().contains(K));
    // A failed export leaves the old file and nothing else.
    std::os::unix::fs::symlink("out.csv", lab.path().join("link.csv")).unwrap();
    let error = lab.run_failing(1, &["export", "link.csv", "--with-keys"]);
    assert!(error.contains("link.csv is no regular file"), "{error}");
    let left = std::fs::read_dir(lab.path()).unwrap().filter_map(|file| file.unwrap().file_name().into_string().ok());
    assert_eq!(left.filter(|name| name.starts_with('.')).count(), 0);
    // An export writes keys to standard output only if it is named explicitly.
    let error = lab.run_failing(1, &["export", "--format", "csv", "--with-keys"]);
    assert_eq!(
        error,
        "vireo: --with-keys: keys go to a file, which only you can read; name one, or - for standard output\n"
    );
    assert!(lab.run_ok(&["export", "-", "--format", "csv", "--with-keys"]).to_uppercase().contains(K));
}

#[test]
fn keys_are_read_from_standard_input() {
    let lab = Lab::new();
    let add = |words: &[&str], input: &str| {
        let words = [&["subscriber", "add", "--replace", "--imsi", "999700000000001"], words].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vireo"));
        command.args(words).current_dir(lab.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("vireo runs");
        // A command that reads nothing may have ended.
        let _ = std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), input.as_bytes());
        let output = child.wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let kept = |k: &str, opc: &str| {
        let text = lab.run_ok(&["export", "-", "--format", "csv", "--with-keys"]).to_uppercase();
        assert!(text.contains(&format!(",{k},{opc},")), "{text}");
    };
    let other = "00112233445566778899AABBCCDDEEFF";
    assert_eq!(add(&["--k", "-", "--opc", OPC], &format!("{other}\n")).0, Some(0));
    kept(other, OPC);
    assert_eq!(add(&["--k", "-", "--opc", "-"], &format!("{K}\r\n{other}\n")).0, Some(0));
    kept(K, other);
    assert_eq!(add(&["--opc", "-", "--k", "-"], &format!("{other}\n{OPC}")).0, Some(0), "K first, whatever the order");
    kept(other, OPC);
    assert_eq!(add(&["--k", K, "--op", "-"], &format!("{other}\n")).0, Some(0));
    for (input, expected) in
        [("", "--k: standard input has no line"), ("x\n", "--k: "), (&"7".repeat(5000), "--k: a key has 32")]
    {
        let (code, error) = add(&["--k", "-", "--opc", OPC], input);
        assert!(code == Some(1) && error.contains(expected), "{error}");
    }
    let (code, error) = add(&["--k", "-", "--opc", "-"], &format!("{K}\n"));
    assert!(code == Some(1) && error.contains("--opc: standard input has no line"), "{error}");
    assert_no_key(&error);
}

#[test]
fn bad_file_imports_nothing() {
    let lab = Lab::new();
    lab.write("in.csv", &format!("imsi,k,opc\n999700000000001,{K},{OPC}\nx,{K},{OPC}\n999700000000003,{K}00,{OPC}\n"));
    let error = lab.run_failing(1, &["import", "in.csv"]);
    assert!(error.contains("line 3: imsi") && error.contains("line 4: k: a key has 32"), "{error}");
    assert_no_key(&error);
    assert_eq!(lab.run_ok(&["list", "--count"]), "0\n");
    assert!(lab.run_failing(1, &["import", "absent.csv"]).contains("absent.csv cannot be read"));
    assert!(lab.run_failing(1, &["import", "in.csv.old"]).contains("give --format csv or json"));
}

#[test]
fn errors_are_one_sentence_and_show_no_key() {
    let lab = Lab::new();
    let error = lab.run_failing(1, &["list"]);
    assert_eq!(
        error,
        "vireo: there is no subscriber database at vireo.db: add a subscriber first (vireo subscriber add)\n"
    );
    lab.run_failing(2, &["list", "--nonsense"]);
    lab.run_failing(2, &["add", "--imsi", "12", "--k", K, "--opc", OPC]);
    lab.run_failing(2, &["add", "--imsi", "999700000000001", "--k", K]);
    let error = lab.run_failing(1, &["add", "--imsi", "999700000000001", "--k", &format!("{K}7"), "--opc", OPC]);
    assert_eq!(error, "vireo: --k: a key has 32 hexadecimal digits\n");
    lab.write("x.db", &"this is no database".repeat(100));
    assert!(
        lab.run_failing(1, &["list", "--database", "x.db"]).contains("x.db is no subscriber database or is damaged")
    );
    lab.write("vireo.toml", "subscribers.databse = 'y'");
    let error = lab.run_failing(1, &["list"]);
    assert!(error.starts_with("vireo: vireo.toml: subscribers.databse: there is no such key"), "{error}");
}

#[test]
fn configuration_names_database() {
    let lab = Lab::new();
    lab.write("my.toml", "subscribers.database = 'mine.db'");
    lab.run_ok(&["add", "--config", "my.toml", "--imsi", "999700000000001", "--k", K, "--op", OPC]);
    assert!(lab.path().join("mine.db").exists() && !lab.path().join("vireo.db").exists());
    lab.run_failing(2, &["list", "--config", "my.toml", "--database", "mine.db"]);
}

#[test]
fn home_network_key_is_valid_configuration() {
    let lab = Lab::new();
    for profile in ["A", "B"] {
        let text = lab.run_ok(&["hn-key", "--profile", profile, "--id", "7"]);
        lab.write("vireo.toml", &text);
        assert!(!lab.run_ok(&["add", "--replace", "--imsi", "999700000000001", "--k", K, "--opc", OPC]).is_empty());
        // The public key, and for Profile B its uncompressed form.
        let is_key = |text: &&str| text.bytes().all(|octet| octet.is_ascii_hexdigit());
        let keys: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_key).collect();
        match keys[..] {
            [key] => assert_eq!((profile, key.len()), ("A", 64)),
            [key, point] => {
                assert_eq!((profile, key.len(), point.len()), ("B", 66, 130));
                assert_eq!((&point[..2], &point[2..66]), ("04", &key[2..]));
            }
            _ => panic!("{text}"),
        }
    }
    lab.run_failing(2, &["hn-key", "--profile", "A", "--id", "255"]);
}
