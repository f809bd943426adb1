//! Golden cases, and the files that contain them.

use std::collections::BTreeMap;

/// One message: its encoding from values, and the check that decoded octets have these values.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) build: fn() -> Vec<u8>,
    pub(crate) check: fn(&[u8]),
}

/// Returns the messages encoded by pycrate.
pub(crate) fn golden() -> BTreeMap<String, Vec<u8>> {
    parsed(include_str!("../../../../tests/reference/golden.txt"))
}

/// Returns the messages of EPS encoded by pycrate.
pub(crate) fn eps_golden() -> BTreeMap<String, Vec<u8>> {
    parsed(include_str!("../../../../tests/reference/golden_eps.txt"))
}

/// Returns the values computed by OpenSSL.
pub(crate) fn security() -> BTreeMap<String, Vec<u8>> {
    parsed(include_str!("../../../../tests/reference/security.txt"))
}

/// Parses a committed file: a name and octets in hexadecimal on each line.
fn parsed(text: &str) -> BTreeMap<String, Vec<u8>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, octets) = line.split_once(' ').expect("a name, a space and hexadecimal digits");
            (name.to_owned(), hex::decode(octets).expect("hexadecimal digits"))
        })
        .collect()
}

/// An NGAP case. The decoded message has the given type, no deviation from the specification's
/// object set, and the given value of each IE.
macro_rules! ngap_case {
    ($name:literal, $direction:ident, $procedure:ident, $message:ident $(, $ie:ident = $value:expr)* $(,)?) => {
        $crate::case::Case {
            name: $name,
            build: || {
                let pdu = vireo_wire::ngap::build_ngap!($direction, $procedure, $message, $($ie($value)),*);
                pdu.expect("it builds").encode().expect("it encodes")
            },
            check: |octets| {
                let pdu = vireo_wire::ngap::NGAP_PDU::decode(octets).expect($name);
                assert_eq!((pdu.direction(), pdu.procedure_name()), (stringify!($direction), stringify!($procedure)));
                let _: vireo_wire::ngap::$message = pdu.decode_value().expect($name);
                assert_eq!(pdu.check().expect($name), [], "{}", $name);
                $(
                    let value = pdu.ie::<vireo_wire::ngap::ie::$ie>().expect(stringify!($ie)).expect(stringify!($ie));
                    assert_eq!(value, $value, "{} of {}", stringify!($ie), $name);
                )*
            },
        }
    };
}
pub(crate) use ngap_case;

/// A NAS case. The decoded message is the given variant, has no invalid part, and encodes to the
/// same octets. The last argument asserts its values.
macro_rules! nas_case {
    ($name:literal, $layer:ident::$message:ident, $build:expr, |$decoded:ident| $check:block) => {
        $crate::case::Case {
            name: $name,
            build: || $build.encode().expect("it encodes"),
            check: |octets| {
                let whole = vireo_wire::nas::Nas5gsMessage::decode(octets).expect($name);
                let findings = vireo_wire::nas::Validate::validate(&whole);
                assert!(findings.is_empty(), "{}: {findings:?}", $name);
                assert_eq!(whole.encode().expect($name), octets, "{}", $name);
                let $decoded = $crate::case::nas_variant!($name, $layer::$message, &whole);
                $check
            },
        }
    };
}
macro_rules! nas_variant {
    ($name:literal, Gmm::$message:ident, $whole:expr) => {
        match $whole {
            vireo_wire::nas::Nas5gsMessage::Gmm(_, vireo_wire::nas::Nas5gmmMessage::$message(message)) => message,
            other => panic!("{} is decoded as {other}", $name),
        }
    };
    ($name:literal, Gsm::$message:ident, $whole:expr) => {
        match $whole {
            vireo_wire::nas::Nas5gsMessage::Gsm(header, vireo_wire::nas::Nas5gsmMessage::$message(message)) => {
                (header, message)
            }
            other => panic!("{} is decoded as {other}", $name),
        }
    };
}
pub(crate) use {nas_case, nas_variant};
