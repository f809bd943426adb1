//! Rules of a session (TS 29.244 5.2): elements to create, update and remove them.

mod bar;
mod far;
mod pdr;
mod qer;
mod urr;

pub use bar::*;
pub use far::*;
pub use pdr::*;
pub use qer::*;
pub use urr::*;
