//! Client of the API of a running core: address, token, requests.
//!
//! The commands that show or change a running core use it, and the lab.

#![forbid(unsafe_code)]

mod api;
pub mod slices;

pub use api::{Answer, Api, ApiArgs};
