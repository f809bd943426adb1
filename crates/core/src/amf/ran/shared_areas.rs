//! Serialization of a shared list of tracking areas: each copy is stored in full.

use super::SupportedArea;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

pub(super) fn serialize<S: Serializer>(areas: &Arc<[SupportedArea]>, s: S) -> Result<S::Ok, S::Error> {
    areas[..].serialize(s)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<[SupportedArea]>, D::Error> {
    Ok(Vec::<SupportedArea>::deserialize(d)?.into())
}
