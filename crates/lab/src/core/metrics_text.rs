//! Metrics of a core as text.

/// Removes the label of shards from metrics.
pub(super) fn without_shards(text: &str) -> String {
    let line = |line: &str| match line.split_once("{shard=\"") {
        Some((name, rest)) => {
            let rest = rest.split_once('"').map_or(rest, |(_, rest)| rest);
            let labels = rest.strip_prefix(',').map(|labels| format!("{{{labels}"));
            format!("{name}{}\n", labels.unwrap_or_else(|| rest.strip_prefix('}').unwrap_or(rest).to_owned()))
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_shards_is_removed() {
        let text = "# HELP a b\na{shard=\"0\"} 1\na{shard=\"10\",b=\"c\"} 2\na{b=\"c\"} 3\na 4\n";
        assert_eq!(without_shards(text), "# HELP a b\na 1\na{b=\"c\"} 2\na{b=\"c\"} 3\na 4\n");
    }
}
