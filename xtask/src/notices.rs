//! Licence texts of the crates in a program, for packages and images.
//!
//! The crates are those that `cargo metadata` resolves for a target, without those of build scripts
//! and tests. Each text occurs once, with the crates that have it. A crate without a text gets that
//! of another crate of its repository, or else one of the same licence.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Beginnings of the names of files with licence texts, in lower case.
const FILES: [&str; 6] = ["licence", "license", "copying", "notice", "unlicense", "copyright"];

/// A crate of the registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
    repository: String,
    texts: Vec<String>,
}

/// Returns the notices of a package of the workspace, built for a target.
pub(crate) fn notices(root: &Path, package: &str, target: &str) -> Result<String, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target]);
    let output = cargo.output().map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut packages = Vec::new();
    for package in linked(&metadata, package).ok_or_else(|| format!("{package} is no package of the workspace"))? {
        packages.push(read(package)?);
    }
    packages.sort();
    complete(&mut packages)?;
    Ok(render(&packages))
}

/// Returns the crates of the registry that are linked into a package.
fn linked<'a>(metadata: &'a Value, root: &str) -> Option<Vec<&'a Value>> {
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let nodes: BTreeMap<&str, &Value> = nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let first = packages.iter().find(|(_, package)| package["name"] == root && package["source"].is_null())?.0;
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![*first]);
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes.get(id)?["deps"].as_array()? {
            // Those of builds and tests have a kind.
            let is_linked = dependency["dep_kinds"].as_array()?.iter().any(|kind| kind["kind"].is_null());
            waiting.extend(dependency["pkg"].as_str().filter(|_| is_linked));
        }
    }
    let found = seen.into_iter().filter_map(|id| packages.get(id).copied());
    Some(found.filter(|package| !package["source"].is_null()).collect())
}

/// Reads the texts of a crate.
fn read(package: &Value) -> Result<Package, String> {
    let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let manifest = field("manifest_path");
    let directory = Path::new(&manifest).parent().unwrap_or(Path::new("/"));
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if FILES.iter().any(|beginning| name.starts_with(beginning)) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.extend(package["license_file"].as_str().map(|file| directory.join(file)));
    files.sort();
    files.dedup();
    let text = |file| fs::read(file).map(|octets| normalised(&String::from_utf8_lossy(&octets))).map_err(failed);
    let mut texts = files.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    texts.retain(|text| !text.is_empty());
    let (name, version, licence) = (field("name"), field("version"), field("license"));
    Ok(Package { name, version, licence, repository: field("repository"), texts })
}

/// Returns a text without differences that have no meaning.
fn normalised(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Adds the texts of crates that have none.
fn complete(packages: &mut [Package]) -> Result<(), String> {
    // The first parts of a URL: scheme, host, owner and repository.
    let repository = |package: &Package| package.repository.split('/').take(5).collect::<Vec<_>>().join("/");
    for at in 0..packages.len() {
        let own = &packages[at];
        if !own.texts.is_empty() {
            continue;
        }
        let with_text = || packages.iter().filter(|other| !other.texts.is_empty());
        let neighbour = with_text().find(|other| !own.repository.is_empty() && repository(other) == repository(own));
        // One of several licences suffices. MIT needs the names of its holders, Apache-2.0 does
        // not.
        let accepts = |name: &str| own.licence.split([' ', '/', '(', ')']).any(|word| word == name);
        let apache = || with_text().find(|other| other.licence == "Apache-2.0" && accepts("Apache-2.0"));
        let Some(other) = neighbour.or_else(apache) else {
            return Err(format!("{} {} has no licence text ({})", own.name, own.version, own.licence));
        };
        packages[at].texts = other.texts.clone();
    }
    Ok(())
}

fn render(packages: &[Package]) -> String {
    let mut by_text: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for package in packages {
        for text in &package.texts {
            by_text.entry(text).or_default().push(format!("{} {}", package.name, package.version));
        }
    }
    let mut texts: Vec<_> = by_text.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    let mut out = String::from("Vireo contains these crates, each under the licence that follows its name:\n\n");
    for Package { name, version, licence, .. } in packages {
        out += &format!("  {name} {version}: {licence}\n");
    }
    for (text, names) in texts {
        out += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), names.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: &str, repository: &str, texts: &[&str]) -> Package {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let (version, licence) = ("1.0.0".to_owned(), licence.to_owned());
        Package { name: name.to_owned(), version, licence, repository: repository.to_owned(), texts }
    }

    #[test]
    fn missing_texts_come_from_the_repository() {
        let url = "https://example.org/a/b";
        let mut packages = [
            package("one", "MIT", &format!("{url}/tree/main/one"), &[]),
            package("two", "MIT", url, &["the text"]),
            package("three", "MIT OR Apache-2.0", "https://example.org/c/d", &[]),
            package("four", "Apache-2.0", "https://example.org/e/f", &["Apache"]),
        ];
        complete(&mut packages).unwrap();
        assert_eq!((&packages[0].texts[0], &packages[2].texts[0]), (&"the text".to_owned(), &"Apache".to_owned()));
        let mut alone = [package("five", "MIT", "https://example.org/g/h", &[])];
        assert_eq!(complete(&mut alone).unwrap_err(), "five 1.0.0 has no licence text (MIT)");
    }

    #[test]
    fn equal_texts_occur_once() {
        let text = render(&[package("a", "MIT", "", &["X"]), package("b", "ISC", "", &["X", "Y"])]);
        assert_eq!((text.matches("\nX\n").count(), text.matches("\nY\n").count()), (1, 1));
        assert!(text.contains("a 1.0.0, b 1.0.0\n\nX\n") && text.contains("  b 1.0.0: ISC\n"), "{text}");
    }

    #[test]
    fn build_and_test_crates_are_not_linked() {
        let metadata = serde_json::json!({
            "packages": [
                { "id": "p", "name": "p", "source": null },
                { "id": "x", "name": "x", "source": "registry" },
                { "id": "y", "name": "y", "source": "registry" },
            ],
            "resolve": { "nodes": [
                { "id": "p", "deps": [
                    { "pkg": "x", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "y", "dep_kinds": [{ "kind": "dev" }, { "kind": "build" }] },
                ] },
                { "id": "x", "deps": [] },
            ] },
        });
        let names: Vec<_> = linked(&metadata, "p").unwrap().into_iter().map(|package| &package["name"]).collect();
        assert_eq!(names, ["x"]);
    }
}
