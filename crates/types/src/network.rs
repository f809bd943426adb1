use crate::limits::DNN_OCTETS;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// PLMN Identity (TS 23.003 2.2): three digits of MCC, two or three of MNC.
///
/// It is stored as the three octets of NAS (TS 24.008 10.5.1.13). NGAP orders the digits of a
/// three-digit MNC differently (TS 38.413 9.3.3.5), hence two forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plmn([u8; 3]);

/// The text is not a PLMN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PLMN is five or six decimal digits: MCC then MNC, as in 99970 or 310410")]
pub struct PlmnError;

impl Plmn {
    /// Creates a PLMN from the three octets of NAS, which may contain invalid filler digits.
    pub const fn from_nas(octets: [u8; 3]) -> Self {
        Plmn(octets)
    }

    /// Returns the three octets for NAS.
    pub const fn nas(self) -> [u8; 3] {
        self.0
    }

    /// Creates a PLMN from the three octets of NGAP.
    pub const fn from_ngap([a, b, c]: [u8; 3]) -> Self {
        if b >> 4 == 0xf { Plmn([a, b, c]) } else { Plmn([a, c & 0xf0 | b & 0x0f, c << 4 | b >> 4]) }
    }

    /// Returns the three octets for NGAP.
    pub const fn ngap(self) -> [u8; 3] {
        let [a, b, c] = self.0;
        if b >> 4 == 0xf { self.0 } else { [a, c << 4 | b & 0x0f, b & 0xf0 | c >> 4] }
    }

    /// Returns the three digits of the MCC.
    pub fn mcc(self) -> String {
        let [a, b, _] = self.0;
        [a & 0xf, a >> 4, b & 0xf].iter().map(|d| char::from(b'0' + d.min(&9))).collect()
    }

    /// Returns the two or three digits of the MNC.
    pub fn mnc(self) -> String {
        let [_, b, c] = self.0;
        let third = (b >> 4 != 0xf).then_some(b >> 4);
        [c & 0xf, c >> 4].into_iter().chain(third).map(|d| char::from(b'0' + d.min(9))).collect()
    }

    /// Returns the serving network name (TS 24.501 9.12.1).
    pub fn serving_network_name(self) -> String {
        String::from_utf8_lossy(&self.serving_network_octets()).into_owned()
    }

    /// Returns the octets of the serving network name, without an allocation.
    pub fn serving_network_octets(self) -> [u8; 32] {
        let mut name = *b"5G:mnc000.mcc000.3gppnetwork.org";
        let digit = |nibble: u8| b'0' + (nibble & 0xf).min(9);
        let [a, b, c] = self.0;
        name[13..16].copy_from_slice(&[digit(a), digit(a >> 4), digit(b)]);
        match b >> 4 {
            0xf => name[7..9].copy_from_slice(&[digit(c), digit(c >> 4)]),
            third => name[6..9].copy_from_slice(&[digit(c), digit(c >> 4), digit(third)]),
        }
        name
    }
}

impl FromStr for Plmn {
    type Err = PlmnError;

    fn from_str(s: &str) -> Result<Self, PlmnError> {
        let d: Vec<u8> = s.bytes().map(|b| b.wrapping_sub(b'0')).collect();
        if !(d.len() == 5 || d.len() == 6) || d.iter().any(|d| *d > 9) {
            return Err(PlmnError);
        }
        let third = d.get(5).copied().unwrap_or(0xf);
        Ok(Plmn([d[1] << 4 | d[0], third << 4 | d[2], d[4] << 4 | d[3]]))
    }
}

impl fmt::Display for Plmn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.mcc(), self.mnc())
    }
}

impl fmt::Debug for Plmn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plmn({self})")
    }
}

/// Text in human-readable formats (`"99970"`), three octets in binary encodings.
impl Serialize for Plmn {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
    }
}

impl<'de> Deserialize<'de> for Plmn {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let text = String::deserialize(d)?;
            text.parse().map_err(|e: PlmnError| serde::de::Error::custom(format!("{text:?}: {e}")))
        } else {
            Ok(Plmn(<[u8; 3]>::deserialize(d)?))
        }
    }
}

