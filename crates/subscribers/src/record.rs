use crate::msisdn::Msisdn;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use vireo_core::subscription::{AuthenticationMethod, SliceSubscription, Subscription};
use vireo_types::Supi;
use vireo_wire::security::milenage;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A 128-bit secret of a subscriber: K or OPc (TS 35.206). It is overwritten when dropped, and
/// `Debug` does not print it. [`Key::reveal`] returns it as hexadecimal digits, for an export with
/// keys.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; 16]);

/// A text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 32 hexadecimal digits")]
pub struct KeyError;

impl Key {
    /// Creates a key from its octets.
    pub const fn new(octets: [u8; 16]) -> Self {
        Key(octets)
    }

    /// Returns the octets of the key.
    pub const fn octets(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the key as hexadecimal digits. Never log them.
    pub fn reveal(&self) -> String {
        hex::encode(self.0)
    }

    /// Derives OPc from K and OP (TS 35.206 4.1). OPc is stored, so that OP need not be.
    pub fn opc_of(k: &Key, op: &Key) -> Key {
        let opc = milenage::Opc::from_op(&milenage::K::new(&k.0), &milenage::Op::new(&op.0));
        Key(*opc.as_octets())
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(s: &str) -> Result<Self, KeyError> {
        let mut octets = [0; 16];
        hex::decode_to_slice(s, &mut octets).map_err(|_| KeyError)?;
        Ok(Key(octets))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Record of one subscriber in the home network. `Debug` prints no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    pub supi: Supi,
    /// GPSI, which no other subscriber has. UEs are served without it.
    pub msisdn: Option<Msisdn>,
    pub k: Key,
    /// Operator variant key OPc.
    pub opc: Key,
    /// Authentication management field (TS 33.102 annex H). 5G AKA and EAP-AKA' need the first bit
    /// set.
    pub amf: [u8; 2],
    /// Authentication method of 5G; `None` = that of the configuration.
    pub method: Option<AuthenticationMethod>,
    /// Added to the clock to give SEQ, in units of SEQ; 0 until a resynchronisation (see
    /// [`crate::Udm`]).
    pub sqn_offset: i64,
    /// Static IPv4 address in the default data network, unless that has one of its own in the
    /// subscription.
    pub static_ipv4: Option<Ipv4Addr>,
    /// Subscribed slices, data networks and bit rates.
    pub subscription: Subscription,
}

impl Subscriber {
    /// AMF field with only the separation bit set (TS 33.501 6.1.3.2 step 1).
    pub const AMF: [u8; 2] = [0x80, 0x00];

    /// Creates a subscriber with [`lab_subscription`] and the default AMF field.
    pub fn new(supi: Supi, k: Key, opc: Key) -> Self {
        let subscription = lab_subscription();
        Subscriber {
            supi,
            msisdn: None,
            k,
            opc,
            amf: Self::AMF,
            method: None,
            sqn_offset: 0,
            static_ipv4: None,
            subscription,
        }
    }

    /// Returns the subscription as the core serves it: [`Subscriber::static_ipv4`] is the address
    /// in the first data network of the default slice.
    pub fn served_subscription(&self) -> Subscription {
        let mut served = self.subscription.clone();
        let default = served.slices.iter().position(|slice| slice.default).unwrap_or_default();
        let dnn = served.slices.get_mut(default).and_then(|slice| slice.dnns.first_mut());
        if let Some(dnn) = dnn {
            dnn.static_ipv4 = dnn.static_ipv4.or(self.static_ipv4);
        }
        served
    }
}

/// Returns the default subscription: SST 1 with the data network `internet`.
pub fn lab_subscription() -> Subscription {
    Subscription { slices: vec![SliceSubscription::default()], ..Subscription::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opc_matches_ts_35_208_test_set_1() {
        let k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc".parse().expect("32 digits");
        let op: Key = "cdc202d5123e20f62b6d676ac72cb318".parse().expect("32 digits");
        assert_eq!(Key::opc_of(&k, &op).reveal(), "cd63cb71954a9f4e48a5994e37a02baf");
    }

    #[test]
    fn record_address_is_for_default_network() {
        let k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc".parse().expect("32 digits");
        let mut subscriber = Subscriber::new("999700000000001".parse().expect("an IMSI"), k.clone(), k);
        assert_eq!(subscriber.served_subscription(), subscriber.subscription);
        subscriber.static_ipv4 = Some([10, 45, 200, 1].into());
        subscriber.subscription.slices.insert(0, SliceSubscription { default: false, ..SliceSubscription::default() });
        let addresses = |s: &Subscriber| {
            let served = s.served_subscription();
            served.slices.iter().map(|slice| slice.dnns[0].static_ipv4).collect::<Vec<_>>()
        };
        assert_eq!(addresses(&subscriber), [None, subscriber.static_ipv4]);
        subscriber.subscription.slices[1].dnns[0].static_ipv4 = Some([10, 45, 200, 2].into());
        assert_eq!(addresses(&subscriber), [None, Some([10, 45, 200, 2].into())]);
    }

    #[test]
    fn debug_shows_no_key() {
        let k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc".parse().expect("32 digits");
        let supi = "999700000000001".parse().expect("an IMSI");
        let text = format!("{:?}", Subscriber::new(supi, k.clone(), k)).to_lowercase();
        assert!(text.contains("99970") && !text.contains("465b") && !text.contains("70, 91"), "{text}");
    }
}
