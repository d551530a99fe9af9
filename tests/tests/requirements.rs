//! `docs/requirements.md` has a row for each requirement, and every test that a row names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Requirements of jobs of published runners.
const LAST: u32 = 137;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Names of all functions that are marked as tests.
fn tests_of(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                tests_of(&path, found);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut marked = false;
            for line in text.lines().map(str::trim) {
                let rest = line.strip_prefix("async ").unwrap_or(line);
                match rest.strip_prefix("fn ") {
                    Some(rest) => {
                        if marked {
                            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                            found.insert(rest[..end.unwrap_or(rest.len())].to_owned());
                        }
                        marked = false;
                    }
                    None if line.starts_with("#[test]") || line.starts_with("#[tokio::test") => {
                        marked = true;
                    }

                    // Other attributes and comments may stand between.
                    None => marked &= line.starts_with("#[") || line.starts_with("//"),
                }
            }
        }
    }
}

#[test]
fn every_requirement_names_tests_that_exist() {
    let root = root();
    let mut known = BTreeSet::new();
    for folder in ["broker", "cli", "providers", "pricing", "tests"] {
        tests_of(&root.join(folder), &mut known);
    }
    assert!(known.len() > 500, "{} tests were found", known.len());
    let page = fs::read_to_string(root.join("docs/requirements.md")).unwrap();
    let mut next = 1;
    for line in page.lines().filter(|line| line.starts_with("| R")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, shown] = cells.as_slice() else { panic!("{line}") };
        assert_eq!(*number, format!("R{next}"), "rows are complete and in order");
        next += 1;
        let names: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{number} names no test");
        for name in names {
            assert!(known.contains(name), "{number} names {name}, which is no test");
        }
    }
    assert_eq!(next, LAST + 1, "the last row is R{LAST}");
}
