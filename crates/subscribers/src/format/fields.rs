//! Names of the fields of a subscription in JSON.
//!
//! Stored records may have fields of a later release, so that reading ignores unknown ones. In a
//! record that an operator writes, an unknown name is a mistake: what it restricts would not apply.

use serde_json::Value;

/// Names of an object's fields, each with those of the objects in it.
pub(super) struct Fields(&'static [(&'static str, &'static Fields)]);

const NONE: Fields = Fields(&[]);
const RATES: Fields = Fields(&[("uplink_bps", &NONE), ("downlink_bps", &NONE)]);
const SNSSAI: Fields = Fields(&[("sst", &NONE), ("sd", &NONE)]);
const UP_SECURITY: Fields = Fields(&[("integrity", &NONE), ("confidentiality", &NONE)]);
const SERVICE_AREA: Fields = Fields(&[("allowed", &NONE), ("not_allowed", &NONE)]);
const DATA_NETWORK: Fields = Fields(&[
    ("dnn", &NONE),
    ("types", &NONE),
    ("ambr", &RATES),
    ("five_qi", &NONE),
    ("arp_priority", &NONE),
    ("up_security", &UP_SECURITY),
    ("static_ipv4", &NONE),
    ("static_ipv6_prefix", &NONE),
    ("framed_routes", &NONE),
]);
const SLICE: Fields = Fields(&[("snssai", &SNSSAI), ("default", &NONE), ("dnns", &DATA_NETWORK)]);

/// Fields of `vireo_core::subscription::Subscription`.
pub(super) const SUBSCRIPTION: Fields = Fields(&[
    ("slices", &SLICE),
    ("ambr", &RATES),
    ("only", &NONE),
    ("restricts_dcnr", &NONE),
    ("suspended", &NONE),
    ("rfsp", &NONE),
    ("forbidden_areas", &NONE),
    ("service_area", &SERVICE_AREA),
]);

/// Returns the name of a field that the objects of a value do not have.
pub(super) fn unknown_field<'a>(value: &'a Value, fields: &Fields) -> Option<&'a str> {
    match value {
        Value::Array(all) => all.iter().find_map(|one| unknown_field(one, fields)),
        Value::Object(object) => {
            object.iter().find_map(|(name, value)| match fields.0.iter().find(|(known, _)| *known == name.as_str()) {
                Some((_, inner)) => unknown_field(value, inner),
                None => Some(name.as_str()),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;
    use vireo_core::subscription::{
        AreaRestrictions, DnnSubscription, ServiceArea, SliceSubscription, Subscription, UpProtection, UpSecurity,
    };
    use vireo_types::{Dialect, Tac};

    /// A subscription with every field.
    fn whole() -> Value {
        let up_security =
            Some(UpSecurity { integrity: UpProtection::Required, confidentiality: UpProtection::Preferred });
        let network = DnnSubscription {
            up_security,
            static_ipv4: "10.45.0.9".parse().ok(),
            static_ipv6_prefix: "2001:db8:45:9::".parse().ok(),
            framed_routes: vec!["192.0.2.0/24".parse().expect("a network")],
            ..DnnSubscription::default()
        };
        let areas =
            AreaRestrictions { forbidden: vec![Tac(7)], service: Some(ServiceArea::Allowed(vec![Tac(1), Tac(2)])) };
        let subscription = Subscription {
            slices: vec![SliceSubscription { dnns: vec![network], ..SliceSubscription::default() }],
            only: Some(Dialect::Nr),
            restricts_dcnr: true,
            suspended: true,
            rfsp: NonZeroU16::new(1),
            areas,
            ..Subscription::default()
        };
        serde_json::to_value(subscription).expect("a subscription has a JSON form")
    }

    #[test]
    fn every_field_is_known() {
        let whole = whole();
        assert_eq!(whole.as_object().map(serde_json::Map::len), Some(SUBSCRIPTION.0.len()), "{whole}");
        assert_eq!(unknown_field(&whole, &SUBSCRIPTION), None);
        for place in ["", "/slices/0", "/slices/0/snssai", "/slices/0/dnns/0", "/slices/0/dnns/0/ambr", "/ambr"] {
            let mut wrong = whole.clone();
            wrong.pointer_mut(place).expect(place)["suspnded"] = true.into();
            assert_eq!(unknown_field(&wrong, &SUBSCRIPTION), Some("suspnded"), "{place}");
        }
    }
}
