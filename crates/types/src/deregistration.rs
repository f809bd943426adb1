//! Cause with which an operator deregisters a UE.

use crate::Dialect;
use serde::{Deserialize, Serialize};

/// 5GMM cause, or EMM cause in 4G, of a deregistration by the network (TS 24.501 5.5.2.3.2,
/// TS 24.301 5.5.2.3.2). It determines what the UE does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct DeregistrationCause(u8);

/// Value that is no cause of a deregistration, or one that needs further information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cause {0} is not permitted; permitted are 3, 6, 7, 8, 11, 12, 13, 14, 15 and 27")]
pub struct DeregistrationCauseError(u8);

impl DeregistrationCause {
    /// Permitted values: the causes that need no further IE and concern no other type of network.
    /// #8 and #14 are of 4G, #27 is of 5G.
    pub const PERMITTED: [u8; 10] = [3, 6, 7, 8, 11, 12, 13, 14, 15, 27];

    /// Returns the value in a dialect. A cause that the dialect lacks becomes the one with the same
    /// effect: #8 *all services not allowed* becomes #7, #14 *services not allowed in this PLMN*
    /// becomes #11, and #27 *N1 mode not allowed* becomes #15, which has the UE search for a cell
    /// of 5G.
    pub const fn value_in(self, dialect: Dialect) -> u8 {
        match (dialect, self.0) {
            (Dialect::Nr, 8) => 7,
            (Dialect::Nr, 14) => 11,
            (Dialect::Eps, 27) => 15,
            (_, value) => value,
        }
    }

    /// Returns the position in [`DeregistrationCause::PERMITTED`].
    pub fn index(self) -> u8 {
        DeregistrationCause::PERMITTED.into_iter().zip(0..).find(|(value, _)| *value == self.0).map_or(0, |(_, at)| at)
    }

    /// Returns the cause at a position; `None` if there is none.
    pub fn at(index: u8) -> Option<Self> {
        DeregistrationCause::PERMITTED.get(usize::from(index)).copied().map(DeregistrationCause)
    }
}

impl TryFrom<u8> for DeregistrationCause {
    type Error = DeregistrationCauseError;

    fn try_from(value: u8) -> Result<Self, DeregistrationCauseError> {
        let is_permitted = DeregistrationCause::PERMITTED.contains(&value);
        if is_permitted { Ok(DeregistrationCause(value)) } else { Err(DeregistrationCauseError(value)) }
    }
}

impl From<DeregistrationCause> for u8 {
    fn from(cause: DeregistrationCause) -> u8 {
        cause.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permitted_causes_have_value_in_each_dialect() {
        let in_dialect = |dialect| {
            let value = |cause| DeregistrationCause::try_from(cause).map(|cause| cause.value_in(dialect));
            (0..=u8::MAX).filter_map(|cause| value(cause).ok()).collect::<Vec<_>>()
        };
        assert_eq!(in_dialect(Dialect::Nr), [3, 6, 7, 7, 11, 12, 13, 11, 15, 27]);
        assert_eq!(in_dialect(Dialect::Eps), [3, 6, 7, 8, 11, 12, 13, 14, 15, 15]);
        for (value, index) in DeregistrationCause::PERMITTED.into_iter().zip(0..) {
            let cause = DeregistrationCause::try_from(value).expect("a cause");
            assert_eq!((cause.index(), DeregistrationCause::at(index)), (index, Some(cause)));
        }
        assert_eq!(DeregistrationCause::at(10), None);
    }
}
