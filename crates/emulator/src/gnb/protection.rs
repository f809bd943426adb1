//! UP security policy that a gNB expects for sessions (TS 33.501 6.6.1).

use vireo_wire::ngap::*;

/// Policy for the integrity of user data, which each set-up and handover of a session must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpProtection {
    Required,
    /// The gNB reports that it protects the data.
    Preferred,
    NotNeeded,
    /// As [`UpProtection::Required`], and the gNB cannot protect the data.
    Impossible,
}

impl UpProtection {
    /// Returns true if the Security Indication of a session has this policy.
    pub(super) fn fits(self, indication: Option<&SecurityIndication>) -> bool {
        let expected = match self {
            UpProtection::Required | UpProtection::Impossible => IntegrityProtectionIndication::required,
            UpProtection::Preferred => IntegrityProtectionIndication::preferred,
            UpProtection::NotNeeded => IntegrityProtectionIndication::not_needed,
        };
        indication.is_some_and(|indication| indication.integrity_protection_indication == expected)
    }

    /// Returns the Security Result, which answers a preference (TS 38.413 8.2.1.2).
    pub(super) fn result(self) -> Option<SecurityResult> {
        let performed = (IntegrityProtectionResult::performed, ConfidentialityProtectionResult::performed);
        (self == UpProtection::Preferred).then(|| SecurityResult::new(performed.0, performed.1, None))
    }
}
