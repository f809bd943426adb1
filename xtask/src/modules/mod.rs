//! Import cycles between the Rust modules of a crate, file by file.
//!
//! [`source`] reads what a file declares and uses, [`resolve`] makes edges between files of it,
//! [`graph`] finds the cycles. What is an edge and what is not is documented in [`resolve`].

mod graph;
mod resolve;
mod source;

pub(crate) use resolve::{Sources, files_of};
pub(crate) use source::{Child, Scope, read};

use crate::tidy::{Debt, Rule};
use resolve::{Edges, Reasons};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Files of an import cycle, at most.
pub(crate) const CYCLE_FILES: usize = 3;

/// Files of a crate that import each other.
struct Cycle {
    files: Vec<PathBuf>,
    edges: BTreeMap<(usize, usize), Reasons>,
}

impl Cycle {
    fn cuts(&self) -> Vec<(usize, usize)> {
        let weights = self.edges.iter().map(|(edge, reasons)| (*edge, reasons.len())).collect();
        graph::cuts(self.files.len(), &weights, CYCLE_FILES)
    }

    /// Returns the number of files in cycles of more than [`CYCLE_FILES`] files.
    fn large(&self) -> usize {
        let sizes =
            graph::components(self.files.len(), self.edges.keys().copied()).into_iter().map(|files| files.len());
        sizes.filter(|size| *size > CYCLE_FILES).sum()
    }

    /// Returns the cycle if `name` were declared in a file of its own, instead of the file `at`.
    fn without(&self, at: usize, name: &str) -> Self {
        let mut edges = self.edges.clone();
        for (_, reasons) in edges.iter_mut().filter(|((_, to), _)| *to == at) {
            reasons.retain(|(other, _)| other != name);
        }
        edges.retain(|_, reasons| !reasons.is_empty());
        Self { files: self.files.clone(), edges }
    }

    /// Finds declarations whose move to a file of their own takes the most files out of large
    /// cycles.
    ///
    /// Each move is the best next one. Moves after the last that shrinks a large cycle are left
    /// out. A moved declaration is assumed to need nothing of the cycle itself.
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::<Move>::new();
        while moves.len() < MOVES {
            let Some(next) = moves.last().map_or(self, |last| &last.after).best_move() else { break };
            moves.push(next);
        }
        let large: Vec<usize> = std::iter::once(self.large()).chain(moves.iter().map(|m| m.after.large())).collect();
        moves.truncate(large.windows(2).rposition(|pair| pair[1] < pair[0]).map_or(0, |at| at + 1));
        moves
    }

    fn best_move(&self) -> Option<Move> {
        let names = self.edges.iter().flat_map(|((_, to), reasons)| reasons.iter().map(|(name, _)| (*to, name)));
        let names: BTreeSet<(usize, &String)> = names.collect();
        let moves = names.into_iter().map(|(file, name)| {
            let is_user = |edge: &(usize, usize)| edge.1 == file && self.edges[edge].iter().any(|used| used.0 == *name);
            let users = self.edges.keys().filter(|edge| is_user(edge)).count();
            Move { file, name: name.clone(), users, after: self.without(file, name) }
        });
        let (size, best) = moves.map(|next| (next.after.size(), next)).min_by_key(|(size, _)| *size)?;
        (size < self.size()).then_some(best)
    }

    /// Files in large cycles and, if that is equal, edges.
    fn size(&self) -> (usize, usize) {
        (self.large(), self.edges.len())
    }
}

/// Declarations that [`Cycle::moves`] returns at most.
const MOVES: usize = 6;

/// A declaration that should be moved to a file of its own.
struct Move {
    /// Index of the declaring file in [`Cycle::files`].
    file: usize,
    name: String,
    /// Count of files in the cycle that use the name.
    users: usize,
    /// The cycle once this declaration and those before it have moved.
    after: Cycle,
}

/// Returns one violation for each file in a cycle of more than [`CYCLE_FILES`] files.
pub(crate) fn check(sources: &Sources) -> Vec<Debt> {
    let mut debts = Vec::new();
    for (krate, edges) in crates(sources) {
        let cycles = cycles(&edges).into_iter().filter(|cycle| cycle.files.len() > CYCLE_FILES);
        for (number, cycle) in cycles.enumerate() {
            let (number, count) = (number + 1, cycle.files.len());
            for file in &cycle.files {
                let message = format!(
                    "in import cycle {number} of {count} files; `cargo run -p xtask -- modules {krate}` shows it"
                );
                debts.push(Debt::new(Rule::ModuleCycle, file, 1, message));
            }
        }
    }
    debts
}

