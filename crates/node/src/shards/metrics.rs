//! Metrics of several processes as one text in the Prometheus format.

use std::collections::HashMap;

/// Suffixes of the series of histograms and summaries.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// A metric with its series.
#[derive(Debug, Default)]
struct Family {
    /// Lines of help and type.
    head: Vec<String>,
    series: Vec<String>,
}

/// Metrics in the order of their first occurrence.
#[derive(Debug, Default)]
pub(super) struct MergedMetrics {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
}

impl MergedMetrics {
    /// Adds the metrics of a process; its series get this label, if any.
    pub(super) fn add(&mut self, text: &str, label: Option<(&str, usize)>) {
        let (mut current, mut is_new) = (String::new(), false);
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let name = comment.split(' ').nth(1).unwrap_or_default();
                if name != current {
                    is_new = !self.by_name.contains_key(name);
                    current = name.to_owned();
                }
                if is_new {
                    self.family(&current).head.push(line.to_owned());
                }
                continue;
            }
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let is_current =
                name.strip_prefix(current.as_str()).is_some_and(|rest| rest.is_empty() || SUFFIXES.contains(&rest));
            let family = if is_current && !current.is_empty() { current.clone() } else { name.to_owned() };
            let line = label.map_or_else(|| line.to_owned(), |label| labelled(line, name, label));
            self.family(&family).series.push(line);
        }
    }

    /// Returns the text.
    pub(super) fn render(self) -> String {
        let lines = self.families.into_iter().flat_map(|family| family.head.into_iter().chain(family.series));
        lines.flat_map(|line| [line, "\n".to_owned()]).collect()
    }

    fn family(&mut self, name: &str) -> &mut Family {
        let next = self.families.len();
        let index = *self.by_name.entry(name.to_owned()).or_insert(next);
        if index == next {
            self.families.push(Family::default());
        }
        &mut self.families[index]
    }
}

/// Adds a label to a series.
fn labelled(line: &str, name: &str, (label, value): (&str, usize)) -> String {
    match line[name.len()..].strip_prefix('{') {
        Some(rest) => format!("{name}{{{label}=\"{value}\",{rest}"),
        None => format!("{name}{{{label}=\"{value}\"}}{}", &line[name.len()..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_shards_follow_their_metric() {
        let own = "# HELP a Help.\n# TYPE a counter\na 1\n\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum 3\n";
        let shard = "# HELP a Help.\n# TYPE a counter\na{b=\"{\"} 4\n# TYPE h histogram\nh_sum 5\nalone 6\n";
        let mut merged = MergedMetrics::default();
        merged.add(own, None);
        merged.add(shard, Some(("shard", 7)));
        let expected = "# HELP a Help.\n# TYPE a counter\na 1\na{shard=\"7\",b=\"{\"} 4\n# TYPE h histogram\n\
                        h_bucket{le=\"1\"} 2\nh_sum 3\nh_sum{shard=\"7\"} 5\nalone{shard=\"7\"} 6\n";
        assert_eq!(merged.render(), expected);
    }
}