/// Tracking Area Code of 5GS: 24 bits (TS 38.413 9.3.3.10). That of EPS has 16 bits (TS 36.413
/// 9.2.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tac(pub u32);

impl Tac {
    /// Returns the octets of the TAC of EPS; `None` if the TAC has more than 16 bits.
    pub fn eps(self) -> Option<[u8; 2]> {
        u16::try_from(self.0).ok().map(u16::to_be_bytes)
    }
}

/// Tracking Area Identity (TS 23.003 19.4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tai {
    pub plmn: Plmn,
    pub tac: Tac,
}

/// NR Cell Global Identity: 36 bits of cell (TS 38.413 9.3.1.7). In EPS it is the E-UTRAN CGI, 28
/// bits of cell (TS 36.413 9.2.1.38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NrCgi {
    pub plmn: Plmn,
    /// NR Cell Identity within the PLMN, 36 bits.
    pub cell: u64,
}

/// S-NSSAI (TS 23.003 28.4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Snssai {
    /// Slice/Service Type (SST), 8 bits.
    pub sst: u8,
    /// Slice Differentiator (SD), 24 bits.
    #[serde(default)]
    pub sd: Option<u32>,
}

impl Snssai {
    /// Value of an SD for "no SD value associated with the SST" (TS 23.003 28.4.2).
    pub const NO_SD: u32 = 0x00ff_ffff;

    /// Returns the S-NSSAI of these values, without SD if it has the value for none.
    pub fn new(sst: u8, sd: Option<u32>) -> Self {
        Snssai { sst, sd: sd.filter(|sd| *sd != Self::NO_SD) }
    }

    /// Returns the S-NSSAI of the octets that a peer has sent.
    pub fn from_octets(sst: u8, sd: Option<[u8; 3]>) -> Self {
        Self::new(sst, sd.map(|[a, b, c]| u32::from_be_bytes([0, a, b, c])))
    }

    /// Parses a slice differentiator: six hexadecimal digits (TS 29.571 5.4.4.2).
    pub fn sd_from_hex(text: &str) -> Option<u32> {
        let is_sd = text.len() == 6 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| is_sd)
    }
}

impl fmt::Display for Snssai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sd {
            None => write!(f, "{}", self.sst),
            Some(sd) => write!(f, "{}-{sd:06x}", self.sst),
        }
    }
}

impl fmt::Debug for Snssai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snssai({self})")
    }
}

impl FromStr for Snssai {
    type Err = String;

    /// Parses `SST` or `SST-SD`, as in `1` or `1-0000ab`.
    fn from_str(s: &str) -> Result<Self, String> {
        let bad =
            || format!("{s:?} is no S-NSSAI: write SST, or SST-SD with six hexadecimal digits, as in 1 or 1-0000ab");
        let (sst, sd) = s.split_once('-').map_or((s, None), |(a, b)| (a, Some(b)));
        let sst = sst.parse().map_err(|_| bad())?;
        let sd = sd.map(|sd| Snssai::sd_from_hex(sd).ok_or_else(bad)).transpose()?;
        Ok(Snssai::new(sst, sd))
    }
}

/// Data Network Name (TS 23.003 9A), as text in lower case.
///
/// The octets are stored inline, without an allocation: a context has several DNNs and is decoded
/// for every message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dnn {
    octets: [u8; DNN_OCTETS - 1],
    length: u8,
}

/// The text is not a DNN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a DNN is labels of letters, digits and hyphens with dots between them, 100 octets at the most")]
pub struct DnnError;

