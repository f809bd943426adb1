//! Adapters over the codecs and the security crate: the only crate that names them.
//!
//! NGAP, NAS and the 3GPP security functions are the `oxirush` crates', re-exported here so that one place pins and
//! replaces them. What those crates do not have is Vireo's own: PFCP without copies ([`pfcp`]) and GTP-U ([`gtpu`]).
//! Nothing here keeps state, does I/O or reads a clock, and no input makes it panic.
#![forbid(unsafe_code)]

/// NGAP (TS 38.413): the codec's types and macros.
pub mod ngap {
    pub use oxirush_ngap::aper::{BitString, Bits};
    pub use oxirush_ngap::ngap::*;
    pub use oxirush_ngap::{Deviation, Error, Message, NgapPduKind, helpers, ie};
    pub use oxirush_ngap::{aper, build_ngap, build_ngap_ie, extract_ngap_ies};
}

/// NAS of 5GS (TS 24.501): messages, IEs and the security context.
pub mod nas {
    pub use oxirush_nas::nas_5gs::*;
}

/// The security functions (TS 33.501, TS 33.102, TS 35.206).
pub mod security {
    pub use oxirush_security::*;
}

pub mod gtpu;
pub mod permutation;
pub mod pfcp;
