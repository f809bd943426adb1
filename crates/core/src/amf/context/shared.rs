//! Serialization of shared values: each copy is stored in full.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

pub(super) fn serialize<T: Serialize, S: Serializer>(value: &Option<Arc<T>>, s: S) -> Result<S::Ok, S::Error> {
    value.as_deref().serialize(s)
}

pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<Arc<T>>, D::Error> {
    Ok(Option::deserialize(d)?.map(Arc::new))
}
