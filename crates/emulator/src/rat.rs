//! Radio access technologies: 5G with NGAP, 4G with S1AP.

/// Radio access technology, and with it the dialect of a node and of its UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rat {
    /// gNBs over NGAP, UEs over NAS of 5GS.
    Nr,
    /// eNBs over S1AP, UEs over NAS of EPS.
    Eps,
}

/// Radio access technologies of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rats {
    #[default]
    Nr,
    Eps,
    /// As many eNBs as gNBs, and half of the UEs each.
    Both,
}

impl Rats {
    /// All choices.
    pub const ALL: [Rats; 3] = [Rats::Nr, Rats::Eps, Rats::Both];

    /// Returns the name in the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Rats::Nr => "nr",
            Rats::Eps => "eps",
            Rats::Both => "both",
        }
    }

    /// Returns the choice with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rats| rats.name() == name)
    }

    /// Returns the technologies one by one.
    pub fn list(self) -> &'static [Rat] {
        match self {
            Rats::Nr => &[Rat::Nr],
            Rats::Eps => &[Rat::Eps],
            Rats::Both => &[Rat::Nr, Rat::Eps],
        }
    }
}
