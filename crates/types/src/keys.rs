use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the 4,096 parts of the UE population: the unit that is mapped to a host and belongs to one slice
/// (DESIGN decision 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u16")]
pub struct Bucket(u16);

impl From<u16> for Bucket {
    /// As [`Bucket::new`]: what others write has no more bits.
    fn from(n: u16) -> Self {
        Bucket::new(n)
    }
}

impl Bucket {
    /// How many buckets there are.
    pub const COUNT: u16 = 4096;

    /// The bucket of the low 12 bits of `n`.
    pub const fn new(n: u16) -> Self {
        Bucket(n & 0xfff)
    }

    /// Its number, 0 to 4095.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Local Temporary Mobile Subscriber Identity: the 28-bit number (bucket 12 | number 16) under which the cluster knows
/// a UE from its first message on (seed 1, Algorithm 1; DESIGN decision 7).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u32")]
pub struct Ltmsi(u32);

impl From<u32> for Ltmsi {
    /// As [`Ltmsi::from_raw`]: what others write has no more bits.
    fn from(raw: u32) -> Self {
        Ltmsi::from_raw(raw)
    }
}

impl Ltmsi {
    /// The LTMSI of a number within a bucket.
    pub const fn new(bucket: Bucket, number: u16) -> Self {
        Ltmsi((bucket.0 as u32) << 16 | number as u32)
    }

    /// The LTMSI of the low 28 bits of `raw`.
    pub const fn from_raw(raw: u32) -> Self {
        Ltmsi(raw & 0x0fff_ffff)
    }

    /// Its 28 bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The bucket it lies in.
    pub const fn bucket(self) -> Bucket {
        Bucket::new((self.0 >> 16) as u16)
    }

    /// Its number within the bucket.
    pub const fn number(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for Ltmsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ltmsi({:03x}:{:04x})", self.bucket().get(), self.number())
    }
}

impl fmt::Display for Ltmsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:07x}", self.0)
    }
}

/// AMF-UE-NGAP-ID (TS 38.413 9.3.3.1): 40 bits, LTMSI 28 | generation 12. The generation tells a UE's successive NG
/// connections apart, so that a late message of an earlier one is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AmfUeNgapId(u64);

impl AmfUeNgapId {
    /// The identifier of a UE's connection of this `generation` (its low 12 bits).
    pub const fn new(ltmsi: Ltmsi, generation: u16) -> Self {
        AmfUeNgapId((ltmsi.0 as u64) << 12 | (generation & 0xfff) as u64)
    }

    /// The identifier of a received value; `None` above 40 bits.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw >> 40 == 0 { Some(AmfUeNgapId(raw)) } else { None }
    }

    /// The value for the wire.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The UE.
    pub const fn ltmsi(self) -> Ltmsi {
        Ltmsi((self.0 >> 12) as u32)
    }

    /// Tells the UE's connections apart. It is no number of connections: it starts at random.
    pub const fn generation(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

/// RAN-UE-NGAP-ID (TS 38.413 9.3.3.2), chosen by the RAN node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RanUeNgapId(pub u32);

/// The position of a PDU session in its UE's context (0 to 255): part of its SEID.
pub type SessionIndex = u8;

/// The control plane's F-SEID value (TS 29.244 8.2.37): LTMSI 28 | session 8 | generation 28 (DESIGN decision 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seid(pub u64);

impl Seid {
    /// The SEID of a UE's session; the generation (low 28 bits) tells its successive lives apart.
    pub const fn new(ltmsi: Ltmsi, session: SessionIndex, generation: u32) -> Self {
        Seid((ltmsi.0 as u64) << 36 | (session as u64) << 28 | (generation & 0x0fff_ffff) as u64)
    }

    /// The UE.
    pub const fn ltmsi(self) -> Ltmsi {
        Ltmsi((self.0 >> 36) as u32)
    }

    /// Which of the UE's sessions.
    pub const fn session(self) -> SessionIndex {
        (self.0 >> 28) as u8
    }

    /// Which life of that session.
    pub const fn generation(self) -> u32 {
        (self.0 & 0x0fff_ffff) as u32
    }
}

/// GTP-U tunnel endpoint identifier (TS 29.281 5.1). Those that Vireo chooses are index 24 | generation 8 and never 0
/// (DESIGN decision 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Teid(pub u32);

impl Teid {
    /// The TEID of a table index in its `generation`-th use; the generation of index 0 starts at 1 so that no TEID is 0.
    pub const fn from_index(index: u32, generation: u8) -> Self {
        Teid((index & 0x00ff_ffff) << 8 | generation as u32)
    }

    /// The table index.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Which use of that index.
    pub const fn generation(self) -> u8 {
        self.0 as u8
    }
}

/// An SCTP association of a balancer, unique for the life of the process that holds it. In a cluster: balancer 4 | its own
/// number 28.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AssocId(pub u32);

impl AssocId {
    /// The bits of the number that its balancer gives.
    pub const OWN: u32 = 0x0fff_ffff;

    /// The association of this number at a balancer, of which there can be 16.
    pub const fn at(balancer: u8, own: u32) -> Self {
        AssocId((balancer as u32) << 28 | own & Self::OWN)
    }

    /// The balancer that holds it.
    pub const fn balancer(self) -> u8 {
        (self.0 >> 28) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_derived_identifier_gives_its_ltmsi_back() {
        let ltmsi = Ltmsi::new(Bucket::new(0xabc), 0x1234);
        assert_eq!(ltmsi.get(), 0xabc_1234);
        let id = AmfUeNgapId::new(ltmsi, 0xfff);
        assert_eq!((id.ltmsi(), id.generation()), (ltmsi, 0xfff));
        assert!(AmfUeNgapId::from_raw(id.get()).is_some() && AmfUeNgapId::from_raw(1 << 40).is_none());
        let seid = Seid::new(ltmsi, 200, 0x0fff_fffe);
        assert_eq!((seid.ltmsi(), seid.session(), seid.generation()), (ltmsi, 200, 0x0fff_fffe));
        let teid = Teid::from_index(0x00fe_dcba, 7);
        assert_eq!((teid.index(), teid.generation()), (0x00fe_dcba, 7));
        let assoc = AssocId::at(15, 0xffff_fffe);
        assert_eq!((assoc.balancer(), assoc.0 & AssocId::OWN), (15, 0x0fff_fffe));
    }
}
