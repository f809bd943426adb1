//! Label of the machine that hosts share.

use serde::{Deserialize, Serialize};

/// Label of a machine: 1 to 64 printable ASCII characters without spaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineLabel(String);

/// A text that is no machine label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("1 to {} printable ASCII characters without spaces are allowed", MachineLabel::MAX_CHARACTERS)]
pub struct MachineLabelError;

impl MachineLabel {
    /// Maximum length of a label.
    pub const MAX_CHARACTERS: usize = 64;

    /// Returns the label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for MachineLabel {
    type Error = MachineLabelError;

    fn try_from(text: String) -> Result<Self, MachineLabelError> {
        let is_valid =
            (1..=MachineLabel::MAX_CHARACTERS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if is_valid { Ok(MachineLabel(text)) } else { Err(MachineLabelError) }
    }
}

impl From<MachineLabel> for String {
    fn from(label: MachineLabel) -> String {
        label.0
    }
}

impl std::fmt::Display for MachineLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_printable_ascii_without_spaces() {
        let label = |text: &str| MachineLabel::try_from(text.to_owned());
        assert_eq!(label("rack1-a").map(|label| label.to_string()), Ok("rack1-a".into()));
        assert!(label(&"m".repeat(64)).is_ok());
        for text in ["", "rack 1", "m\u{e4}chine", "a\n", "\x7f", &"m".repeat(65)] {
            assert_eq!(label(text), Err(MachineLabelError), "{text:?}");
        }
        let octets = postcard::to_stdvec("rack 1").expect("an encoding");
        assert!(postcard::from_bytes::<MachineLabel>(&octets).is_err(), "a peer sends no other text");
    }
}
