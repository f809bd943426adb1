//! Claims of the papers.

mod cloud;
mod mmlite;
mod pepc;
mod stateless;

use super::source::Source;

/// Papers whose claims the page lists, in its order.
pub(super) const ALL: &[Source] = &[mmlite::SOURCE, pepc::SOURCE, stateless::SOURCE, cloud::SOURCE];
