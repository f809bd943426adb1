use crate::pfcp::Error;
use crate::pfcp::ie::Element;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// Maximum length of a name in octets: that of a domain name (RFC 1035 3.1) and of a RADIUS
/// attribute. A receiver stores names as long as their owners.
pub(super) const NAME: usize = 255;

/// Octets that a peer or an operator chose; up to 24 need no allocation.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Octets(SmallVec<[u8; 24]>);

impl Octets {
    /// Returns the octets as text, if they are UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Octets {
    fn from(octets: &[u8]) -> Self {
        Octets(SmallVec::from_slice(octets))
    }
}

impl From<&str> for Octets {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl fmt::Debug for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Encodes a domain name as labels (TS 29.244 8.2.38, RFC 1035 3.1 without the root). Returns
/// `None` if a label is empty or too long.
pub(super) fn labels(name: &str) -> Option<Octets> {
    let mut octets = SmallVec::new();
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|n| (1..=63).contains(n))?;
        octets.push(length);
        octets.extend_from_slice(label.as_bytes());
    }
    Some(Octets(octets))
}

/// Returns true if `octets` are the labels of `name`, ignoring the case of letters.
pub(super) fn labels_are(mut octets: &[u8], name: &str) -> bool {
    name.split('.').all(|label| match octets.split_first() {
        Some((length, rest)) if usize::from(*length) == label.len() && rest.len() >= label.len() => {
            let (have, rest) = rest.split_at(label.len());
            octets = rest;
            have.eq_ignore_ascii_case(label.as_bytes())
        }
        _ => false,
    }) && matches!(octets, [] | [0])
}

macro_rules! texts {
    ($($(#[$m:meta])* $name:ident = $id:literal;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub Octets);

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.into())
            }
        }

        impl Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, Error> {
                if octets.len() > NAME { Err(Error::incorrect(Self::ID)) } else { Ok($name(octets.into())) }
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0);
            }
        }
    )*};
}

texts! {
    /// Network Instance (8.2.4): the data network, or the operator's name of a part of it.
    NetworkInstance = 22;
    /// Application ID (8.2.6).
    ApplicationId = 24;
    /// Activate Predefined Rules (8.2.72): name of the rule.
    ActivatePredefinedRules = 106;
    /// Deactivate Predefined Rules (8.2.73): name of the rule.
    DeactivatePredefinedRules = 107;
    /// Framed-Route (8.2.109): the text of RADIUS attribute 22.
    FramedRoute = 153;
    /// Framed-IPv6-Route (8.2.111): the text of RADIUS attribute 99.
    FramedIpv6Route = 155;
    /// FQ-CSID (8.2.43): sets of sessions of one node, in encoded form ([`FqCsid::names`]).
    FqCsid = 65;
    /// APN/DNN (8.2.117), as labels.
    ApnDnn = 159;
}

impl NetworkInstance {
    /// Returns true if the element names this data network, as plain text or as labels of a domain
    /// name. Both are in use, because TS 29.244 8.2.4 leaves it open.
    pub fn is(&self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name.as_bytes()) || labels_are(&self.0, name)
    }
}

impl ApnDnn {
    /// Encodes the text of a DNN. Returns `None` if it has an empty or too long label.
    pub fn from_name(name: &str) -> Option<Self> {
        labels(name).map(ApnDnn)
    }
}

impl FqCsid {
    /// Returns the node with its type, and the set numbers of two octets each. Returns `None` if
    /// the lengths do not fit.
    fn parts(&self) -> Option<(&[u8], &[[u8; 2]])> {
        let kind = *self.0.first()?;
        let node = match kind >> 4 {
            0 | 2 => 4,
            1 => 16,
            _ => return None,
        };
        let (node, sets) = self.0.split_at_checked(1 + node)?;
        let sets = sets.as_chunks::<2>().0.get(..usize::from(kind & 0xf))?;
        Some((&node[1..], sets))
    }

    /// Returns true if the encoding is valid.
    pub fn is_sound(&self) -> bool {
        self.parts().is_some_and(|(_, sets)| !sets.is_empty())
    }

    /// Returns true if it names a set of the same node that `other` names too.
    pub fn names(&self, other: &FqCsid) -> bool {
        match (self.parts(), other.parts()) {
            (Some((node, sets)), Some((other, others))) => node == other && sets.iter().any(|set| others.contains(set)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dnn_is_recognised_in_both_encodings() {
        assert!(NetworkInstance::from("Internet").is("internet"));
        assert!(NetworkInstance(b"\x08internet"[..].into()).is("internet"));
        assert!(NetworkInstance(b"\x03ims\x06mnc070"[..].into()).is("ims.mnc070"));
        for other in [&b"\x08internets"[..], b"\x07internet", b"\x08interne", b"", b"\x08internet\x03ims"] {
            assert!(!NetworkInstance(other.into()).is("internet"), "{}", other.escape_ascii());
        }
        assert_eq!(labels("a..b"), None);
    }

    #[test]
    fn names_have_a_longest_length() {
        let of = |length: usize| vec![b'a'; length];
        assert!(NetworkInstance::decode(&of(255)).is_ok() && FqCsid::decode(&of(255)).is_ok());
        let incorrect = Error::incorrect(NetworkInstance::ID);
        assert_eq!(NetworkInstance::decode(&of(256)), Err(incorrect), "it would be kept with each rule");
        let node = |length: usize| crate::pfcp::NodeId::decode(&[&[2][..], &of(length)].concat());
        assert!(node(255).is_ok());
        assert_eq!(node(256), Err(Error::incorrect(crate::pfcp::NodeId::ID)));
    }

    #[test]
    fn sets_are_those_of_one_node() {
        let csid = |octets: &[u8]| FqCsid(octets.into());
        let one = csid(&[0x01, 192, 0, 2, 5, 0, 7]);
        let two = csid(&[0x02, 192, 0, 2, 5, 0, 9, 0, 7]);
        assert!(one.names(&two) && two.names(&one) && one.is_sound());
        assert!(!one.names(&csid(&[0x01, 192, 0, 2, 6, 0, 7])), "another node's");
        assert!(!one.names(&csid(&[0x01, 192, 0, 2, 5, 0, 8])));
        let v6 = csid(&[&[0x11][..], &[0; 15], &[1, 0, 7]].concat());
        assert!(v6.names(&v6) && !one.names(&v6));
        for broken in [&[][..], &[0x01], &[0x01, 1, 2, 3, 4, 0], &[0x00, 1, 2, 3, 4], &[0x31, 1, 2, 3, 4, 0, 7]] {
            assert!(!csid(broken).is_sound() && !csid(broken).names(&csid(broken)), "{broken:?}");
        }
    }
}
