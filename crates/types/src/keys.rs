use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the 4,096 parts of the UE population.
///
/// A bucket is mapped to a host and belongs to one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u16")]
pub struct Bucket(u16);

impl From<u16> for Bucket {
    /// Converts as [`Bucket::new`] does, because received values may have more than 12 bits.
    fn from(n: u16) -> Self {
        Bucket::new(n)
    }
}

impl Bucket {
    /// Number of buckets of a cluster.
    pub const COUNT: u16 = 4096;

    /// Returns the bucket of the low 12 bits of `n`.
    pub const fn new(n: u16) -> Self {
        Bucket(n & 0xfff)
    }

    /// Returns the bucket number, 0 to 4095.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Local Temporary Mobile Subscriber Identity: 28 bits (bucket 12 | number 16).
///
/// It identifies a UE in the cluster from its first message on (MMLite, Algorithm 1).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u32")]
pub struct Ltmsi(u32);

impl From<u32> for Ltmsi {
    /// Converts as [`Ltmsi::from_raw`] does, because received values may have more than 28 bits.
    fn from(raw: u32) -> Self {
        Ltmsi::from_raw(raw)
    }
}

impl Ltmsi {
    /// Returns the LTMSI of a number within a bucket.
    pub const fn new(bucket: Bucket, number: u16) -> Self {
        Ltmsi((bucket.0 as u32) << 16 | number as u32)
    }

    /// Returns the LTMSI of the low 28 bits of `raw`.
    pub const fn from_raw(raw: u32) -> Self {
        Ltmsi(raw & 0x0fff_ffff)
    }

    /// Returns the 28 bits as a number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the bucket of the LTMSI.
    pub const fn bucket(self) -> Bucket {
        Bucket::new((self.0 >> 16) as u16)
    }

    /// Returns the number within the bucket.
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

/// AMF UE NGAP ID (TS 38.413 9.3.3.1): 40 bits, LTMSI 28 | generation 12.
///
/// The generation distinguishes successive NG connections of a UE. It identifies late messages of
/// an earlier connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AmfUeNgapId(u64);

impl AmfUeNgapId {
    /// Returns the identifier of a UE's connection of this `generation` (its low 12 bits).
    pub const fn new(ltmsi: Ltmsi, generation: u16) -> Self {
        AmfUeNgapId((ltmsi.0 as u64) << 12 | (generation & 0xfff) as u64)
    }

    /// Returns the identifier of a received value; `None` above 40 bits.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw >> 40 == 0 { Some(AmfUeNgapId(raw)) } else { None }
    }

    /// Returns the encoded value.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the LTMSI of the UE.
    pub const fn ltmsi(self) -> Ltmsi {
        Ltmsi((self.0 >> 12) as u32)
    }

    /// Returns the generation of the connection. It starts at random and does not count
    /// connections.
    pub const fn generation(self) -> u16 {
        (self.0 & 0xfff) as u16
    }

    /// Returns the identifier of a received MME UE S1AP ID (TS 36.413 9.2.3.3): LTMSI 28 |
    /// generation 4.
    pub const fn from_mme(raw: u32) -> Self {
        AmfUeNgapId::new(Ltmsi::from_raw(raw >> 4), (raw & 0xf) as u16)
    }

    /// Returns the MME UE S1AP ID, whose generation is the low 4 bits of this one's.
    pub const fn mme(self) -> u32 {
        self.ltmsi().get() << 4 | (self.0 & 0xf) as u32
    }
}

/// Access of a UE or RAN node: 5G (NGAP, NAS of 5GS) or 4G (S1AP, NAS of EPS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// 5GS: gNBs, NGAP (TS 38.413) and NAS of TS 24.501.
    #[default]
    Nr,
    /// EPS: eNBs, S1AP (TS 36.413) and NAS of TS 24.301.
    Eps,
}

/// RAN UE NGAP ID (TS 38.413 9.3.3.2), chosen by the RAN node. In EPS it is the eNB UE S1AP ID, 24
/// bits (TS 36.413 9.2.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RanUeNgapId(pub u32);

/// The position of a PDU session in its UE context (0 to 255): part of its SEID.
pub type SessionIndex = u8;