impl Dnn {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        // The octets are always ASCII.
        std::str::from_utf8(&self.octets[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl FromStr for Dnn {
    type Err = DnnError;

    fn from_str(s: &str) -> Result<Self, DnnError> {
        let mut dnn = Dnn { octets: [0; DNN_OCTETS - 1], length: s.len() as u8 };
        let octets = dnn.octets.get_mut(..s.len()).ok_or(DnnError)?;
        // Labels have 1 to 63 octets.
        let mut label = 0;
        for (to, octet) in octets.iter_mut().zip(s.bytes()) {
            label = match octet {
                b'.' if label > 0 => 0,
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' if label < 63 => label + 1,
                _ => return Err(DnnError),
            };
            *to = octet.to_ascii_lowercase();
        }
        if label == 0 { Err(DnnError) } else { Ok(dnn) }
    }
}

impl TryFrom<String> for Dnn {
    type Error = DnnError;

    fn try_from(s: String) -> Result<Self, DnnError> {
        s.parse()
    }
}

impl Serialize for Dnn {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Dnn {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = Dnn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a DNN")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Dnn, E> {
                text.parse().map_err(|e: DnnError| E::custom(e))
            }
        }

        d.deserialize_str(Text)
    }
}

impl From<Dnn> for String {
    fn from(dnn: Dnn) -> String {
        dnn.as_str().to_owned()
    }
}

impl fmt::Debug for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dnn({self})")
    }
}

impl fmt::Display for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// PDU session type (TS 24.501 9.11.4.11), of those that Vireo supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PduSessionType {
    Ipv4,
    Ipv6,
    /// IPv4 and IPv6 in one session.
    Ipv4v6,
}

/// The addresses of one PDU session; at least one of them is present.
///
/// For IPv6 it is the /64 prefix (TS 23.501 5.8.2.2). NAS carries the interface identifier, and the
/// UE forms its address by SLAAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionAddress {
    pub ipv4: Option<Ipv4Addr>,
    /// The /64 prefix, with the low 64 bits zero.
    pub ipv6_prefix: Option<Ipv6Addr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plmns_have_the_octets_of_the_specification() {
        let five: Plmn = "99970".parse().expect("five digits");
        assert_eq!((five.nas(), five.ngap()), ([0x99, 0xf9, 0x07], [0x99, 0xf9, 0x07]));
        // 310-410: MNC digit 3 shares an octet with MCC digit 3 in NAS, MNC digit 1 does in NGAP
        let six: Plmn = "310412".parse().expect("six digits");
        assert_eq!((six.nas(), six.ngap()), ([0x13, 0x20, 0x14], [0x13, 0x40, 0x21]));
        assert_eq!((Plmn::from_ngap(six.ngap()), six.to_string()), (six, "310412".into()));
        let six: Plmn = "310410".parse().expect("six digits");
        assert_eq!(six.serving_network_name(), "5G:mnc410.mcc310.3gppnetwork.org");
        let five: Plmn = "99970".parse().expect("five digits");
        assert_eq!(five.serving_network_name(), "5G:mnc070.mcc999.3gppnetwork.org");
        assert!("9997".parse::<Plmn>().is_err() && "9997a".parse::<Plmn>().is_err());
    }

    #[test]
    fn slices_and_names_parse_and_refuse() {
        assert_eq!("1-0000ab".parse(), Ok(Snssai { sst: 1, sd: Some(0xab) }));
        assert_eq!("1-ffffff".parse(), Ok(Snssai { sst: 1, sd: None }));
        assert_eq!(Snssai::from_octets(1, Some([0, 0, 0xab])), Snssai { sst: 1, sd: Some(0xab) });
        assert_eq!(Snssai::from_octets(1, Some([0xff; 3])), Snssai { sst: 1, sd: None });
        assert!("1-ab".parse::<Snssai>().is_err() && "x".parse::<Snssai>().is_err());
        assert_eq!("Internet".parse::<Dnn>().map(String::from), Ok("internet".into()));
        let long = format!("{0}.{0}", "x".repeat(49));
        assert_eq!(long.parse::<Dnn>().map(String::from), Ok(long));
        let longer =
            [".a".to_owned(), "a.".into(), "x".repeat(64), format!("{0}.{0}x", "x".repeat(49)), "x".repeat(300)];
        for text in ["", "a..b", "a b", "\u{e9}"].into_iter().chain(longer.iter().map(String::as_str)) {
            assert_eq!(text.parse::<Dnn>(), Err(DnnError), "{text}");
        }
    }
}
