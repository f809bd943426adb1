//! Mobility restrictions of a subscriber by tracking area (TS 23.501 5.3.4.1.1).

use serde::{Deserialize, Serialize};
use vireo_types::Tac;

/// Upper bound of the tracking areas of forbidden areas.
pub const FORBIDDEN_AREAS: usize = 64;
/// Upper bound of the tracking areas of a service area (TS 24.501 9.11.3.49, TS 38.413 9.3.1.85).
pub const SERVICE_AREA: usize = 16;

/// Areas of each served PLMN in which the UE is restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaRestrictions {
    /// Tracking areas in which the UE gets no service, at most [`FORBIDDEN_AREAS`].
    pub forbidden: Vec<Tac>,
    /// Service area restriction, of 5G alone; `None` = there is none.
    pub service: Option<ServiceArea>,
}

/// Service area restriction: 1 to [`SERVICE_AREA`] tracking areas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceArea {
    /// The other tracking areas are non-allowed areas.
    Allowed(Vec<Tac>),
    NotAllowed(Vec<Tac>),
}

impl ServiceArea {
    /// Returns the tracking areas of the list.
    pub fn tacs(&self) -> &[Tac] {
        match self {
            ServiceArea::Allowed(tacs) | ServiceArea::NotAllowed(tacs) => tacs,
        }
    }
}

impl AreaRestrictions {
    /// Returns true if the UE may be anywhere.
    pub fn is_empty(&self) -> bool {
        self.forbidden.is_empty() && self.service.is_none()
    }

    /// Returns the restrictions that EPS has: it has no service areas, and tracking area codes of
    /// 16 bits.
    pub fn in_eps(mut self) -> Self {
        self.forbidden.retain(|tac| tac.eps().is_some());
        AreaRestrictions { service: None, ..self }
    }

    /// Returns true if the lists have lengths and tracking area codes that messages can have.
    pub fn is_valid(&self) -> bool {
        let service = self.service.as_ref().map(ServiceArea::tacs);
        let is_tac = |tac: &Tac| tac.0 <= 0xff_ffff;
        self.forbidden.len() <= FORBIDDEN_AREAS
            && service.is_none_or(|tacs| (1..=SERVICE_AREA).contains(&tacs.len()))
            && self.forbidden.iter().chain(service.unwrap_or_default()).all(is_tac)
    }

    /// Returns true if the tracking area is a forbidden area.
    pub fn is_forbidden(&self, tac: Tac) -> bool {
        self.forbidden.contains(&tac)
    }

    /// Returns true if the tracking area is a non-allowed area.
    pub fn is_restricted(&self, tac: Tac) -> bool {
        match &self.service {
            None => false,
            Some(ServiceArea::Allowed(tacs)) => !tacs.contains(&tac),
            Some(ServiceArea::NotAllowed(tacs)) => tacs.contains(&tac),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_area_divides_tracking_areas() {
        let with = |service| AreaRestrictions { forbidden: vec![Tac(3)], service };
        let restricted = |areas: &AreaRestrictions| [1, 2, 3].map(|tac| areas.is_restricted(Tac(tac)));
        assert_eq!(restricted(&with(None)), [false; 3]);
        assert_eq!(restricted(&with(Some(ServiceArea::Allowed(vec![Tac(1)])))), [false, true, true]);
        assert_eq!(restricted(&with(Some(ServiceArea::NotAllowed(vec![Tac(1)])))), [true, false, false]);
        assert_eq!([1, 2, 3].map(|tac| with(None).is_forbidden(Tac(tac))), [false, false, true]);
    }

    #[test]
    fn lists_beyond_messages_are_not_valid() {
        let service = |count| Some(ServiceArea::Allowed((0..count).map(Tac).collect()));
        let areas = |forbidden, service| AreaRestrictions { forbidden: (0..forbidden).map(Tac).collect(), service };
        for (valid, areas) in [
            (true, areas(64, service(16))),
            (false, areas(65, None)),
            (false, areas(0, service(17))),
            (false, areas(0, service(0))),
            (false, AreaRestrictions { forbidden: vec![Tac(0x0100_0000)], service: None }),
        ] {
            assert_eq!(areas.is_valid(), valid, "{areas:?}");
        }
    }
}
