//! Comparing texts literally, except where a template has a placeholder.

/// One expected text. Everything is literal but the placeholders of the list below, written in braces:
///
/// | placeholder | stands for |
/// | --- | --- |
/// | `{id}` | a job's id, `job-` and 8 lower-case hexadecimal digits |
/// | `{node}` | a node's id, `node-` and 8 lower-case hexadecimal digits |
/// | `{price}` | an amount with two decimals, such as `36.44` |
/// | `{count}` | digits |
/// | `{minutes}` | a duration as the client shows it: `-`, `7s`, `3m 7s`, `2h 5m` |
/// | `{seconds}` | seconds, perhaps with decimals |
/// | `{time}` | an instant, `2026-07-25T00:24:38+00:00` with optional decimals |
/// | `{word}` | one or more characters other than blanks |
///
/// Lines are compared after blanks at their ends are removed. A template has no way to say "anything".
#[derive(Debug, Clone, Copy)]
pub struct Template<'a>(pub &'a str);

impl Template<'_> {
    /// Whether the whole `text` is as expected.
    pub fn matches(&self, text: &str) -> bool {
        matches_from(&tidy(self.0), &tidy(text))
    }

    /// Checks the whole `text`.
    ///
    /// # Panics
    /// When it differs; both are shown.
    #[track_caller]
    pub fn check(&self, text: &str) {
        assert!(
            self.matches(text),
            "text differs\n--- expected\n{}\n--- found\n{text}\n---",
            self.0
        );
    }

    /// Checks that the lines of the template appear in `text` in this order and side by side.
    ///
    /// # Panics
    /// When they do not.
    #[track_caller]
    pub fn check_within(&self, text: &str) {
        let expected = tidy(self.0);
        let wanted = expected.lines().count();
        let found = tidy(text);
        let lines: Vec<&str> = found.lines().collect();
        let present =
            lines.windows(wanted.max(1)).any(|window| matches_from(&expected, &window.join("\n")));
        assert!(present, "text not found\n--- expected\n{}\n--- within\n{text}\n---", self.0);
    }
}

fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// The text after a placeholder decides how much the placeholder takes, so every possible length is tried.
fn matches_from(template: &str, text: &str) -> bool {
    let Some((literal, name, rest)) = next_placeholder(template) else {
        return template == text;
    };
    let Some(text) = text.strip_prefix(literal) else {
        return false;
    };
    let ends = text.char_indices().map(|(at, one)| at + one.len_utf8());
    ends.take_while(|&end| !text[..end].contains('\n'))
        .any(|end| fits(name, &text[..end]) && matches_from(rest, &text[end..]))
}

fn next_placeholder(template: &str) -> Option<(&str, &str, &str)> {
    const NAMES: [&str; 8] = ["id", "node", "price", "count", "minutes", "seconds", "time", "word"];
    let mut from = 0;
    while let Some(open) = template[from..].find('{').map(|at| from + at) {
        let after = &template[open + 1..];
        if let Some(name) = NAMES
            .iter()
            .find(|name| after.strip_prefix(**name).is_some_and(|rest| rest.starts_with('}')))
        {
            return Some((&template[..open], name, &after[name.len() + 1..]));
        }
        from = open + 1;
    }
    None
}

