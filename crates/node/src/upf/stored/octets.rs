//! How what a session consists of is written in its record: PFCP's elements as on the wire, lists as lists.

/// An element of PFCP.
pub(in crate::upf) mod element {
    use serde::{Deserializer, Serializer, de::Error};
    use vireo_wire::pfcp::Element;

    pub(in crate::upf) fn serialize<E: Element, S: Serializer>(element: &E, to: S) -> Result<S::Ok, S::Error> {
        let mut octets = Vec::new();
        element.encode(&mut octets);
        serde_bytes::serialize(&octets, to)
    }

    pub(in crate::upf) fn deserialize<'de, E: Element, D: Deserializer<'de>>(from: D) -> Result<E, D::Error> {
        let octets: Vec<u8> = serde_bytes::deserialize(from)?;
        E::decode(&octets).map_err(|_| D::Error::custom(format_args!("no element of type {}", E::ID)))
    }
}

/// An element that may be missing.
pub(in crate::upf) mod optional {
    use super::elements;
    use serde::{Deserializer, Serializer};
    use vireo_wire::pfcp::Element;

    pub(in crate::upf) fn serialize<E: Element, S: Serializer>(element: &Option<E>, to: S) -> Result<S::Ok, S::Error> {
        elements::serialize(element.as_slice(), to)
    }

    pub(in crate::upf) fn deserialize<'de, E: Element, D: Deserializer<'de>>(from: D) -> Result<Option<E>, D::Error> {
        elements::deserialize(from).map(|elements: Vec<E>| elements.into_iter().next())
    }
}

/// Several elements of a type.
pub(in crate::upf) mod elements {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_bytes::ByteBuf;
    use vireo_wire::pfcp::Element;

    pub(in crate::upf) fn serialize<E: Element, S: Serializer>(elements: &[E], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(elements.iter().map(|element| {
            let mut octets = Vec::new();
            element.encode(&mut octets);
            ByteBuf::from(octets)
        }))
    }

    pub(in crate::upf) fn deserialize<'de, E: Element, D: Deserializer<'de>>(from: D) -> Result<Vec<E>, D::Error> {
        let all = Vec::<ByteBuf>::deserialize(from)?;
        let one = |octets: &ByteBuf| E::decode(octets);
        let read: Result<Vec<E>, _> = all.iter().map(one).collect();
        read.map_err(|_| D::Error::custom(format_args!("no elements of type {}", E::ID)))
    }
}

/// A list that has room for some where it lies.
pub(in crate::upf) mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use smallvec::{Array, SmallVec};

    pub(in crate::upf) fn serialize<A: Array, S: Serializer>(list: &SmallVec<A>, to: S) -> Result<S::Ok, S::Error>
    where
        A::Item: Serialize,
    {
        to.collect_seq(list)
    }

    pub(in crate::upf) fn deserialize<'de, A: Array, D: Deserializer<'de>>(from: D) -> Result<SmallVec<A>, D::Error>
    where
        A::Item: Deserialize<'de>,
    {
        Vec::deserialize(from).map(SmallVec::from_iter)
    }
}
