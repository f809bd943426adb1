//! Terms of a session, and their stored form.

use super::context::TermsChange;
use crate::subscription::{Ambr, UpSecurity, mark_further, read_further};
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vireo_types::{Dnn, Network, Snssai};

/// Terms of a session, from the subscription. Slice and data network never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    pub snssai: Snssai,
    pub dnn: Dnn,
    /// Session aggregate maximum bit rate.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow.
    pub five_qi: u8,
    /// ARP priority of the default QoS flow.
    pub arp_priority: u8,
    /// UP security policy; `None` = that of the RAN node.
    pub up_security: Option<UpSecurity>,
    /// Networks behind the UE.
    pub framed_routes: Vec<Network>,
    /// Change of these terms that the UPF or the UE has not confirmed. The UE's context stores it
    /// apart; a separate SMF has none.
    pub change: Option<TermsChange>,
}

/// Form of the terms in formats that name the fields.
#[derive(Serialize, Deserialize)]
#[serde(rename = "SessionTerms")]
struct NamedTerms {
    snssai: Snssai,
    dnn: Dnn,
    ambr: Ambr,
    five_qi: u8,
    arp_priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    up_security: Option<UpSecurity>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    framed_routes: Vec<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<TermsChange>,
}

impl Serialize for SessionTerms {
    /// In formats without names, the ARP priority has the mark of the UP security policy, and
    /// framed routes follow if the bit rates have their mark. Terms without either are those of
    /// release 0.2.0.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let SessionTerms { snssai, dnn, ambr, five_qi, arp_priority, up_security, framed_routes, change } = self;
        if s.is_human_readable() {
            let (dnn, framed_routes) = (dnn.clone(), framed_routes.clone());
            return NamedTerms {
                snssai: *snssai,
                dnn,
                ambr: *ambr,
                five_qi: *five_qi,
                arp_priority: *arp_priority,
                up_security: *up_security,
                framed_routes,
                change: *change,
            }
            .serialize(s);
        }
        let further = !framed_routes.is_empty();
        let mut terms = s.serialize_tuple(5 + usize::from(further))?;
        terms.serialize_element(snssai)?;
        terms.serialize_element(dnn)?;
        terms.serialize_element(&mark_further(*ambr, further))?;
        terms.serialize_element(five_qi)?;
        terms.serialize_element(&UpSecurity::encode(*up_security, *arp_priority))?;
        if further {
            terms.serialize_element(framed_routes)?;
        }
        terms.end()
    }
}

impl<'de> Deserialize<'de> for SessionTerms {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if !d.is_human_readable() {
            return d.deserialize_tuple(6, BinaryVisitor);
        }
        let NamedTerms { snssai, dnn, ambr, five_qi, arp_priority, up_security, framed_routes, change } =
            NamedTerms::deserialize(d)?;
        Ok(SessionTerms { snssai, dnn, ambr, five_qi, arp_priority, up_security, framed_routes, change })
    }
}

struct BinaryVisitor;

impl<'de> Visitor<'de> for BinaryVisitor {
    type Value = SessionTerms;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("terms of a session")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<SessionTerms, A::Error> {
        let missing = || A::Error::custom("the terms of a session are cut short");
        let snssai = seq.next_element()?.ok_or_else(missing)?;
        let dnn = seq.next_element()?.ok_or_else(missing)?;
        let (ambr, further) = read_further(seq.next_element()?.ok_or_else(missing)?);
        let five_qi = seq.next_element()?.ok_or_else(missing)?;
        let (arp_priority, up_security) = UpSecurity::decode(seq.next_element()?.ok_or_else(missing)?);
        let framed_routes = if further { seq.next_element()?.ok_or_else(missing)? } else { Vec::new() };
        Ok(SessionTerms { snssai, dnn, ambr, five_qi, arp_priority, up_security, framed_routes, change: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::UpProtection::{NotNeeded, Preferred};

    #[test]
    fn binary_terms_keep_policy_and_routes() {
        let plain = SessionTerms {
            snssai: Snssai { sst: 1, sd: None },
            dnn: "internet".parse().expect("a DNN"),
            ambr: Ambr::default(),
            five_qi: 9,
            arp_priority: 8,
            up_security: None,
            framed_routes: Vec::new(),
            change: None,
        };
        let policy = UpSecurity { integrity: Preferred, confidentiality: NotNeeded };
        let secured = SessionTerms { up_security: Some(policy), ..plain.clone() };
        let routes = vec!["192.168.7.0/24".parse().expect("a network"), "2001:db8:7::/48".parse().expect("a network")];
        let routed = SessionTerms { framed_routes: routes, ..secured.clone() };
        let mut lengths = Vec::new();
        for terms in [plain, secured, routed] {
            let octets = postcard::to_allocvec(&(&terms, 7_u8)).expect("it encodes");
            assert_eq!(postcard::from_bytes::<(SessionTerms, u8)>(&octets), Ok((terms.clone(), 7)));
            lengths.push(octets.len());
        }
        assert_eq!(lengths[0], lengths[1], "a policy needs no octet");
    }
}