fn fits(name: &str, text: &str) -> bool {
    match name {
        "id" => hexadecimal_id(text, "job-"),
        "node" => hexadecimal_id(text, "node-"),
        "price" => decimal(text).is_some_and(|places| places == 2),
        "count" => digits(text),
        "minutes" => {
            text == "-"
                || text
                    .split(' ')
                    .all(|part| part.strip_suffix(['h', 'm', 's']).is_some_and(digits))
        }
        "seconds" => decimal(text).is_some() || digits(text),
        "time" => {
            text.ends_with("+00:00") && text.len() >= 25 && text.parse::<jiff::Timestamp>().is_ok()
        }
        "word" => !text.is_empty() && !text.contains(char::is_whitespace),
        other => unreachable!("{other} is not in the list"),
    }
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number of decimals of `text`, where it is a decimal number with a point.
fn decimal(text: &str) -> Option<usize> {
    let (whole, part) = text.split_once('.')?;
    (digits(whole) && digits(part)).then_some(part.len())
}

fn hexadecimal_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == 8
            && rest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// What a terminal shows: without colours and other escape sequences, and each line as it stands after the last
/// carriage return.
pub fn plain_terminal(raw: &str) -> String {
    let mut plain = String::with_capacity(raw.len());
    let mut rest = raw.chars().peekable();
    while let Some(one) = rest.next() {
        match one {
            '\u{1b}' => match rest.peek() {
                Some('[') => {
                    rest.next();
                    while rest.next().is_some_and(|next| !('@'..='~').contains(&next)) {}
                }
                Some(']') => {
                    while rest.next().is_some_and(|next| next != '\u{7}' && next != '\u{1b}') {}
                }
                _ => {
                    rest.next();
                }
            },
            _ => plain.push(one),
        }
    }
    let lines: Vec<&str> = plain
        .split('\n')
        .map(|line| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default())
        .collect();
    lines.join("\n")
}

/// The rows of a framed table as cells, the heading first. The weight of the frame's lines is the terminal's business
/// (the documents show light ones, a UTF-8 terminal gets a heavy heading), the cells are the product's.
pub fn table_cells(text: &str) -> Vec<Vec<String>> {
    plain_terminal(text)
        .lines()
        .map(|line| line.replace('┃', "│"))
        .filter_map(|line| {
            let inner = line.trim().strip_prefix('│')?.strip_suffix('│')?.to_owned();
            Some(inner.split('│').map(|cell| cell.trim().to_owned()).collect())
        })
        .collect()
}

/// A log as the documents show it: without the one line in which `--try-locally` owns up to pretended GPUs, which no
/// document can have.
pub fn without_pretence(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| !(line.starts_with("[runwhere] ") && line.contains("模拟运行")))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Template, plain_terminal, table_cells};

    #[test]
    fn only_placeholders_may_differ() {
        let template = Template("✓ 任务 {id} 已提交（BYOA）\n→ ¥{price}/hr");
        assert!(template.matches("✓ 任务 job-efa79e36 已提交（BYOA）  \n→ ¥36.44/hr\n"));
        for wrong in [
            "✓ 任务 job-efa79e3 已提交（BYOA）\n→ ¥36.44/hr",
            "✓ 任务 job-efa79e36 已提交\n→ ¥36.44/hr",
            "✓ 任务 job-efa79e36 已提交（BYOA）\n→ ¥36.4/hr",
            "✓ 任务 job-efa79e36 已提交（BYOA）\n→ ¥36.44/hr\nmore",
            "✓ 任务 job-efa79e36 已提交（BYOA）",
        ] {
            assert!(!template.matches(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_block_is_found_among_other_lines() {
        Template("two\nthree {count}").check_within("one\ntwo\nthree 33\nfour");
        assert!(std::panic::catch_unwind(|| Template("two\nfour").check_within("one\ntwo\nthree\nfour")).is_err());
    }

    #[test]
    fn a_terminal_is_read_as_shown() {
        assert_eq!(
            plain_terminal("\u{1b}[32m✓\u{1b}[0m done\r\nworking\rready\r\n"),
            "✓ done\nready\n"
        );
    }

    #[test]
    fn frames_do_not_matter() {
        let light = "┌────┬────┐\n│ 名 │ b  │\n├────┼────┤\n│ x  │ -  │\n└────┴────┘";
        let heavy = "┏━━━━┳━━━━┓\n┃ 名 ┃ b  ┃\n┡━━━━╇━━━━┩\n│ x  │ -  │\n└────┴────┘";
        assert_eq!(table_cells(light), table_cells(heavy));
        assert_eq!(table_cells(light), [["名", "b"], ["x", "-"]]);
    }
}
