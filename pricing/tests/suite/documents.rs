//! `docs/price-complaints.md` holds every number with tests that exist, and no test is missing in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The numbers of the collection of complaints; it has gaps.
const COMPLAINTS: [u32; 60] = [
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37,
    38, 40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73,
    74, 76, 77, 79, 80, 82, 83, 85, 86, 88, 89,
];
/// The numbers of the defects of catalogue files.
const DEFECTS: [u32; 35] = [
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37,
    38, 40, 41, 43, 44, 46, 47, 49, 50, 52,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Number (`014`, `p32`) to the names of its tests, as the table has them.
fn table() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("docs/price-complaints.md")).expect("the document");
    let mut table = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, .., tests] = cells[..] else { continue };
        let name = match number.strip_prefix('P') {
            Some(number) => number.parse::<u32>().map(|number| format!("p{number:02}")),
            None => number.parse::<u32>().map(|number| format!("pr_{number:03}")),
        };
        let Ok(name) = name else { continue };
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "{line}");
        let tests = tests.split(',').map(|test| test.trim().trim_matches('`').to_owned());
        assert!(table.insert(name, tests.collect()).is_none(), "{number} stands twice");
    }
    table
}

/// The tests of the sources whose names begin with a number: those that a test run runs.
fn tests() -> BTreeSet<String> {
    let mut folders: Vec<PathBuf> =
        ["providers", "pricing", "broker", "cli", "tests"].map(|name| root().join(name)).into();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.extend(tests_of(&fs::read_to_string(&path).expect("a source")));
            }
        }
    }
    found
}

fn tests_of(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut attributes: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let after = line.split_once("fn ").filter(|(before, _)| matches!(*before, "" | "async "));
        if let Some((_, after)) = after
            && attributes.iter().any(|one| matches!(*one, "#[test]" | "#[tokio::test]"))
            && !attributes.iter().any(|one| one.starts_with("#[ignore") || one.starts_with("#[cfg"))
        {
            let name: String =
                after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if !numbers(&name).is_empty() {
                found.push(name);
            }
        }
        if !line.starts_with("//") {
            attributes.clear();
        }
    }
    found
}

/// The numbers at the beginning of a test's name: `pr_019_pr_037_parts…`, `p25_p26_hosts…`.
fn numbers(name: &str) -> Vec<String> {
    let digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut numbers = Vec::new();
    let mut words = name.split('_');
    while let Some(word) = words.next() {
        let number = match word.strip_prefix('p') {
            Some("r") => match words.next().filter(|word| digits(word, 3)) {
                Some(number) => format!("pr_{number}"),
                None => break,
            },
            Some(rest) if digits(rest, 2) => word.to_owned(),
            _ => break,
        };
        numbers.push(number);
    }
    numbers
}

#[test]
fn every_complaint_and_every_defect_has_its_tests() {
    let (table, tests) = (table(), tests());
    let wanted: BTreeSet<String> = COMPLAINTS
        .iter()
        .map(|number| format!("pr_{number:03}"))
        .chain(DEFECTS.iter().map(|number| format!("p{number:02}")))
        .collect();
    let listed: BTreeSet<String> = table.keys().cloned().collect();
    assert_eq!(listed, wanted);
    for (number, names) in &table {
        for name in names {
            assert!(tests.contains(name), "{number}: there is no test {name}");
            assert!(numbers(name).contains(number), "{name} does not bear the number {number}");
        }
    }
    for name in &tests {
        for number in numbers(name) {
            assert!(table[&number].contains(name), "{name} is not in the row of {number}");
        }
    }
}

#[test]
fn names_are_told_from_numbers() {
    assert_eq!(numbers("pr_019_pr_037_parts_add_up"), ["pr_019", "pr_037"]);
    assert_eq!(numbers("p25_p26_hosts_and_gpus"), ["p25", "p26"]);
    assert!(numbers("prices_are_kept").is_empty() && numbers("p2p_links").is_empty());
    let source = "#[tokio::test]\n// Why.\nasync fn pr_001_a() {}\n#[test]\n#[ignore]\nfn pr_002_b() {}\nfn pr_003_c() {}";
    assert_eq!(tests_of(source), ["pr_001_a"]);
}

#[test]
fn packages_that_deal_with_prices_deny_floats() {
    let line = "#![deny(clippy::disallowed_types, clippy::float_arithmetic)]";
    for package in ["providers/model", "providers", "providers/aws", "pricing", "broker/engine"] {
        let path = root().join(package).join("src/lib.rs");
        let source = fs::read_to_string(&path).expect("a source");
        assert!(source.lines().any(|own| own == line), "{}", path.display());
    }
    let clippy = fs::read_to_string(root().join("clippy.toml")).expect("clippy.toml");
    for float in ["f32", "f64"] {
        assert!(clippy.contains(&format!("{{ path = \"{float}\"")), "{float}");
    }
}
