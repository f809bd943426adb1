//! Work that waits until a UE can be served.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vireo_types::DeregistrationCause;

/// Work queued for a UE that is idle or cannot be served yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingWork {
    /// Sessions whose user plane is to be activated; bit n is PDU session ID n, or EPS bearer
    /// identity n in EPS.
    pub sessions: u16,
    /// A session has a NAS message for the UE.
    pub signalling: bool,
    /// The UE is to be deregistered; the value is true if re-registration is required.
    pub deregister: Option<bool>,
    /// Cause of the deregistration, if the operator has named one.
    pub cause: Option<DeregistrationCause>,
    /// The GUTI is to be changed on the present connection (TS 33.501 6.12.3).
    pub reallocate: bool,
    /// The UE of 5G is to receive its allowed NSSAI on its next connection.
    pub allowed: bool,
    /// The UE is to receive its tracking areas and service area on its next connection, and its RAN
    /// node the mobility restrictions and the RFSP Index.
    pub areas: bool,
    /// The UE is to be authenticated in its next registration or update: the record of its
    /// subscriber has changed.
    pub authenticate: bool,
}

impl PendingWork {
    /// Returns true if an idle UE must be paged for the work.
    pub fn needs_page(&self) -> bool {
        self.sessions != 0 || self.signalling || self.deregister.is_some()
    }

    /// Returns true if there is work for a connected UE.
    pub fn is_due(&self) -> bool {
        self.needs_page() || self.reallocate || self.allowed || self.areas
    }

    /// Takes the work for a connected UE.
    pub fn take(&mut self) -> Self {
        let rest = PendingWork { authenticate: self.authenticate, ..PendingWork::default() };
        std::mem::replace(self, rest)
    }
}

/// Flags of the binary form. Release 0.2.0 reads [`SIGNALLING`] alone, or none.
const SIGNALLING: u16 = 1;
const REALLOCATE: u16 = 2;
const ALLOWED: u16 = 4;
const AUTHENTICATE: u16 = 8;
const AREAS: u16 = 16;
/// Position of the cause, which is stored as its index plus 1.
const CAUSE: u32 = 5;

/// Form with names.
#[derive(Serialize, Deserialize)]
#[serde(rename = "PendingWork")]
struct Named {
    sessions: u16,
    signalling: bool,
    deregister: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<DeregistrationCause>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reallocate: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allowed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    areas: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    authenticate: bool,
}

/// Binary form: sessions, flags, deregistration.
#[derive(Serialize, Deserialize)]
struct Binary(u16, u16, Option<bool>);

impl Serialize for PendingWork {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let PendingWork { sessions, signalling, deregister, cause, reallocate, allowed, areas, authenticate } = *self;
        if s.is_human_readable() {
            let named = Named { sessions, signalling, deregister, cause, reallocate, allowed, areas, authenticate };
            return named.serialize(s);
        }
        let flags = [
            (signalling, SIGNALLING),
            (reallocate, REALLOCATE),
            (allowed, ALLOWED),
            (authenticate, AUTHENTICATE),
            (areas, AREAS),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, bit)| flags | bit);
        let cause = cause.map_or(0, |cause| u16::from(cause.index()) + 1);
        Binary(sessions, flags | cause << CAUSE, deregister).serialize(s)
    }
}

impl<'de> Deserialize<'de> for PendingWork {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let Named { sessions, signalling, deregister, cause, reallocate, allowed, areas, authenticate } =
                Named::deserialize(d)?;
            return Ok(PendingWork {
                sessions,
                signalling,
                deregister,
                cause,
                reallocate,
                allowed,
                areas,
                authenticate,
            });
        }
        let Binary(sessions, flags, deregister) = Binary::deserialize(d)?;
        let [signalling, reallocate, allowed, authenticate, areas] =
            [SIGNALLING, REALLOCATE, ALLOWED, AUTHENTICATE, AREAS].map(|bit| flags & bit != 0);
        let cause = (flags >> CAUSE).checked_sub(1).and_then(|index| DeregistrationCause::at(index as u8));
        Ok(PendingWork { sessions, signalling, deregister, cause, reallocate, allowed, areas, authenticate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_roundtrip_is_exact() {
        for flags in 0..32_u8 {
            let [signalling, reallocate, allowed, authenticate, areas] =
                [0, 1, 2, 3, 4].map(|bit| flags >> bit & 1 == 1);
            let cause = DeregistrationCause::at(flags);
            let deregister = Some(true);
            let work = PendingWork {
                sessions: 0x1234,
                signalling,
                deregister,
                cause,
                reallocate,
                allowed,
                areas,
                authenticate,
            };
            let octets = postcard::to_allocvec(&work).expect("it encodes");
            assert_eq!(postcard::from_bytes(&octets), Ok(work));
        }
        // The form of release 0.2.0.
        let before = postcard::to_allocvec(&(7_u16, true, Some(false))).expect("it encodes");
        let work = PendingWork { sessions: 7, signalling: true, deregister: Some(false), ..PendingWork::default() };
        assert_eq!(postcard::to_allocvec(&work), Ok(before));
    }
}
