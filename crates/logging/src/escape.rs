//! Text without control characters.

use std::fmt::{self, Write};

/// A writer that replaces control characters by `\u{..}`.
///
/// So a line stays one line, and a terminal executes no control sequences.
#[derive(Debug)]
pub struct Escaped<'a, W: ?Sized>(pub &'a mut W);

impl<W: Write + ?Sized> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = from.chars();
            let escaped = characters.next().map_or_else(String::new, |c| c.escape_default().to_string());
            self.0.write_str(&escaped)?;
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let mut text = String::new();
        Escaped(&mut text).write_str("gnb\n2026 ERROR \r\u{1b}[31m\u{9b}\u{7f} ü").expect("a string");
        assert_eq!(text, "gnb\\n2026 ERROR \\r\\u{1b}[31m\\u{9b}\\u{7f} ü");
    }
}
