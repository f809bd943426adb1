use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use vireo_core::subscription::{SliceSubscription, Subscription};
use vireo_types::Supi;
use vireo_wire::security::milenage;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A 128-bit secret of a subscriber: K or OPc (TS 35.206), overwritten when it is dropped. `Debug` shows nothing of it; [`Key::reveal`] gives it as
/// hexadecimal digits for an export that was asked for with keys.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; 16]);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 32 hexadecimal digits")]
pub struct KeyError;

impl Key {
    /// The key of these octets.
    pub const fn new(octets: [u8; 16]) -> Self {
        Key(octets)
    }

    /// Its octets.
    pub const fn octets(&self) -> &[u8; 16] {
        &self.0
    }

    /// Its hexadecimal digits: never for a log.
    pub fn reveal(&self) -> String {
        hex::encode(self.0)
    }

    /// OPc of K and OP (TS 35.206 4.1): what is stored, so that OP need not be.
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

/// What the home network keeps of one subscriber. `Debug` shows no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Who.
    pub supi: Supi,
    /// The subscriber key K.
    pub k: Key,
    /// OPc.
    pub opc: Key,
    /// The authentication management field (TS 33.102 annex H); 5G AKA needs the first bit set.
    pub amf: [u8; 2],
    /// What is added to the clock to give SEQ, in SEQ units: 0 until a resynchronisation (see [`crate::Udm`]).
    pub sqn_offset: i64,
    /// A fixed IPv4 address for its sessions: kept for when the SMF part gives such, which it does not yet.
    pub static_ipv4: Option<Ipv4Addr>,
    /// What it may do.
    pub subscription: Subscription,
}

impl Subscriber {
    /// AMF field with only the separation bit (TS 33.501 6.1.3.2 step 1).
    pub const AMF: [u8; 2] = [0x80, 0x00];

    /// A subscriber with [`lab_subscription`] and the usual AMF field.
    pub fn new(supi: Supi, k: Key, opc: Key) -> Self {
        let subscription = lab_subscription();
        Subscriber { supi, k, opc, amf: Self::AMF, sqn_offset: 0, static_ipv4: None, subscription }
    }
}

/// SST 1 with the data network `internet`: what a subscriber may use who is added without saying more.
pub fn lab_subscription() -> Subscription {
    Subscription { slices: vec![SliceSubscription::default()], ..Subscription::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opc_is_that_of_ts_35_208_test_set_1() {
        let k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc".parse().expect("32 digits");
        let op: Key = "cdc202d5123e20f62b6d676ac72cb318".parse().expect("32 digits");
        assert_eq!(Key::opc_of(&k, &op).reveal(), "cd63cb71954a9f4e48a5994e37a02baf");
    }

    #[test]
    fn debug_shows_no_key() {
        let k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc".parse().expect("32 digits");
        let supi = "999700000000001".parse().expect("an IMSI");
        let text = format!("{:?}", Subscriber::new(supi, k.clone(), k)).to_lowercase();
        assert!(text.contains("99970") && !text.contains("465b") && !text.contains("70, 91"), "{text}");
    }
}
