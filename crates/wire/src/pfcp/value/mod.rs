//! Information elements that are not grouped (TS 29.244 8.2), one type each.

mod access;
mod flags;
mod flow;
mod node;
mod number;
mod text;
mod tunnel;
mod usage;

pub use access::*;
pub use flags::*;
pub use flow::*;
pub use node::*;
pub use number::*;
pub use text::*;
pub use tunnel::*;
pub use usage::*;