/// The control plane's F-SEID value (TS 29.244 8.2.37).
///
/// Its 64 bits are LTMSI 28 | session 8 | generation 28.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seid(pub u64);

impl Seid {
    /// Returns the SEID of a UE's session.
    ///
    /// The generation (low 28 bits) distinguishes successive uses of the session index.
    pub const fn new(ltmsi: Ltmsi, session: SessionIndex, generation: u32) -> Self {
        Seid((ltmsi.0 as u64) << 36 | (session as u64) << 28 | (generation & 0x0fff_ffff) as u64)
    }

    /// Returns the LTMSI of the UE.
    pub const fn ltmsi(self) -> Ltmsi {
        Ltmsi((self.0 >> 36) as u32)
    }

    /// Returns the index of the session in its UE context.
    pub const fn session(self) -> SessionIndex {
        (self.0 >> 28) as u8
    }

    /// Returns the TEID of the session's tunnel end at the control plane, which receives user data
    /// for the UE there. `None` for a session index that no EPS bearer has.
    pub const fn control_plane_teid(self) -> Option<Teid> {
        match self.session() {
            index @ 0..15 => Some(Teid(self.ltmsi().0 << 4 | (index as u32 + 1))),
            _ => None,
        }
    }

    /// Returns the generation of the session index.
    pub const fn generation(self) -> u32 {
        (self.0 & 0x0fff_ffff) as u32
    }
}

/// GTP-U tunnel endpoint identifier (TS 29.281 5.1).
///
/// A TEID that Vireo chooses is index 24 | generation 8 and never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Teid(pub u32);

impl Teid {
    /// Returns the session of a TEID at the control plane ([`Seid::control_plane_teid`]), with
    /// generation 0.
    pub const fn session_at_control_plane(self) -> Option<Seid> {
        match self.0 & 0xf {
            0 => None,
            number => Some(Seid::new(Ltmsi::from_raw(self.0 >> 4), number as u8 - 1, 0)),
        }
    }

    /// Returns the TEID of a table index in its `generation`-th use.
    ///
    /// The generation of index 0 starts at 1, so that no TEID is 0.
    pub const fn from_index(index: u32, generation: u8) -> Self {
        Teid((index & 0x00ff_ffff) << 8 | generation as u32)
    }

    /// Returns the table index.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Returns the generation of the table index.
    pub const fn generation(self) -> u8 {
        self.0 as u8
    }
}

/// An SCTP association of a balancer, unique during the lifetime of the balancer process.
///
/// It is balancer 4 | dialect 1 | number assigned by the balancer 27. The dialect is that of the
/// interface on which the association was accepted: N2 or S1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AssocId(pub u32);

impl AssocId {
    /// Mask of the number that the balancer assigns.
    pub const OWN: u32 = 0x07ff_ffff;
    const S1: u32 = 0x0800_0000;

    /// Returns the N2 association with this number at a balancer (0 to 15).
    pub const fn at(balancer: u8, own: u32) -> Self {
        AssocId((balancer as u32) << 28 | own & Self::OWN)
    }

    /// Returns the number of the balancer that terminates the association.
    pub const fn balancer(self) -> u8 {
        (self.0 >> 28) as u8
    }

    /// Returns the dialect of the RAN node.
    pub const fn dialect(self) -> Dialect {
        if self.0 & Self::S1 == 0 { Dialect::Nr } else { Dialect::Eps }
    }

    /// Returns the association with the same number on the interface of another dialect.
    pub const fn with_dialect(self, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Nr => AssocId(self.0 & !Self::S1),
            Dialect::Eps => AssocId(self.0 | Self::S1),
        }
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
        assert_eq!((assoc.balancer(), assoc.0 & AssocId::OWN), (15, 0x07ff_fffe));
        let s1 = assoc.with_dialect(Dialect::Eps);
        assert_eq!((assoc.dialect(), s1.dialect(), s1.balancer()), (Dialect::Nr, Dialect::Eps, 15));
        assert_eq!(s1.with_dialect(Dialect::Nr), assoc);
        let mme = AmfUeNgapId::new(ltmsi, 0xd);
        assert_eq!((mme.mme(), AmfUeNgapId::from_mme(mme.mme())), (0xabc1_234d, mme));
    }
}
