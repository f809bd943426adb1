use super::*;
use vireo_core::subscription::{AreaRestrictions, AuthenticationMethod, ServiceArea, UpProtection, UpSecurity};
use vireo_types::{Snssai, Tac};

const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";

fn csv(text: &str) -> Result<Vec<Subscriber>, FormatError> {
    read_csv(text.as_bytes())
}

fn one(imsi: &str) -> Subscriber {
    let key = |t: &str| -> Key { t.parse().expect("32 digits") };
    Subscriber::new(imsi.parse().expect("an IMSI"), key(K), key(OPC))
}

type Next<'a> = &'a mut dyn FnMut() -> Option<Subscriber>;

fn written(write: &dyn Fn(&mut Vec<u8>, Next<'_>) -> u64, all: &[Subscriber]) -> String {
    let mut output = Vec::new();
    let mut rest = all.iter().cloned();
    assert_eq!(write(&mut output, &mut || rest.next()), all.len() as u64);
    String::from_utf8(output).expect("text")
}

#[test]
fn line_of_three_fields_is_lab_subscriber() {
    let text = format!("IMSI,opc,k\n# a comment\n999700000000001,{OPC},{K}\n");
    assert_eq!(csv(&text).expect("read"), [one("999700000000001")]);
}

#[test]
fn opc_is_derived_from_op() {
    // TS 35.208 test set 1.
    let text = "imsi,k,op\n999700000000001,465b5ce8b199b49faa5f0a2ee238a6bc,cdc202d5123e20f62b6d676ac72cb318\n";
    assert_eq!(csv(text).expect("read")[0].opc.reveal(), "cd63cb71954a9f4e48a5994e37a02baf");
}

#[test]
fn every_column_is_read() {
    let text = format!(
        "imsi,k,opc,amf,sst,sd,dnn,types,uplink_bps,downlink_bps,five_qi,arp_priority,ipv4\n\
         999700000000001,{K},{OPC},9001,3,0000ab,ims; internet,ipv6,5,6,7,1,10.45.1.1\n"
    );
    let read = csv(&text).expect("read").remove(0);
    assert_eq!((read.amf, read.static_ipv4), ([0x90, 1], Some("10.45.1.1".parse().expect("an address"))));
    let slice = &read.subscription.slices[0];
    assert_eq!(slice.snssai, Snssai { sst: 3, sd: Some(0xab) });
    let names: Vec<_> = slice.dnns.iter().map(|d| d.dnn.as_str()).collect();
    assert_eq!(names, ["ims", "internet"]);
    for dnn in &slice.dnns {
        assert_eq!(dnn.types, [PduSessionType::Ipv6]);
        assert_eq!((dnn.ambr.uplink_bps, dnn.ambr.downlink_bps, dnn.five_qi, dnn.arp_priority), (5, 6, 7, 1));
    }
}

#[test]
fn msisdn_roundtrips_in_both_formats() {
    let text =
        format!("imsi,k,opc,msisdn\n999700000000001,{K},{OPC},msisdn-4915112345678\n999700000000002,{K},{OPC},\n");
    let all = csv(&text).expect("read");
    assert_eq!(all[0].msisdn.as_ref().map(crate::Msisdn::reveal), Some("4915112345678"));
    assert_eq!(all[1].msisdn, None);
    let with = written(&|o, n| write_csv(o, Keys::With, n).expect("written"), &all);
    assert_eq!(csv(&with).expect("read"), all);
    let with = written(&|o, n| write_json(o, Keys::With, n).expect("written"), &all);
    assert_eq!(read_json(with.as_bytes()).expect("read"), all);
    let wrong = csv(&text.replace("msisdn-49151", "+49151")).expect_err("refused").to_string();
    assert!(wrong.contains("msisdn: \"+4915112345678\": an MSISDN has 5 to 15 decimal digits"), "{wrong}");
}

#[test]
fn method_roundtrips_in_both_formats() {
    let text = format!(
        "imsi,k,opc,authentication_method\n999700000000001,{K},{OPC},eap-aka-prime\n\
         999700000000002,{K},{OPC},5g-aka\n999700000000003,{K},{OPC},\n"
    );
    let all = csv(&text).expect("read");
    let methods: Vec<_> = all.iter().map(|subscriber| subscriber.method).collect();
    assert_eq!(methods, [Some(AuthenticationMethod::EapAkaPrime), Some(AuthenticationMethod::FiveGAka), None]);
    let with = written(&|o, n| write_csv(o, Keys::With, n).expect("written"), &all);
    assert_eq!(csv(&with).expect("read"), all);
    let with = written(&|o, n| write_json(o, Keys::With, n).expect("written"), &all);
    assert!(with.contains("\"authentication_method\":\"eap-aka-prime\""), "{with}");
    assert_eq!(read_json(with.as_bytes()).expect("read"), all);
    let wrong = csv(&text.replace("eap-aka-prime", "eap-aka")).expect_err("refused").to_string();
    assert!(wrong.contains("authentication_method: \"eap-aka\" is out of range"), "{wrong}");
    let wrong = read_json(with.replace("5g-aka", "eap-tls").as_bytes()).expect_err("refused").to_string();
    assert!(wrong.contains("unknown variant `eap-tls`"), "{wrong}");
}

#[test]
fn static_terms_roundtrip_in_both_formats() {
    let text = format!(
        "imsi,k,opc,dnn,ipv4,ipv6_prefix,framed_routes,up_integrity,up_confidentiality\n\
         999700000000001,{K},{OPC},internet;ims,10.45.200.1,2001:db8:45:8000::/64,192.168.7.0/24;2001:db8:7::/48,\
         required,\n999700000000002,{K},{OPC},,,,,,not-needed\n"
    );
    let all = csv(&text).expect("read");
    let [first, second] = &all[0].subscription.slices[0].dnns[..] else { panic!("two data networks") };
    assert_eq!(first.static_ipv6_prefix, "2001:db8:45:8000::".parse().ok());
    assert_eq!((first.framed_routes.len(), second.framed_routes.len(), second.static_ipv6_prefix), (2, 0, None));
    let policy = |integrity, confidentiality| Some(UpSecurity { integrity, confidentiality });
    assert_eq!(first.up_security, policy(UpProtection::Required, UpProtection::Preferred));
    assert_eq!(second.up_security, first.up_security);
    let third = &all[1].subscription.slices[0].dnns[0];
    assert_eq!(third.up_security, policy(UpProtection::Preferred, UpProtection::NotNeeded));
    let with = written(&|o, n| write_csv(o, Keys::With, n).expect("written"), &all);
    assert_eq!(csv(&with).expect("read"), all);
    let with = written(&|o, n| write_json(o, Keys::With, n).expect("written"), &all);
    assert_eq!(read_json(with.as_bytes()).expect("read"), all);
}

#[test]
fn bad_static_terms_are_refused() {
    for (columns, values, expected) in [
        ("ipv6_prefix", "2001:db8::1", "static_ipv6_prefix has bits behind its first 64"),
        ("ipv6_prefix", "2001:db8::/48", "ipv6_prefix: \"2001:db8::/48\" is no IPv6 prefix of 64 bits"),
        ("framed_routes", "192.168.7.1/24", "has bits behind its prefix"),
        ("framed_routes", "0.0.0.0/0", "at most 8 framed_routes are allowed"),
        ("five_qi", "65", "data network internet: five_qi 65 is that of a GBR flow"),
        ("five_qi", "82", "data network internet: five_qi 82 is that of a GBR flow"),
        ("up_integrity", "maybe", "up_integrity: \"maybe\" is out of range"),
    ] {
        let text = format!("imsi,k,opc,{columns}\n999700000000001,{K},{OPC},{values}\n");
        let error = csv(&text).expect_err("a bad line").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn slice_differentiator_is_number_or_hex_text() {
    let text = |sd: &str| {
        let slices = format!(r#"[{{"snssai": {{"sst": 1{sd}}}, "dnns": []}}]"#);
        let subscription = format!(r#"{{"slices": {slices}, "ambr": {{"uplink_bps": 1, "downlink_bps": 1}}}}"#);
        format!(r#"[{{"imsi": "999700000000001", "k": "{K}", "opc": "{OPC}", "subscription": {subscription}}}]"#)
    };
    let read = |sd: &str| read_json(text(sd).as_bytes());
    for (sd, expected) in [
        (r#", "sd": "abcdef""#, Some(0xab_cdef)),
        (r#", "sd": "00000A""#, Some(10)),
        (r#", "sd": 11259375"#, Some(0xab_cdef)),
        (r#", "sd": "FFFFFF""#, None),
        (r#", "sd": 16777215"#, None),
        (r#", "sd": null"#, None),
        ("", None),
    ] {
        let all = read(sd).expect(sd);
        assert_eq!(all[0].subscription.slices[0].snssai, Snssai { sst: 1, sd: expected }, "{sd}");
        let with = written(&|o, n| write_json(o, Keys::With, n).expect("written"), &all);
        assert_eq!(read_json(with.as_bytes()).expect("read"), all, "{sd}");
        assert_eq!(with.contains("11259375"), expected == Some(0xab_cdef), "as a number: {with}");
    }
    for wrong in
        [r#", "sd": "abc""#, r#", "sd": "11259375""#, r#", "sd": "+bcdef""#, r#", "sd": -1"#, r#", "sd": true"#]
    {
        let error = read(wrong).expect_err("refused").to_string();
        assert!(error.contains("six hexadecimal digits as text, or a number of 24 bits"), "{error}");
    }
}

/// Areas are in JSON alone.
#[test]
fn areas_roundtrip_in_json_within_limits() {
    let text = |areas: &str| {
        let subscription = r#""subscription": {"slices": [{"snssai": {"sst": 1, "sd": null}, "default": true, "dnns": []}],
            "ambr": {"uplink_bps": 1, "downlink_bps": 1}"#;
        format!(r#"[{{"imsi": "999700000000001", "k": "{K}", "opc": "{OPC}", {subscription}, {areas}}}}}]"#)
    };
    let read = |areas: &str| read_json(text(areas).as_bytes());
    let all = read(r#""forbidden_areas": [7, 16777215], "service_area": {"allowed": [1]}"#).expect("read");
    let service = Some(ServiceArea::Allowed(vec![Tac(1)]));
    let areas = AreaRestrictions { forbidden: vec![Tac(7), Tac(0xff_ffff)], service };
    assert_eq!(all[0].subscription.areas, areas);
    let with = written(&|o, n| write_json(o, Keys::With, n).expect("written"), &all);
    assert_eq!(read_json(with.as_bytes()).expect("read"), all);
    for wrong in [r#""forbidden_areas": [16777216]"#, r#""service_area": {"not_allowed": []}"#] {
        let error = read(wrong).expect_err("refused").to_string();
        assert!(error.contains("forbidden_areas has at most 64 and service_area 1 to 16"), "{error}");
    }
    for wrong in [r#""service_area": {}"#, r#""service_area": {"allowed": [1], "not_allowed": [2]}"#] {
        let error = read(wrong).expect_err("refused").to_string();
        assert!(error.contains("either allowed or not_allowed"), "{error}");
    }
    let error = read(r#""suspnded": true"#).expect_err("a name of no field").to_string();
    assert!(error.contains(r#"there is no field "suspnded""#), "{error}");
    let mut next = all.into_iter();
    let error = write_csv(Vec::new(), Keys::With, &mut || next.next()).expect_err("CSV has no columns for them");
    assert!(error.to_string().contains("export as JSON"), "{error}");
}

/// Contexts have no room for rates that no message has.
#[test]
fn rates_beyond_messages_are_refused() {
    let text = |session: u64, ue: u64| {
        let session = format!(r#"{{"uplink_bps": 1, "downlink_bps": {session}}}"#);
        let ue = format!(r#"{{"uplink_bps": {ue}, "downlink_bps": 1}}"#);
        let dnn = format!(r#"{{"dnn": "a", "types": ["ipv4"], "ambr": {session}, "five_qi": 9, "arp_priority": 8}}"#);
        let slice = format!(r#"{{"snssai": {{"sst": 1}}, "dnns": [{dnn}]}}"#);
        let subscription = format!(r#"{{"slices": [{slice}], "ambr": {ue}}}"#);
        format!(r#"[{{"imsi": "999700000000001", "k": "{K}", "opc": "{OPC}", "subscription": {subscription}}}]"#)
    };
    let read = |session, ue| read_json(text(session, ue).as_bytes());
    let most = 4_000_000_000_000;
    assert_eq!(read(most, most).expect("read").len(), 1);
    for (session, ue) in [(most + 1, 1), (1, most + 1), (1, u64::MAX)] {
        let error = read(session, ue).expect_err("refused").to_string();
        assert!(error.contains("at most 4000000000000 bit/s"), "{error}");
    }
}

#[test]
fn bad_lines_are_named_without_keys() {
    let text = format!(
        "imsi,k,opc,op,amf,sst,sd,dnn,types,ipv4\n\
         999700000000001,{K},{OPC},,,,,,,\n\
         99970x,{K},{OPC},,,,,,,\n\
         999700000000002,{K}0,{OPC},,,,,,,\n\
         999700000000003,{K},,,,,,,,\n\
         999700000000004,{K},{OPC},{OPC},,,,,,\n\
         999700000000005,{K},{OPC},,0000,,,,,\n\
         999700000000006,{K},{OPC},,,256,,,,\n\
         999700000000007,{K},{OPC},,,,ab,,,\n\
         999700000000008,{K},{OPC},,,,,a b,,\n\
         999700000000009,{K},{OPC},,,,,,ppp,\n\
         999700000000010,{K},{OPC},,,,,,,10.0.0\n\
         999700000000001,{K},{OPC},,,,,,,\n\
         999700000000011,{K}\n"
    );
    let error = csv(&text).expect_err("bad lines");
    let FormatError::Records(errors) = &error else { panic!("{error}") };
    let expected = [
        (3, "imsi: \"99970x\": an IMSI has 6 to 15 decimal digits"),
        (4, "k: a key has 32 hexadecimal digits"),
        (5, "neither opc nor op is there"),
        (6, "both opc and op are there: give one"),
        (7, "amf: \"0000\" lacks the separation bit, which 5G needs: 8000 is usual"),
        (8, "sst: \"256\" is out of range"),
        (9, "sd: \"ab\" is no slice differentiator: six hexadecimal digits"),
        (
            10,
            "dnn: \"a b\": a DNN is labels of letters, digits and hyphens with dots between them, 100 octets at the most",
        ),
        (11, "types: \"ppp\" is no session type: ipv4, ipv6 or ipv4v6"),
        (12, "ipv4: \"10.0.0\" is no IPv4 address"),
        (13, "IMSI 999700000000001 is in line 2 already"),
        (14, "2 fields where the header has 10"),
    ];
    let listed: Vec<_> = errors.iter().map(|e| (e.position.clone(), e.problem.to_string())).collect();
    let places: Vec<_> = expected.iter().map(|(n, problem)| (format!("line {n}"), (*problem).to_owned())).collect();
    assert_eq!(listed, places);
    assert!(!error.to_string().contains(&K[..8]), "{error}");
}

#[test]
fn malformed_header_is_refused() {
    for (text, expected) in [
        ("imsi,k,secret\n", "line 1: there is no column \"secret\""),
        ("imsi,opc\n", "lacks the column \"k\""),
        ("imsi,k\n", "neither opc nor op"),
        ("imsi,k,opc,imsi\n", "\"imsi\" is there twice"),
        ("", "lacks the column \"imsi\""),
    ] {
        let error = csv(text).expect_err("no header").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn many_bad_lines_do_not_flood() {
    let text = format!("imsi,k,opc\n{}", "x,y,z\n".repeat(1000));
    assert!(matches!(csv(&text), Err(FormatError::Records(e)) if e.len() == MAX_ERRORS));
}

#[test]
fn export_has_keys_only_on_request() {
    let mut second = one("999700000000002");
    second.static_ipv4 = Some("10.45.0.9".parse().expect("an address"));
    second.subscription.slices[0].snssai.sd = Some(1);
    let all = [one("999700000000001"), second];
    let with = written(&|o, n| write_csv(o, Keys::With, n).expect("written"), &all);
    assert_eq!(csv(&with).expect("read"), all);
    let with = written(&|o, n| write_json(o, Keys::With, n).expect("written"), &all);
    assert_eq!(read_json(with.as_bytes()).expect("read"), all);
    for text in [
        written(&|o, n| write_csv(o, Keys::Without, n).expect("written"), &all),
        written(&|o, n| write_json(o, Keys::Without, n).expect("written"), &all),
    ] {
        assert!(text.contains("999700000000002") && !text.to_uppercase().contains(&K[..8]), "{text}");
        assert!(!text.to_uppercase().contains(&OPC[..8]), "{text}");
    }
    assert!(
        read_json(&written(&|o, n| write_json(o, Keys::With, n).expect("written"), &[]).into_bytes()[..])
            .expect("read")
            .is_empty()
    );
}

#[test]
fn csv_refuses_json_only_fields() {
    let mut rich = one("999700000000001");
    rich.subscription.slices.push(rich.subscription.slices[0].clone());
    let mut rest = vec![rich.clone()].into_iter();
    let error = write_csv(Vec::new(), Keys::With, &mut || rest.next()).expect_err("two slices").to_string();
    assert!(error.contains("999700000000001 has more slices") && error.contains("JSON"), "{error}");
    let text = written(&|o, n| write_json(o, Keys::With, n).expect("written"), std::slice::from_ref(&rich));
    assert_eq!(read_json(text.as_bytes()).expect("read"), [rich]);
}

#[test]
fn bad_json_is_named_by_record() {
    let good = format!(r#"{{"imsi":"999700000000001","k":"{K}","opc":"{OPC}"}}"#);
    let text = format!(
        r#"[{good}, {{"imsi":"999700000000002"}}, {{"imsi":"999700000000003","k":"{K}","opc":"{OPC}","typo":1}},
           {{"imsi":"999700000000004","k":"{K}","opc":"{OPC}","subscription":{{"slices":[],"ambr":{{"uplink_bps":1,"downlink_bps":1}}}}}}]"#
    );
    let error = read_json(text.as_bytes()).expect_err("bad records").to_string();
    for expected in
        ["record 2: k is missing", "record 3: unknown field `typo`", "record 4: the subscription has no slice"]
    {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(read_json(format!("[{good}]").as_bytes()).expect("read"), [one("999700000000001")]);
    let error = read_json(&b"[{"[..]).expect_err("cut off").to_string();
    assert!(error.contains("line 1 column 2"), "{error}");
}
