//! Lists in pages, with opaque cursors.
//!
//! A cursor is sealed with a key of this process: a holder of the role `read` cannot get a SUPI out
//! of it, and a cursor that was made up is refused.

use crate::problem::Problem;
use axum::http::StatusCode;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use utoipa::{IntoParams, ToSchema};

/// Items of a page if the request has no limit.
const DEFAULT_LIMIT: usize = 100;
/// Maximum of items of a page.
pub(crate) const MAX_LIMIT: usize = 1000;
/// Maximum length of a cursor in characters.
const CURSOR: usize = 256;

/// Part of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Value of `after` for the next page; null at the end of the list.
    pub(crate) next: Option<String>,
    /// Number of items of the selection; null where only a scan could count them.
    pub(crate) total: Option<u64>,
}

impl<T> Page<T> {
    /// Returns a page of a list that is in memory.
    ///
    /// # Errors
    ///
    /// Returns a problem if the cursor of the next page cannot be sealed.
    pub(crate) fn from_all(all: Vec<T>, cut: Cut, cursors: &Cursors) -> Result<Self, Problem> {
        let total = all.len();
        let from = cut.after.as_deref().and_then(|after| after.parse().ok()).unwrap_or(0).min(total);
        let until = from.saturating_add(cut.limit).min(total);
        let items = all.into_iter().skip(from).take(cut.limit).collect();
        let next = (until < total).then(|| cursors.seal(&until.to_string())).transpose()?;
        Ok(Page { items, next, total: Some(total as u64) })
    }
}

/// Query of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Maximum of items in the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// Cursor of the page, from `next` of the page before.
    #[param(max_length = 256)]
    after: Option<String>,
}

/// A checked [`PageQuery`].
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) limit: usize,
    /// Content of the cursor.
    pub(crate) after: Option<String>,
}

impl PageQuery {
    /// Returns the checked query.
    pub(crate) fn cut(&self, cursors: &Cursors) -> Result<Cut, Problem> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(Problem::bad_request(format_args!("limit: {limit} is not in 1 to {MAX_LIMIT}")));
        }
        let open = |after: &String| {
            let stale = "after: no cursor of this process; start from the first page";
            cursors.open(after).ok_or_else(|| Problem::bad_request(stale))
        };
        Ok(Cut { limit, after: self.after.as_ref().map(open).transpose()? })
    }
}

/// Key of the cursors, and the nonce of the next one: a counter, because the key is of this process
/// alone.
pub(crate) struct Cursors {
    key: LessSafeKey,
    next_nonce: AtomicU64,
}

impl Cursors {
    /// Creates a random key.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        // The length is that of the algorithm.
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(|_| getrandom::Error::UNSUPPORTED)?;
        Ok(Cursors { key: LessSafeKey::new(key), next_nonce: AtomicU64::new(0) })
    }

    /// Seals the content of a cursor.
    ///
    /// # Errors
    ///
    /// Returns a problem if the content is too long for the cipher, which no content is.
    pub(crate) fn seal(&self, content: &str) -> Result<String, Problem> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.next_nonce.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let mut sealed = content.as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed)
            .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "next: the cursor cannot be sealed"))?;
        Ok(hex::encode([&nonce[..], &sealed].concat()))
    }

    fn open(&self, cursor: &str) -> Option<String> {
        let mut sealed = hex::decode(cursor.get(..).filter(|text| text.len() <= CURSOR)?).ok()?;
        let (nonce, content) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.key.open_in_place(nonce, Aad::empty(), content).ok()?;
        String::from_utf8(opened.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_the_list_once() {
        let cursors = Cursors::new().unwrap();
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let query = PageQuery { limit: Some(3), after };
            let page = Page::from_all((0..10).collect::<Vec<_>>(), query.cut(&cursors).unwrap(), &cursors).unwrap();
            assert_eq!(page.total, Some(10));
            seen.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn foreign_cursors_and_limits_are_refused() {
        let (cursors, other) = (Cursors::new().unwrap(), Cursors::new().unwrap());
        let sealed = cursors.seal("999700000000001").unwrap();
        assert_ne!(cursors.seal("999700000000001").unwrap(), sealed, "each has its nonce");
        assert_eq!(cursors.open(&sealed).as_deref(), Some("999700000000001"));
        assert_eq!(other.open(&sealed), None);
        let mut changed = sealed.clone().into_bytes();
        changed[30] ^= 1;
        for bad in [String::from_utf8(changed).unwrap(), "00".repeat(300), "zz".into(), String::new(), "€".into()] {
            let query = PageQuery { limit: None, after: Some(bad.clone()) };
            assert!(query.cut(&cursors).is_err(), "{bad}");
        }
        for limit in [0, 1001, usize::MAX] {
            assert!(PageQuery { limit: Some(limit), after: None }.cut(&cursors).is_err());
        }
    }
}