/// Describes the cycles of `krate`, or of all crates.
///
/// # Errors
///
/// Returns a message if there is no such crate.
pub(crate) fn describe(sources: &Sources, krate: Option<&str>) -> Result<String, String> {
    let crates = crates(sources);
    if let Some(krate) = krate.filter(|krate| !crates.contains_key(*krate)) {
        return Err(format!("no crate has this folder ({krate})"));
    }
    let mut text = String::new();
    for (name, edges) in crates.iter().filter(|(name, _)| krate.is_none_or(|krate| krate == *name)) {
        let cycles = cycles(edges);
        let large = cycles.iter().filter(|cycle| cycle.files.len() > CYCLE_FILES).count();
        let _ = writeln!(text, "{name}: {} import cycles, {large} of more than {CYCLE_FILES} files", cycles.len());
        cycles.iter().for_each(|cycle| describe_cycle(&mut text, cycle));
    }
    Ok(text)
}

fn describe_cycle(text: &mut String, cycle: &Cycle) {
    let names: Vec<String> = cycle.files.iter().map(|file| below_src(file)).collect();
    let _ = writeln!(text, "\n  cycle of {} files: {}", names.len(), names.join(", "));
    if names.len() <= CYCLE_FILES {
        return;
    }
    let mut describe_edge = |edge: &(usize, usize)| {
        let reasons = &cycle.edges[edge];
        let lines: BTreeSet<usize> = reasons.iter().map(|(_, line)| *line).collect();
        let words: BTreeSet<&str> = reasons.iter().map(|(name, _)| name.as_str()).collect();
        let line = lines.first().copied().unwrap_or_default();
        let words: Vec<&str> = words.into_iter().collect();
        let _ = writeln!(text, "    {} -> {} ({line}: {})", names[edge.0], names[edge.1], words.join(", "));
    };
    cycle.edges.keys().for_each(&mut describe_edge);
    let moves = cycle.moves();
    let _ = writeln!(text, "  declarations to move to files of their own, best first:");
    for Move { file, name, users, after } in &moves {
        let large = after.large();
        let _ = writeln!(text, "    {name} of {} ({users} users): {large} files remain in large cycles", names[*file]);
    }
    let rest = moves.last().map(|last| ("after these moves", &last.after));
    for (when, cycle) in std::iter::once(("now", cycle)).chain(rest) {
        let cuts = cycle.cuts();
        let _ =
            writeln!(text, "  {when}, without these {} edges no cycle has more than {CYCLE_FILES} files:", cuts.len());
        for edge in cuts {
            let words: BTreeSet<&str> = cycle.edges[&edge].iter().map(|(name, _)| name.as_str()).collect();
            let words: Vec<&str> = words.into_iter().collect();
            let _ = writeln!(text, "    {} -> {}: {}", names[edge.0], names[edge.1], words.join(", "));
        }
    }
}

/// Path below the folder `src`.
fn below_src(file: &Path) -> String {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    let start = parts.iter().position(|part| part == "src").map_or(0, |at| at + 1);
    parts[start..].join("/")
}

/// Edges of each crate, by its folder's name.
fn crates(sources: &Sources) -> BTreeMap<String, Edges> {
    let mut crates = BTreeMap::<String, Edges>::new();
    for root in sources.keys().filter(|file| is_root(file)) {
        resolve::add_edges(sources, root, crates.entry(crate::tidy::crate_of(root)).or_default());
    }
    crates
}

/// Returns true for `src/lib.rs`, `src/main.rs` and the files in `src/bin`.
fn is_root(file: &Path) -> bool {
    let parent = file.parent().unwrap_or(Path::new(""));
    let name = file.file_name().unwrap_or_default();
    (parent.ends_with("src") && (name == "lib.rs" || name == "main.rs")) || parent.ends_with("src/bin")
}

/// Returns the cycles of a crate, largest first.
fn cycles(edges: &Edges) -> Vec<Cycle> {
    let files: BTreeSet<&PathBuf> =
        edges.iter().flat_map(|(from, to)| std::iter::once(from).chain(to.keys())).collect();
    let files: Vec<&PathBuf> = files.into_iter().collect();
    let number: BTreeMap<&PathBuf, usize> = files.iter().enumerate().map(|(at, file)| (*file, at)).collect();
    let pairs = edges.iter().flat_map(|(from, to)| to.keys().map(|to| (number[from], number[to])));
    let components = graph::components(files.len(), pairs).into_iter().filter(|component| component.len() > 1);
    let cycle = |members: Vec<usize>| {
        let files: Vec<PathBuf> = members.iter().map(|member| files[*member].clone()).collect();
        let at = |file: &PathBuf| files.binary_search(file).ok();
        let inner = edges.iter().flat_map(|(from, to)| to.iter().map(move |(to, reasons)| (from, to, reasons)));
        let edges = inner.filter_map(|(from, to, reasons)| Some(((at(from)?, at(to)?), reasons.clone()))).collect();
        Cycle { files, edges }
    };
    components.map(cycle).collect()
}

#[cfg(test)]
mod tests;
