//! Serialisation of PFCP information elements in session records.
//!
//! Elements have their encoding of TS 29.244, and lists are lists. In human-readable formats (JSON)
//! octets are hexadecimal. Elements then also have a name and a description, which the decoder
//! ignores.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt::Debug;
use vireo_wire::pfcp::Element;

/// Octets, which are hexadecimal in human-readable formats.
pub(crate) mod hexadecimal {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return serde_bytes::serialize(octets, to);
        }
        to.serialize_str(&hex::encode(octets))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        if !from.is_human_readable() {
            return serde_bytes::deserialize(from);
        }
        hex::decode(&*Cow::<'de, str>::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A serialised element: its content.
struct StoredElement(Vec<u8>);

/// An element in human-readable formats.
#[derive(Serialize, Deserialize)]
struct Readable<'a> {
    #[serde(borrow)]
    ie: Cow<'a, str>,
    /// Description of the value.
    description: Cow<'a, str>,
    /// Content; the only field that is decoded.
    #[serde(with = "hexadecimal")]
    octets: Vec<u8>,
}

/// Element to serialise.
struct ElementRef<'a, E>(&'a E);

impl<E: Element + Debug> Serialize for ElementRef<'_, E> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut octets = Vec::new();
        self.0.encode(&mut octets);
        if !to.is_human_readable() {
            return serde_bytes::serialize(&octets, to);
        }
        let name = std::any::type_name::<E>();
        let ie = name.rsplit("::").next().unwrap_or(name).into();
        Readable { ie, description: format!("{:?}", self.0).into(), octets }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for StoredElement {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return serde_bytes::deserialize(from).map(StoredElement);
        }
        Readable::deserialize(from).map(|readable| StoredElement(readable.octets))
    }
}

impl StoredElement {
    fn read<E: Element, F: Error>(&self) -> Result<E, F> {
        E::decode(&self.0).map_err(|_| F::custom(format_args!("no element of type {}", E::ID)))
    }
}

/// Serialisation of one PFCP element.
pub(crate) mod element {
    use super::*;

    pub(crate) fn serialize<E: Element + Debug, S: Serializer>(element: &E, to: S) -> Result<S::Ok, S::Error> {
        ElementRef(element).serialize(to)
    }

    pub(crate) fn deserialize<'de, E: Element, D: Deserializer<'de>>(from: D) -> Result<E, D::Error> {
        StoredElement::deserialize(from)?.read()
    }
}

/// Serialisation of an optional element.
pub(crate) mod optional {
    use super::*;

    pub(crate) fn serialize<E: Element + Debug, S: Serializer>(element: &Option<E>, to: S) -> Result<S::Ok, S::Error> {
        elements::serialize(element.as_slice(), to)
    }

    pub(crate) fn deserialize<'de, E: Element, D: Deserializer<'de>>(from: D) -> Result<Option<E>, D::Error> {
        elements::deserialize(from).map(|elements: Vec<E>| elements.into_iter().next())
    }
}

/// Serialisation of several elements of one type.
pub(crate) mod elements {
    use super::*;

    pub(crate) fn serialize<E: Element + Debug, S: Serializer>(elements: &[E], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(elements.iter().map(ElementRef))
    }

    pub(crate) fn deserialize<'de, E: Element, D: Deserializer<'de>>(from: D) -> Result<Vec<E>, D::Error> {
        Vec::<StoredElement>::deserialize(from)?.iter().map(StoredElement::read).collect()
    }
}

/// Serialisation of a list with inline storage.
pub(crate) mod list {
    use super::*;
    use smallvec::{Array, SmallVec};

    pub(crate) fn serialize<A: Array, S: Serializer>(list: &SmallVec<A>, to: S) -> Result<S::Ok, S::Error>
    where
        A::Item: Serialize,
    {
        to.collect_seq(list)
    }

    pub(crate) fn deserialize<'de, A: Array, D: Deserializer<'de>>(from: D) -> Result<SmallVec<A>, D::Error>
    where
        A::Item: Deserialize<'de>,
    {
        Vec::deserialize(from).map(SmallVec::from_iter)
    }
}

/// Serialisation of a list that release 0.2.0 stores as one optional value. In formats that are not
/// readable, both have the same octets.
pub(crate) mod optional_or_list {
    use super::*;
    use smallvec::{Array, SmallVec};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Readable<T> {
        Optional(Option<T>),
        List(Vec<T>),
    }

    pub(crate) fn serialize<A: Array, S: Serializer>(list: &SmallVec<A>, to: S) -> Result<S::Ok, S::Error>
    where
        A::Item: Serialize,
    {
        match (&list[..], to.is_human_readable()) {
            ([], true) => to.serialize_none(),
            ([one], true) => to.serialize_some(one),
            _ => to.collect_seq(list),
        }
    }

    pub(crate) fn deserialize<'de, A: Array, D: Deserializer<'de>>(from: D) -> Result<SmallVec<A>, D::Error>
    where
        A::Item: Deserialize<'de>,
    {
        if !from.is_human_readable() {
            return Vec::deserialize(from).map(SmallVec::from_iter);
        }
        Ok(match Readable::<A::Item>::deserialize(from)? {
            Readable::Optional(one) => one.into_iter().collect(),
            Readable::List(all) => all.into_iter().collect(),
        })
    }
}
