//! Authentication methods of 5G and their vectors.

use super::{AuthenticationInfo, Subscription};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use vireo_types::{Plmn, Supi};
use zeroize::Zeroize;

/// Method of primary authentication in 5G (TS 33.501 6.1.2). In EPS it is EPS AKA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthenticationMethod {
    #[default]
    #[serde(rename = "5g-aka")]
    FiveGAka,
    /// EAP-AKA' (TS 33.501 6.1.3.1).
    #[serde(rename = "eap-aka-prime")]
    EapAkaPrime,
}

/// A text names no authentication method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an authentication method is 5g-aka or eap-aka-prime")]
pub struct AuthenticationMethodError;

impl fmt::Display for AuthenticationMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthenticationMethod::FiveGAka => "5g-aka",
            AuthenticationMethod::EapAkaPrime => "eap-aka-prime",
        })
    }
}

impl FromStr for AuthenticationMethod {
    type Err = AuthenticationMethodError;

    fn from_str(text: &str) -> Result<Self, AuthenticationMethodError> {
        let all = [AuthenticationMethod::FiveGAka, AuthenticationMethod::EapAkaPrime];
        all.into_iter().find(|method| method.to_string() == text).ok_or(AuthenticationMethodError)
    }
}

/// Authentication vector of the subscriber service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthenticationVector {
    /// Of 5G AKA or EPS AKA.
    Aka(AuthenticationInfo),
    /// Of EAP-AKA'.
    EapAkaPrime(TransformedVector),
}

impl AuthenticationVector {
    /// Returns the subscriber of the vector.
    pub fn supi(&self) -> Supi {
        match self {
            AuthenticationVector::Aka(info) => info.supi,
            AuthenticationVector::EapAkaPrime(vector) => vector.supi,
        }
    }
}

impl From<AuthenticationInfo> for AuthenticationVector {
    fn from(info: AuthenticationInfo) -> Self {
        AuthenticationVector::Aka(info)
    }
}

/// Transformed authentication vector AV' with the subscription (TS 33.501 6.1.3.1). `Debug` prints
/// no key. Keys are overwritten on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformedVector {
    /// De-concealed if the request had a SUCI.
    pub supi: Supi,
    /// Serving network to which CK' and IK' are bound.
    pub serving_network: Plmn,
    pub rand: [u8; 16],
    pub autn: [u8; 16],
    /// XRES by Milenage (TS 35.206 5.1).
    pub xres: [u8; 8],
    pub ck_prime: [u8; 16],
    pub ik_prime: [u8; 16],
    pub subscription: Subscription,
}

impl Drop for TransformedVector {
    fn drop(&mut self) {
        self.xres.zeroize();
        self.ck_prime.zeroize();
        self.ik_prime.zeroize();
    }
}

impl fmt::Debug for TransformedVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransformedVector").field("supi", &self.supi).finish_non_exhaustive()
    }
}
