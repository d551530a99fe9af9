//! Patterns of files below a folder.

/// Whether a path below the work folder fits a pattern: `*` and `?` within one part, `**` for any
/// number of parts; a pattern that names a folder names everything in it.
#[must_use]
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let path: Vec<&str> = path.split('/').collect();
    !pattern.is_empty() && parts(&pattern, &path)
}

/// Whether something below a folder, or the folder itself, can fit a pattern.
pub(crate) fn reaches(pattern: &str, folder: &str) -> bool {
    let mut pattern = pattern.split('/').filter(|part| !part.is_empty()).peekable();
    if pattern.peek().is_none() {
        return false;
    }
    let below = folder.split('/').filter(|part| !part.is_empty());
    for (wanted, name) in pattern.zip(below) {
        if wanted == "**" {
            return true;
        }
        if !part(wanted, name) {
            return false;
        }
    }
    true
}

fn parts(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        // What the pattern names, or something in it.
        (None, _) => true,
        (Some((&"**", [])), _) => !path.is_empty(),
        (Some((&"**", rest)), _) => (0..path.len()).any(|skip| parts(rest, &path[skip..])),
        (Some(_), None) => false,
        (Some((first, rest)), Some((name, below))) => part(first, name) && parts(rest, below),
    }
}

/// Greedy with one place to go back to, so that no pattern takes long.
fn part(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut back) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                back = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match back {
                Some((star, from)) => {
                    back = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Whether every client can store a file of this name.
pub(crate) fn is_portable(path: &str) -> bool {
    // Some systems take any character before a colon for a drive.
    let drive = path.chars().nth(1) == Some(':');
    !drive && !path.contains('\\') && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files_and_folders() {
        for (pattern, path, fits) in [
            ("outputs/**", "outputs/a", true),
            ("outputs/**", "outputs/a/b", true),
            ("outputs/**", "outputs", false),
            ("outputs/**", "other/a", false),
            ("outputs", "outputs/a/b", true),
            ("outputs/", "outputs/a", true),
            ("*.json", "a.json", true),
            ("*.json", "d/a.json", false),
            ("**/*.json", "a.json", true),
            ("**/*.json", "d/e/a.json", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("**", "anything/at/all", true),
            ("", "a", false),
            ("日*", "日志", true),
        ] {
            assert_eq!(matches(pattern, path), fits, "{pattern} {path}");
        }
        for (pattern, folder, may) in [
            ("outputs/**", "outputs", true),
            ("outputs/**", "outputs/a/b", true),
            ("outputs/**", "other", false),
            ("outputs/*/a.json", "outputs", true),
            ("outputs/*/a.json", "outputs/run", true),
            ("outputs", "outputs/run", true),
            ("a/**/b", "a/x/y", true),
            ("**/*.json", "any", true),
            ("out*", "outputs", true),
            ("out*/a", "in", false),
            ("any", "", true),
            ("", "any", false),
        ] {
            assert_eq!(reaches(pattern, folder), may, "{pattern} {folder}");
        }
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
        assert!(!is_portable("a\\b") && !is_portable("c:x") && !is_portable("a\nb"));
        assert!(!is_portable("1:x") && !is_portable("é:x") && !is_portable("a\u{85}b"));
        assert!(is_portable("d/a b.bin") && is_portable("日志") && is_portable("ab:c"));
    }
    fn cases() -> u32 {
        let given = std::env::var("RUNWHERE_FUZZ_CASES").ok();
        given.and_then(|text| text.parse().ok()).unwrap_or(10_000)
    }

    #[test]
    fn fuzz_names_that_are_kept_stay_below_every_folder() {
        use std::path::{Component, Path};

        use proptest::prelude::*;
        use proptest::string::string_regex;
        use proptest::test_runner::{Config, TestRunner};

        let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
        let odd = "([a:.\\\\/*?\\x00-\\x1f\\x7f\u{85}\u{202e}é😀 ]|\\PC){0,12}";
        let names = (string_regex(odd).unwrap(), string_regex("[a*?/.]{0,10}").unwrap());
        let run = TestRunner::new(config).run(&names, |(name, pattern)| {
            // Whatever a name is, no pattern fails over it.
            let _ = matches(&pattern, &name);
            if !is_portable(&name) || !crate::protocol::is_output_path(&name) {
                return Ok(());
            }
            let path = Path::new(&name);
            let plain = |part| matches!(part, Component::Normal(_));
            prop_assert!(path.is_relative() && path.components().all(plain), "{name:?}");
            // What clients of other systems refuse.
            prop_assert!(!name.contains('\\') && name.chars().nth(1) != Some(':'), "{name:?}");
            prop_assert!(!name.chars().any(|c| u32::from(c) < 32 || c == '\u{7f}'), "{name:?}");
            prop_assert!(!name.split('/').any(|part| matches!(part, "" | "." | "..")), "{name:?}");
            Ok(())
        });
        run.unwrap();
    }
}
