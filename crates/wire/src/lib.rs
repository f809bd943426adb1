//! Codecs and security functions of 3GPP protocols, without state or I/O.
//!
//! NGAP, S1AP, NAS and the 3GPP security functions are re-exported from the `oxirush` crates, which
//! only this crate names. Vireo implements PFCP ([`pfcp`]) and GTP-U ([`gtpu`]), both without
//! copies, and EAP-AKA' ([`eap`]). This crate keeps no state, does no I/O and reads no clock. No
//! input causes a panic.
#![forbid(unsafe_code)]

/// NGAP (TS 38.413): types and macros of the codec.
pub mod ngap {
    pub use oxirush_ngap::aper::{BitString, Bits};
    pub use oxirush_ngap::ngap::*;
    pub use oxirush_ngap::{Deviation, Error, Message, NgapPduKind, helpers, ie};
    pub use oxirush_ngap::{aper, build_ngap, build_ngap_ie, extract_ngap_ies};
}

/// S1AP (TS 36.413): types and macros of the codec.
pub mod s1ap {
    pub use oxirush_s1ap::aper::{BitString, Bits};
    pub use oxirush_s1ap::s1ap::*;
    pub use oxirush_s1ap::{Deviation, Error, Message, S1apPduKind, helpers, ie};
    pub use oxirush_s1ap::{aper, build_s1ap, build_s1ap_ie, extract_s1ap_ies};
}

/// NAS of 5GS (TS 24.501): messages, IEs and the security context.
pub mod nas {
    pub use oxirush_nas::nas_5gs::*;
}

/// NAS of EPS (TS 24.301): messages, IEs and the security context.
pub mod nas_eps {
    pub use oxirush_nas::nas_eps::*;
}

/// Security functions (TS 33.501, TS 33.401, TS 33.102, TS 35.206).
pub mod security {
    pub use oxirush_security::*;
}

pub mod eap;
pub mod gtpu;
pub mod permutation;
pub mod pfcp;
