//! Protocol buffers encoding of any serde value, driven by its type.
//!
//! The type takes the place of a schema:
//!
//! - A value by itself is field 1 of a message. A struct is a message whose fields are numbered
//!   from 1 in their order.
//! - Unsigned numbers, booleans and characters are varints, signed numbers zigzag varints,
//!   floating-point numbers fixed. Zeros, empty strings and empty messages are omitted as fields of
//!   a struct. They are not omitted within an option, which is a field with presence.
//! - A sequence or a tuple is a repeated field, whose numbers are packed. A map is a repeated field
//!   of messages of key (1) and value (2). Within an option, an enum or another sequence, each of
//!   them is a message with that field 1. So is an option within a sequence.
//! - An enum is a message of one field (a oneof), numbered by the variant from 1. The field is
//!   empty, the value, or the message of the variant's fields.
//!
//! The varints and keys are `prost`'s. Messages of `prost` for all stored types, with conversions,
//! would be larger than this encoder. One message of named values for all of them would compare as
//! JSON does, and state modes are compared by format.

mod read;
mod write;

pub(super) use read::{from_slice, from_slice_seed};
pub(super) use write::to_vec;
