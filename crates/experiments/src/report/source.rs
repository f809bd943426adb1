//! A paper, its claims, and the figures that answer them.

use vireo_bench::results::Bound;

/// A paper with its claims.
pub(super) struct Source {
    /// Prefix of its experiments.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Where it was published, and the form that is quoted.
    pub(super) published: &'static str,
    pub(super) claims: &'static [Claim],
}

/// A claim of a paper.
pub(super) struct Claim {
    pub(super) title: &'static str,
    /// Section and figure, or slide of a talk.
    pub(super) location: &'static str,
    /// Words of the paper.
    pub(super) words: &'static str,
    /// Figures that answer the claim; none if no experiment measures it.
    pub(super) answers: &'static [Answer],
    /// Differences between the paper's terms and ours.
    pub(super) caveat: &'static str,
}

/// A recorded figure that answers a claim.
pub(super) struct Answer {
    /// Folder of the record in `results/`.
    pub(super) record: &'static str,
    pub(super) figure: &'static str,
    /// Number of the paper on the terms of the figure; empty if it has none.
    pub(super) paper: &'static str,
    pub(super) expected: Prediction,
}

/// Result that the claim predicts for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Prediction {
    /// The paper has no number on these terms.
    Nothing,
    Ours(Bound),
    /// The claim concerns the baseline's value.
    Baseline(Bound),
    /// All runs lie between these values, inclusive.
    Between(f64, f64),
    /// The median exceeds the baseline's by at most this.
    OverBaseline(f64),
}

impl Answer {
    /// Creates an answer with a number of the paper.
    pub(super) const fn compared(
        record: &'static str,
        figure: &'static str,
        paper: &'static str,
        expected: Prediction,
    ) -> Self {
        Answer { record, figure, paper, expected }
    }

    /// Creates an answer for which the paper has no number.
    pub(super) const fn shown(record: &'static str, figure: &'static str) -> Self {
        Answer { record, figure, paper: "", expected: Prediction::Nothing }
    }
}
