//! Messages as pycrate encodes them (`tests/reference`), for tests.

/// Messages of 5G.
const NR: &[&str] = &[include_str!("../../../tests/reference/golden.txt")];
/// Messages of EPS: those of the emulator and the core, and those of the core alone.
const EPS: &[&str] =
    &[include_str!("../../../tests/reference/golden_eps.txt"), include_str!("../../../tests/reference/golden_mme.txt")];

fn find(texts: &[&str], name: &str) -> Option<Vec<u8>> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let digits = lines.into_iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(hex::decode(digits).expect("hexadecimal digits"))
}

/// Returns the octets of a message of 5G.
pub(crate) fn nr(name: &str) -> Vec<u8> {
    find(NR, name).unwrap_or_else(|| panic!("no golden message {name}"))
}

/// Returns the octets of a message of EPS.
pub(crate) fn eps(name: &str) -> Vec<u8> {
    find(EPS, name).unwrap_or_else(|| panic!("no golden message {name}"))
}
