//! `vireo experiment report`: pages with the claims of the papers beside recorded figures, and with
//! a model of large machines.
//!
//! The claims are tables in code: the words of the paper, the figures that answer them, and what
//! makes the terms differ. All figures of Vireo are read from `results/`. The pages depend on
//! nothing else.

mod capacity;
mod claims;
mod page;
mod record;
mod source;

use record::Records;
use std::path::{Path, PathBuf};
use vireo_config::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the page of claims to FILE, and capacity.md beside it
    #[arg(long, value_name = "FILE", default_value = "docs/evaluation/claims.md")]
    out: PathBuf,
    /// Read the summaries of DIR/NAME/summary.json
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
}

/// Writes the pages from the recorded summaries.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let capacity = args.out.with_file_name("capacity.md");
    for (path, text) in [(&args.out, text(&args.results)?), (&capacity, capacity::page(&args.results)?)] {
        std::fs::write(path, text).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        eprintln!("experiment: page {}", path.display());
    }
    Ok(())
}

/// Returns the page of the records in this folder.
fn text(results: &Path) -> Result<String, Failure> {
    let answers = claims::ALL.iter().flat_map(|source| source.claims).flat_map(|claim| claim.answers);
    let records = Records::read(results, answers.map(|answer| answer.record))?;
    Ok(page::page(claims::ALL, &records))
}

#[cfg(test)]
mod tests {
    use super::source::{Answer, Claim, Prediction};
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn committed_pages_show_committed_results() {
        let results = root().join("results");
        for (name, written) in
            [("claims.md", text(&results).unwrap()), ("capacity.md", capacity::page(&results).unwrap())]
        {
            let committed = std::fs::read_to_string(root().join("docs/evaluation").join(name)).unwrap();
            let differs = written.lines().zip(committed.lines()).find(|(written, committed)| written != committed);
            assert!(
                written == committed,
                "{differs:?}: run `vireo experiment report` and commit docs/evaluation/{name}"
            );
        }
    }

    #[test]
    fn answers_name_recorded_figures() {
        let answers = || claims::ALL.iter().flat_map(|source| source.claims).flat_map(|claim| claim.answers);
        let records = Records::read(&root().join("results"), answers().map(|answer| answer.record)).unwrap();
        for Answer { record, figure, expected, .. } in answers() {
            let found = records.figure(record, figure);
            let found = found.unwrap_or_else(|| panic!("{record} has no figure {figure:?}"));
            let needs = matches!(expected, Prediction::Baseline(_) | Prediction::OverBaseline(_));
            assert!(!needs || found.baseline.is_some(), "{record}: {figure:?} has no baseline");
        }
    }

    #[test]
    fn claims_are_complete_and_unique() {
        let all: Vec<&Claim> = claims::ALL.iter().flat_map(|source| source.claims).collect();
        for (index, claim) in all.iter().enumerate() {
            let Claim { title, location, words, caveat, .. } = claim;
            assert!(all[..index].iter().all(|other| other.title != *title), "{title}");
            assert!(!location.is_empty() && words.len() > 20 && caveat.ends_with('.'), "{title}");
        }
    }

    #[test]
    fn page_without_records_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let args = Args { out: directory.path().join("claims.md"), results: directory.path().join("none") };
        run(&args).unwrap();
        let page = std::fs::read_to_string(&args.out).unwrap();
        assert!(page.contains("not recorded") && page.contains("vireo experiment mmlite-fig6"), "{page}");
        let capacity = std::fs::read_to_string(directory.path().join("capacity.md")).unwrap();
        assert!(capacity.contains("not recorded"), "{capacity}");
        std::fs::create_dir_all(directory.path().join("none/mmlite-fig6")).unwrap();
        std::fs::write(directory.path().join("none/mmlite-fig6/summary.json"), "{}").unwrap();
        assert!(run(&args).unwrap_err().to_string().contains("mmlite-fig6/summary.json"));
    }
}
