//! Terms that few subscribers have: UP security policy, static addresses and framed routes of a
//! data network, and areas; and their binary forms.

use super::{Ambr, AreaRestrictions, Subscription};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use vireo_types::Network;

/// Upper bound of the framed routes of a session.
pub const FRAMED_ROUTES: usize = 8;

/// Protection of user data between UE and RAN node (TS 33.501 6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpProtection {
    Required,
    Preferred,
    NotNeeded,
}

/// User plane security policy (TS 33.501 6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpSecurity {
    pub integrity: UpProtection,
    pub confidentiality: UpProtection,
}

impl UpSecurity {
    const ALL: [UpProtection; 3] = [UpProtection::Required, UpProtection::Preferred, UpProtection::NotNeeded];

    /// Returns the octet of an ARP priority level and a policy. An ARP priority level has 4 bits;
    /// without a policy, the other ones are 0.
    pub(crate) fn encode(policy: Option<Self>, arp_priority: u8) -> u8 {
        let number = |protection| UpSecurity::ALL.iter().position(|one| *one == protection).unwrap_or_default() as u8;
        match policy {
            None => arp_priority,
            Some(UpSecurity { integrity, confidentiality }) => {
                arp_priority & 0xf | (1 + 3 * number(integrity) + number(confidentiality)) << 4
            }
        }
    }

    /// Returns the ARP priority level and the policy of an octet.
    pub(crate) fn decode(octet: u8) -> (u8, Option<Self>) {
        let number = (octet >> 4).checked_sub(1);
        let protection = |number: u8| UpSecurity::ALL.get(usize::from(number)).copied();
        let policy = number.and_then(|number| {
            Some(UpSecurity { integrity: protection(number / 3)?, confidentiality: protection(number % 3)? })
        });
        (if policy.is_some() { octet & 0xf } else { octet }, policy)
    }
}

/// Bit of an uplink rate that no bit rate has: elements follow that most records lack.
const FURTHER: u64 = 1 << 61;

/// Returns the bit rates, marked if elements follow.
pub(crate) fn mark_further(ambr: Ambr, further: bool) -> Ambr {
    Ambr { uplink_bps: ambr.uplink_bps & !FURTHER | if further { FURTHER } else { 0 }, ..ambr }
}

/// Returns the bit rates without mark, and true if elements follow.
pub(crate) fn read_further(marked: Ambr) -> (Ambr, bool) {
    (mark_further(marked, false), marked.uplink_bps & FURTHER != 0)
}

/// Elements that most records lack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FurtherTerms {
    addressing: Vec<Addressing>,
    areas: AreaRestrictions,
}

impl FurtherTerms {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.addressing.is_empty() && self.areas.is_empty()
    }
}

/// Static addresses and framed routes of one data network of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Addressing {
    /// Index of the slice in the subscription.
    slice: u8,
    /// Index of the data network in the slice.
    network: u8,
    ipv4: Option<Ipv4Addr>,
    ipv6_prefix: Option<Ipv6Addr>,
    framed_routes: Vec<Network>,
}

impl Subscription {
    /// Returns the elements that most records lack.
    pub(crate) fn further(&self) -> FurtherTerms {
        FurtherTerms { addressing: self.addressing(), areas: self.areas.clone() }
    }

    /// Sets the elements that most records lack.
    pub(crate) fn set_further(&mut self, further: FurtherTerms) {
        self.areas = further.areas;
        self.set_addressing(further.addressing);
    }

    /// Returns the static addresses and framed routes of all data networks that have some.
    fn addressing(&self) -> Vec<Addressing> {
        let slices = self.slices.iter().zip(0..=u8::MAX);
        let networks = slices.flat_map(|(all, slice)| all.dnns.iter().zip(0..=u8::MAX).map(move |one| (slice, one)));
        let addressed = networks.filter(|(_, (dnn, _))| dnn.has_addressing());
        addressed
            .map(|(slice, (dnn, network))| Addressing {
                slice,
                network,
                ipv4: dnn.static_ipv4,
                ipv6_prefix: dnn.static_ipv6_prefix,
                framed_routes: dnn.framed_routes.clone(),
            })
            .collect()
    }

    /// Sets static addresses and framed routes. Ignores those of other data networks.
    fn set_addressing(&mut self, all: Vec<Addressing>) {
        for Addressing { slice, network, ipv4, ipv6_prefix, framed_routes } in all {
            let slice = self.slices.get_mut(usize::from(slice));
            if let Some(dnn) = slice.and_then(|slice| slice.dnns.get_mut(usize::from(network))) {
                (dnn.static_ipv4, dnn.static_ipv6_prefix, dnn.framed_routes) = (ipv4, ipv6_prefix, framed_routes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServiceArea;
    use super::*;
    use std::num::NonZeroU16;
    use vireo_types::Tac;

    #[test]
    fn policy_and_priority_share_an_octet() {
        for arp in 0..=15 {
            assert_eq!(UpSecurity::encode(None, arp), arp);
            assert_eq!(UpSecurity::decode(arp), (arp, None));
            for integrity in UpSecurity::ALL {
                for confidentiality in UpSecurity::ALL {
                    let policy = Some(UpSecurity { integrity, confidentiality });
                    assert_eq!(UpSecurity::decode(UpSecurity::encode(policy, arp)), (arp, policy));
                }
            }
        }
        assert_eq!(UpSecurity::decode(200), (200, None), "a value that no priority level has");
    }

    #[test]
    fn binary_subscription_keeps_all_terms() {
        let mut subscription = Subscription { slices: vec![Default::default(); 2], ..Subscription::default() };
        let plain = postcard::to_allocvec(&subscription).expect("it encodes");
        let dnn = &mut subscription.slices[1].dnns[0];
        dnn.static_ipv4 = Some([10, 45, 200, 1].into());
        dnn.static_ipv6_prefix = Some("2001:db8:45:8000::".parse().expect("a prefix"));
        dnn.framed_routes = vec!["192.168.7.0/24".parse().expect("a network")];
        let policy = UpSecurity { integrity: UpProtection::Required, confidentiality: UpProtection::NotNeeded };
        dnn.up_security = Some(policy);
        subscription.rfsp = NonZeroU16::new(256);
        let service = Some(ServiceArea::NotAllowed(vec![Tac(7)]));
        subscription.areas = AreaRestrictions { forbidden: vec![Tac(2), Tac(0xff_ffff)], service };
        let octets = postcard::to_allocvec(&subscription).expect("it encodes");
        assert_eq!(postcard::from_bytes::<Subscription>(&octets), Ok(subscription.clone()));
        let whole = Subscription { slices: vec![Default::default(); 2], ..Subscription::default() };
        assert_eq!(postcard::from_bytes::<Subscription>(&plain), Ok(whole), "the form of release 0.2.0");
    }
}
