//! A RAN and its UEs that work against any 5G core.
#![forbid(unsafe_code)]

pub mod gnb;
pub mod ue;
pub mod usim;
