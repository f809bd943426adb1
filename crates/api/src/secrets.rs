//! Secrets in the text of a configuration file.
//!
//! The n-th secret of a file is shown as `****n****`. A text that comes back has the secret of the
//! present file in place of its mask.

use toml::Value;

/// Keys whose values are secrets.
const KEYS: [&str; 4] = ["private", "password", "secret", "token"];

/// Returns the secrets of a file, each once: values of [`KEYS`], and the user information of URLs.
fn secrets(text: &str) -> Vec<String> {
    let mut unique = Vec::new();
    for secret in text.parse().map(all_secrets).unwrap_or_default() {
        if !secret.is_empty() && !unique.contains(&secret) {
            unique.push(secret);
        }
    }
    unique
}

/// Returns the secrets of a file, in the places that it has for them.
fn all_secrets(file: toml::Table) -> Vec<String> {
    let mut found = Vec::new();
    collect("", &Value::Table(file), &mut found);
    found
}

fn collect(key: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if KEYS.contains(&key) => found.push(text.clone()),
        Value::String(text) => found.extend(user_information(text)),
        Value::Array(all) => all.iter().for_each(|value| collect(key, value, found)),
        Value::Table(table) => table.iter().for_each(|(key, value)| collect(key, value, found)),
        _ => {}
    }
}

/// Returns `user:password` of a URL.
fn user_information(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    authority.rsplit_once('@').map(|(user, _)| user.to_owned())
}

fn mask_of(number: usize) -> String {
    format!("****{number}****")
}

/// Returns the text with masks in place of its secrets.
///
/// # Errors
///
/// Returns the reason if a secret cannot be masked: the text cannot be shown.
pub(crate) fn mask(text: &str) -> Result<String, String> {
    if text.parse::<toml::Table>().is_err() {
        return Err("the present file is no TOML; it is not shown, because it may have secrets".into());
    }
    let secrets = secrets(text);
    let mut order: Vec<usize> = (0..secrets.len()).collect();
    // A secret may be part of another.
    order.sort_by_key(|at| std::cmp::Reverse(secrets[*at].len()));
    let mut masked = text.to_owned();
    for at in order {
        if !text.contains(&secrets[at]) {
            return Err("the file has a secret with escapes; it is not shown: write the secret without them".into());
        }
        masked = masked.replace(&secrets[at], &mask_of(at + 1));
    }
    Ok(masked)
}

/// Returns a text with the secrets of `present` in place of its masks. A text that is no TOML keeps
/// its masks: it is refused with an error that may quote it.
///
/// # Errors
///
/// Returns the reason if a mask is not one of `present`, or is where a value would be shown.
pub(crate) fn unmask(text: &str, present: &str) -> Result<String, String> {
    if text.parse::<toml::Table>().is_err() {
        return Ok(text.to_owned());
    }
    let (mut whole, masked) = (text.to_owned(), mask(present).unwrap_or_default());
    for (at, secret) in secrets(present).iter().enumerate() {
        let mask = mask_of(at + 1);
        // The mask of a secret that the present file also has in a comment is in both.
        if outside(text, &mask) > outside(&masked, &mask) {
            return Err("a masked value is where no secret is: write the value itself".into());
        }
        whole = whole.replace(&mask, secret);
    }
    let has_mask = (1..=64).any(|number| whole.contains(&mask_of(number)));
    if has_mask { Err("a masked value is none of the present file: write the secret itself".into()) } else { Ok(whole) }
}

/// Returns how often a mask is in a file where no secret has its place.
fn outside(text: &str, mask: &str) -> usize {
    let places = text.parse().map(all_secrets).unwrap_or_default();
    text.matches(mask).count().saturating_sub(places.iter().filter(|secret| *secret == mask).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment\n[state]\ndatabase = \"redis://vireo:hunter2@10.0.0.1:6379/0\"\n\
        [[subscribers.home-network-key]]\nid = 1\nprivate = \"c53c22208b61860b06c62e5406a7b330\"\n\
        [[subscribers.home-network-key]]\nid = 2\nprivate = '''\nc53c2220'''\n\
        [x]\nkeys = [{ id = 2, private = 'aa55' }, { private = \"bb66\" }]\n[log]\nlevel = \"info\"";

    #[test]
    fn secrets_are_masked_and_come_back() {
        let masked = mask(FILE).unwrap();
        for secret in ["hunter2", "c53c", "aa55", "bb66"] {
            assert!(!masked.contains(secret), "{masked}");
        }
        assert!(masked.contains("@10.0.0.1:6379/0") && masked.contains("# a comment"), "{masked}");
        assert_eq!(unmask(&masked, FILE).as_deref(), Ok(FILE));
        let changed = masked.replace("\"info\"", "\"debug\"").replace("id = 1", "id = 9");
        let expected = FILE.replace("\"info\"", "\"debug\"").replace("id = 1", "id = 9");
        assert_eq!(unmask(&changed, FILE), Ok(expected));
    }

    /// The check of a configuration shows the values that change, and quotes wrong ones.
    #[test]
    fn mask_elsewhere_reveals_no_secret() {
        let masked = mask(FILE).unwrap();
        for revealing in ["name = \"****1****\"\n", "level = [\"a****2****\"]\n", "private = \"x****3****\"\n"] {
            assert!(unmask(&format!("{revealing}{masked}"), FILE).is_err(), "{revealing}");
        }
        let torn = format!("{masked}\nname = ****1****");
        assert_eq!(unmask(&torn, FILE), Ok(torn.clone()), "no TOML");
        let commented = format!("# private was aa55\n{FILE}");
        assert_eq!(unmask(&mask(&commented).unwrap(), &commented), Ok(commented));
    }

    #[test]
    fn unknown_masks_and_texts_are_refused() {
        assert!(unmask("private = \"****9****\"", FILE).is_err());
        assert!(mask("private = \"x").is_err(), "no TOML");
        assert!(mask("private = \"x\\u0041\"").is_err(), "escapes");
        assert_eq!(mask("").as_deref(), Ok(""));
    }
}
