//! `docs/faults.md` against the tests that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Faults whose tests may wait for what they need.
const MAY_WAIT: [u32; 4] = [15, 56, 59, 66];

/// The numbers of the user reports.
const REPORTS: [u32; 50] = [
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37,
    38, 40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73,
    74,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Names of all functions in the sources below a folder.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            functions(&path, names);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("fn ").skip(1) {
                let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                names.insert(part[..end.unwrap_or(part.len())].to_owned());
            }
        }
    }
}

/// Number and test column of the rows of a section.
fn rows(section: &str) -> BTreeMap<u32, String> {
    let cells = section.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = cells.get(1)?.parse().ok()?;
        assert_eq!(cells.len(), 6, "four columns: {line}");
        Some((number, cells[3].to_owned()))
    });
    cells.collect()
}

fn tests_in(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_named_test_exists() {
    let text = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let mut known = BTreeSet::new();
    for folder in ["broker", "cli", "docs/examples", "providers", "tests"] {
        functions(&root().join(folder), &mut known);
    }
    let (faults, reports) = text.split_once("\n## What users reported").unwrap();
    let (faults, reports) = (rows(faults), rows(reports));
    assert_eq!(faults.keys().copied().collect::<Vec<_>>(), (1..=69).collect::<Vec<_>>());
    let expected: BTreeSet<u32> = REPORTS.into_iter().collect();
    assert_eq!(reports.keys().copied().collect::<BTreeSet<_>>(), expected);
    for (number, cell) in faults.iter().chain(&reports) {
        let tests = tests_in(cell);
        for test in &tests {
            assert!(known.contains(*test), "{number}: there is no test {test}");
        }
        assert!(!tests.is_empty() || cell.starts_with("waits"), "{number} has no test");
    }
    for (number, cell) in &faults {
        let waits = cell.starts_with("waits");
        assert!(!waits || cell.len() > 80, "{number} waits for a reason");
        assert!(!waits || MAY_WAIT.contains(number), "{number} must not wait");
    }
}

#[test]
fn every_test_of_a_fault_is_in_the_table() {
    let text = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let mut own = BTreeSet::new();
    functions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults"), &mut own);
    for test in own.iter().filter(|name| name.starts_with("fault_") || name.starts_with("report_"))
    {
        assert!(
            test.len() < 9 || text.contains(&format!("`{test}`")),
            "{test} is not in the table"
        );
    }
}
