//! What a task starts.

use serde::{Deserialize, Serialize};

use super::file::{TaskFile, TaskKind};

/// `environment.command` as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// A line (or a script) for the shell.
    Shell(String),
    /// A program and its arguments; boundaries are kept, no shell is involved.
    Argv(Vec<String>),
}

impl Command {
    /// The command in one line, for tables and explanations.
    pub fn summary(&self) -> String {
        match self {
            Self::Shell(line) => line.trim().to_owned(),
            Self::Argv(argv) => argv.join(" "),
        }
    }
}

/// What a Training runs when its file says nothing.
pub(super) const DEFAULT_TRAINING: [&str; 2] = ["python", "main.py"];

impl TaskFile {
    /// The program to start and its arguments. `None` for an Inference or Notebook without a command: the image's
    /// own entry point runs, with `environment.args` as its arguments.
    ///
    /// * A list is taken as it is, `args` follow.
    /// * A string goes to the shell: `/bin/sh -c <string>`. With `args`, ` "$@"` is appended to the string and they
    ///   follow as positional parameters after `$0` = `sh`. So the last simple command of the line gets every
    ///   argument exactly as written, whatever blanks or quotes it holds. Strings where this would not be so (several
    ///   lines, a trailing comment or operator) are refused together with `args` when the file is read.
    /// * A Training without a command runs `python main.py`, `args` follow.
    pub fn argv(&self) -> Option<Vec<String>> {
        let args = &self.environment.args;
        let mut argv = match &self.environment.command {
            Some(Command::Argv(argv)) => argv.clone(),
            Some(Command::Shell(line)) => {
                let shell =
                    |line: &str| vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()];
                if args.is_empty() {
                    shell(line)
                } else {
                    let mut argv = shell(&format!("{} \"$@\"", line.trim_end()));
                    argv.push("sh".to_owned());
                    argv
                }
            }
            None if self.kind.value == TaskKind::Training => {
                DEFAULT_TRAINING.map(str::to_owned).to_vec()
            }
            None => return None,
        };
        argv.extend(args.iter().cloned());
        Some(argv)
    }
}

/// Whether words appended to the shell line `line` become arguments of its last command.
pub(super) fn takes_arguments(line: &str) -> bool {
    let mut chars = line.trim().chars();
    let mut last = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\n' => return false,
            '\\' => {
                // An escaped character is part of a word; a line that ends with a backslash goes on.
                if chars.next().is_none_or(|escaped| escaped == '\n') {
                    return false;
                }
                last = 'w';
            }
            '\'' => {
                if !chars.any(|c| c == '\'') {
                    return false;
                }
                last = 'w';
            }
            '"' => {
                loop {
                    match chars.next() {
                        None => return false,
                        Some('\\') => {
                            chars.next();
                        }
                        Some('"') => break,
                        Some(_) => {}
                    }
                }
                last = 'w';
            }
            '#' if is_break(last) => return false,
            _ => last = c,
        }
    }
    !matches!(last, ';' | '&' | '|' | '<' | '>' | '(' | ')' | '{' | '}')
}

fn is_break(c: char) -> bool {
    c.is_whitespace() || matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

#[cfg(test)]
mod tests {
    use super::takes_arguments;

    #[test]
    fn arguments_reach_the_last_command_or_are_refused() {
        for line in [
            "python train.py",
            "  cd src && python train.py  \n",
            "python train.py --tag 'a # b'",
            "echo \"it's\"",
            "echo a#b",
            r"echo \#",
            "echo \"a\\\"b\"",
            "python -c 'print(1)\nprint(2)'",
        ] {
            assert!(takes_arguments(line), "{line}");
        }
        for line in [
            "set -e\npython train.py",
            "python train.py # the best",
            "#",
            "python train.py &",
            "python train.py ;",
            "python train.py |",
            "(python train.py)",
            "{ python train.py; }",
            "echo 'open",
            "echo \"open",
            r"echo \",
            "echo a \\\nb",
        ] {
            assert!(!takes_arguments(line), "{line}");
        }
    }
}
