//! The fallback for servers that cannot resume a log: compare what was printed with the server's history.

use std::collections::VecDeque;

/// The lines of `history` (the newest lines of the log) that come after the last of `printed` (the newest printed lines).
/// The second value tells whether lines in between may be missing.
#[must_use]
pub fn unseen<'a>(printed: &VecDeque<String>, history: &'a [String]) -> (&'a [String], bool) {
    if printed.is_empty() {
        return (history, false);
    }
    // The longest end of what was printed that the history holds; the latest place of it wins, so that nothing is printed twice.
    for end in (1..=history.len()).rev() {
        let overlap = end.min(printed.len());
        let tail = printed.iter().skip(printed.len() - overlap);
        if tail.eq(history[end - overlap..end].iter()) {
            return (&history[end..], false);
        }
    }
    (history, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(printed: &[&str], history: &[&str], new: &[&str], gap: bool) {
        let printed: VecDeque<_> = printed.iter().map(|line| (*line).to_owned()).collect();
        let history: Vec<_> = history.iter().map(|line| (*line).to_owned()).collect();
        let (lines, missing) = unseen(&printed, &history);
        assert_eq!(
            (lines.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), missing),
            (new, gap)
        );
    }

    #[test]
    fn only_new_lines_come_out() {
        check(&[], &["a", "b"], &["a", "b"], false);
        check(&["a", "b"], &["a", "b"], &[], false);
        check(&["a", "b"], &["a", "b", "c"], &["c"], false);
        check(&["a", "b", "c"], &["b", "c", "d"], &["d"], false);
        check(&["x", "x"], &["x", "x", "x"], &[], false);
    }

    #[test]
    fn a_gap_is_told() {
        check(&["a", "b"], &["y", "z"], &["y", "z"], true);
    }
}
