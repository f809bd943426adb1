//! Memory of a core's processes during a campaign of mutated messages.

use std::collections::BTreeMap;
use vireo_emulator::Growth;

/// Samples the memory of processes and all their descendants.
pub(super) struct Watch {
    roots: Vec<u32>,
    growth: Growth,
}

impl Watch {
    /// Takes the first sample.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the processes does not exist.
    pub(super) fn new(roots: &[u32]) -> Result<Self, String> {
        let growth = Growth { before: resident(roots)?, ..Growth::default() };
        Ok(Watch { roots: roots.to_vec(), growth })
    }

    /// Takes the samples after a tenth of the messages and after the last one.
    pub(super) fn progress(&mut self, sent: u64, wanted: u64) {
        if sent >= wanted {
            self.growth.after = resident(&self.roots).unwrap_or_default();
        }
        if self.growth.after_a_tenth == 0 && sent >= wanted / 10 && sent > 0 {
            self.growth.after_a_tenth = resident(&self.roots).unwrap_or_default();
        }
    }

    /// Returns the samples.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the processes has ended.
    pub(super) fn finish(mut self) -> Result<Growth, String> {
        let now = resident(&self.roots)?;
        self.growth.after = self.growth.after.max(now);
        Ok(self.growth)
    }
}

/// Returns the resident memory of the processes and their descendants, in KiB. Shared memory counts
/// once, by the process with the largest part of it.
fn resident(roots: &[u32]) -> Result<u64, String> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that has ended meanwhile has no memory.
        if let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            parents.insert(pid, text);
        }
    }
    if let Some(gone) = roots.iter().find(|root| !parents.contains_key(root)) {
        return Err(format!("process {gone}: not running; check --pid"));
    }
    Ok(sum(roots, &parents))
}

/// Returns the sum over the `status` texts of the processes of these trees.
fn sum(roots: &[u32], all: &BTreeMap<u32, String>) -> u64 {
    let is_inside = |mut pid: u32| {
        // Trees are not deep. The bound ends the loop if a process changes its parent while the
        // list is read.
        for _ in 0..32 {
            if roots.contains(&pid) {
                return true;
            }
            match all.get(&pid).map(|text| number(text, "PPid:") as u32) {
                Some(parent) if parent > 1 => pid = parent,
                _ => return false,
            }
        }
        false
    };
    let inside = || all.iter().filter(|(pid, _)| is_inside(**pid)).map(|(_, text)| text);
    let own: u64 = inside().map(|text| number(text, "RssAnon:")).sum();
    let shared = inside().map(|text| number(text, "RssShmem:")).max().unwrap_or(0);
    own + shared
}

fn number(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_tree_counts_shared_once() {
        let status = |parent: u32, own: u64, shared: u64| {
            format!("Name:\tvireo\nPPid:\t{parent}\nRssAnon:\t{own} kB\nRssShmem:\t{shared} kB\n")
        };
        let all = BTreeMap::from([
            (10, status(1, 100, 50)),
            (11, status(10, 20, 60)),
            (12, status(11, 3, 0)),
            (13, status(1, 1000, 1000)),
        ]);
        assert_eq!(sum(&[10], &all), 183);
        assert_eq!(sum(&[11, 13], &all), 2023);
        assert!(resident(&[std::process::id()]).is_ok_and(|kib| kib > 0));
        assert!(resident(&[u32::MAX]).is_err_and(|failure| failure.contains("check --pid")));
    }
}
