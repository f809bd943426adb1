//! Protocol buffers of any value of serde, type-driven as postcard is. What a schema would say follows from the type:
//!
//! - a value by itself is the field 1 of a message; a struct is a message whose fields are numbered from 1 in their order;
//! - unsigned numbers, booleans and characters are varints, signed ones zigzag varints, floating-point ones fixed; zeros, empty
//!   strings and empty messages that are fields of a struct are left out, but not within an option, which is a field with presence;
//! - a sequence or a tuple is a repeated field, whose numbers are packed; a map is one of messages of key (1) and value (2). Within
//!   an option, an enum or another sequence it is a message with that field 1, as an option is within a sequence;
//! - an enum is a message of one field (a oneof), numbered by the variant from 1: empty, the value, or the message of its fields.
//!
//! The varints and keys are `prost`'s.

mod read;
mod write;

pub(super) use read::{from_slice, from_slice_seed};
pub(super) use write::to_vec;
