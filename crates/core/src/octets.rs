//! Serialization of octet strings as one block.
//!
//! Derived serialization handles arrays and vectors octet by octet.

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;
use std::borrow::Cow;
use std::fmt;

/// Type that is stored as an octet string.
pub(crate) trait Octets: Sized {
    /// Returns the octets.
    fn octets(&self) -> &[u8];

    /// Returns the value of these octets; `None` if the length is wrong.
    fn from_octets(octets: &[u8]) -> Option<Self>;
}

impl<const N: usize> Octets for [u8; N] {
    fn octets(&self) -> &[u8] {
        self
    }

    fn from_octets(octets: &[u8]) -> Option<Self> {
        octets.try_into().ok()
    }
}

impl Octets for Vec<u8> {
    fn octets(&self) -> &[u8] {
        self
    }

    fn from_octets(octets: &[u8]) -> Option<Self> {
        Some(octets.to_vec())
    }
}

impl Octets for Cow<'_, [u8]> {
    fn octets(&self) -> &[u8] {
        self
    }

    fn from_octets(octets: &[u8]) -> Option<Self> {
        Some(Cow::Owned(octets.to_vec()))
    }
}

pub(crate) fn serialize<T: Octets, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_bytes(value.octets())
}

pub(crate) fn deserialize<'de, T: Octets, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    struct Read<T>(std::marker::PhantomData<T>);

    impl<'de, T: Octets> Visitor<'de> for Read<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an octet string")
        }

        fn visit_bytes<E: Error>(self, octets: &[u8]) -> Result<T, E> {
            T::from_octets(octets).ok_or_else(|| E::invalid_length(octets.len(), &self))
        }

        /// JSON represents octet strings as lists of numbers.
        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<T, A::Error> {
            let mut octets = Vec::new();
            while let Some(octet) = elements.next_element()? {
                octets.push(octet);
            }
            self.visit_bytes(&octets)
        }
    }

    d.deserialize_bytes(Read(std::marker::PhantomData))
}
